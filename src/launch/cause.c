/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the ends of the ranks.  See cause.h. */
#include "launch/cause.h"

#include "base/report/status.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

bool weft_i_cause_failed(int status)
{
    return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

int weft_i_cause_code(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* 0: a failure of its own, 1: reports that of another rank, 2: we ended it, 3: did not fail. */
static int class_of(const weft_i_ending *ending)
{
    if (!ending->order || !weft_i_cause_failed(ending->status))
        return 3;
    if (ending->by_us)
        return 2;
    if (!WIFEXITED(ending->status))
        return 0;
    return ending->bereft || weft_i_status_follows((weft_status)-WEXITSTATUS(ending->status));
}

bool weft_i_cause_deserted(const weft_i_ending *ending)
{
    return ending->order && !weft_i_cause_failed(ending->status) && ending->deserted;
}

/* The first that left without a word, before rank `failed` told that somebody is gone; else that
 * rank. */
static int deserter(const weft_i_ending *endings, int ranks, int failed)
{
    int first = -1;
    for (int rank = 0; rank < ranks; rank++)
        if (weft_i_cause_deserted(&endings[rank]) &&
            (first < 0 || endings[rank].order < endings[first].order))
            first = rank;
    return first < 0 ? failed : first;
}

int weft_i_cause_first(const weft_i_ending *endings, int ranks)
{
    int first = -1, best = 3;
    for (int rank = 0; rank < ranks; rank++) {
        int class = class_of(&endings[rank]);
        if (class < best ||
            (class == best && first >= 0 && endings[rank].order < endings[first].order)) {
            best = class;
            first = rank;
        }
    }
    return best == 1 ? deserter(endings, ranks, first) : first;
}

/*
 * A program that does not exist never becomes a rank: the launcher says so by itself.  So a rank
 * that ends with 127 is one whose shared library the loader did not find, or a shell that did not
 * find a command.  The loaders of glibc and musl name the library.
 */
static void text_of_127(const char *said, char *out, size_t bytes)
{
    static const char *const before[] = {"error while loading shared libraries: ",
                                         "Error loading shared library "};
    for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
        const char *found = strstr(said, before[i]);
        if (!found)
            continue;
        const char *name = found + strlen(before[i]);
        snprintf(out, bytes, "exit code 127 (the loader could not load %.*s)",
                 (int)strcspn(name, ":\n"), name);
        return;
    }
    snprintf(out, bytes, "exit code 127 (a command or shared library was not found)");
}

void weft_i_cause_text(int status, const char *said, char *out, size_t bytes)
{
    if (!WIFEXITED(status)) {
        const char *name = sigabbrev_np(WTERMSIG(status)), *text = sigdescr_np(WTERMSIG(status));
        snprintf(out, bytes, "ended by SIG%s (%s)%s", name ? name : "?",
                 text ? text : "unknown signal", WCOREDUMP(status) ? ", core dumped" : "");
        return;
    }
    int code = WEXITSTATUS(status);
    const char *name = weft_status_name((weft_status)-code);
    /* Programs give small codes meanings of their own; those of groups and meetings are ours in all
     * likelihood. */
    if (code == 127)
        text_of_127(said, out, bytes);
    else if (code >= -WEFT_ERR_CANCELLED && strncmp(name, "WEFT_", 5) == 0)
        snprintf(out, bytes, "exit code %d (%s: %s)", code, name,
                 weft_strerror((weft_status)-code));
    else
        snprintf(out, bytes, "exit code %d", code);
}
