/* The image in a RecordIO record; the format is described in recordio.py. */
#include "image.h"

#include <stdio.h>
#include <string.h>

static const uint32_t MAGIC = UINT32_C(0xCED7230A);
enum { WHOLE = 0, FIRST = 1, MIDDLE = 2, LAST = 3, HEAD = RECORD_HEAD, IMAGE_HEAD = 24, MAX_LABELS = 1 << 16 };

static uint32_t word_at(const uint8_t *bytes) {
    uint32_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

static int fault(struct item *item, const char *reason) {
    snprintf(item->message, MESSAGE_BYTES, "%s", reason);
    return IMAGE_RECORD;
}

size_t whole_record_size(const uint8_t *head) {
    const uint32_t word = word_at(head + 4);
    return word_at(head) == MAGIC && word >> 29 == WHOLE ? HEAD + ((size_t)word + 3) / 4 * 4 : 0;
}

int parse_record(uint8_t *record, size_t size, struct item *item, const uint8_t **image, size_t *image_size) {
    size_t at = 0, joined = HEAD; /* the payload is joined behind the first head */
    uint32_t part = WHOLE;
    do {
        if (size - at < HEAD)
            return fault(item, "record cut short");
        if (word_at(record + at) != MAGIC) {
            snprintf(item->message, MESSAGE_BYTES, "bad magic 0x%08x, expected 0x%08x", word_at(record + at), MAGIC);
            return IMAGE_RECORD;
        }
        const uint32_t word = word_at(record + at + 4);
        const size_t length = word & 0x1FFFFFFF;
        part = word >> 29;
        if ((part == WHOLE || part == FIRST) != (at == 0) || part > LAST)
            return fault(item, "part of a record where another was expected");
        at += HEAD;
        if (length > size - at)
            return fault(item, "record cut short");
        if (part == MIDDLE || part == LAST) {
            memcpy(record + joined, &MAGIC, sizeof MAGIC);
            joined += sizeof MAGIC;
        }
        if (joined != at)
            memmove(record + joined, record + at, length);
        joined += length;
        at += (length + 3) / 4 * 4;
        if (at > size)
            at = size;
    } while (part == FIRST || part == MIDDLE);

    const uint8_t *payload = record + HEAD;
    const size_t payload_size = joined - HEAD;
    if (payload_size < IMAGE_HEAD)
        return fault(item, "image header cut short");
    const uint32_t num_labels = word_at(payload);
    const size_t image_at = IMAGE_HEAD + (size_t)num_labels * 4;
    if (num_labels > MAX_LABELS || image_at > payload_size)
        return fault(item, "image header names more labels than the record holds");
    memcpy(&item->label, payload + (num_labels ? IMAGE_HEAD : 4), sizeof item->label);
    *image = payload + image_at;
    *image_size = payload_size - image_at;
    return IMAGE_OK;
}
