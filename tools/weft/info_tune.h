/* SPDX-License-Identifier: Apache-2.0 */
/* The part of `weft info` about decisions by size: each value, what has set it, and where it was
 * measured. */
#ifndef WEFT_TOOLS_INFO_TUNE_H
#define WEFT_TOOLS_INFO_TUNE_H

#include "json.h"

/* 0, or 1 if it could not be written. */
int info_tune_print(void);
void info_tune_json(weft_i_json *j);

#endif
