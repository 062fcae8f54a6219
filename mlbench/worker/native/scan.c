/* The markers of a baseline JPEG, and which bytes between them are codes. What is read here is the plain kind, one scan
   of all components, as cameras and encoders write nearly all files. Anything else, and anything odd, is left to
   libjpeg: this must never call a file sound that libjpeg complains of. Codes that are none are told from odd ones,
   for libjpeg's fast decoder passes over them in silence. The format is that of ITU T.81, annex B. */
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

/* The scan of one image. */
struct scan {
    struct header header;
    const uint8_t *data;
    size_t size, at;
    struct unit unit;
    struct table *taken[2 * MAX_COMPONENTS];
    int num_taken;
    uint64_t units_left; /* behind those of the lane */
    int restart;         /* number of the next restart marker */
    uint8_t *codes; /* of the scan or of what lies between two restart markers, without stuffing */
    size_t codes_held;
    struct lane lane;
};

enum { NUM_LANES = 2 };

struct scanner {
    struct tables tables;
    struct scan scans[NUM_LANES];
};

struct scanner *scanner_new(void) {
    return calloc(1, sizeof(struct scanner));
}

void scanner_free(struct scanner *self) {
    if (!self)
        return;
    tables_free(&self->tables);
    for (int i = 0; i < NUM_LANES; i++)
        free(self->scans[i].codes);
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

static struct table *take(struct scan *scan, struct tables *tables, enum table_kind kind, int slot) {
    if (slot >= NUM_TABLES)
        return NULL;
    struct table *table = table_take(tables, kind, &scan->header.definitions[kind][slot], scan->size - scan->at);
    if (table)
        scan->taken[scan->num_taken++] = table;
    return table;
}

static void leave_tables(struct scan *scan) {
    while (scan->num_taken)
        table_leave(scan->taken[--scan->num_taken]);
}

/* The start of a scan: the tables of its blocks. */
static int read_unit(struct scan *scan, struct tables *tables, const uint8_t *body, size_t size) {
    const struct header *header = &scan->header;
    struct unit *unit = &scan->unit;
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
        if (said[0] != component->id || component->quantiser >= NUM_TABLES ||
            !(header->quantisers >> component->quantiser & 1))
            return 0;
        const struct table *dc = take(scan, tables, TABLE_DC, said[1] >> 4);
        const struct table *ac = take(scan, tables, TABLE_AC, said[1] & 15);
        if (!dc || !ac)
            return 0;
        const int blocks = count == 1 ? 1 : component->across * component->down;
        for (int block = 0; block < blocks; block++) {
            if (unit->num_blocks == MAX_BLOCKS)
                return 0;
            unit->dc[unit->num_blocks] = dc;
            unit->ac[unit->num_blocks++] = ac;
        }
    }
    return 1;
}

static uint64_t num_units(const struct header *header) {
    const int across = header->num_components == 1 ? 8 : 8 * header->max_across;
    const int down = header->num_components == 1 ? 8 : 8 * header->max_down;
    return (uint64_t)((header->width + across - 1) / across) * (uint64_t)((header->height + down - 1) / down);
}

static int hold(struct scan *scan, size_t size) {
    if (scan->codes_held >= size)
        return 1;
    free(scan->codes);
    scan->codes = malloc(size);
    scan->codes_held = scan->codes ? size : 0;
    return scan->codes != NULL;
}

/* Copy codes without the zero that follows each 0xFF among them, up to the next marker. The marker; -1: none. */
static int next_codes(struct scan *scan, size_t *num_codes) {
    uint8_t *out = scan->codes;
    int marker = -1;
    const uint8_t *from = scan->data + scan->at, *end = scan->data + scan->size;
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
    *num_codes = (size_t)(out - scan->codes);
    scan->at = (size_t)(from - scan->data);
    return marker;
}

/* Put the codes up to the next marker into the lane. 0: it is not the marker that must come. */
static int begin_codes(struct scan *scan) {
    const uint64_t at_once = scan->header.restart_units ? (uint64_t)scan->header.restart_units : scan->units_left;
    const uint64_t count = scan->units_left < at_once ? scan->units_left : at_once;
    size_t num_codes;
    const int marker = next_codes(scan, &num_codes);
    scan->units_left -= count;
    if (marker != (scan->units_left ? RST0 + scan->restart : EOI))
        return 0;
    scan->restart = (scan->restart + 1) % 8;
    lane_begin(&scan->lane, &scan->unit, scan->codes, num_codes, count);
    return 1;
}

/* Read an image up to its codes. 0: it is not of the plain kind. */
static int begin_scan(struct scan *scan, struct tables *tables, const struct image *image, int64_t max_pixels) {
    const uint8_t *data = image->data;
    const size_t size = image->size;
    memset(&scan->header, 0, sizeof scan->header);
    scan->header.adobe_transform = -1;
    scan->data = data;
    scan->size = size;
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
        scan->at = at += 4 + (size_t)length;
        if (marker == SOS) {
            if (!read_unit(scan, tables, body, (size_t)length) || !hold(scan, size - at + CODES_PADDING))
                return 0;
            scan->units_left = num_units(&scan->header);
            scan->restart = 0;
            return begin_codes(scan);
        }
        if (!read_segment(&scan->header, marker, body, (size_t)length, max_pixels))
            return 0;
    }
    return 0;
}

/* After the lane has ended: go on behind a restart marker. 0: the image's verdict is there. */
static int goes_on(struct scan *scan, struct image *image) {
    if (scan->lane.status == LANE_SOUND && scan->units_left)
        return begin_codes(scan);
    image->verdict = scan->lane.status == LANE_SOUND     ? SCAN_SOUND
                     : scan->lane.status == LANE_DAMAGED ? SCAN_DAMAGED
                                                         : SCAN_UNKNOWN;
    return 0;
}

void scan_images(struct scanner *self, struct image *images, int count, int64_t max_pixels) {
    struct image *current[NUM_LANES] = {NULL, NULL};
    struct scan *scans = self->scans;
    for (int next = 0;;) {
        for (int i = 0; i < NUM_LANES; i++) {
            while (!current[i] && next < count) {
                struct image *image = images + next++;
                image->verdict = SCAN_UNKNOWN;
                if (begin_scan(scans + i, &self->tables, image, max_pixels))
                    current[i] = image;
                else
                    leave_tables(scans + i);
            }
        }
        if (!current[0] && !current[1])
            return;
        if (current[0] && current[1])
            lanes_run(&scans[0].lane, &scans[1].lane);
        else
            lane_run(&scans[current[0] ? 0 : 1].lane);
        for (int i = 0; i < NUM_LANES; i++)
            if (current[i] && scans[i].lane.status != LANE_RUNS && !goes_on(scans + i, current[i])) {
                leave_tables(scans + i);
                current[i] = NULL;
            }
    }
}
