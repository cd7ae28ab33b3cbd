/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products that are cut into tiles of the result, one for each thread.  Nothing is cut along the inner
 * dimension, so a way of multiplying gives the same bits for a tile as for the whole, if it adds up an
 * element in an order that depends on the inner size alone.  Our own ways do; a CBLAS is asked (weft_i_cut_is_even).
 */
#ifndef WEFT_KERNELS_CUT_H
#define WEFT_KERNELS_CUT_H

#include "kernels/blas/matrix.h"

#include <stdbool.h>

/* One tile; false if there was no memory. */
typedef bool weft_i_cut_way(const void *state, const weft_i_matrix *out, const weft_i_matrix *a,
                            const weft_i_matrix *b);

/* out = a b by tiles of whole grains, as many as there are threads if the product is worth it; false if one
 * of them had no memory. */
bool weft_i_cut(const weft_i_matrix *out, const weft_i_matrix *a, const weft_i_matrix *b, int grain,
                weft_i_cut_way *way, const void *state);

/* f32 or f64 by CBLAS: as weft_i_matrix_by_blas, by the team.  Where the library's bits depend on the cut, it
 * is the same for any number of threads. */
void weft_i_cut_by_blas(const weft_i_blas *blas, const weft_i_matrix *out, const weft_i_matrix *a,
                        const weft_i_matrix *b);

/* Whether the library gives the same bits for tiles of a large product as for the whole: it is tried, once
 * for each dtype. */
bool weft_i_cut_is_even(weft_dtype dtype);

#endif
