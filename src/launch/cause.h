/* SPDX-License-Identifier: Apache-2.0 */
/* Which rank of a job failed first, how, and what followed from it. */
#ifndef WEFT_LAUNCH_CAUSE_H
#define WEFT_LAUNCH_CAUSE_H

#include <stdbool.h>
#include <stddef.h>

/* How one rank ended. */
typedef struct weft_i_ending {
    int order;     /* counted from 1 in the order we learned of them; 0: not ended */
    int status;    /* as waitpid gives it */
    bool deserted; /* it was in the job and had not left it (weft_finish) */
    bool by_us;    /* after we had sent it SIGTERM or SIGKILL */
    bool bereft;   /* one of its last operations failed because of another rank */
} weft_i_ending;

/* Did it exit with 0, but without weft_finish?  That is a failure only if others missed it. */
bool weft_i_cause_deserted(const weft_i_ending *ending);

/*
 * The rank whose failure the others followed from, -1 if none failed.  Ranks that report the death
 * of another may be seen to end before it (a core dump takes long), so they count only if nobody
 * else failed, or deserted.  A rank reports it by its exit code, or by any other if it was bereft.
 */
int weft_i_cause_first(const weft_i_ending *endings, int ranks);

bool weft_i_cause_failed(int status);

/* The exit code of the rank, or 128 + the signal that ended it. */
int weft_i_cause_code(int status);

/*
 * "exit code 40 (WEFT_ERR_PEER_DEAD: a rank died)", "ended by SIGSEGV (Segmentation fault)".
 * `said` holds the last lines of the rank's standard error, "" if they are not known.
 */
void weft_i_cause_text(int status, const char *said, char *out, size_t bytes);

#endif
