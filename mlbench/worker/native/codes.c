/* Huffman tables as files define them, made into look-ups that pass several symbols at once. Values are not needed,
   only where symbols end and how many coefficients they fill. The format is that of ITU T.81, annexes C and F. */
#include "scan.h"

#include <stdlib.h>
#include <string.h>

enum { PASSED = (1 << 24) - 1, CODE_AT = 24 /* while a table is built: bits of the code alone */ };

static const size_t BYTES_FOR_WIDE = 24 << 10;

/* Codes in order, as annex C builds them. 0: more codes than bits, or one of ones only. */
static int set_codes(struct table *table, const struct definition *definition) {
    uint32_t code = 0;
    int32_t place = 0;
    for (int n = 1; n <= LONGEST_CODE; n++) {
        table->first[n] = place - (int32_t)code;
        code += definition->counts[n];
        place += definition->counts[n];
        if (definition->counts[n] && code >= UINT32_C(1) << n)
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

static void set_single(const struct table *table, int32_t *single) {
    const uint8_t *symbol = table->definition.symbols;
    int at = 0;
    for (int n = 1; n <= table->bits; n++)
        for (int i = 0; i < table->definition.counts[n]; i++) {
            const int32_t entry = entry_of(table->kind, n, *symbol++);
            for (const int end = at + (1 << (table->bits - n)); at < end; at++)
                single[at] = entry;
        }
    for (; at < 1 << table->bits; at++)
        single[at] = SLOW | STOP;
}

/* Add the AC symbols behind the first one while their codes lie wholly within the look-up's bits. */
static void join(struct table *table, const int32_t *single) {
    const int bits = table->bits, mask = (1 << bits) - 1;
    for (int at = 0; at <= mask; at++) {
        int32_t entry = single[at] & PASSED;
        int passed = entry & BITS_PASSED;
        while (table->kind == TABLE_AC && !(entry & STOP) && passed < bits) {
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

static void build(struct table *table, const struct definition *definition, enum table_kind kind, int bits) {
    int32_t single[1 << WIDE_BITS];
    table->definition = *definition;
    table->kind = kind;
    table->bits = bits;
    set_single(table, single);
    join(table, single);
}

/* A table of this definition with at least so many bits; null: there is none. */
static struct table *find(const struct tables *tables, enum table_kind kind, const struct definition *definition,
                          int bits) {
    for (int i = 0; i < NUM_KEPT; i++) {
        struct table *table = tables->kept[i];
        if (table && table->kind == kind && table->bits >= bits && is_same(&table->definition, definition))
            return table;
    }
    return NULL;
}

/* A table to build anew: one that was not there yet, else the one that nobody has used for the longest time. */
static struct table *find_free(struct tables *tables) {
    struct table *oldest = NULL;
    for (int i = 0; i < NUM_KEPT; i++) {
        struct table *table = tables->kept[i];
        if (!table)
            return tables->kept[i] = calloc(1, sizeof *table);
        if (!table->num_users && (!oldest || table->last_used < oldest->last_used))
            oldest = table;
    }
    return oldest;
}

struct table *table_take(struct tables *tables, enum table_kind kind, const struct definition *definition,
                         size_t num_bytes) {
    if (!is_valid(kind, definition))
        return NULL;
    struct table *table = find(tables, kind, definition, NARROW_BITS);
    if (table)
        num_bytes += table->num_bytes;
    const int bits = kind == TABLE_AC && num_bytes >= BYTES_FOR_WIDE ? WIDE_BITS : NARROW_BITS;
    if (table && table->bits < bits)
        table = find(tables, kind, definition, bits);
    if (!table) {
        table = find_free(tables);
        if (!table)
            return NULL;
        table->definition.num_symbols = 0; /* the same as no other, until it is built */
        if (!set_codes(table, definition))
            return NULL;
        build(table, definition, kind, bits);
    }
    table->num_bytes = num_bytes;
    table->num_users++;
    table->last_used = ++tables->clock;
    return table;
}

void table_leave(struct table *table) {
    table->num_users--;
}

void tables_free(struct tables *tables) {
    for (int i = 0; i < NUM_KEPT; i++)
        free(tables->kept[i]);
}
