/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scopes: a thread-local stack of lists.  An object is in at most one list, that of the scope that
 * owns it, and only the thread of that scope may take it out; releasing from another thread merely
 * drops a reference.
 */
#include "tensor/object/scope.h"

#include "base/os/assert.h"
#include "base/report/log.h"
#include "base/report/status.h"
#include "tensor/object/shelf.h"

#include <pthread.h>
#include <string.h>

struct weft_i_scope {
    weft_i_scope *outer;
    weft_i_object *newest;
    pthread_t owner;
    unsigned units; /* of its block on the shelf */
    size_t count;   /* of its objects */
};

static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static _Thread_local weft_i_scope *current;

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
    weft_i_shelf_give(object, object->units);
}

static void leave_scope(weft_i_object *object)
{
    WEFT_ASSERT(object->scope && (object->newer || object->scope->newest == object));
    if (object->newer)
        object->newer->older = object->older;
    else
        object->scope->newest = object->older;
    if (object->older)
        object->older->newer = object->newer;
    object->scope->count--;
    object->scope = NULL;
    object->newer = object->older = NULL;
}

/* A loop without a scope of its own leaks until the program ends.  Said once in a process: relaxed,
 * because nothing else depends on it. */
static void warn_of(size_t count)
{
    static atomic_bool told;
    if (!atomic_exchange_explicit(&told, true, memory_order_relaxed))
        weft_i_log(WEFT_LOG_WARN,
                   "a scope holds %zu objects that were not released.  If a loop makes them, let "
                   "each turn begin with weft_scope_open() and end with weft_scope_close(), or "
                   "weft_release() them (docs/scope.md)",
                   count);
}

static void enter_scope(weft_i_object *object, weft_i_scope *scope)
{
    WEFT_ASSERT(!object->scope && !object->newer && !object->older);
    object->scope = scope;
    object->older = scope->newest;
    if (scope->newest)
        scope->newest->newer = object;
    scope->newest = object;
    if (++scope->count == WEFT_I_SCOPE_MANY)
        warn_of(scope->count);
}

static void empty(weft_i_scope *scope)
{
    while (scope->newest) {
        weft_i_object *object = scope->newest;
        leave_scope(object);
        weft_i_object_drop(object);
    }
}

static void free_scope(weft_i_scope *scope)
{
    weft_i_shelf_give(scope, scope->units);
}

static void close_from(weft_i_scope *scope)
{
    while (scope) {
        weft_i_scope *outer = scope->outer;
        empty(scope);
        free_scope(scope);
        scope = outer;
    }
}

/* Runs when a thread ends, if it ever had a scope: what its scopes still own goes with it. */
static void close_all(void *root)
{
    (void)root;
    close_from(current);
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
    close_from(innermost);
}

static void make_key(void)
{
    pthread_key_create(&key, close_all);
}

static weft_i_scope *open_scope(void)
{
    unsigned units;
    weft_i_scope *scope = weft_i_shelf_take(sizeof *scope, sizeof *scope, &units);
    if (!scope)
        return NULL;
    scope->units = units;
    scope->owner = pthread_self();
    scope->outer = current;
    if (!current) { /* the root: from now on the thread's end has something to close */
        pthread_once(&key_once, make_key);
        pthread_setspecific(key, scope);
    }
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
    WEFT_ASSERT(current == scope);
    current = scope->outer;
    free_scope(scope);
    return WEFT_OK;
}

/* Whether there is an object; one that was released already is an error. */
static bool is_live(const char *what, const weft_i_object *object)
{
    if (!object || (object->kind >= WEFT_I_TENSOR && object->kind <= WEFT_I_GROUP_PART))
        return object != NULL;
    weft_i_fail(WEFT_ERR_STATE, "%s: the object was released before, or is no handle of weft",
                what);
    return false;
}

static int owned_by_this_thread(const weft_i_object *object)
{
    return object->scope && pthread_equal(object->scope->owner, pthread_self());
}

void *weft_keep(void *pointer)
{
    weft_i_object *object = pointer;
    if (!is_live(__func__, object))
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
    if (!is_live(__func__, object))
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

void *weft_i_object_new_with(weft_i_kind kind, size_t bytes, size_t room,
                             void (*destroy)(weft_i_object *))
{
    unsigned units;
    weft_i_object *object = weft_i_shelf_take(bytes + room, bytes, &units);
    if (!object)
        return weft_i_null(WEFT_ERR_NO_MEMORY, "no memory for a handle of %zu bytes", bytes);
    WEFT_ASSERT(destroy && bytes >= sizeof *object);
    object->units = (uint16_t)units;
    weft_i_object_start(object, kind, destroy);
    return object;
}

void *weft_i_object_new_unscoped(weft_i_kind kind, size_t bytes, void (*destroy)(weft_i_object *))
{
    return weft_i_object_new_with(kind, bytes, 0, destroy);
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
