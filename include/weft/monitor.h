/* SPDX-License-Identifier: Apache-2.0 */
/* A barrier that says which ranks did not arrive, for finding the rank at which a job hangs. */
#ifndef WEFT_MONITOR_H
#define WEFT_MONITOR_H

#include "weft/group.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Returns when all ranks of the group have called it.  Collective; blocks for `timeout_ms` at most.
 * When the limit of the first rank expires, all ranks that wait here get WEFT_ERR_TIMEOUT at once.
 * The message names the first rank that has not arrived or, with `wait_all`, all of them, and says
 * what each is doing instead.  The group stays usable, and the barrier may be called again.  If a
 * rank is dead or has left, all get WEFT_ERR_PEER_DEAD or WEFT_ERR_PEER_LEFT at once, with a
 * message that names it.
 */
WEFT_API weft_status weft_monitored_barrier(weft_group *group, int64_t timeout_ms, bool wait_all);

#ifdef __cplusplus
}
#endif

#endif
