/* SPDX-License-Identifier: Apache-2.0 */
/* The command that runs another one on a host, made from a template such as "ssh -x %h". */
#ifndef WEFT_LAUNCH_RSH_H
#define WEFT_LAUNCH_RSH_H

#include "weft/status.h"

#include <stddef.h>

/* Quotes in a template keep blanks together; %h is the host, %% a percent sign.  INVALID_ARG: an open
 * quote, or no %h. */
weft_status weft_i_rsh_check(const char *template);

/* The words of the command, NULL at the end, in one allocation for WEFT_OS->free: those of the
 * template, then "WEFT run --join" with WEFT quoted for a shell where it needs that. */
char **weft_i_rsh_words(const char *template, const char *host, const char *weft);

#endif
