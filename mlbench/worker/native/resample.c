/* Antialiased bilinear resize of RGBX rows as they are decoded, with mirror, normalisation and layout in one pass.

   The filter is Pillow's BILINEAR: a triangle whose half width is one output pixel when shrinking and one source pixel
   when enlarging (python-pillow/Pillow src/libImaging/Resample.c). Columns are summed first, into one line of floats;
   the rows of that line then give an output row. A pixel is four bytes, so four floats fill one vector register. */
#include "image.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One build runs everywhere and uses AVX2 where the processor has it. */
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__) && !defined(NO_CLONES)
#define FAST __attribute__((target_clones("arch=haswell", "default")))
#else
#define FAST
#endif

typedef float float4 __attribute__((vector_size(16)));

enum { PIXEL = 4, ROWS_AHEAD = 16 };

/* Weights of one direction: output i sums sources [first[i], first[i] + count[i]) with weights[i * taps ...]. */
struct filter {
    int taps;
    int *first, *count;
    float *weights;
    size_t outputs_held, weights_held;
};

struct resampler {
    struct filter x, y;
    const struct spec *spec;
    int mirrored;
    float *out;
    int x_from, x_end, y_from, y_end; /* region of the source */
    int next_out;                     /* output row to write next */
    int pixels_before, row_pixels, ring_rows;
    uint8_t *ring;
    float *line;
    size_t ring_held, line_held;
};

struct resampler *resampler_new(void) {
    return calloc(1, sizeof(struct resampler));
}

static void filter_release(struct filter *filter) {
    free(filter->first);
    free(filter->count);
    free(filter->weights);
}

void resampler_free(struct resampler *self) {
    if (!self)
        return;
    filter_release(&self->x);
    filter_release(&self->y);
    free(self->ring);
    free(self->line);
    free(self);
}

/* `*memory` with room for `bytes`, its content lost; 0 when there is none. */
static int hold(void **memory, size_t *held, size_t bytes) {
    if (*held >= bytes)
        return 1;
    free(*memory);
    *held = 0;
    *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!*memory)
        return 0;
    *held = bytes;
    return 1;
}

static int filter_hold(struct filter *filter, int outputs, int taps) {
    size_t counts_held = filter->outputs_held;
    size_t count_bytes = (size_t)outputs * sizeof(int);
    if (!hold((void **)&filter->first, &filter->outputs_held, count_bytes) ||
        !hold((void **)&filter->count, &counts_held, count_bytes) ||
        !hold((void **)&filter->weights, &filter->weights_held, (size_t)outputs * taps * sizeof(float))) {
        filter->outputs_held = 0;
        return 0;
    }
    filter->taps = taps;
    return 1;
}

static int filter_fill(struct filter *filter, double start, double step, int outputs, int size) {
    const double support = step > 1 ? step : 1;
    const int taps = 2 * (int)ceil(support) + 1;
    if (!filter_hold(filter, outputs, taps))
        return 0;
    for (int i = 0; i < outputs; i++) {
        const double centre = start + (i + 0.5) * step;
        int from = (int)floor(centre - support + 0.5), end = (int)floor(centre + support + 0.5);
        from = from < 0 ? 0 : from > size - 1 ? size - 1 : from;
        end = end > size ? size : end <= from ? from + 1 : end;
        float *weights = filter->weights + (size_t)i * taps;
        double sum = 0;
        int count = end - from;
        if (count > taps)
            count = taps;
        for (int k = 0; k < count; k++) {
            const double distance = fabs((from + k - centre + 0.5) / support);
            weights[k] = distance < 1 ? (float)(1 - distance) : 0.0f;
            sum += weights[k];
        }
        if (sum <= 0) { /* beyond the border, which is repeated */
            weights[0] = 1;
            sum = count = 1;
        }
        for (int k = 0; k < count; k++)
            weights[k] = (float)(weights[k] / sum);
        while (count > 1 && weights[count - 1] == 0)
            count--;
        for (int k = count; k < taps; k++)
            weights[k] = 0;
        filter->first[i] = from;
        filter->count[i] = count;
    }
    return 1;
}

size_t output_floats(const struct spec *spec) {
    return (size_t)spec->px * spec->px * 3;
}

int resampler_begin(struct resampler *self, const struct spec *spec, const struct placement *place, int width,
                    int height, float *out) {
    self->spec = spec;
    self->mirrored = place->mirrored;
    self->out = out;
    self->next_out = 0;
    if (!filter_fill(&self->x, place->x0, place->step_x, spec->px, width) ||
        !filter_fill(&self->y, place->y0, place->step_y, spec->px, height))
        return IMAGE_NO_MEMORY;
    self->x_from = self->x.first[0];
    self->x_end = self->x.first[spec->px - 1] + self->x.count[spec->px - 1];
    self->y_from = self->y.first[0];
    self->y_end = self->y.first[spec->px - 1] + self->y.count[spec->px - 1];
    return IMAGE_OK;
}

void resampler_region(const struct resampler *self, int *x, int *end_x, int *y, int *end_y) {
    *x = self->x_from;
    *end_x = self->x_end;
    *y = self->y_from;
    *end_y = self->y_end;
}

int resampler_set_rows(struct resampler *self, int pixels_before, int row_pixels) {
    self->pixels_before = pixels_before;
    self->row_pixels = row_pixels;
    self->ring_rows = self->y.taps + 1 + ROWS_AHEAD;
    if (!hold((void **)&self->ring, &self->ring_held, (size_t)self->ring_rows * row_pixels * PIXEL) ||
        !hold((void **)&self->line, &self->line_held, (size_t)row_pixels * PIXEL * sizeof(float)))
        return IMAGE_NO_MEMORY;
    return IMAGE_OK;
}

uint8_t *resampler_row(struct resampler *self, int row) {
    return self->ring + (size_t)(row % self->ring_rows) * self->row_pixels * PIXEL;
}

/* line = sum over rows of weight x row, `count` bytes wide. */
FAST static void sum_rows(float *restrict line, const uint8_t *const *rows, const float *weights, int taps, int count) {
    if (taps == 1) {
        const uint8_t *restrict a = rows[0];
        for (int i = 0; i < count; i++)
            line[i] = weights[0] * a[i];
        return;
    }
    if (taps == 2) {
        const uint8_t *restrict a = rows[0], *restrict b = rows[1];
        const float wa = weights[0], wb = weights[1];
        for (int i = 0; i < count; i++)
            line[i] = wa * a[i] + wb * b[i];
        return;
    }
    const uint8_t *restrict a = rows[0], *restrict b = rows[1], *restrict c = rows[2];
    const float wa = weights[0], wb = weights[1], wc = weights[2];
    for (int i = 0; i < count; i++)
        line[i] = wa * a[i] + wb * b[i] + wc * c[i];
    for (int k = 3; k < taps; k++) {
        const uint8_t *restrict row = rows[k];
        const float weight = weights[k];
        for (int i = 0; i < count; i++)
            line[i] += weight * row[i];
    }
}

/* One output row from the line: columns resampled, normalised, written. */
FAST static void write_row(const struct resampler *self, int out_row) {
    const struct spec *spec = self->spec;
    const struct filter *x = &self->x;
    const float *line = self->line;
    const int px = spec->px, shift = self->x_from;
    const float4 scale = {1 / spec->std[0], 1 / spec->std[1], 1 / spec->std[2], 0};
    const float4 minus = {-spec->mean[0] / spec->std[0], -spec->mean[1] / spec->std[1],
                          -spec->mean[2] / spec->std[2], 0};
    const size_t plane = (size_t)px * px;
    float *out = self->out + (size_t)out_row * px * (spec->channels_last ? 3 : 1);
    const size_t pixel_step = spec->channels_last ? 3 : 1, channel_step = spec->channels_last ? 1 : plane;
    for (int i = 0; i < px; i++) {
        const float *source = line + (size_t)(x->first[i] - shift) * PIXEL;
        const float *weights = x->weights + (size_t)i * x->taps;
        float4 sum = {0, 0, 0, 0};
        for (int k = 0; k < x->count[i]; k++) {
            float4 pixel;
            memcpy(&pixel, source + k * PIXEL, sizeof pixel);
            sum += pixel * weights[k];
        }
        sum = sum * scale + minus;
        float *target = out + (self->mirrored ? px - 1 - i : i) * pixel_step;
        target[0] = sum[0];
        target[channel_step] = sum[1];
        target[2 * channel_step] = sum[2];
    }
}

void resampler_advance(struct resampler *self, int end_row) {
    const struct filter *y = &self->y;
    const uint8_t *rows[y->taps];
    while (self->next_out < self->spec->px) {
        const int first = y->first[self->next_out], count = y->count[self->next_out];
        if (first + count > end_row)
            return;
        for (int k = 0; k < count; k++)
            rows[k] = resampler_row(self, first + k) + (size_t)self->pixels_before * PIXEL;
        sum_rows(self->line, rows, y->weights + (size_t)self->next_out * y->taps, count,
                 (self->x_end - self->x_from) * PIXEL);
        write_row(self, self->next_out);
        self->next_out++;
    }
}
