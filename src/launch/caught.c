/* SPDX-License-Identifier: Apache-2.0 */
/* Takes over the signals of a launcher.  See caught.h. */
#include "launch/caught.h"

#include "base/report/status.h"

#include <errno.h>

weft_status weft_i_caught_take(weft_i_caught *taken, bool pass_on)
{
    static const int passed[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP};
    sigset_t held;
    taken->fd = -1;
    weft_i_os_signals_hold(passed, pass_on ? sizeof passed / sizeof *passed : 0, &held,
                           &taken->before);
    if (!pass_on)
        return WEFT_OK;
    taken->fd = WEFT_OS->signalfd(&held);
    if (taken->fd >= 0)
        return WEFT_OK;
    weft_status status = weft_i_fail_errno(errno, "launch: taking signals");
    weft_i_os_signals_restore(&taken->before);
    return status;
}

void weft_i_caught_give_back(const weft_i_caught *taken)
{
    if (taken->fd >= 0)
        WEFT_OS->close(taken->fd);
    weft_i_os_signals_restore(&taken->before);
}
