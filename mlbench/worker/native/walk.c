/* Records of a file one after the other, in large reads: whole frames, image headers and sound JPEGs are passed here;
   the walk stops before anything else, and Python judges that one record and says what is wrong with it. */
#define _FILE_OFFSET_BITS 64
#define _GNU_SOURCE
#include "image.h"
#include "scan.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { BLOCK = 1 << 20, READ_AHEAD = 4 << 20, AT_ONCE = 64 };

/* A record whose frame and image header are in order. */
struct record {
    uint64_t behind; /* offset of the next */
    float label;
};

struct walker {
    struct decoder *decoder;
    struct scanner *scanner;
    uint8_t *block; /* `have` bytes of the file from `block_at` on */
    size_t block_held, have;
    uint64_t block_at, file_size;
    int64_t max_pixels;
    int fd, decodes;
    struct record records[AT_ONCE]; /* gathered; the next is number `next` of `count` and begins at `next_at` */
    struct image images[AT_ONCE];
    int count, next;
    uint64_t next_at;
};

/* Where a walk came to. The same layout stands in library.py. */
struct walk {
    uint64_t behind;      /* the last sound record, or where the walk began */
    uint64_t image_bytes; /* of the sound records */
    int32_t num_records;
    int32_t num_scanned; /* of them found sound without libjpeg */
    int32_t is_odd;      /* 1: the record at `behind` is not plainly sound */
    int32_t is_damaged;  /* 1: it is a JPEG, and some of its codes are none */
};

EXPORT void mlbench_walker_close(struct walker *self) {
    if (!self)
        return;
    decoder_free(self->decoder);
    scanner_free(self->scanner);
    free(self->block);
    free(self);
}

/* Walks records of `fd`, which stays the caller's. `decodes` 0: frames and headers only. Null: no memory, no file. */
EXPORT struct walker *mlbench_walker_open(int fd, int decodes, int64_t max_pixels) {
    struct walker *self = calloc(1, sizeof *self);
    if (!self)
        return NULL;
    struct stat file;
    self->fd = fd;
    self->decodes = decodes;
    self->max_pixels = max_pixels;
    self->decoder = decoder_new();
    self->scanner = scanner_new();
    self->block = malloc(BLOCK);
    self->block_held = BLOCK;
    if (self->decoder && self->scanner && self->block && fstat(fd, &file) == 0) {
        self->file_size = (uint64_t)file.st_size;
        return self;
    }
    mlbench_walker_close(self);
    return NULL;
}

/* Room for `size` bytes; what is in the block stays. */
static int hold(struct walker *self, size_t size) {
    if (size <= self->block_held)
        return 1;
    uint8_t *larger = realloc(self->block, size);
    if (!larger)
        return 0;
    self->block = larger;
    self->block_held = size;
    return 1;
}

/* Fill the block from offset `at` on, at least `needed` bytes of it. The disk is asked for what follows, so that it
   works while images are read. 0: the file is shorter, cannot be read, or there is no memory. */
static int fill(struct walker *self, uint64_t at, uint64_t end, size_t needed) {
    if (!hold(self, needed))
        return 0;
    if (at >= self->block_at && at - self->block_at < self->have) {
        self->have -= (size_t)(at - self->block_at);
        memmove(self->block, self->block + (at - self->block_at), self->have);
    } else
        self->have = 0;
    self->block_at = at;
    size_t wanted = needed > BLOCK ? needed : BLOCK;
    if (end > at && wanted > end - at) /* beyond it others read */
        wanted = needed > end - at ? needed : (size_t)(end - at);
    while (self->have < wanted) {
        const ssize_t got = pread(self->fd, self->block + self->have, wanted - self->have, (off_t)(at + self->have));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        self->have += (size_t)got;
    }
#ifdef POSIX_FADV_WILLNEED
    const uint64_t next = at + self->have, left = next < end ? end - next : 0;
    if (left)
        posix_fadvise(self->fd, (off_t)next, (off_t)(left < READ_AHEAD ? left : READ_AHEAD), POSIX_FADV_WILLNEED);
#endif
    return self->have >= needed;
}

/* Records from offset `at` on that lie in the block; it is filled anew when the first does not. */
static void gather(struct walker *self, uint64_t at, uint64_t end) {
    self->next_at = at;
    self->count = self->next = 0;
    while (self->count < AT_ONCE && at < end && self->file_size - at >= RECORD_HEAD) {
        const size_t from = (size_t)(at - self->block_at);
        size_t size = RECORD_HEAD;
        int is_there = at >= self->block_at && at - self->block_at + RECORD_HEAD <= self->have;
        if (is_there) {
            size = whole_record_size(self->block + from);
            if (!size || size > self->file_size - at)
                break;
            is_there = self->have - from >= size;
        }
        if (!is_there) {
            if (self->count || !fill(self, at, end, size)) /* those gathered are looked at first: a fill moves them */
                break;
            continue;
        }
        struct record *record = self->records + self->count;
        struct image *image = self->images + self->count;
        struct item item;
        if (parse_record(self->block + from, size, &item, &image->data, &image->size))
            break;
        at += size;
        record->behind = at;
        record->label = item.label;
        self->count++;
    }
    if (self->decodes)
        scan_images(self->scanner, self->images, self->count, self->max_pixels);
}

/* What the scan was not certain of is read by libjpeg. */
static int is_sound(struct walker *self, const struct image *image) {
    if (!self->decodes || image->verdict == SCAN_SOUND)
        return 1;
    if (image->verdict == SCAN_DAMAGED)
        return 0;
    struct item result;
    return check_jpeg(self->decoder, image->data, image->size, self->max_pixels, &result) == IMAGE_OK &&
           result.num_warnings == 0;
}

/* Pass sound records from offset `from` on, those that begin before `end`, `max` at most; their offsets and labels.
   `end` is the same in all calls. */
EXPORT void mlbench_walk(struct walker *self, uint64_t from, uint64_t end, int max, uint64_t *offsets, float *labels,
                         struct walk *walk) {
    memset(walk, 0, sizeof *walk);
    walk->behind = from;
    if (end > self->file_size)
        end = self->file_size;
    while (walk->num_records < max && walk->behind < end) {
        if (self->next == self->count || self->next_at != walk->behind)
            gather(self, walk->behind, end);
        if (self->count == 0) {
            walk->is_odd = 1;
            return;
        }
        const struct record *record = self->records + self->next;
        const struct image *image = self->images + self->next++;
        self->next_at = record->behind;
        if (!is_sound(self, image)) {
            walk->is_odd = 1;
            walk->is_damaged = image->verdict == SCAN_DAMAGED;
            return;
        }
        offsets[walk->num_records] = walk->behind;
        labels[walk->num_records++] = record->label;
        walk->num_scanned += self->decodes && image->verdict == SCAN_SOUND;
        walk->image_bytes += image->size;
        walk->behind = record->behind;
    }
}
