/* Is a baseline JPEG sound? Told from its markers and its Huffman codes alone, without a pixel. See scan.c (markers) and
   entropy.c (codes). */
#ifndef MLBENCH_SCAN_H
#define MLBENCH_SCAN_H

#include <stddef.h>
#include <stdint.h>

enum { MAX_COMPONENTS = 4, MAX_BLOCKS = 10, NUM_TABLES = 4 };

/* A Huffman table as a file defines it: counts[n] codes of n bits, and their symbols in order. */
struct definition {
    uint8_t counts[17];
    uint8_t symbols[256];
    int num_symbols; /* 0: not defined */
};

enum table_kind { TABLE_DC, TABLE_AC };

struct table;
/* Tables of the four slots of either kind; built tables are kept, for most files of a set have the same ones. */
struct tables {
    struct table *slots[2][NUM_TABLES];
};

/* Make the table of a slot that of `definition`. Null: no memory, or codes that libjpeg refuses. */
const struct table *table_of(struct tables *tables, enum table_kind kind, int slot,
                             const struct definition *definition, size_t scan_bytes);
void tables_free(struct tables *tables);

/* The blocks of one unit of the scan (MCU) and their tables. */
struct unit {
    int num_blocks;
    const struct table *dc[MAX_BLOCKS], *ac[MAX_BLOCKS];
};

enum { CODES_PADDING = 512 }; /* zeros behind the codes: more than a block can take */

/* Whether `size` bytes (without stuffing, with padding behind them) are exactly the codes of so many units. */
int units_are_sound(const struct unit *unit, const uint8_t *codes, size_t size, uint64_t num_units);

struct scanner;
struct scanner *scanner_new(void);
void scanner_free(struct scanner *self);
/* 1: libjpeg reads this JPEG without error or warning. 0: it may not (or it is of a kind that is not read here), so ask
   it. */
int scan_is_sound(struct scanner *self, const uint8_t *data, size_t size, int64_t max_pixels);

#endif
