/* Is a baseline JPEG sound? Told from its markers and its Huffman codes alone, without a pixel. See scan.c (markers),
   codes.c (tables) and entropy.c (the walk over codes). */
#ifndef MLBENCH_SCAN_H
#define MLBENCH_SCAN_H

#include <stddef.h>
#include <stdint.h>

enum { MAX_COMPONENTS = 4, MAX_BLOCKS = 10, NUM_TABLES = 4, LONGEST_CODE = 16 };

/* A Huffman table as a file defines it: counts[n] codes of n bits, and their symbols in order. */
struct definition {
    uint8_t counts[LONGEST_CODE + 1];
    uint8_t symbols[256];
    int num_symbols; /* 0: not defined */
};

enum table_kind { TABLE_DC, TABLE_AC };

enum {
    WIDE_BITS = 12,  /* bits of a look-up where a table is used for many codes */
    NARROW_BITS = 9, /* for DC codes, and where filling more entries would take longer than they save */
    STEP_BITS = 14   /* that one look-up of AC symbols passes at most, so that four fit into what a refill gives */
};

/* An entry of a look-up: bits passed in its low byte, coefficients passed from RUN_AT on. */
enum {
    BITS_PASSED = 0xFF,
    RUN_AT = 8,
    END_OF_BLOCK = 1 << 19,
    STOP = 1 << 20, /* more coefficients than a block has: the walk must stop, at a block's end or ... */
    SLOW = 1 << 21, /* ... before a symbol that is not in the look-up */
    STOP_FLAGS = END_OF_BLOCK | STOP | SLOW
};

/* A table built for walking. A look-up of the next `bits` bits gives an entry: the symbol that they begin with, and
   with AC tables those behind it that lie wholly among them, all with their extra bits. */
struct table {
    struct definition definition;
    enum table_kind kind;
    int bits;
    int num_users;
    uint64_t last_used;
    size_t num_bytes; /* of codes that it was taken for */
    uint32_t behind[LONGEST_CODE + 1]; /* first 16-bit value behind the codes of n bits */
    int32_t first[LONGEST_CODE + 1];   /* of symbols of n bits, less the first code */
    int32_t entries[1 << WIDE_BITS];
};

enum { NUM_KEPT = 24 }; /* more than two scans use at once, 16 at most */

/* Built tables; most files of a set have the same ones. */
struct tables {
    struct table *kept[NUM_KEPT];
    uint64_t clock;
};

/* The table of a definition, for so many bytes of codes; it stays as it is until it is left. Null: no memory, or codes
   that libjpeg refuses. */
struct table *table_take(struct tables *tables, enum table_kind kind, const struct definition *definition,
                         size_t num_bytes);
void table_leave(struct table *table);
void tables_free(struct tables *tables);

/* The blocks of one unit of the scan (MCU) and their tables. */
struct unit {
    int num_blocks;
    const struct table *dc[MAX_BLOCKS], *ac[MAX_BLOCKS];
};

enum { CODES_PADDING = 512 }; /* zeros behind the codes: more than a block can take */

enum lane_status {
    LANE_RUNS,
    LANE_SOUND,
    LANE_ODD,    /* the codes do not end where they should */
    LANE_DAMAGED /* bits that are no code, more coefficients than a block has, or far too few codes */
};

/* A walk over codes, for a block at a time: where it is. */
struct lane {
    const uint8_t *at;  /* byte behind the bits held */
    uint64_t word;      /* the next bits from the top down: those held, then zeros or what follows */
    int32_t state;      /* bits held in the low byte; above it the coefficients left in this block, less one */
    enum lane_status status;
    const struct table *ac; /* of this block */
    const struct unit *unit;
    int block;          /* of the unit */
    uint64_t units_left;
    const uint8_t *end; /* of the codes */
};

/* Begin a walk over `size` bytes (without stuffing, with padding behind them) that should be exactly the codes of so
   many units. */
void lane_begin(struct lane *lane, const struct unit *unit, const uint8_t *codes, size_t size, uint64_t num_units);
/* Walk to the end; two lanes until one of them has ended: each waits for its look-ups most of the time, so both go on
   nearly as fast as one would. */
void lane_run(struct lane *lane);
void lanes_run(struct lane *a, struct lane *b);

enum verdict {
    SCAN_UNKNOWN, /* not of a kind that is read here, or odd: ask libjpeg */
    SCAN_SOUND,   /* libjpeg reads it without error or warning */
    SCAN_DAMAGED  /* no encoder writes such codes, whether libjpeg says so or mends them in silence */
};

/* An encoded image and what the scan found. */
struct image {
    const uint8_t *data;
    size_t size;
    enum verdict verdict;
};

struct scanner;
struct scanner *scanner_new(void);
void scanner_free(struct scanner *self);
void scan_images(struct scanner *self, struct image *images, int count, int64_t max_pixels);

#endif
