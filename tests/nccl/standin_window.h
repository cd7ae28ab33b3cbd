/* SPDX-License-Identifier: Apache-2.0 */
/* Every entry point of the stand-in, and their first line. */
#ifndef WEFT_TESTS_NCCL_STANDIN_WINDOW_H
#define WEFT_TESTS_NCCL_STANDIN_WINDOW_H

#include "standin_parts.h"

#define FN(name_, parameters_)       weft_i_nccl_result standin_##name_ parameters_;
#define OPTIONAL(name_, parameters_) weft_i_nccl_result standin_##name_ parameters_;
#include "backends/nccl/library.def"
#undef FN
#undef OPTIONAL

int standin_poll_window(standin_comm *comm);
void standin_end_windows(const standin_comm *comm);
int standin_enter(const char *name);
void standin_born(int by);

#define STANDIN_ENTER(name_)                 \
    do {                                     \
        int failed_ = standin_enter(#name_); \
        if (failed_)                         \
            return failed_;                  \
    } while (0)

#endif
