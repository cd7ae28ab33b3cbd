/* SPDX-License-Identifier: Apache-2.0 */
/* Random choices of random programs: the same ones from the same seed. */
#ifndef GRAPH_DRAW_H
#define GRAPH_DRAW_H

#include <stdint.h>

static uint64_t state;

static unsigned draw(unsigned of)
{
    uint64_t x = state += 0x9e3779b97f4a7c15u; /* splitmix64 */
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (unsigned)((x ^ x >> 31) % of);
}

#endif
