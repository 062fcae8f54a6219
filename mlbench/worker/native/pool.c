/* Worker threads and the batches they fill. A batch is submitted and waited for later; threads go on to the next batch
   while the last images of one are still in work, so that none idles between batches. This is all that Python calls. */
#define _FILE_OFFSET_BITS 64
#include "image.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef __cplusplus
#error "C only"
#endif
#define EXPORT __attribute__((visibility("default")))

enum { ABI_VERSION = 3 };

struct batch {
    struct spec spec;
    struct item *items;
    float *out;
    int count, next, done;
    struct batch *behind;
};

struct pool {
    pthread_mutex_t lock;
    pthread_cond_t work, finished;
    struct batch *first, *last; /* batches with images that no thread has taken */
    pthread_t *threads;
    int num_threads, stopping;
};

struct scratch {
    struct decoder *decoder;
    struct resampler *resampler;
    uint8_t *record;
    size_t record_held;
};

static int scratch_open(struct scratch *scratch) {
    memset(scratch, 0, sizeof *scratch);
    scratch->decoder = decoder_new();
    scratch->resampler = resampler_new();
    return scratch->decoder && scratch->resampler;
}

static void scratch_close(struct scratch *scratch) {
    decoder_free(scratch->decoder);
    resampler_free(scratch->resampler);
    free(scratch->record);
}

static int read_record(struct scratch *scratch, struct item *item, const uint8_t **image, size_t *size) {
    if (item->size > scratch->record_held) {
        free(scratch->record);
        scratch->record = malloc(item->size);
        scratch->record_held = scratch->record ? item->size : 0;
        if (!scratch->record)
            return IMAGE_NO_MEMORY;
    }
    size_t have = 0;
    while (have < item->size) {
        const ssize_t got = pread(item->fd, scratch->record + have, item->size - have, (off_t)(item->offset + have));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            snprintf(item->message, MESSAGE_BYTES, "cannot be read: %s", strerror(errno));
            return IMAGE_READ;
        }
        if (got == 0)
            break; /* the file has become shorter; the parser says so */
        have += (size_t)got;
    }
    return parse_record(scratch->record, have, item, image, size);
}

static void fill_one(struct scratch *scratch, const struct spec *spec, struct item *item, float *out) {
    const uint8_t *image = item->data;
    size_t size = item->size;
    item->message[0] = 0;
    item->num_warnings = 0;
    int status = image ? IMAGE_OK : read_record(scratch, item, &image, &size);
    if (!status)
        status = decode_jpeg(scratch->decoder, scratch->resampler, spec, item, image, size, out);
    if (status == IMAGE_NO_MEMORY)
        snprintf(item->message, MESSAGE_BYTES, "no memory");
    item->status = status;
}

static void *work(void *argument) {
    struct pool *pool = argument;
    struct scratch scratch;
    const int ready = scratch_open(&scratch);
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        while (!pool->first && !pool->stopping)
            pthread_cond_wait(&pool->work, &pool->lock);
        if (pool->stopping)
            break;
        struct batch *batch = pool->first;
        const int i = batch->next++;
        if (batch->next == batch->count) {
            pool->first = batch->behind;
            if (!pool->first)
                pool->last = NULL;
        }
        pthread_mutex_unlock(&pool->lock);
        if (ready)
            fill_one(&scratch, &batch->spec, batch->items + i, batch->out + (size_t)i * output_floats(&batch->spec));
        else {
            batch->items[i].status = IMAGE_NO_MEMORY;
            snprintf(batch->items[i].message, MESSAGE_BYTES, "no memory");
        }
        pthread_mutex_lock(&pool->lock);
        if (++batch->done == batch->count)
            pthread_cond_broadcast(&pool->finished);
    }
    pthread_mutex_unlock(&pool->lock);
    scratch_close(&scratch);
    return NULL;
}

EXPORT int mlbench_abi_version(void) {
    return ABI_VERSION;
}

/* Stops the threads; batches that nobody waited for must not be touched any more. */
EXPORT void mlbench_pool_close(struct pool *pool) {
    pthread_mutex_lock(&pool->lock);
    pool->stopping = 1;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < pool->num_threads; i++)
        pthread_join(pool->threads[i], NULL);
    pthread_cond_destroy(&pool->work);
    pthread_cond_destroy(&pool->finished);
    pthread_mutex_destroy(&pool->lock);
    free(pool->threads);
    free(pool);
}

/* Null when there is no memory or no thread can be started. */
EXPORT struct pool *mlbench_pool_open(int num_threads) {
    struct pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return NULL;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->finished, NULL);
    pool->threads = calloc((size_t)num_threads, sizeof *pool->threads);
    while (pool->threads && pool->num_threads < num_threads &&
           pthread_create(pool->threads + pool->num_threads, NULL, work, pool) == 0)
        pool->num_threads++;
    if (pool->num_threads == num_threads)
        return pool;
    mlbench_pool_close(pool);
    return NULL;
}

/* Begin to fill `out` from `count` items, which stay the caller's until the batch is waited for. Null: no memory. */
EXPORT struct batch *mlbench_submit(struct pool *pool, const struct spec *spec, struct item *items, int count,
                                    float *out) {
    struct batch *batch = calloc(1, sizeof *batch);
    if (!batch)
        return NULL;
    batch->spec = *spec;
    batch->items = items;
    batch->out = out;
    batch->count = count;
    if (count == 0)
        return batch;
    pthread_mutex_lock(&pool->lock);
    if (pool->last)
        pool->last->behind = batch;
    else
        pool->first = batch;
    pool->last = batch;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
    return batch;
}

/* Wait until the batch is full and give it up; the number of items whose status is not IMAGE_OK. */
EXPORT int mlbench_wait(struct pool *pool, struct batch *batch) {
    pthread_mutex_lock(&pool->lock);
    while (batch->done < batch->count)
        pthread_cond_wait(&pool->finished, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
    int faults = 0;
    for (int i = 0; i < batch->count; i++)
        faults += batch->items[i].status != IMAGE_OK;
    free(batch);
    return faults;
}

/* Pixels that were decoded elsewhere (RGB, rows without gaps) take the same way to `out`. */
EXPORT int mlbench_place_pixels(const struct spec *spec, uint64_t number, const uint8_t *rgb, int width, int height,
                                float *out) {
    struct resampler *resampler = resampler_new();
    if (!resampler)
        return IMAGE_NO_MEMORY;
    struct placement place;
    place_image(spec, number, width, height, &place);
    int x = 0, end_x = 0, y = 0, end_y = 0;
    int status = resampler_begin(resampler, spec, &place, width, height, out);
    if (!status)
        resampler_region(resampler, &x, &end_x, &y, &end_y);
    if (!status)
        status = resampler_set_rows(resampler, x, width);
    for (int row = y; !status && row < end_y; row++) {
        const uint8_t *source = rgb + (size_t)row * width * 3;
        uint8_t *target = resampler_row(resampler, row);
        for (int i = 0; i < width; i++)
            for (int c = 0; c < 3; c++)
                target[i * 4 + c] = source[i * 3 + c];
        resampler_advance(resampler, row + 1);
    }
    resampler_free(resampler);
    return status;
}

EXPORT struct decoder *mlbench_checker_open(void) {
    return decoder_new();
}

EXPORT void mlbench_checker_close(struct decoder *checker) {
    decoder_free(checker);
}

/* Whether a JPEG decodes from its first bit to its last; fills status, message and num_warnings of `result`. */
EXPORT void mlbench_check(struct decoder *checker, const uint8_t *data, uint64_t size, int64_t max_pixels,
                          struct item *result) {
    result->message[0] = 0;
    result->num_warnings = 0;
    result->status = check_jpeg(checker, data, size, max_pixels, result);
}

/* For tests: where the output of an image is placed, as x0, y0, step_x, step_y, mirrored. */
EXPORT void mlbench_placement(const struct spec *spec, uint64_t number, int width, int height, double values[5]) {
    struct placement place;
    place_image(spec, number, width, height, &place);
    const double all[5] = {place.x0, place.y0, place.step_x, place.step_y, place.mirrored};
    memcpy(values, all, sizeof all);
}
