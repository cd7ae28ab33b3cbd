/* SPDX-License-Identifier: Apache-2.0 */
/* One host of a launch.  See far_host.h. */
#include "launch/far_host.h"

#include "base/report/status.h"
#include "base/report/text.h"
#include "launch/rsh.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

static void close_fd(int *fd)
{
    if (*fd >= 0)
        WEFT_OS->close(*fd);
    *fd = -1;
}

static weft_status open_pipes(int pipes[3][2])
{
    for (int i = 0; i < 3; i++)
        pipes[i][0] = pipes[i][1] = -1;
    for (int i = 0; i < 3; i++)
        if (WEFT_OS->pipe(pipes[i]))
            return weft_i_fail_errno(errno, "launch: pipes to a remote shell");
    return WEFT_OK;
}

static weft_status spawn(weft_i_far_host *far, char **words, const sigset_t *mask, int pipes[3][2])
{
    weft_i_os_child child = {.argv = words,
                             .env = environ,
                             .in = pipes[0][0],
                             .out = pipes[1][1],
                             .err = pipes[2][1],
                             .keep = -1,
                             .core = -1,
                             .parent = weft_i_os_process(),
                             .mask = mask};
    pid_t process = WEFT_OS->spawn(&child);
    if (process < 0)
        return weft_i_fail(errno == ENOENT ? WEFT_ERR_NOT_FOUND : WEFT_ERR_IO,
                           "launch: host %s: the remote shell \"%s\": %s", far->host->name,
                           words[0], strerror(errno));
    far->process = process;
    far->pidfd = WEFT_OS->pidfd_open(process);
    return far->pidfd < 0 ? weft_i_fail_errno(errno, "launch: watching a remote shell") : WEFT_OK;
}

weft_status weft_i_far_host_start(weft_i_far_host *far, const char *rsh, const char *weft,
                                  const sigset_t *mask)
{
    int pipes[3][2];
    char **words = weft_i_rsh_words(rsh, far->host->name, weft);
    if (!words)
        return WEFT_ERR_NO_MEMORY;
    weft_status status = open_pipes(pipes);
    if (status == WEFT_OK)
        status = spawn(far, words, mask, pipes);
    if (status == WEFT_OK) {
        far->orders.fd = pipes[0][1];
        far->from = pipes[1][0];
        far->errors = pipes[2][0];
        pipes[0][1] = pipes[1][0] = pipes[2][0] = -1;
    }
    for (int i = 0; i < 3; i++) {
        close_fd(&pipes[i][0]);
        close_fd(&pipes[i][1]);
    }
    WEFT_OS->free(words);
    far->heard = WEFT_OS->clock_ns();
    return status;
}

static void end_line(weft_i_far_host *far, bool is_error,
                     void (*say)(void *arg, const weft_i_far_host *far, const char *line),
                     void *arg)
{
    struct weft_i_far_line *line = &far->lines[is_error];
    line->text[line->used] = 0;
    line->used = 0;
    weft_i_text_tame(line->text, false);
    if (!line->text[strspn(line->text, " \t")])
        return;
    if (is_error || !far->complains)
        snprintf(far->last, sizeof far->last, "%s", line->text);
    far->complains |= is_error;
    say(arg, far, line->text);
}

void weft_i_far_host_hear(weft_i_far_host *far, bool is_error, const char *bytes, size_t count,
                          void (*say)(void *arg, const weft_i_far_host *far, const char *line),
                          void *arg)
{
    struct weft_i_far_line *line = &far->lines[is_error];
    for (size_t i = 0; i < count; i++) {
        bool end = bytes[i] == '\n';
        if (!end && bytes[i] != '\r' && bytes[i])
            line->text[line->used++] = bytes[i];
        if (end || line->used == sizeof line->text - 1)
            end_line(far, is_error, say, arg);
    }
}

void weft_i_far_host_text(const weft_i_far_host *far, char *out, size_t bytes)
{
    weft_i_text text = {out, bytes, 0};
    if (far->process)
        weft_i_text_put(&text, "closed its output");
    else if (WIFSIGNALED(far->status))
        weft_i_text_put(&text, "was ended by SIG%s", sigabbrev_np(WTERMSIG(far->status)));
    else
        weft_i_text_put(&text, "ended with exit code %d", WEXITSTATUS(far->status));
    if (*far->last)
        weft_i_text_put(&text, ": %s", far->last);
}

void weft_i_far_host_close(weft_i_far_host *far)
{
    close_fd(&far->orders.fd); /* the end of its orders ends the ranks there */
    if (far->process) {
        if (WEFT_OS->kill(-far->process, SIGKILL))
            WEFT_OS->kill(far->process, SIGKILL);
        WEFT_OS->waitpid(far->process, &far->status, 0);
    }
    far->process = 0;
    close_fd(&far->pidfd);
    close_fd(&far->from);
    close_fd(&far->errors);
    weft_i_frame_in_free(&far->in);
    weft_i_frame_out_free(&far->orders);
}
