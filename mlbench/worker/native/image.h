/* One encoded image in, one normalised square of pixels out. See decode.c (JPEG) and resample.c (pixels). */
#ifndef MLBENCH_IMAGE_H
#define MLBENCH_IMAGE_H

#include <stddef.h>
#include <stdint.h>

enum image_status {
    IMAGE_OK = 0,
    IMAGE_OTHER_FORMAT = 1, /* not JPEG: the caller decodes it and hands over its pixels */
    IMAGE_BROKEN = 2,       /* the JPEG cannot be decoded */
    IMAGE_RECORD = 3,       /* the record breaks the RecordIO format */
    IMAGE_TOO_LARGE = 4,    /* more pixels than the limit */
    IMAGE_READ = 5,         /* the file cannot be read */
    IMAGE_NO_MEMORY = 6
};

enum { MESSAGE_BYTES = 200 };

/* How every image of a batch is treated. The same layout stands in library.py. */
struct spec {
    int32_t px;                  /* side of the output, pixels */
    int32_t resize_px;           /* shorter side before the centre crop, pixels */
    int32_t random_resized_crop; /* 0: resize and centre crop */
    int32_t max_shift;           /* of the centre crop, pixels, each way */
    int32_t mirror;              /* 1: mirrored with probability one half */
    int32_t channels_last;       /* 1: height, width, channel; 0: channel, height, width */
    double area_min, area_max;     /* share of the image */
    double aspect_min, aspect_max; /* width / height */
    float mean[3], std[3];         /* of pixel values 0..255, red, green, blue */
    int64_t max_pixels;            /* limit of one image */
    uint64_t key;                  /* of seed and epoch */
};

/* One image of a batch: bytes in memory (`data`), or a RecordIO record of a file (`data` null). */
struct item {
    const uint8_t *data; /* encoded image */
    uint64_t size;       /* of `data`, or of the whole record in the file */
    uint64_t offset;     /* of the record's head */
    uint64_t number;     /* of the record in its set: with the key it decides the crop */
    int32_t fd;
    int32_t status; /* out: enum image_status */
    float label;    /* out, records only */
    int32_t num_warnings; /* out: damage that libjpeg mended */
    char message[MESSAGE_BYTES]; /* out */
};

/* Where the output samples the source: output column i has its centre at x0 + (i + 0.5) * step_x, in source pixels.
   Beyond the image its border is repeated. */
struct placement {
    double x0, y0, step_x, step_y;
    int mirrored;
};

struct resampler;
struct resampler *resampler_new(void);
void resampler_free(struct resampler *self);

/* Begin an output of `place` from a source of width x height RGBX pixels; 0, or IMAGE_NO_MEMORY. */
int resampler_begin(struct resampler *self, const struct spec *spec, const struct placement *place, int width,
                    int height, float *out);
/* Source region that is needed: columns [x, end_x), rows [y, end_y). */
void resampler_region(const struct resampler *self, int *x, int *end_x, int *y, int *end_y);
/* Where source row `row` goes; `pixels_before` columns stand left of the region's first in every row given, and a row
   has `row_pixels`. Rows are given in order. Null: no memory. */
uint8_t *resampler_row(struct resampler *self, int row);
int resampler_set_rows(struct resampler *self, int pixels_before, int row_pixels);
/* Rows up to `end_row` (not included) are filled: write every output row that they complete. */
void resampler_advance(struct resampler *self, int end_row);

void place_image(const struct spec *spec, uint64_t number, int width, int height, struct placement *place);

struct decoder;
struct decoder *decoder_new(void);
void decoder_free(struct decoder *self);
int decode_jpeg(struct decoder *self, struct resampler *resampler, const struct spec *spec, struct item *item,
                const uint8_t *data, size_t size, float *out);
/* Read a whole JPEG: the status, and in `result` message and num_warnings. */
int check_jpeg(struct decoder *self, const uint8_t *data, size_t size, int64_t max_pixels, struct item *result);
size_t output_floats(const struct spec *spec);

enum { RECORD_HEAD = 8 }; /* bytes of a record before its payload */

/* Bytes of the record that begins with `head`, padding included; 0 when it is not one in a single part. */
size_t whole_record_size(const uint8_t *head);

/* Find the image in a record of `size` bytes (joined in place where it was split). */
int parse_record(uint8_t *record, size_t size, struct item *item, const uint8_t **image, size_t *image_size);

#endif
