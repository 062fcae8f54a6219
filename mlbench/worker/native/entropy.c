/* Huffman codes walked over at speed: is their number right, and does each begin a symbol? The format is that of ITU
   T.81, annex F. */
#include "scan.h"

#include <string.h>

/* One build runs everywhere and shifts by a register without detour where the processor can. */
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__) && !defined(NO_CLONES)
#define FAST __attribute__((target_clones("arch=haswell", "default")))
#else
#define FAST
#endif
#define INLINE static inline __attribute__((always_inline))

enum { WHOLE_BLOCK = 62 << RUN_AT /* 63 coefficients behind the first, less one */ };

INLINE uint64_t big_endian(const uint8_t *bytes) {
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

/* Where a lane is behind a symbol. */
struct passed {
    const uint8_t *at;
    uint64_t word;
    int held, symbol;
};

/* At least 56 bits are held from here on. */
#define REFILL(lane)                                                                                                   \
    do {                                                                                                               \
        const int held = lane.state & BITS_PASSED;                                                                     \
        lane.word |= big_endian(lane.at) >> held;                                                                      \
        lane.at += (63 - held) >> 3;                                                                                   \
        lane.state |= 56;                                                                                              \
    } while (0)

/* Pass one symbol of any length with its extra bits; -1: no such code. The bits held tell where the symbol begins;
   `word` is read anew. (By value, so that a walk may keep its lane in registers.) */
static __attribute__((noinline)) struct passed read_symbol(const struct table *table, const uint8_t *at, int held) {
    const int bytes = (held + 7) >> 3, offset = bytes * 8 - held;
    struct passed passed = {at - bytes, big_endian(at - bytes) << offset, 0, -1};
    const uint32_t next = (uint32_t)(passed.word >> 48);
    int n = 1;
    while (n <= LONGEST_CODE && next >= table->behind[n])
        n++;
    if (n > LONGEST_CODE)
        return passed;
    passed.symbol = table->definition.symbols[table->first[n] + (int32_t)(next >> (LONGEST_CODE - n))];
    const int num_bits = n + (table->kind == TABLE_AC ? passed.symbol & 15 : passed.symbol);
    passed.word <<= num_bits;
    passed.at += 7;
    passed.held = 56 - offset - num_bits;
    return passed;
}

INLINE int pass_symbol(struct lane *lane, const struct table *table) {
    const struct passed passed = read_symbol(table, lane->at, lane->state & BITS_PASSED);
    lane->at = passed.at;
    lane->word = passed.word;
    lane->state = (lane->state & ~BITS_PASSED) | passed.held;
    return passed.symbol;
}

/* Begin the next block of the lane, or end the lane. */
INLINE void begin_block(struct lane *lane) {
    const struct unit *unit = lane->unit;
    if (++lane->block == unit->num_blocks) {
        lane->block = 0;
        if (--lane->units_left == 0) {
            const int64_t unread = (lane->end - lane->at) * 8 + (lane->state & BITS_PASSED);
            lane->status = unread >= 0 && unread < 8 ? LANE_SOUND : LANE_ODD;
            return;
        }
    }
    if (lane->at > lane->end + 8) {
        lane->status = LANE_DAMAGED;
        return;
    }
    const struct table *dc = unit->dc[lane->block];
    lane->state = WHOLE_BLOCK | (lane->state & BITS_PASSED);
    lane->ac = unit->ac[lane->block];
    REFILL((*lane));
    const int32_t entry = dc->entries[lane->word >> (64 - NARROW_BITS)];
    if (__builtin_expect(entry & SLOW, 0)) {
        if (pass_symbol(lane, dc) < 0)
            lane->status = LANE_DAMAGED;
        return;
    }
    lane->word <<= entry & BITS_PASSED;
    lane->state -= entry;
}

/* An entry has made the lane's state negative: the end of the block, a long code, or a block that ends among the
   symbols of one look-up, which are then passed one at a time. */
INLINE void stop_over(struct lane *lane, int32_t entry) {
    const int32_t before = lane->state + entry, after = before - (entry & ~STOP_FLAGS);
    if (entry & END_OF_BLOCK ? after >= 0 : !(entry & SLOW) && after >> RUN_AT == -1) {
        lane->state = after & BITS_PASSED;
        begin_block(lane);
        return;
    }
    lane->state = before;
    const int symbol = pass_symbol(lane, lane->ac);
    const int is_last = !(symbol & 15) && symbol >> 4 != 15;
    const int left = (lane->state >> RUN_AT) - (is_last ? 0 : (symbol >> 4) + 1);
    if (symbol < 0 || left < -1)
        lane->status = LANE_DAMAGED;
    else if (is_last || left == -1)
        begin_block(lane);
    else
        lane->state = left << RUN_AT | (lane->state & BITS_PASSED);
}

void lane_begin(struct lane *lane, const struct unit *unit, const uint8_t *codes, size_t size, uint64_t num_units) {
    const struct lane begun = {
        .at = codes, .status = LANE_RUNS, .unit = unit, .block = -1, .units_left = num_units, .end = codes + size,
    };
    *lane = begun;
    begin_block(lane);
}

/* Pass what one look-up gives. */
#define STEP(lane)                                                                                                     \
    do {                                                                                                               \
        const int32_t entry = lane.ac->entries[lane.word >> (64 - lane.ac->bits)];                                     \
        lane.word <<= entry & BITS_PASSED;                                                                             \
        lane.state -= entry;                                                                                           \
        if (lane.state < 0) {                                                                                          \
            stopped = entry;                                                                                           \
            goto lane##_stops;                                                                                         \
        }                                                                                                              \
    } while (0)

FAST void lane_run(struct lane *lane) {
    struct lane a = *lane; /* its parts in registers */
    int32_t stopped;
    while (a.status == LANE_RUNS) {
        for (;;) {
            REFILL(a);
            STEP(a);
            STEP(a);
            STEP(a);
            STEP(a);
        }
    a_stops:
        stop_over(&a, stopped);
    }
    *lane = a;
}

FAST void lanes_run(struct lane *first, struct lane *second) {
    struct lane a = *first, b = *second;
    int32_t stopped;
    while (a.status == LANE_RUNS && b.status == LANE_RUNS) {
        for (;;) {
            REFILL(a);
            REFILL(b);
            STEP(a);
            STEP(b);
            STEP(a);
            STEP(b);
            STEP(a);
            STEP(b);
            STEP(a);
            STEP(b);
        }
    a_stops:
        stop_over(&a, stopped);
        continue;
    b_stops:
        stop_over(&b, stopped);
    }
    *first = a;
    *second = b;
}
