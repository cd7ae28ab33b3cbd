/* SPDX-License-Identifier: Apache-2.0 */
/* How weft sets UCX, and why; see settings.c. */
#ifndef WEFT_UCX_SETTINGS_H
#define WEFT_UCX_SETTINGS_H

#include "library.h"

/* Changes what the environment says; a user's own UCX_... stays, but for UCX_TLS.  `interface`: NULL: any;
 * `rdma`: thresholds for such a network.  */
weft_status weft_i_ucx_set(const weft_i_ucx *ucx, weft_i_ucp_config config, const char *interface,
                           bool rdma);

/* Lends the environment what UCX reads there alone, until weft_i_environ_restore; `list` is room for it
 * until then.  False if memory ran out. */
enum { WEFT_I_UCX_LENT = 8 };
bool weft_i_ucx_lend(const char *list[WEFT_I_UCX_LENT]);

/* UCX_TLS without what would take two hosts for one: "tcp,sm,self" is "tcp,self", "all" is "^sm". */
void weft_i_ucx_transports(const char *users, char *out, size_t bytes);

/* Has this machine a network interface, or an RDMA device, of each of these names, "eth0,eth1"?  UCX would
 * only warn, and reach nobody. */
bool weft_i_ucx_has_interface(const char *names);

/* Has this machine an active port of an RDMA network? */
bool weft_i_ucx_has_rdma(void);

#endif
