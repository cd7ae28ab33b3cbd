/* SPDX-License-Identifier: Apache-2.0 */
/* What `weft top --hosts` and `weft info --job --hosts` ask of other hosts: themselves, by a remote shell. */
#ifndef WEFT_TOOLS_ON_HOSTS_H
#define WEFT_TOOLS_ON_HOSTS_H

typedef struct on_hosts_ask {
    const char *rsh, *weft; /* what runs a command on a host; the command there */
    const char *words;      /* "top -n 1" */
    const char *which;      /* a process or program behind them, from the user; may be NULL */
    long limit_s;           /* for an answer */
} on_hosts_ask;

/* Asks the hosts of the list "a,b" all at once and shows the answers one below the other, `times` times (0: for
 * ever); an exit status, 1 if none of them had an answer at last. */
int on_hosts(const char *list, const on_hosts_ask *what, long times, int escapes);

#endif
