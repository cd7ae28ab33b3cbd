/* SPDX-License-Identifier: Apache-2.0 */
/* What earlier jobs have measured about large copies (weft/tune.h), for `weft info`. */
#ifndef WEFT_TOOLS_INFO_WAYS_H
#define WEFT_TOOLS_INFO_WAYS_H

#include "json.h"

void info_ways_print(void);
void info_ways_json(weft_i_json *json);

#endif
