/* Huffman codes walked over at speed: one look-up passes as many whole symbols, with their extra bits, as lie in the
   next bits. Values are not needed, only where they end and how many coefficients they fill. The format is that of ITU
   T.81, annex F. */
#include "scan.h"

#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__) && !defined(NO_CLONES)
#define FAST __attribute__((target_clones("arch=haswell", "default")))
#else
#define FAST
#endif

enum {
    LONGEST_CODE = 16,
    WIDE_BITS = 12,   /* bits of a look-up where a table is used for many codes */
    NARROW_BITS = 9,  /* where filling more entries would take longer than they save */
    STEP_BITS = 14,   /* of one look-up for AC symbols at most, so that four fit into what a refill gives */
    BLOCK_SIZE = 64
};

/* An entry of a look-up: bits passed in its low byte, coefficients passed from RUN_AT on. */
enum {
    BITS_PASSED = 0xFF,
    RUN_AT = 8,
    END_OF_BLOCK = 1 << 19,
    STOP = 1 << 20, /* more coefficients than a block has: the walk must stop, at a block's end or ... */
    SLOW = 1 << 21, /* ... before a symbol that is not in the look-up */
    STOP_FLAGS = END_OF_BLOCK | STOP | SLOW,
    PASSED = (1 << 24) - 1,
    CODE_AT = 24
};

static const size_t BYTES_FOR_WIDE = 24 << 10;

struct table {
    struct definition definition;
    int bits; /* of a look-up */
    uint32_t behind[LONGEST_CODE + 2]; /* first 16-bit value behind the codes of n bits */
    int32_t first[LONGEST_CODE + 1];   /* of symbols of n bits, less the first code */
    int32_t entries[1 << WIDE_BITS];
};

/* Codes in order, as annex C builds them. 0: more codes than bits, or one of ones only. */
static int set_codes(struct table *table) {
    uint32_t code = 0;
    int32_t place = 0;
    for (int n = 1; n <= LONGEST_CODE; n++) {
        table->first[n] = place - (int32_t)code;
        code += table->definition.counts[n];
        place += table->definition.counts[n];
        if (table->definition.counts[n] && code >= UINT32_C(1) << n)
            return 0;
        table->behind[n] = code << (LONGEST_CODE - n);
        code <<= 1;
    }
    return 1;
}

/* Of one symbol; the bits of its code stand above the rest until symbols are joined. */
static int32_t entry_of(enum table_kind kind, int code_bits, int symbol) {
    const int32_t code = code_bits << CODE_AT;
    if (kind == TABLE_DC)
        return code | (code_bits + symbol);
    const int run = symbol >> 4, extra = symbol & 15;
    if (!extra && run != 15)
        return code | code_bits | END_OF_BLOCK | STOP;
    const int passed = code_bits + extra;
    return passed > STEP_BITS ? SLOW | STOP : code | passed | (run + 1) << RUN_AT;
}

static void set_single(const struct table *table, int32_t *single, enum table_kind kind) {
    const uint8_t *symbol = table->definition.symbols;
    int at = 0;
    for (int n = 1; n <= table->bits; n++)
        for (int i = 0; i < table->definition.counts[n]; i++) {
            const int32_t entry = entry_of(kind, n, *symbol++);
            for (const int end = at + (1 << (table->bits - n)); at < end; at++)
                single[at] = entry;
        }
    for (; at < 1 << table->bits; at++)
        single[at] = SLOW | STOP;
}

/* Add the AC symbols behind the first one while their codes lie wholly within the look-up's bits. */
static void join(struct table *table, enum table_kind kind, const int32_t *single) {
    const int bits = table->bits, mask = (1 << bits) - 1;
    for (int at = 0; at <= mask; at++) {
        int32_t entry = single[at] & PASSED;
        int passed = entry & BITS_PASSED;
        while (kind == TABLE_AC && !(entry & STOP) && passed < bits) {
            const int32_t next = single[at << passed & mask];
            if (next & SLOW || passed + (next >> CODE_AT) > bits || passed + (next & BITS_PASSED) > STEP_BITS)
                break;
            entry += next & PASSED;
            passed = entry & BITS_PASSED;
        }
        table->entries[at] = entry;
    }
}

static int is_valid(enum table_kind kind, const struct definition *definition) {
    int num_symbols = 0;
    for (int n = 1; n <= LONGEST_CODE; n++)
        num_symbols += definition->counts[n];
    if (num_symbols == 0 || num_symbols != definition->num_symbols)
        return 0;
    for (int i = 0; kind == TABLE_DC && i < num_symbols; i++)
        if (definition->symbols[i] > 15)
            return 0;
    return 1;
}

static int is_same(const struct definition *a, const struct definition *b) {
    return a->num_symbols == b->num_symbols && !memcmp(a->counts, b->counts, sizeof a->counts) &&
           !memcmp(a->symbols, b->symbols, (size_t)a->num_symbols);
}

const struct table *table_of(struct tables *tables, enum table_kind kind, int slot,
                             const struct definition *definition, size_t scan_bytes) {
    struct table **place = &tables->slots[kind][slot], *table = *place;
    const int bits = kind == TABLE_AC && scan_bytes >= BYTES_FOR_WIDE ? WIDE_BITS : NARROW_BITS;
    if (!is_valid(kind, definition))
        return NULL;
    if (table && table->bits >= bits && is_same(&table->definition, definition))
        return table;
    if (!table && !(*place = table = calloc(1, sizeof *table)))
        return NULL;
    table->definition = *definition;
    table->bits = bits;
    if (!set_codes(table)) {
        table->definition.num_symbols = 0; /* nothing is the same as this */
        return NULL;
    }
    int32_t single[1 << WIDE_BITS];
    set_single(table, single, kind);
    join(table, kind, single);
    return table;
}

void tables_free(struct tables *tables) {
    for (int kind = TABLE_DC; kind <= TABLE_AC; kind++)
        for (int slot = 0; slot < NUM_TABLES; slot++)
            free(tables->slots[kind][slot]);
}

/* The next bits of the codes: `held` of them, from the top of `word` down, are known to be there; below them stand zeros
   or the bits that follow. `at` is the byte behind them. */
struct bits {
    const uint8_t *at;
    uint64_t word;
    int held;
};

static inline uint64_t big_endian(const uint8_t *bytes) {
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

/* At least 56 bits are held from here on. */
static inline __attribute__((always_inline)) void refill(struct bits *bits) {
    bits->word |= big_endian(bits->at) >> bits->held;
    bits->at += (63 - bits->held) >> 3;
    bits->held |= 56;
}

/* Pass one symbol of any length with its extra bits; -1: no such code. `held` tells where the symbol begins, `word` is
   read anew. (By value, so that the walk may keep its bits in registers.) */
static struct bits pass_symbol(const struct table *table, enum table_kind kind, struct bits bits, int *symbol) {
    const int bytes = (bits.held + 7) >> 3, offset = bytes * 8 - bits.held;
    bits.at -= bytes;
    bits.word = big_endian(bits.at) << offset;
    const uint32_t next = (uint32_t)(bits.word >> 48);
    int n = 1;
    while (n <= LONGEST_CODE && next >= table->behind[n])
        n++;
    *symbol = -1;
    if (n > LONGEST_CODE)
        return bits;
    *symbol = table->definition.symbols[table->first[n] + (int32_t)(next >> (LONGEST_CODE - n))];
    const int passed = n + (kind == TABLE_AC ? *symbol & 15 : *symbol);
    bits.word <<= passed;
    bits.at += 7;
    bits.held = 56 - offset - passed;
    return bits;
}

static inline __attribute__((always_inline)) int pass_dc(const struct table *table, struct bits *bits) {
    const int32_t entry = table->entries[bits->word >> (64 - NARROW_BITS)];
    if (__builtin_expect(entry & SLOW, 0)) {
        int symbol;
        *bits = pass_symbol(table, TABLE_DC, *bits, &symbol);
        return symbol >= 0;
    }
    bits->word <<= entry & BITS_PASSED;
    bits->held -= entry & BITS_PASSED;
    return 1;
}

/* The 63 coefficients behind the first. `state` holds, one above the other, how many are left less one, and the bits
   held: an entry is taken from both at once, and what must stop the walk makes it negative. */
static inline __attribute__((always_inline)) int pass_ac(const struct table *table, struct bits *bits) {
    const int shift = 64 - table->bits;
    int32_t left = BLOCK_SIZE - 2;
    for (;;) {
        uint64_t word = bits->word;
        int32_t state = left << RUN_AT, entry;
        do {
            word |= big_endian(bits->at) >> bits->held;
            bits->at += (63 - bits->held) >> 3;
            state |= bits->held | 56;
#define STEP()                                                                                                         \
    entry = table->entries[word >> shift];                                                                             \
    word <<= entry & BITS_PASSED;                                                                                      \
    state -= entry;                                                                                                    \
    if (state < 0)                                                                                                     \
        break;
            STEP()
            STEP()
            STEP()
            STEP()
#undef STEP
            bits->held = state & BITS_PASSED;
            state &= ~BITS_PASSED;
        } while (1);
        const int32_t before = state + entry, after = before - (entry & (STOP_FLAGS ^ PASSED));
        bits->word = word;
        bits->held = after & BITS_PASSED;
        if (entry & END_OF_BLOCK ? after >= 0 : !(entry & SLOW) && after >> RUN_AT == -1)
            return 1;
        /* a long code, or the block ends among the symbols of this look-up: one at a time */
        bits->held = before & BITS_PASSED;
        left = before >> RUN_AT;
        int symbol;
        *bits = pass_symbol(table, TABLE_AC, *bits, &symbol);
        if (symbol < 0)
            return 0;
        if (!(symbol & 15) && symbol >> 4 != 15)
            return 1;
        left -= (symbol >> 4) + 1;
        if (left < 0)
            return left == -1;
    }
}

FAST int units_are_sound(const struct unit *unit, const uint8_t *codes, size_t size, uint64_t num_units) {
    struct bits bits = {codes, 0, 0};
    const uint8_t *end = codes + size;
    for (uint64_t i = 0; i < num_units; i++)
        for (int block = 0; block < unit->num_blocks; block++) {
            refill(&bits);
            if (!pass_dc(unit->dc[block], &bits) || !pass_ac(unit->ac[block], &bits))
                return 0;
            if (bits.at - (bits.held >> 3) > end)
                return 0;
        }
    const int64_t unread = (end - bits.at) * 8 + bits.held;
    return unread >= 0 && unread < 8;
}
