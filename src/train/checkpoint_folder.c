/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The folder of a run:
 *
 *     step-000000000300       a checkpoint: index.json, and a file of each rank
 *     writing-000000000400    one that is being written, or was when a rank died
 *     removing-000000000100   one that is being removed
 *     lock                    held by the job that writes, which it names
 *
 * A checkpoint gets its name by one renaming, behind everything that is in it.
 */
#include "base/os/os.h"
#include "base/report/os_look.h"
#include "base/report/status.h"
#include "fabric/group/group.h"
#include "fabric/world/world.h"
#include "train/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

enum { PREDECESSOR_MS = 30000 };

static weft_status path_of(const weft_checkpoint *c, const char *kind, int64_t step,
                           char out[WEFT_I_DISK_PATH])
{
    char name[64];
    snprintf(name, sizeof name, "%s-%012lld", kind, (long long)step);
    return weft_i_disk_path(out, c->folder, name);
}

weft_status weft_i_folder_writing(const weft_checkpoint *c, char out[WEFT_I_DISK_PATH])
{
    return path_of(c, "writing", c->step, out);
}

weft_status weft_i_folder_of_step(const weft_checkpoint *c, int64_t step,
                                  char out[WEFT_I_DISK_PATH])
{
    return path_of(c, "step", step, out);
}

/* ---- beginning ---- */

/* What the lock's file says of a job.  Everybody may read it, and the key is secret: 32 of its 128 bits
 * tell jobs apart and leave it so. */
static uint32_t mark_of(const weft_checkpoint *c)
{
    return (uint32_t)weft_i_key_of(c->group->world->key, "lock", 4).word[0];
}

/* Whether the lock's file names this job as the one that holds it, or nobody: whoever holds it first
 * has not come to that, or was killed before. */
static bool is_of_this_job(const weft_checkpoint *c)
{
    uint32_t mark = mark_of(c), held = 0;
    ssize_t bytes = WEFT_OS->pread(c->lock, &held, sizeof held, 0);
    return !bytes || (bytes == (ssize_t)sizeof held && held == mark);
}

/*
 * 0, or the errno with which the lock could not be had.  A rank of this job that was killed while it
 * saved has the lock until its process is gone, and that is not before the disk has what it was
 * writing: those who go on without it wait for that.
 */
static int await_lock(const weft_checkpoint *c)
{
    int64_t deadline = weft_i_os_deadline(PREDECESSOR_MS);
    while (WEFT_OS->flock(c->lock, LOCK_EX | LOCK_NB)) {
        int error = errno;
        if (error != EWOULDBLOCK || !is_of_this_job(c) || weft_i_os_ms_until(deadline) == 0)
            return error;
        WEFT_OS->sleep_ns(2000000);
    }
    return 0;
}

static weft_status take_lock(weft_checkpoint *c)
{
    char path[WEFT_I_DISK_PATH];
    WEFT_TRY(weft_i_disk_path(path, c->folder, "lock"));
    c->lock = WEFT_OS->open(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0644);
    if (c->lock < 0)
        return weft_i_fail_errno(errno, "opening %s", path);
    int error = await_lock(c);
    if (!error) { /* If it cannot be written, others of this job do not wait. */
        uint32_t mark = mark_of(c);
        (void)!WEFT_OS->pwrite(c->lock, &mark, sizeof mark, 0);
        return WEFT_OK;
    }
    if (error == ENOLCK || error == ENOSYS || error == EOPNOTSUPP)
        return WEFT_OK; /* some network file systems have no locks: nobody is kept away */
    weft_i_folder_end(c);
    return error == EWOULDBLOCK
               ? weft_i_fail(WEFT_ERR_STATE, "another job saves into the folder %s at this moment",
                             c->folder)
               : weft_i_fail_errno(error, "locking %s", path);
}

void weft_i_folder_end(weft_checkpoint *c)
{
    if (c->lock >= 0)
        WEFT_OS->close(c->lock);
    c->lock = -1;
}

static bool remove_leftover(void *arg, const char *name)
{
    const weft_checkpoint *c = arg;
    char path[WEFT_I_DISK_PATH];
    bool ours = !strncmp(name, "writing-", 8) || !strncmp(name, "removing-", 9);
    if (ours && snprintf(path, sizeof path, "%s/%s", c->folder, name) < (int)sizeof path)
        weft_i_disk_remove_folder(path);
    return true;
}

weft_status weft_i_folder_begin(weft_checkpoint *c)
{
    char path[WEFT_I_DISK_PATH];
    WEFT_TRY(weft_i_disk_make_folder(c->folder));
    WEFT_TRY(take_lock(c));
    weft_i_os_each_name(c->folder, remove_leftover, c);
    weft_status status = weft_i_folder_writing(c, path);
    if (status >= 0)
        status = weft_i_disk_make_folder(path);
    if (status < 0)
        weft_i_folder_end(c);
    return status;
}

/* ---- what is there ---- */

typedef struct names {
    weft_i_found *list;
    int count, room;
    bool failed; /* no memory */
} names;

static bool note_step(void *arg, const char *name)
{
    names *n = arg;
    char again[64];
    int64_t step = 0;
    if (strncmp(name, "step-", 5) || strlen(name) < 17 || strlen(name) > 5 + 18)
        return true;
    for (const char *digit = name + 5; *digit; digit++)
        if (*digit < '0' || *digit > '9')
            return true;
        else
            step = step * 10 + (*digit - '0');
    snprintf(again, sizeof again, "step-%012lld", (long long)step);
    if (strcmp(name, again))
        return true;
    if (n->count == n->room) {
        int room = n->room ? 2 * n->room : 16;
        weft_i_found *more = WEFT_OS->resize(n->list, (size_t)room * sizeof *more);
        n->failed |= !more;
        if (!more)
            return false;
        n->list = more;
        n->room = room;
    }
    n->list[n->count++] = (weft_i_found){.step = step};
    return true;
}

/* The newest first: what was saved last, whatever its step; what has no readable index by its step. */
static int newest_first(const void *a, const void *b)
{
    const weft_i_found *x = a, *y = b;
    if (x->serial && y->serial && x->serial != y->serial)
        return x->serial > y->serial ? -1 : 1;
    return x->step > y->step ? -1 : x->step < y->step;
}

/* A damaged index is no error here: whoever loads it finds that out. */
static void read_serial(const weft_checkpoint *c, weft_i_found *found)
{
    char path[WEFT_I_DISK_PATH];
    weft_i_errors before;
    weft_i_index index = {0};
    weft_i_errors_save(&before);
    if (weft_i_folder_of_step(c, found->step, path) >= 0 && weft_i_index_read(&index, path) >= 0 &&
        index.step == found->step)
        found->serial = index.serial;
    weft_i_index_clear(&index);
    weft_i_errors_restore(&before);
}

weft_status weft_i_folder_list(const weft_checkpoint *c, weft_i_found **out, int *count)
{
    names n = {0};
    weft_i_os_each_name(c->folder, note_step, &n);
    if (n.failed) {
        WEFT_OS->free(n.list);
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for a list of checkpoints");
    }
    for (int i = 0; i < n.count; i++)
        read_serial(c, &n.list[i]);
    if (n.count)
        qsort(n.list, (size_t)n.count, sizeof *n.list, newest_first);
    *out = n.list;
    *count = n.count;
    return WEFT_OK;
}

/* ---- committing ---- */

/* Not by its name at any moment when it is not whole. */
static void remove_step(const weft_checkpoint *c, int64_t step)
{
    char from[WEFT_I_DISK_PATH], to[WEFT_I_DISK_PATH];
    if (path_of(c, "step", step, from) < 0 || path_of(c, "removing", step, to) < 0)
        return;
    if (!WEFT_OS->rename(from, to))
        weft_i_disk_remove_folder(to);
}

/* All but the newest; this one is not counted, and stays. */
static void remove_old(const weft_checkpoint *c, const weft_i_found *list, int count)
{
    int kept = 1;
    for (int i = 0; i < count && c->opts.keep; i++)
        if (list[i].step != c->step && kept++ >= c->opts.keep)
            remove_step(c, list[i].step);
}

/* In the place of a checkpoint of the same step, if there is one, at once. */
static weft_status give_name(const weft_checkpoint *c, bool replaces)
{
    char from[WEFT_I_DISK_PATH], to[WEFT_I_DISK_PATH];
    WEFT_TRY(weft_i_folder_writing(c, from));
    WEFT_TRY(weft_i_folder_of_step(c, c->step, to));
    if (!replaces)
        return weft_i_disk_rename(from, to);
    if (WEFT_OS->exchange(from, to)) {
        /* A file system that cannot: for a moment only the ones before it are there. */
        remove_step(c, c->step);
        return weft_i_disk_rename(from, to);
    }
    weft_status status = weft_i_disk_flush_name(to);
    weft_i_disk_remove_folder(from);
    return status;
}

weft_status weft_i_folder_commit(weft_checkpoint *c)
{
    char folder[WEFT_I_DISK_PATH];
    weft_i_found *list = NULL;
    int count = 0;
    bool replaces = false;
    WEFT_TRY(weft_i_folder_writing(c, folder));
    WEFT_TRY(weft_i_folder_list(c, &list, &count));
    c->index.step = c->step;
    c->index.serial = 1;
    for (int i = 0; i < count; i++) {
        replaces |= list[i].step == c->step;
        if (list[i].serial >= c->index.serial)
            c->index.serial = list[i].serial + 1;
    }
    weft_status status = weft_i_index_write(&c->index, folder);
    if (status >= 0)
        status = weft_i_disk_flush_names(folder);
    if (status >= 0)
        status = give_name(c, replaces);
    if (status >= 0)
        remove_old(c, list, count);
    else
        weft_i_disk_remove_folder(folder);
    WEFT_OS->free(list);
    return status;
}
