/* Which part of an image the output shows: random-resized crop, or resize with a (shifted) centre crop.
   pipelines/geometry.py holds the same arithmetic for images that take the slow path; a test compares the two. */
#include "image.h"

#include <math.h>

enum { CROP_ATTEMPTS = 10 };

/* splitmix64, Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014). */
static uint64_t next_random(uint64_t *state) {
    uint64_t z = (*state += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static double next_uniform(uint64_t *state) {
    return (double)(next_random(state) >> 11) * 0x1.0p-53;
}

static double between(uint64_t *state, double low, double high) {
    return low + (high - low) * next_uniform(state);
}

static int whole_below(uint64_t *state, int count) {
    return (int)(next_uniform(state) * count);
}

/* The crop of Szegedy et al., "Going deeper with convolutions" (2015): area and aspect ratio at random. */
static void random_box(const struct spec *spec, uint64_t *state, int width, int height, int box[4]) {
    const double log_min = log(spec->aspect_min), log_max = log(spec->aspect_max);
    for (int attempt = 0; attempt < CROP_ATTEMPTS; attempt++) {
        const double area = between(state, spec->area_min, spec->area_max) * width * height;
        const double aspect = exp(between(state, log_min, log_max));
        const int w = (int)(sqrt(area * aspect) + 0.5);
        const int h = (int)(sqrt(area / aspect) + 0.5);
        if (w >= 1 && h >= 1 && w <= width && h <= height) {
            box[0] = whole_below(state, width - w + 1);
            box[1] = whole_below(state, height - h + 1);
            box[2] = w;
            box[3] = h;
            return;
        }
    }
    /* Too long or too high an image: its middle, at the nearest aspect ratio allowed. */
    const double aspect = (double)width / height;
    int w = width, h = height;
    if (aspect < spec->aspect_min)
        h = (int)(width / spec->aspect_min + 0.5);
    else if (aspect > spec->aspect_max)
        w = (int)(height * spec->aspect_max + 0.5);
    box[2] = w < 1 ? 1 : w > width ? width : w;
    box[3] = h < 1 ? 1 : h > height ? height : h;
    box[0] = (width - box[2]) / 2;
    box[1] = (height - box[3]) / 2;
}

static void centre_box(const struct spec *spec, uint64_t *state, int width, int height, struct placement *place) {
    const int shorter = width < height ? width : height;
    const int64_t target = spec->resize_px > spec->px ? spec->resize_px : spec->px;
    const int resized_w = (int)(width * target / shorter), resized_h = (int)(height * target / shorter);
    int x = (resized_w - spec->px) / 2, y = (resized_h - spec->px) / 2;
    if (spec->max_shift > 0) {
        x += whole_below(state, 2 * spec->max_shift + 1) - spec->max_shift;
        y += whole_below(state, 2 * spec->max_shift + 1) - spec->max_shift;
    }
    place->step_x = (double)width / resized_w;
    place->step_y = (double)height / resized_h;
    place->x0 = x * place->step_x;
    place->y0 = y * place->step_y;
}

void place_image(const struct spec *spec, uint64_t number, int width, int height, struct placement *place) {
    uint64_t state = spec->key ^ (number * UINT64_C(0xD1342543DE82EF95));
    next_random(&state);
    place->mirrored = next_uniform(&state) < 0.5 && spec->mirror;
    if (!spec->random_resized_crop) {
        centre_box(spec, &state, width, height, place);
        return;
    }
    int box[4];
    random_box(spec, &state, width, height, box);
    place->x0 = box[0];
    place->y0 = box[1];
    place->step_x = (double)box[2] / spec->px;
    place->step_y = (double)box[3] / spec->px;
}
