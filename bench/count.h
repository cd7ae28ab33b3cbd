/* SPDX-License-Identifier: Apache-2.0 */
/* What the counted program and the plugin that counts agree on. */
#ifndef WEFT_BENCH_COUNT_H
#define WEFT_BENCH_COUNT_H

/* A number that is no system call of Linux; its argument is a row, or COUNT_ROWS: none. */
enum { COUNT_MARK = 0x7e77, COUNT_ROWS = 32 };

#endif
