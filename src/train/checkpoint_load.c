/* SPDX-License-Identifier: Apache-2.0 */
/* Loading: which checkpoint, whether it is whole, whether it fits, and only then the copies. */
#include "train/checkpoint_load.h"

#include "base/os/os.h"
#include "base/report/status.h"
#include "parallel/accord.h"
#include "tensor/object/eye.h"
#include "weft/object.h"

#include <stdlib.h>
#include <string.h>

static const char WHAT[] = "weft_checkpoint_load";

/* ---- the names of all ranks ---- */

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

bool weft_i_names_have(const weft_i_names *names, const char *name)
{
    return names->count && bsearch(&name, names->name, (size_t)names->count, sizeof name, by_text);
}

/* One after the other, each with its zero. */
static char *join_names(const weft_i_items *items, size_t *bytes)
{
    size_t used = 0;
    *bytes = 0;
    for (int i = 0; i < items->count; i++)
        *bytes += strlen(items->item[i].name) + 1;
    char *text = WEFT_OS->alloc(*bytes + 1);
    for (int i = 0; i < items->count && text; i++) {
        size_t length = strlen(items->item[i].name) + 1;
        memcpy(text + used, items->item[i].name, length);
        used += length;
    }
    return text ? text : weft_i_null(WEFT_ERR_NO_MEMORY, "no memory for %d names", items->count);
}

static weft_status split_names(weft_i_names *out, const weft_blobs *blobs)
{
    size_t count = 1;
    for (int r = 0; r < weft_blobs_count(blobs); r++) {
        weft_bytes b = weft_blobs_get(blobs, r);
        for (size_t i = 0; i < b.length; i++)
            count += !((const char *)b.data)[i];
        if (b.length && ((const char *)b.data)[b.length - 1])
            return weft_i_fail(WEFT_ERR_PROTOCOL, "rank %d told of names that do not end", r);
    }
    if (!(out->name = WEFT_OS->alloc(count * sizeof *out->name)))
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %zu names", count);
    for (int r = 0; r < weft_blobs_count(blobs); r++) {
        weft_bytes b = weft_blobs_get(blobs, r);
        const char *at = b.data, *end = at + b.length;
        for (; at < end; at += strlen(at) + 1)
            out->name[out->count++] = at;
    }
    if (out->count)
        qsort(out->name, (size_t)out->count, sizeof *out->name, by_text);
    return WEFT_OK;
}

/* ---- one checkpoint ---- */

/* What damage is, and not the end of a rank or of memory. */
static bool is_damage(weft_status status)
{
    return status == WEFT_ERR_INVALID_ARG || status == WEFT_ERR_IO ||
           status == WEFT_ERR_NOT_FOUND || status == WEFT_ERR_UNSUPPORTED;
}

static weft_status open_whole(weft_checkpoint *c, weft_i_stored *stored, int64_t step)
{
    char folder[WEFT_I_DISK_PATH];
    weft_status status = weft_i_folder_of_step(c, step, folder);
    if (status >= 0)
        status = weft_i_stored_open(stored, folder);
    if (status >= 0 && stored->index.step != step)
        status = weft_i_fail(WEFT_ERR_INVALID_ARG, "%s is of step %lld", folder,
                             (long long)stored->index.step);
    if (status >= 0 && c->opts.check)
        status = weft_i_stored_check(stored, weft_rank(c->group), weft_size(c->group));
    return weft_i_accord(c->group, WHAT, status, NULL);
}

/* All ranks have to do with the same checkpoint, and it is of what they have. */
static weft_status match(weft_checkpoint *c, const weft_i_items *items, const weft_i_stored *stored)
{
    weft_i_names all = {0};
    size_t bytes = 0;
    char *text = join_names(items, &bytes);
    weft_status status = weft_i_accord(c->group, WHAT, text ? WEFT_OK : weft_last_status(), NULL);
    weft_blobs *blobs = NULL;
    if (status >= 0) {
        blobs = weft_all_gather_object((weft_bytes){text, bytes}, c->group);
        status = blobs ? split_names(&all, blobs) : weft_last_status();
        if (blobs) {
            if (status >= 0)
                status = weft_i_checkpoint_match(c, items, stored, &all);
            status = weft_i_accord(c->group, WHAT, status, NULL);
        }
    }
    WEFT_OS->free(all.name);
    WEFT_OS->free(text);
    weft_release(blobs);
    return status;
}

/* `whole` says whether it was; after that, no other is tried. */
static weft_status load_one(weft_checkpoint *c, const weft_i_items *items, int64_t step,
                            bool *whole)
{
    weft_i_stored stored = {0};
    weft_status status = open_whole(c, &stored, step);
    *whole = status >= 0 || !is_damage(status);
    if (status >= 0)
        status = match(c, items, &stored);
    if (status >= 0)
        status = weft_i_accord(c->group, WHAT, weft_i_checkpoint_restore(c, items, &stored), NULL);
    weft_i_stored_clear(&stored);
    return status;
}

/* ---- which one ---- */

/* The steps that are there, the newest first, as rank 0 sees them; to be freed. */
static weft_status find_steps(weft_checkpoint *c, int64_t **steps, int *count)
{
    weft_i_found *found = NULL;
    bool first = weft_rank(c->group) == 0;
    weft_status status = first ? weft_i_folder_list(c, &found, count) : WEFT_OK;
    int64_t *list = first ? WEFT_OS->alloc(((size_t)*count + 1) * sizeof *list) : NULL;
    if (first && status >= 0 && !list)
        status = weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for a list of checkpoints");
    for (int i = 0; i < *count && list; i++)
        list[i] = found[i].step;
    WEFT_OS->free(found);
    status = weft_i_accord(c->group, WHAT, status, NULL);
    weft_bytes sent = {list, (size_t)*count * sizeof *list};
    weft_blobs *blobs = NULL;
    if (status >= 0)
        blobs = weft_broadcast_object(first ? &sent : NULL, first, 0, c->group);
    weft_bytes got = weft_blobs_get(blobs, 0);
    if (status >= 0 && !blobs)
        status = weft_last_status();
    if (status >= 0 && !(*steps = WEFT_OS->alloc(got.length + sizeof **steps)))
        status = weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for a list of checkpoints");
    if (status >= 0) {
        *count = (int)(got.length / sizeof **steps);
        if (*count)
            memcpy(*steps, got.data, (size_t)*count * sizeof **steps);
    }
    WEFT_OS->free(list);
    weft_release(blobs);
    return status;
}

/* The newest that is whole. */
static weft_status load_newest(weft_checkpoint *c, const weft_i_items *items, const int64_t *steps,
                               int count, int64_t *step)
{
    weft_status status = WEFT_OK;
    if (!count)
        return weft_i_miss(WEFT_ERR_NOT_FOUND, "%s: there is no checkpoint in %s", WHAT, c->folder);
    for (int i = 0; i < count; i++) {
        bool whole;
        weft_i_errors before;
        weft_i_errors_save(&before);
        status = load_one(c, items, steps[i], &whole);
        if (status >= 0)
            *step = steps[i];
        if (whole)
            return status;
        if (weft_rank(c->group) == 0)
            weft_i_log(WEFT_LOG_WARN, "the checkpoint of step %lld is damaged, and left out: %s",
                       (long long)steps[i], weft_last_error());
        if (i + 1 < count)
            weft_i_errors_restore(&before);
    }
    char *why = weft_i_error_copy();
    weft_i_fail(WEFT_ERR_IO, "%s: no checkpoint in %s is whole; the oldest: %s", WHAT, c->folder,
                why ? why : "");
    WEFT_OS->free(why);
    return WEFT_ERR_IO;
}

static weft_status load(weft_checkpoint *c, int64_t wanted, int64_t *step)
{
    weft_i_items items = {0};
    int64_t *steps = NULL;
    int count = 0;
    bool whole;
    weft_status status = weft_i_accord(c->group, WHAT, weft_i_items_list(c, &items), NULL);
    if (status >= 0 && wanted < 0)
        status = find_steps(c, &steps, &count);
    if (status >= 0 && wanted < 0) {
        status = load_newest(c, &items, steps, count, step);
    } else if (status >= 0) {
        status = load_one(c, &items, wanted, &whole);
        if (status < 0 && !whole)
            status = weft_i_explain(status == WEFT_ERR_NOT_FOUND ? status : WEFT_ERR_IO,
                                    "step %lld", (long long)wanted);
    }
    WEFT_OS->free(steps);
    weft_i_items_clear(&items);
    return status;
}

static weft_status check(const char *what, weft_checkpoint *c)
{
    if (!c)
        return weft_i_missing("%s: the checkpoint is NULL", what);
    if (c->head.kind != WEFT_I_CHECKPOINT)
        return weft_i_fail(WEFT_ERR_TYPE, "%s: this is no checkpoint, or one that was released",
                           what);
    return weft_checkpoint_wait(c);
}

weft_status weft_checkpoint_load(weft_checkpoint *checkpoint, int64_t *step)
{
    int64_t found = 0;
    WEFT_TRY(check(WHAT, checkpoint));
    WEFT_TRY(weft_scope_open());
    weft_status status = load(checkpoint, -1, &found);
    weft_scope_close();
    if (status >= 0 && step)
        *step = found;
    return status;
}

weft_status weft_checkpoint_load_step(weft_checkpoint *checkpoint, int64_t step)
{
    int64_t found;
    WEFT_TRY(check("weft_checkpoint_load_step", checkpoint));
    if (step < 0)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_checkpoint_load_step: step %lld",
                           (long long)step);
    WEFT_TRY(weft_scope_open());
    weft_status status = load(checkpoint, step, &found);
    weft_scope_close();
    return status;
}
