/* SPDX-License-Identifier: Apache-2.0 */
/* A part of another store: "prefix/" in front of every key, everything else passed on. */
#include "store/store.h"

#include "base/os/os.h"
#include "base/report/status.h"

#include <string.h>

typedef struct prefixed {
    weft_store store;
    size_t prefix_bytes; /* with its slash */
    char prefix[WEFT_STORE_KEY_BYTES + 2];
} prefixed;

/* All longer keys in one block: the views first, the texts behind them.  NULL: too long (LIMIT) or
 * no memory. */
static weft_i_view *lengthen(const prefixed *p, const weft_i_store_request *request,
                             weft_status *status)
{
    size_t total = 0;
    for (size_t i = 0; i < request->keys; i++) {
        size_t bytes = p->prefix_bytes + request->key[i].bytes;
        *status = WEFT_ERR_LIMIT;
        if (bytes > WEFT_STORE_KEY_BYTES)
            return NULL;
        total += sizeof(weft_i_view) + bytes;
    }
    *status = WEFT_ERR_NO_MEMORY;
    weft_i_view *views = WEFT_OS->alloc(total);
    if (!views)
        return NULL;
    char *at = (char *)(views + request->keys);
    for (size_t i = 0; i < request->keys; i++) {
        views[i] = (weft_i_view){at, p->prefix_bytes + request->key[i].bytes};
        memcpy(at, p->prefix, p->prefix_bytes);
        memcpy(at + p->prefix_bytes, request->key[i].data, request->key[i].bytes);
        at += views[i].bytes;
    }
    *status = WEFT_OK;
    return views;
}

static weft_status perform(weft_store *store, const weft_i_store_request *request, int64_t deadline,
                           weft_i_store_answer *answer)
{
    prefixed *p = (prefixed *)store;
    weft_status status;
    weft_i_view *views = lengthen(p, request, &status);
    if (!views)
        return weft_i_fail(status, "store %s: %s: %s", store->name,
                           weft_i_store_op_name(request->op),
                           status == WEFT_ERR_LIMIT ? "prefix and key are over 8,192 bytes together"
                                                    : "no memory for the keys");
    weft_i_store_request longer = *request;
    longer.key = views;
    status = store->inner->kind->perform(store->inner, &longer, deadline, answer);
    WEFT_OS->free(views);
    return status;
}

static void close_prefixed(weft_store *store, bool forked)
{
    (void)forked;
    weft_i_object_drop(store->inner);
}

static weft_store *copy_of(weft_store *store)
{
    prefixed *p = (prefixed *)store;
    char prefix[WEFT_STORE_KEY_BYTES + 2];
    memcpy(prefix, p->prefix, p->prefix_bytes);
    prefix[p->prefix_bytes - 1] = 0; /* without its slash */
    weft_store *inner = weft_store_clone(store->inner);
    weft_store *copy = inner ? weft_store_prefix(prefix, inner) : NULL;
    weft_release(inner);
    return copy;
}

static const weft_i_store_kind kind = {
    .perform = perform, .clone = copy_of, .close = close_prefixed};

weft_store *weft_store_prefix(const char *prefix, weft_store *store)
{
    if (!store)
        return weft_i_store_pass_null("weft_store_prefix");
    if (weft_i_store_usable(store, "weft_store_prefix"))
        return NULL;
    size_t length = prefix ? strnlen(prefix, WEFT_STORE_KEY_BYTES) : 0;
    if (!prefix || length >= WEFT_STORE_KEY_BYTES)
        return weft_i_null(prefix ? WEFT_ERR_LIMIT : WEFT_ERR_INVALID_ARG,
                           "weft_store_prefix: prefix is %s", prefix ? "too long" : "NULL");
    prefixed *p = weft_i_store_new(&kind, sizeof *p, "\"%.40s/\" of %.100s", prefix, store->name);
    if (!p)
        return NULL;
    memcpy(p->prefix, prefix, length);
    p->prefix[length] = '/';
    p->prefix_bytes = length + 1;
    p->store.inner = weft_i_object_hold(store);
    return &p->store;
}
