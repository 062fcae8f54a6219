/* The markers of a baseline JPEG, and which bytes between them are codes. What is read here is the plain kind, one scan
   of all components, as cameras and encoders write nearly all files. Anything else, and anything odd, is left to libjpeg:
   this must never call a file sound that libjpeg complains of. The format is that of ITU T.81, annex B. */
#include "scan.h"

#include <stdlib.h>
#include <string.h>

enum {
    SOF0 = 0xC0, SOF1 = 0xC1, DHT = 0xC4, RST0 = 0xD0, EOI = 0xD9, SOS = 0xDA, DQT = 0xDB, DRI = 0xDD,
    APP0 = 0xE0, APP14 = 0xEE, APP15 = 0xEF, COM = 0xFE
};

enum { MAX_SIDE = 65500 /* libjpeg's own */, QUANTISERS = 64 };

struct component {
    uint8_t id, across, down, quantiser;
};

/* What the markers of one file said. */
struct header {
    struct component components[MAX_COMPONENTS];
    struct definition definitions[2][NUM_TABLES];
    int num_components; /* 0: no frame yet */
    int width, height, max_across, max_down;
    int restart_units; /* between restart markers; 0: none */
    int adobe_transform; /* -1: not said */
    unsigned quantisers; /* bit n: table n is there */
};

struct scanner {
    struct tables tables;
    struct header header;
    uint8_t *codes; /* of a scan or of what lies between two restart markers, without stuffing */
    size_t codes_held;
};

struct scanner *scanner_new(void) {
    return calloc(1, sizeof(struct scanner));
}

void scanner_free(struct scanner *self) {
    if (!self)
        return;
    tables_free(&self->tables);
    free(self->codes);
    free(self);
}

static int word_at(const uint8_t *bytes) {
    return bytes[0] << 8 | bytes[1];
}

static int read_frame(struct header *header, const uint8_t *body, size_t size, int64_t max_pixels) {
    if (header->num_components || size < 6 || body[0] != 8)
        return 0;
    header->height = word_at(body + 1);
    header->width = word_at(body + 3);
    const int count = body[5];
    if ((count != 1 && count != 3 && count != 4) || size != 6 + 3 * (size_t)count)
        return 0;
    if (header->width < 1 || header->width > MAX_SIDE || header->height < 1 || header->height > MAX_SIDE ||
        (int64_t)header->width * header->height > max_pixels)
        return 0;
    header->max_across = header->max_down = 1;
    for (int i = 0; i < count; i++) {
        const uint8_t *said = body + 6 + 3 * i;
        const struct component it = {said[0], said[1] >> 4, said[1] & 15, said[2]};
        for (int j = 0; j < i; j++)
            if (header->components[j].id == it.id)
                return 0;
        /* 3 is allowed too, but then libjpeg may not be able to scale one component to another */
        if ((it.across != 1 && it.across != 2 && it.across != 4) || (it.down != 1 && it.down != 2 && it.down != 4))
            return 0;
        header->max_across = it.across > header->max_across ? it.across : header->max_across;
        header->max_down = it.down > header->max_down ? it.down : header->max_down;
        header->components[i] = it;
    }
    header->num_components = count;
    return 1;
}

static int read_codes(struct header *header, const uint8_t *body, size_t size) {
    while (size > 0) {
        const int kind = body[0] >> 4, slot = body[0] & 15;
        if (size < 17 || kind > TABLE_AC || slot >= NUM_TABLES)
            return 0;
        struct definition *definition = &header->definitions[kind][slot];
        size_t count = 0;
        for (int n = 1; n <= 16; n++)
            count += definition->counts[n] = body[n];
        if (count > sizeof definition->symbols || count > size - 17)
            return 0;
        memcpy(definition->symbols, body + 17, count);
        definition->num_symbols = (int)count;
        body += 17 + count;
        size -= 17 + count;
    }
    return 1;
}

static int read_quantisers(struct header *header, const uint8_t *body, size_t size) {
    while (size > 0) {
        const int is_wide = body[0] >> 4, slot = body[0] & 15;
        const size_t needed = 1 + (size_t)QUANTISERS * (is_wide ? 2 : 1);
        if (is_wide > 1 || slot >= NUM_TABLES || size < needed)
            return 0;
        header->quantisers |= 1U << slot;
        body += needed;
        size -= needed;
    }
    return 1;
}

/* libjpeg warns of a JFIF version that it does not know, and of Adobe's colour transforms that it does not. */
static int read_application(struct header *header, int marker, const uint8_t *body, size_t size) {
    if (marker == APP0 && size >= 14 && !memcmp(body, "JFIF", 5))
        return body[5] == 1;
    if (marker == APP14 && size >= 12 && !memcmp(body, "Adobe", 5))
        header->adobe_transform = body[11];
    return 1;
}

static int read_segment(struct header *header, int marker, const uint8_t *body, size_t size, int64_t max_pixels) {
    if (marker >= APP0 && marker <= APP15)
        return read_application(header, marker, body, size);
    switch (marker) {
    case SOF0:
    case SOF1:
        return read_frame(header, body, size, max_pixels);
    case DHT:
        return read_codes(header, body, size);
    case DQT:
        return read_quantisers(header, body, size);
    case DRI:
        header->restart_units = size == 2 ? word_at(body) : -1;
        return size == 2;
    case COM:
        return 1;
    default:
        return 0;
    }
}

/* Colours that libjpeg knows what to do with, without a warning. */
static int has_known_colours(const struct header *header) {
    const int transform = header->adobe_transform;
    if (header->num_components == 3)
        return transform <= 1;
    return header->num_components == 1 || transform == -1 || transform == 0 || transform == 2;
}

/* The start of a scan: the tables of its blocks. */
static int read_unit(struct scanner *self, const uint8_t *body, size_t size, size_t scan_bytes, struct unit *unit) {
    struct header *header = &self->header;
    const int count = header->num_components;
    if (!count || size != 4 + 2 * (size_t)count || body[0] != count || !has_known_colours(header))
        return 0;
    const uint8_t *behind = body + 1 + 2 * count;
    if (behind[0] != 0 || behind[1] != 63 || behind[2] != 0)
        return 0;
    unit->num_blocks = 0;
    for (int i = 0; i < count; i++) {
        const struct component *component = header->components + i;
        const uint8_t *said = body + 1 + 2 * i;
        const int dc = said[1] >> 4, ac = said[1] & 15;
        if (said[0] != component->id || dc >= NUM_TABLES || ac >= NUM_TABLES || component->quantiser >= NUM_TABLES ||
            !(header->quantisers >> component->quantiser & 1))
            return 0;
        const struct table *dc_table = table_of(&self->tables, TABLE_DC, dc, &header->definitions[TABLE_DC][dc], 0);
        const struct table *ac_table =
            table_of(&self->tables, TABLE_AC, ac, &header->definitions[TABLE_AC][ac], scan_bytes);
        if (!dc_table || !ac_table)
            return 0;
        const int blocks = count == 1 ? 1 : component->across * component->down;
        for (int block = 0; block < blocks; block++) {
            if (unit->num_blocks == MAX_BLOCKS)
                return 0;
            unit->dc[unit->num_blocks] = dc_table;
            unit->ac[unit->num_blocks++] = ac_table;
        }
    }
    return 1;
}

static uint64_t num_units(const struct header *header) {
    const int across = header->num_components == 1 ? 8 : 8 * header->max_across;
    const int down = header->num_components == 1 ? 8 : 8 * header->max_down;
    return (uint64_t)((header->width + across - 1) / across) * (uint64_t)((header->height + down - 1) / down);
}

/* Copy codes without the zero that follows each 0xFF among them, up to the next marker. The marker (-1: none) and, in
   `at`, the place behind it. */
static int next_codes(struct scanner *self, const uint8_t *data, size_t size, size_t *at, size_t *num_codes) {
    uint8_t *out = self->codes;
    int marker = -1;
    const uint8_t *from = data + *at, *end = data + size;
    while (from < end) {
        const uint8_t *found = memchr(from, 0xFF, (size_t)(end - from));
        if (!found || found + 1 == end)
            break;
        const size_t length = (size_t)(found + (found[1] == 0) - from);
        memcpy(out, from, length);
        out += length;
        from = found + 2;
        if (found[1]) {
            marker = found[1];
            break;
        }
    }
    memset(out, 0, CODES_PADDING);
    *num_codes = (size_t)(out - self->codes);
    *at = (size_t)(from - data);
    return marker;
}

static int scan_codes(struct scanner *self, const struct unit *unit, const uint8_t *data, size_t size, size_t at) {
    uint64_t left = num_units(&self->header);
    const uint64_t at_once = self->header.restart_units ? (uint64_t)self->header.restart_units : left;
    for (int restart = 0;; restart = (restart + 1) % 8) {
        size_t num_codes;
        const int marker = next_codes(self, data, size, &at, &num_codes);
        const uint64_t count = left < at_once ? left : at_once;
        left -= count;
        if (marker != (left ? RST0 + restart : EOI) || !units_are_sound(unit, self->codes, num_codes, count))
            return 0;
        if (!left)
            return 1;
    }
}

static int hold(struct scanner *self, size_t size) {
    if (self->codes_held >= size)
        return 1;
    free(self->codes);
    self->codes = malloc(size);
    self->codes_held = self->codes ? size : 0;
    return self->codes != NULL;
}

int scan_is_sound(struct scanner *self, const uint8_t *data, size_t size, int64_t max_pixels) {
    struct header *header = &self->header;
    memset(header, 0, sizeof *header);
    header->adobe_transform = -1;
    if (size < 2 || data[0] != 0xFF || data[1] != 0xD8)
        return 0;
    size_t at = 2;
    while (size - at >= 4) {
        if (data[at] != 0xFF)
            return 0;
        const int marker = data[at + 1];
        if (marker == 0xFF) { /* any number of them may stand before a marker */
            at++;
            continue;
        }
        const uint8_t *body = data + at + 4;
        const int length = word_at(data + at + 2) - 2;
        if (length < 0 || (size_t)length > size - at - 4)
            return 0;
        at += 4 + (size_t)length;
        if (marker == SOS) {
            struct unit unit;
            return read_unit(self, body, (size_t)length, size - at, &unit) && hold(self, size - at + CODES_PADDING) &&
                   scan_codes(self, &unit, data, size, at);
        }
        if (!read_segment(header, marker, body, (size_t)length, max_pixels))
            return 0;
    }
    return 0;
}
