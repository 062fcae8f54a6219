/* JPEG to placed pixels: only the rows and columns that the output needs, at the DCT scale that fits, with
   libjpeg-turbo. Damage that libjpeg mends is counted; what it cannot mend is a status, never an exit. */
#include <stdio.h>

#include "image.h"

#include <jpeglib.h>

#include <jerror.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#ifndef JCS_EXTENSIONS
#error "libjpeg-turbo is needed: this jpeglib.h has no RGBX output and no region decoding"
#endif

enum { MAX_SCANS = 200, ROWS_AT_ONCE = 16 };

static const long MAX_MEMORY_BYTES = 1L << 30; /* of one image, so that a crafted one cannot take the machine */

struct decoder {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf on_error;
    char *message;
    uint8_t *row; /* four-component rows before conversion */
    size_t row_held;
};

static void stop(j_common_ptr jpeg) {
    struct decoder *self = jpeg->client_data;
    char text[JMSG_LENGTH_MAX];
    jpeg->err->format_message(jpeg, text);
    snprintf(self->message, MESSAGE_BYTES, "%s", text);
    longjmp(self->on_error, 1);
}

static void say_nothing(j_common_ptr jpeg) {
    (void)jpeg;
}

static void count_warning(j_common_ptr jpeg, int level) {
    if (level >= 0 || jpeg->err->msg_code == JWRN_EXTRANEOUS_DATA) /* bytes between segments cost no pixel */
        return;
    struct decoder *self = jpeg->client_data;
    if (jpeg->err->num_warnings++ == 0) {
        char text[JMSG_LENGTH_MAX];
        jpeg->err->format_message(jpeg, text);
        snprintf(self->message, MESSAGE_BYTES, "%s", text);
    }
}

/* A progressive file may hold thousands of scans, each a pass over the whole image. */
static void limit_scans(j_common_ptr jpeg) {
    struct decoder *self = jpeg->client_data;
    if (jpeg->is_decompressor && ((j_decompress_ptr)jpeg)->input_scan_number > MAX_SCANS) {
        snprintf(self->message, MESSAGE_BYTES, "more than %d scans", MAX_SCANS);
        longjmp(self->on_error, 1);
    }
}

static int create(struct decoder *self) {
    char message[MESSAGE_BYTES];
    self->message = message;
    if (setjmp(self->on_error))
        return 0;
    jpeg_create_decompress(&self->jpeg);
    self->jpeg.progress = &self->progress;
    self->message = NULL;
    return 1;
}

struct decoder *decoder_new(void) {
    struct decoder *self = calloc(1, sizeof *self);
    if (!self)
        return NULL;
    self->jpeg.err = jpeg_std_error(&self->errors);
    self->jpeg.client_data = self;
    self->errors.error_exit = stop;
    self->errors.output_message = say_nothing;
    self->errors.emit_message = count_warning;
    self->progress.progress_monitor = limit_scans;
    if (!create(self)) {
        free(self);
        return NULL;
    }
    return self;
}

void decoder_free(struct decoder *self) {
    if (!self)
        return;
    jpeg_destroy_decompress(&self->jpeg);
    free(self->row);
    free(self);
}

/* Decoded pixels that an output pixel keeps at least; with fewer, the result drifts from that of a whole decode. */
static const double SPARE_PIXELS = 1.5;

/* The smallest scale that libjpeg-turbo has vector code for, in eighths, with enough pixels left. */
static int fitting_scale(const struct placement *place) {
    const double step = place->step_x < place->step_y ? place->step_x : place->step_y;
    const double room = step / SPARE_PIXELS;
    return room >= 8 ? 1 : room >= 4 ? 2 : room >= 2 ? 4 : 8;
}

static void scale_placement(struct placement *place, int eighths) {
    place->x0 *= eighths / 8.0;
    place->y0 *= eighths / 8.0;
    place->step_x *= eighths / 8.0;
    place->step_y *= eighths / 8.0;
}

/* Adobe writes CMYK inverted, so a plain product gives red, green and blue; other files are inverted first. */
static void cmyk_to_rgbx(const struct jpeg_decompress_struct *jpeg, const uint8_t *cmyk, uint8_t *rgbx, int pixels) {
    const int flip = jpeg->saw_Adobe_marker ? 0 : 255;
    for (int i = 0; i < pixels; i++, cmyk += 4, rgbx += 4) {
        const int black = cmyk[3] ^ flip;
        for (int c = 0; c < 3; c++) {
            const int product = (cmyk[c] ^ flip) * black + 128;
            rgbx[c] = (uint8_t)((product + (product >> 8)) >> 8);
        }
        rgbx[3] = 0;
    }
}

static int is_cmyk(const struct jpeg_decompress_struct *jpeg) {
    return jpeg->out_color_space == JCS_CMYK;
}

static int read_rows(struct decoder *self, struct resampler *resampler, int from, int end) {
    struct jpeg_decompress_struct *jpeg = &self->jpeg;
    int row = from;
    while (row < end) {
        JSAMPROW rows[ROWS_AT_ONCE];
        int wanted = end - row < ROWS_AT_ONCE ? end - row : ROWS_AT_ONCE;
        if (is_cmyk(jpeg)) {
            wanted = 1;
            rows[0] = self->row;
        } else
            for (int i = 0; i < wanted; i++)
                rows[i] = resampler_row(resampler, row + i);
        const int read = (int)jpeg_read_scanlines(jpeg, rows, (JDIMENSION)wanted);
        if (is_cmyk(jpeg) && read)
            cmyk_to_rgbx(jpeg, self->row, resampler_row(resampler, row), (int)jpeg->output_width);
        if (read == 0)
            return IMAGE_BROKEN;
        row += read;
        resampler_advance(resampler, row);
    }
    return IMAGE_OK;
}

static int within_limit(const struct jpeg_decompress_struct *jpeg, int64_t max_pixels, char *message) {
    if ((int64_t)jpeg->image_width * jpeg->image_height <= max_pixels)
        return 1;
    snprintf(message, MESSAGE_BYTES, "%u x %u pixels, the limit is %lld in all", jpeg->image_width, jpeg->image_height,
             (long long)max_pixels);
    return 0;
}

static int decode_started(struct decoder *self, struct resampler *resampler, const struct spec *spec,
                          struct item *item, float *out) {
    struct jpeg_decompress_struct *jpeg = &self->jpeg;
    const int width = (int)jpeg->image_width, height = (int)jpeg->image_height;
    if (!within_limit(jpeg, spec->max_pixels, item->message))
        return IMAGE_TOO_LARGE;
    struct placement place;
    place_image(spec, item->number, width, height, &place);
    const int eighths = fitting_scale(&place);
    scale_placement(&place, eighths);
    jpeg->scale_num = (unsigned)eighths;
    jpeg->scale_denom = 8;
    jpeg->dct_method = JDCT_ISLOW;
    const int four = jpeg->jpeg_color_space == JCS_CMYK || jpeg->jpeg_color_space == JCS_YCCK;
    jpeg->out_color_space = four ? JCS_CMYK : JCS_EXT_RGBX;
    jpeg_start_decompress(jpeg);

    const int status = resampler_begin(resampler, spec, &place, (int)jpeg->output_width, (int)jpeg->output_height, out);
    if (status)
        return status;
    int x, end_x, y, end_y;
    resampler_region(resampler, &x, &end_x, &y, &end_y);
    JDIMENSION left = (JDIMENSION)x, columns = (JDIMENSION)(end_x - x);
    if (columns < jpeg->output_width)
        jpeg_crop_scanline(jpeg, &left, &columns);
    else
        left = 0;
    if (resampler_set_rows(resampler, x - (int)left, (int)jpeg->output_width))
        return IMAGE_NO_MEMORY;
    if (four && self->row_held < (size_t)jpeg->output_width * 4) {
        free(self->row);
        self->row = malloc((size_t)jpeg->output_width * 4);
        self->row_held = self->row ? (size_t)jpeg->output_width * 4 : 0;
        if (!self->row)
            return IMAGE_NO_MEMORY;
    }
    if (y > 0)
        jpeg_skip_scanlines(jpeg, (JDIMENSION)y);
    return read_rows(self, resampler, y, end_y);
}

static int is_jpeg(const uint8_t *data, size_t size) {
    return size >= 3 && data[0] == 0xFF && data[1] == 0xD8 && data[2] == 0xFF;
}

int decode_jpeg(struct decoder *self, struct resampler *resampler, const struct spec *spec, struct item *item,
                const uint8_t *data, size_t size, float *out) {
    if (!is_jpeg(data, size)) {
        snprintf(item->message, MESSAGE_BYTES, "not a JPEG");
        return IMAGE_OTHER_FORMAT;
    }
    self->message = item->message;
    self->errors.num_warnings = 0;
    int status = IMAGE_BROKEN;
    if (!setjmp(self->on_error)) {
        self->jpeg.mem->max_memory_to_use = MAX_MEMORY_BYTES;
        jpeg_mem_src(&self->jpeg, data, (unsigned long)size);
        jpeg_read_header(&self->jpeg, TRUE);
        status = decode_started(self, resampler, spec, item, out);
    }
    item->num_warnings = (int32_t)self->errors.num_warnings;
    jpeg_abort_decompress(&self->jpeg);
    self->message = NULL;
    return status;
}

static int check_started(struct decoder *self, int64_t max_pixels) {
    struct jpeg_decompress_struct *jpeg = &self->jpeg;
    if (!within_limit(jpeg, max_pixels, self->message))
        return IMAGE_TOO_LARGE;
    jpeg->scale_num = 1; /* every coded bit is read, most of the arithmetic behind it is saved */
    jpeg->scale_denom = 8;
    jpeg->do_fancy_upsampling = FALSE;
    jpeg->out_color_space = jpeg->jpeg_color_space;
    jpeg_start_decompress(jpeg);
    JSAMPARRAY rows = (*jpeg->mem->alloc_sarray)((j_common_ptr)jpeg, JPOOL_IMAGE,
                                                 jpeg->output_width * (JDIMENSION)jpeg->output_components, 1);
    while (jpeg->output_scanline < jpeg->output_height)
        jpeg_read_scanlines(jpeg, rows, 1);
    jpeg_finish_decompress(jpeg);
    return IMAGE_OK;
}

int check_jpeg(struct decoder *self, const uint8_t *data, size_t size, int64_t max_pixels, struct item *result) {
    if (!is_jpeg(data, size))
        return IMAGE_OTHER_FORMAT;
    jpeg_destroy_decompress(&self->jpeg); /* it would lend the tables of earlier images to one that lacks them */
    if (!create(self))
        return IMAGE_NO_MEMORY;
    self->message = result->message;
    self->errors.num_warnings = 0;
    int status = IMAGE_BROKEN;
    if (!setjmp(self->on_error)) {
        self->jpeg.mem->max_memory_to_use = MAX_MEMORY_BYTES;
        jpeg_mem_src(&self->jpeg, data, (unsigned long)size);
        jpeg_read_header(&self->jpeg, TRUE);
        status = check_started(self, max_pixels);
    }
    result->num_warnings = (int32_t)self->errors.num_warnings;
    jpeg_abort_decompress(&self->jpeg);
    self->message = NULL;
    return status;
}
