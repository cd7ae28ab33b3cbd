/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which rank writes what.  All ranks tell each other which parts they have; of copies of a part, the rank with
 * the fewest bytes so far writes it.  All compute the same from the same lists.
 */
#include "base/os/os.h"
#include "base/report/status.h"
#include "parallel/accord.h"
#include "train/checkpoint.h"
#include "weft/object.h"

#include <stdlib.h>
#include <string.h>

/* A part, as it is sent: followed by its name, of `name` bytes with the zero. */
typedef struct told {
    int32_t dtype, ndim, stripe_dim, stripes;
    int64_t shape[WEFT_MAX_DIMS], full[WEFT_MAX_DIMS], offset[WEFT_MAX_DIMS];
    uint64_t name;
} told;

/* The parts of all ranks; their names lie in what was received. */
typedef struct plan {
    weft_i_portion *list;
    int count;
    weft_i_portion **chosen; /* the first of each group of copies, the largest first */
    int parts;
} plan;

/* ---- telling ---- */

static void put_portion(char *at, const weft_i_portion *p)
{
    told out = {.dtype = p->dtype,
                .ndim = p->full.ndim,
                .stripe_dim = p->stripe_dim,
                .stripes = p->stripes,
                .name = strlen(p->name) + 1};
    memcpy(out.shape, p->shape.dim, sizeof out.shape);
    memcpy(out.full, p->full.dim, sizeof out.full);
    memcpy(out.offset, p->offset, sizeof out.offset);
    memcpy(at, &out, sizeof out);
    memcpy(at + sizeof out, p->name, out.name);
}

static char *tell(const weft_i_items *items, size_t *bytes)
{
    size_t used = 0;
    *bytes = 0;
    for (int i = 0; i < items->count; i++)
        *bytes += sizeof(told) + strlen(items->item[i].name) + 1;
    char *text = WEFT_OS->alloc(*bytes + 1);
    if (!text)
        return weft_i_null(WEFT_ERR_NO_MEMORY, "no memory for a list of %d parts", items->count);
    for (int i = 0; i < items->count; i++) {
        weft_i_portion p = weft_i_portion_of(items->item[i].name, items->item[i].tensor, 0, i);
        put_portion(text + used, &p);
        used += sizeof(told) + strlen(p.name) + 1;
    }
    return text;
}

/* ---- hearing ---- */

/* The next part of a rank's list; 0 if it is none, else how many bytes it took. */
static size_t take_portion(const char *at, size_t left, weft_i_portion *out)
{
    told t;
    if (left < sizeof t)
        return 0;
    memcpy(&t, at, sizeof t);
    if (t.name < 1 || t.name > WEFT_I_ITEM_NAME || t.name > left - sizeof t ||
        at[sizeof t + t.name - 1] || t.ndim < 0 || t.ndim > WEFT_MAX_DIMS || t.dtype < 0 ||
        t.dtype >= WEFT_DTYPE_COUNT)
        return 0;
    *out = (weft_i_portion){.name = at + sizeof t,
                            .dtype = (weft_dtype)t.dtype,
                            .shape.ndim = t.ndim,
                            .full.ndim = t.ndim,
                            .stripe_dim = t.stripe_dim,
                            .stripes = t.stripes};
    memcpy(out->shape.dim, t.shape, sizeof t.shape);
    memcpy(out->full.dim, t.full, sizeof t.full);
    memcpy(out->offset, t.offset, sizeof t.offset);
    return weft_i_portion_check(out) < 0 ? 0 : sizeof t + t.name;
}

static weft_status hear_rank(plan *p, weft_bytes bytes, int rank, int *room)
{
    size_t at = 0;
    for (int item = 0; at < bytes.length; item++) {
        if (p->count == *room) {
            int more = *room ? 2 * *room : 256;
            weft_i_portion *list = WEFT_OS->resize(p->list, (size_t)more * sizeof *list);
            if (!list)
                return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for a list of %d parts", more);
            p->list = list;
            *room = more;
        }
        size_t used =
            take_portion((const char *)bytes.data + at, bytes.length - at, &p->list[p->count]);
        if (!used)
            return weft_i_fail(WEFT_ERR_PROTOCOL, "rank %d described a part that makes no sense",
                               rank);
        p->list[p->count].owner = rank;
        p->list[p->count++].item = item;
        at += used;
    }
    return WEFT_OK;
}

static weft_status hear_all(plan *p, const weft_blobs *blobs)
{
    int room = 0;
    for (int r = 0; r < weft_blobs_count(blobs); r++)
        WEFT_TRY(hear_rank(p, weft_blobs_get(blobs, r), r, &room));
    weft_i_portion_sort(p->list, p->count);
    return WEFT_OK;
}

/* ---- choosing ---- */

/* The parts of each name, each once, make up the whole.  Sorted, copies stand side by side. */
static weft_status check_wholes(const plan *p)
{
    weft_i_portion *once = WEFT_OS->alloc(((size_t)p->count + 1) * sizeof *once);
    weft_status status =
        once ? WEFT_OK : weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %d parts", p->count);
    for (int at = 0; at < p->count && status >= 0;) {
        int all = weft_i_portion_group(p->list + at, p->count - at), n = 0;
        for (int i = at; i < at + all; i++)
            if (!n || !weft_i_portion_same(&once[n - 1], &p->list[i]))
                once[n++] = p->list[i];
        status = weft_i_portion_check_whole(once, n);
        at += all;
    }
    WEFT_OS->free(once);
    return status;
}

static int largest_first(const void *a, const void *b)
{
    const weft_i_portion *x = *(weft_i_portion *const *)a, *y = *(weft_i_portion *const *)b;
    uint64_t n = weft_i_portion_bytes(x), m = weft_i_portion_bytes(y);
    return n != m ? n > m ? -1 : 1 : x < y ? -1 : x > y;
}

static weft_status find_parts(plan *p)
{
    p->chosen = WEFT_OS->alloc(((size_t)p->count + 1) * sizeof(void *));
    if (!p->chosen)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %d parts", p->count);
    for (int i = 0; i < p->count; i++)
        if (!i || !weft_i_portion_same(&p->list[i - 1], &p->list[i]))
            p->chosen[p->parts++] = &p->list[i];
    if (p->parts)
        qsort(p->chosen, (size_t)p->parts, sizeof *p->chosen, largest_first);
    return WEFT_OK;
}

/* Of a part without elements nothing is written, unless the whole has none. */
static bool is_written(const weft_i_portion *p)
{
    weft_i_portion whole = *p;
    whole.shape = p->full;
    return weft_i_portion_elements(p) || !weft_i_portion_elements(&whole);
}

static weft_status choose(const plan *p, int rank, int ranks, bool *mine)
{
    uint64_t *bytes = WEFT_OS->alloc((size_t)ranks * sizeof *bytes);
    if (!bytes)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %d ranks", ranks);
    for (int i = 0; i < p->parts; i++) {
        const weft_i_portion *first = p->chosen[i], *best = first, *end = p->list + p->count;
        for (const weft_i_portion *q = first; q < end && weft_i_portion_same(first, q); q++)
            if (bytes[q->owner] < bytes[best->owner])
                best = q;
        bytes[best->owner] += weft_i_portion_bytes(best) + 1;
        if (best->owner == rank)
            mine[best->item] = is_written(best);
    }
    WEFT_OS->free(bytes);
    return WEFT_OK;
}

weft_status weft_i_checkpoint_plan(weft_checkpoint *c, const weft_i_items *items, bool *mine)
{
    plan p = {0};
    size_t bytes;
    char *text = tell(items, &bytes);
    weft_status status =
        weft_i_accord(c->group, "weft_checkpoint_save", text ? WEFT_OK : weft_last_status(), NULL);
    weft_blobs *blobs = NULL;
    if (status >= 0) {
        blobs = weft_all_gather_object((weft_bytes){text, bytes}, c->group);
        status = blobs ? hear_all(&p, blobs) : weft_last_status();
    }
    if (status >= 0)
        status = check_wholes(&p);
    if (status >= 0)
        status = find_parts(&p);
    if (status >= 0)
        status = choose(&p, weft_rank(c->group), weft_size(c->group), mine);
    WEFT_OS->free(p.list);
    WEFT_OS->free(p.chosen);
    WEFT_OS->free(text);
    weft_release(blobs);
    return status;
}
