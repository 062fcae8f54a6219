/* Entropy decoding alone: libjpeg's jpeg_read_coefficients over every JPEG of a .rec file, in one thread and from memory.
   Nobody who reads the codes through libjpeg can be faster. Prints one JSON object as images.py does.

       cc -O3 coefficients.c -ljpeg && ./a.out REC */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jpeglib.h>

enum { HEAD = 8, IMAGE_HEAD = 24 };

static double seconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static uint8_t *read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END))
        return NULL;
    *size = (size_t)ftell(file);
    rewind(file);
    uint8_t *bytes = malloc(*size);
    if (bytes && fread(bytes, 1, *size, file) != *size)
        bytes = NULL;
    fclose(file);
    return bytes;
}

int main(int argc, char **argv) {
    size_t size = 0;
    uint8_t *bytes = argc == 2 ? read_file(argv[1], &size) : NULL;
    if (!bytes)
        return 1;
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&jpeg);
    const double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
    for (size_t at = 0; at < size;) {
        uint32_t length;
        memcpy(&length, bytes + at + 4, sizeof length);
        length &= 0x1FFFFFFF;
        jpeg_mem_src(&jpeg, bytes + at + HEAD + IMAGE_HEAD, length - IMAGE_HEAD);
        jpeg_read_header(&jpeg, TRUE);
        jpeg_read_coefficients(&jpeg);
        jpeg_finish_decompress(&jpeg);
        at += HEAD + (length + 3) / 4 * 4;
    }
    printf("{\"wall_s\": %.6f, \"cpu_s\": %.6f, \"amount\": %zu}\n", seconds(CLOCK_MONOTONIC) - wall,
           seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu, size);
    jpeg_destroy_decompress(&jpeg);
    return 0;
}
