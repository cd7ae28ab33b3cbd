/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scopes: a thread-local stack of lists.  An object is in at most one list, that of the scope that
 * owns it, and only the thread of that scope may take it out; releasing from another thread merely
 * drops a reference.
 */
#include "tensor/scope.h"

#include "base/os.h"
#include "base/status.h"

#include <pthread.h>
#include <string.h>

struct weft_i_scope {
    weft_i_scope *outer;
    weft_i_object *newest;
    pthread_t owner;
};

static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static _Thread_local weft_i_scope *current;

void *weft_i_object_hold(void *pointer)
{
    weft_i_object *object = pointer;
    if (object)
        atomic_fetch_add_explicit(&object->references, 1, memory_order_relaxed);
    return object;
}

void weft_i_object_drop(void *pointer)
{
    weft_i_object *object = pointer;
    if (object && weft_i_object_give_up(&object->references))
        object->destroy(object);
}

bool weft_i_object_drop_shared(void *pointer)
{
    weft_i_object *object = pointer;
    int references = atomic_load_explicit(&object->references, memory_order_relaxed);
    while (references > 1)
        if (atomic_compare_exchange_weak_explicit(&object->references, &references, references - 1,
                                                  memory_order_acq_rel, memory_order_relaxed))
            return true;
    return false;
}

void weft_i_object_free(weft_i_object *object)
{
    WEFT_OS->free(object);
}

static void leave_scope(weft_i_object *object)
{
    if (object->newer)
        object->newer->older = object->older;
    else
        object->scope->newest = object->older;
    if (object->older)
        object->older->newer = object->newer;
    object->scope = NULL;
    object->newer = object->older = NULL;
}

static void enter_scope(weft_i_object *object, weft_i_scope *scope)
{
    object->scope = scope;
    object->older = scope->newest;
    if (scope->newest)
        scope->newest->newer = object;
    scope->newest = object;
}

static void empty(weft_i_scope *scope)
{
    while (scope->newest) {
        weft_i_object *object = scope->newest;
        leave_scope(object);
        weft_i_object_drop(object);
    }
}

/* Runs when a thread ends: what its scopes still own goes with it. */
static void close_all(void *innermost)
{
    for (weft_i_scope *scope = innermost; scope;) {
        weft_i_scope *outer = scope->outer;
        empty(scope);
        WEFT_OS->free(scope);
        scope = outer;
    }
    current = NULL;
}

void weft_i_scope_abandon(bool release)
{
    weft_i_scope *innermost = current;
    if (!innermost)
        return;
    pthread_setspecific(key, NULL);
    current = NULL; /* the thread may die while they close */
    for (weft_i_scope *scope = innermost; scope && !release; scope = scope->outer)
        scope->newest = NULL;
    close_all(innermost);
}

static void make_key(void)
{
    pthread_key_create(&key, close_all);
}

static weft_i_scope *open_scope(void)
{
    weft_i_scope *scope = WEFT_OS->alloc(sizeof *scope);
    if (!scope)
        return NULL;
    scope->owner = pthread_self();
    scope->outer = current;
    pthread_once(&key_once, make_key);
    pthread_setspecific(key, scope);
    return current = scope;
}

static weft_i_scope *innermost(void)
{
    return current ? current : open_scope();
}

weft_status weft_scope_open(void)
{
    if (!innermost() || !open_scope())
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "weft_scope_open: no memory for a scope");
    return WEFT_OK;
}

weft_status weft_scope_close(void)
{
    weft_i_scope *scope = current;
    if (!scope || !scope->outer)
        return weft_i_fail(
            WEFT_ERR_STATE,
            "weft_scope_close: no scope is open (the root scope closes with its thread)");
    empty(scope);
    current = scope->outer;
    pthread_setspecific(key, current);
    WEFT_OS->free(scope);
    return WEFT_OK;
}

static int owned_by_this_thread(const weft_i_object *object)
{
    return object->scope && pthread_equal(object->scope->owner, pthread_self());
}

void *weft_keep(void *pointer)
{
    weft_i_object *object = pointer;
    if (!object)
        return NULL;
    if (owned_by_this_thread(object))
        leave_scope(object);
    else
        weft_i_object_hold(object);
    return object;
}

void weft_release(void *pointer)
{
    weft_i_object *object = pointer;
    if (!object)
        return;
    if (owned_by_this_thread(object))
        leave_scope(object);
    weft_i_object_drop(object);
}

void weft_i_scope_adopt(void *pointer)
{
    weft_i_object *object = pointer;
    if (!object)
        return;
    if (object->scope)
        weft_i_object_drop(object);
    else
        enter_scope(object, current);
}

void *weft_i_object_new_unscoped(weft_i_kind kind, size_t bytes, void (*destroy)(weft_i_object *))
{
    weft_i_object *object = WEFT_OS->alloc(bytes);
    if (!object)
        return weft_i_null(WEFT_ERR_NO_MEMORY, "no memory for a handle of %zu bytes", bytes);
    object->kind = kind;
    object->destroy = destroy;
    atomic_init(&object->references, 1);
    return object;
}

void *weft_i_object_scope(void *object)
{
    weft_i_scope *scope = innermost();
    if (scope) {
        enter_scope(object, scope);
        return object;
    }
    weft_i_object_drop(object);
    return weft_i_null(WEFT_ERR_NO_MEMORY, "no memory for a scope");
}

void *weft_i_object_new(weft_i_kind kind, size_t bytes, void (*destroy)(weft_i_object *))
{
    weft_i_scope *scope = innermost();
    if (!scope)
        return weft_i_null(WEFT_ERR_NO_MEMORY, "no memory for a scope");
    weft_i_object *object = weft_i_object_new_unscoped(kind, bytes, destroy);
    if (object)
        enter_scope(object, scope);
    return object;
}
