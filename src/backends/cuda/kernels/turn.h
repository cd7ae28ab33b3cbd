/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies that turn: neighbours in the source are rows apart in the result.  A block takes tiles of
 * 64 x 64 elements (32 x 32 of 8 bytes) through memory that its threads share, so that both sides
 * go through whole sectors.  A row of a tile there has one word more, so that the threads of a warp
 * meet different banks along both of its sides.
 *
 * Where all rows of both sides begin at multiples of 16 bytes, whole tiles of 2 and 4 bytes an
 * element go by vectors.  Elements of 2 bytes lie there as words of two that are neighbours in the
 * source: from as many words as a vector has elements, a thread makes vectors of two rows.
 */
#ifndef WEFT_CUDA_KERNELS_TURN_H
#define WEFT_CUDA_KERNELS_TURN_H

#include "order.h"

typedef struct weft_k_turn_room {
    uint64_t word[64 * 65 / 2];
} weft_k_turn_room;

/* Where a tile begins, and how much of it there is. */
typedef struct weft_k_turn_tile {
    const char *from;
    char *to;
    uint32_t rows, columns; /* of the result */
} weft_k_turn_tile;

WEFT_K weft_k_turn_tile weft_k_turn_tile_of(const weft_k_turn *c, uint64_t task, uint32_t side)
{
    uint64_t across = (c->columns + side - 1) / side, down = (c->rows + side - 1) / side;
    uint64_t matrix = task / (across * down), in = task - matrix * across * down;
    uint64_t row = in / across * side, column = in % across * side;
    uint64_t rows = c->rows - row, columns = c->columns - column;
    weft_k_turn_tile tile = {c->from + weft_k_offset(c->ndim, c->dim, c->from_stride, matrix) +
                                 (int64_t)row * c->size + (int64_t)column * c->from_step,
                             c->to + weft_k_offset(c->ndim, c->dim, c->to_stride, matrix) +
                                 (int64_t)row * c->to_step + (int64_t)column * c->size,
                             (uint32_t)(rows < side ? rows : side),
                             (uint32_t)(columns < side ? columns : side)};
    return tile;
}

enum { WEFT_K_TURN_AHEAD = 8 }; /* loads of a thread before the first is used */

/* The tile from its source into the shared memory, where rows are `pitch` elements apart. */
#define WEFT_K_TURN(type_)                                                                     \
    WEFT_K void weft_k_turn_in_##type_(const weft_k_turn *c, const weft_k_turn_tile *tile,     \
                                       const uint32_t side, const uint32_t pitch, type_ *room) \
    {                                                                                          \
        WEFT_K_NO_UNROLL                                                                       \
        for (uint32_t first = weft_k_thread(); first < side * side;                            \
             first += WEFT_K_TURN_AHEAD * weft_k_threads()) {                                  \
            type_ x[WEFT_K_TURN_AHEAD];                                                        \
            WEFT_K_UNROLL                                                                      \
            for (uint32_t k = 0; k < WEFT_K_TURN_AHEAD; k++) {                                 \
                uint32_t t = first + k * weft_k_threads(), row = t % side, column = t / side;  \
                x[k] = 0;                                                                      \
                if (row < tile->rows && column < tile->columns)                                \
                    x[k] = *(const type_ *)(const void *)(tile->from +                         \
                                                          (int64_t)column * c->from_step +     \
                                                          row * sizeof(type_));                \
            }                                                                                  \
            WEFT_K_UNROLL                                                                      \
            for (uint32_t k = 0; k < WEFT_K_TURN_AHEAD; k++) {                                 \
                uint32_t t = first + k * weft_k_threads(), row = t % side, column = t / side;  \
                if (column < side)                                                             \
                    room[column * pitch + row] = x[k];                                         \
            }                                                                                  \
        }                                                                                      \
    }                                                                                          \
    WEFT_K void weft_k_turn_##type_(const weft_k_turn *c, type_ *room)                         \
    {                                                                                          \
        const uint32_t side = sizeof(type_) == 8 ? 32 : 64;                                    \
        const uint32_t pitch = side + (sizeof(type_) < 4 ? 4 / (uint32_t)sizeof(type_) : 1);   \
        WEFT_K_NO_UNROLL                                                                       \
        for (uint64_t task = weft_k_block(); task < c->tasks; task += weft_k_blocks()) {       \
            weft_k_turn_tile tile = weft_k_turn_tile_of(c, task, side);                        \
            weft_k_turn_in_##type_(c, &tile, side, pitch, room);                               \
            weft_k_sync();                                                                     \
            for (uint32_t t = weft_k_thread(); t < side * side; t += weft_k_threads())         \
                if (t % side < tile.columns && t / side < tile.rows)                           \
                    *(type_ *)(void *)(tile.to + (int64_t)(t / side) * c->to_step +            \
                                       t % side * sizeof(type_)) =                             \
                        room[t % side * pitch + t / side];                                     \
            weft_k_sync();                                                                     \
        }                                                                                      \
    }
/* ---- whole tiles of 64 x 64, by vectors ---- */

/* `pitch` is in words, of 32 / size of an element.  Vectors of one line of the source are
 * neighbours. */
WEFT_K void weft_k_turn_whole_in(const weft_k_turn *c, const weft_k_turn_tile *tile,
                                 const uint32_t size, const uint32_t pitch, uint32_t *room)
{
    const uint32_t across = WEFT_K_TURN_SIDE * size / 16, vectors = WEFT_K_TURN_SIDE * across;
    const uint32_t ahead = size;
    WEFT_K_NO_UNROLL
    for (uint32_t first = weft_k_thread(); first < vectors; first += ahead * weft_k_threads()) {
        weft_k_vector v[4];
        WEFT_K_UNROLL
        for (uint32_t k = 0; k < ahead; k++) {
            uint32_t t = first + k * weft_k_threads();
            weft_k_vector none = {{0, 0, 0, 0}};
            v[k] = none;
            if (t < vectors)
                v[k] = weft_k_load16(tile->from + (int64_t)(t / across) * c->from_step +
                                     t % across * 16);
        }
        WEFT_K_UNROLL
        for (uint32_t k = 0; k < ahead; k++) {
            uint32_t t = first + k * weft_k_threads(), at = t / across * pitch + t % across * 4;
            if (t < vectors) {
                WEFT_K_UNROLL
                for (uint32_t j = 0; j < 4; j++)
                    room[at + j] = v[k].word[j];
            }
        }
    }
}

/* Row t / 16 of the result, and its columns from 4 (t % 16) on. */
WEFT_K void weft_k_turn_whole_out_4(const weft_k_turn *c, const weft_k_turn_tile *tile,
                                    const uint32_t pitch, const uint32_t *room)
{
    for (uint32_t t = weft_k_thread(); t < WEFT_K_TURN_SIDE * 16; t += weft_k_threads()) {
        uint32_t row = t / 16, column = t % 16 * 4;
        weft_k_vector v;
        WEFT_K_UNROLL
        for (uint32_t j = 0; j < 4; j++)
            v.word[j] = room[(column + j) * pitch + row];
        weft_k_store16(tile->to + (int64_t)row * c->to_step + column * 4, v);
    }
}

/* Rows 2 (t / 8) and the next, and their columns from 8 (t % 8) on. */
WEFT_K void weft_k_turn_whole_out_2(const weft_k_turn *c, const weft_k_turn_tile *tile,
                                    const uint32_t pitch, const uint32_t *room)
{
    for (uint32_t t = weft_k_thread(); t < WEFT_K_TURN_SIDE / 2 * 8; t += weft_k_threads()) {
        uint32_t pair = t / 8, column = t % 8 * 8;
        char *to = tile->to + (int64_t)(2 * pair) * c->to_step + column * 2;
        weft_k_vector low, high;
        WEFT_K_UNROLL
        for (uint32_t j = 0; j < 4; j++) {
            uint32_t first = room[(column + 2 * j) * pitch + pair];
            uint32_t second = room[(column + 2 * j + 1) * pitch + pair];
            low.word[j] = weft_k_low_halves(first, second);
            high.word[j] = weft_k_high_halves(first, second);
        }
        weft_k_store16(to, low);
        weft_k_store16(to + c->to_step, high);
    }
}

WEFT_K void weft_k_turn_whole(const weft_k_turn *c, const weft_k_turn_tile *tile,
                              const uint32_t size, uint32_t *room)
{
    const uint32_t pitch = WEFT_K_TURN_SIDE * size / 4 + 1;
    weft_k_turn_whole_in(c, tile, size, pitch, room);
    weft_k_sync();
    if (size == 4)
        weft_k_turn_whole_out_4(c, tile, pitch, room);
    else
        weft_k_turn_whole_out_2(c, tile, pitch, room);
    weft_k_sync();
}

WEFT_K void weft_k_run_turn_whole(const weft_k_turn *c, const uint32_t size)
{
    WEFT_K_SHARED(weft_k_turn_room, s);
    WEFT_K_NO_UNROLL
    for (uint64_t task = weft_k_block(); task < c->tasks; task += weft_k_blocks()) {
        weft_k_turn_tile tile = weft_k_turn_tile_of(c, task, WEFT_K_TURN_SIDE);
        weft_k_turn_whole(c, &tile, size, (uint32_t *)(void *)s->word);
    }
}

/* ---- any tile, element by element ---- */

WEFT_K_TURN(uint8_t)
WEFT_K_TURN(uint16_t)
WEFT_K_TURN(uint32_t)
WEFT_K_TURN(uint64_t)
#undef WEFT_K_TURN

WEFT_K void weft_k_run_turn(const weft_k_turn *c)
{
    WEFT_K_SHARED(weft_k_turn_room, s);
    if (c->size == 1)
        weft_k_turn_uint8_t(c, (uint8_t *)(void *)s->word);
    else if (c->size == 2)
        weft_k_turn_uint16_t(c, (uint16_t *)(void *)s->word);
    else if (c->size == 4)
        weft_k_turn_uint32_t(c, (uint32_t *)(void *)s->word);
    else
        weft_k_turn_uint64_t(c, s->word);
}

#endif
