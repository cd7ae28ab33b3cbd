/* SPDX-License-Identifier: Apache-2.0 */
/* Dropout for layers that have it inside. */
#ifndef WEFT_NN_DROPOUT_H
#define WEFT_NN_DROPOUT_H

#include "weft/tensor.h"

/* x with each element dropped with probability p, and the others times 1/(1 - p).  NULL passes. */
weft_tensor *weft_i_dropout(weft_tensor *x, double p);

#endif
