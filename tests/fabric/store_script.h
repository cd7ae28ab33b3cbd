/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank of several hosts without the hosts: a world whose peers are all elsewhere, and whose store
 * lies in this process.  The test plays the others by what it puts there.  The store counts the
 * rank's requests, and can fail at any of them or change its contents before one.
 */
#ifndef WEFT_TESTS_STORE_SCRIPT_H
#define WEFT_TESTS_STORE_SCRIPT_H

#include "harness.h"

#include "base/os/os.h"
#include "base/report/status.h"
#include "fabric/group/group.h"
#include "store/store.h"

#include <weft/weft.h>

typedef struct script {
    weft_store store;
    weft_store *data; /* held: what the others see too */
    int requests;     /* so far */
    int64_t deadline; /* of the last one */
    int fails_at;     /* the number of the request that fails; 0: none */
    weft_status fails_with;
    void (*before)(struct script *script, int request); /* NULL: nothing happens */
} script;

static weft_status script_perform(weft_store *store, const weft_i_store_request *request,
                                  int64_t deadline, weft_i_store_answer *answer)
{
    script *s = (script *)store;
    s->requests++;
    s->deadline = deadline;
    if (s->before)
        s->before(s, s->requests);
    if (s->requests == s->fails_at)
        return weft_i_fail(s->fails_with, "the script wants request %d to fail", s->requests);
    return s->data->kind->perform(s->data, request, deadline, answer);
}

static void script_close(weft_store *store, bool forked)
{
    (void)forked;
    weft_i_object_drop(((script *)store)->data);
}

static const weft_i_store_kind script_kind = {.perform = script_perform, .close = script_close};

static inline script *script_new(weft_store *data)
{
    script *s = weft_i_store_new(&script_kind, sizeof *s, "script");
    CHECK(s);
    s->data = weft_i_object_hold(data);
    return s;
}

/* ---- a rank ---- */

typedef struct lonely {
    weft_store *data; /* the store as the others see it */
    script *script;   /* as the rank sees it */
    weft_i_world *world;
    weft_group *group;
} lonely;

/* Opens a scope, which lonely_close closes. */
static inline lonely lonely_open(int rank, int size)
{
    lonely l;
    CHECK_OK(weft_scope_open());
    l.data = weft_store_local();
    CHECK(l.data);
    l.script = script_new(l.data);
    CHECK_OK(weft_i_world_new(rank, size, &l.world));
    l.world->store = weft_i_object_hold(&l.script->store);
    l.world->key = (weft_i_key){{0x1122, 0x3344}};
    for (int i = 0; i < size; i++)
        snprintf(l.world->peers[i].host, sizeof l.world->peers[i].host, "h%d", i);
    l.group = weft_i_group_of_world(l.world);
    CHECK(l.group);
    return l;
}

static inline void lonely_close(lonely *l)
{
    weft_clear_error();
    CHECK_OK(weft_scope_close());
    memset(l, 0, sizeof *l);
}

static inline void lonely_lose(lonely *l, int rank, weft_i_fate fate)
{
    atomic_store_explicit(&l->world->peers[rank].gone, fate, memory_order_relaxed);
}

static inline void put(lonely *l, const char *key, const void *data, size_t bytes)
{
    CHECK_OK(weft_store_set(l->data, key, data, bytes));
}

static inline bool is_there(lonely *l, const char *key)
{
    bool there = false;
    CHECK_OK(weft_store_check(l->data, 1, &key, &there));
    return there;
}

/* The value is exactly this. */
static inline void holds(lonely *l, const char *key, const void *data, size_t bytes)
{
    weft_store_value value = {0};
    CHECK_OK(weft_store_get(l->data, key, WEFT_STORE_NOW, &value));
    if (value.bytes != bytes || memcmp(value.data, data, bytes) != 0)
        FAIL("\"%s\" holds %zu other bytes", key, value.bytes);
    weft_store_value_clear(&value);
}

static inline int keys_in(lonely *l)
{
    size_t keys = 0;
    CHECK_OK(weft_store_num_keys(l->data, &keys));
    return (int)keys;
}

/* The call failed so, and said just that. */
static inline void said(weft_status got, weft_status wanted, const char *message)
{
    if (got != wanted)
        FAIL("status %d, not %d: %s", got, wanted, weft_last_error());
    if (strcmp(weft_last_error(), message) != 0)
        FAIL("it says \"%s\", not \"%s\"", weft_last_error(), message);
    CHECK_INT(weft_last_status(), wanted);
    weft_clear_error();
}

#endif
