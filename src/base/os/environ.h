/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Variables that libraries find in the environment while they are loaded.  setenv would move or
 * free what another thread's getenv is reading; here the environment is another list for a while,
 * and both lists stay whole.
 */
#ifndef WEFT_BASE_ENVIRON_H
#define WEFT_BASE_ENVIRON_H

#include <stdbool.h>

/*
 * From here to weft_i_environ_restore the environment says this too, "NAME=value" each and NULL at the
 * end, before whatever else it says of the same name.  The list must last until then, and its texts as
 * long as the process.  Another thread that lends waits for the restore.  False if memory ran out, and
 * then there is nothing to restore.  A setenv by another thread in between is kept.
 */
bool weft_i_environ_lend(const char *const settings[]);
void weft_i_environ_restore(void);

#endif
