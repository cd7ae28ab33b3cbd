/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scopes own temporaries.  Every object that a function returns (a tensor, a group, a symmetric
 * handle ...)  belongs to the calling thread's current scope and is released when that scope
 * closes.  weft_keep() takes an object out of its scope and makes it the caller's; weft_release()
 * drops it.  A thread always has a root scope, which closes when the thread ends.
 */
#ifndef WEFT_SCOPE_H
#define WEFT_SCOPE_H

#include "weft/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Opens a scope inside the current one.  Scopes nest without limit. */
WEFT_API weft_status weft_scope_open(void);

/* Closes the innermost scope and releases what it owns, newest first.  WEFT_ERR_STATE if only the
 * root scope is open. */
WEFT_API weft_status weft_scope_close(void);

/*
 * Takes `object`, any handle of weft, out of the scope that owns it.  It then lives until
 * weft_release().  If no scope of this thread owns the object, takes one more reference.  Returns
 * `object`; NULL gives NULL.
 */
WEFT_API void *weft_keep(void *object);

/*
 * Drops one reference to `object` and frees it if that was the last one.  If a scope of this thread
 * owns the object, it leaves that scope.  Local; never blocks.  NULL is allowed.
 *
 * A handle must not be used after that.  Calls refuse a tensor that was released (WEFT_ERR_STATE)
 * while the thread makes and releases at least 24 others of its size; then its memory may become
 * another object.
 */
WEFT_API void weft_release(void *object);

#ifdef __cplusplus
}
#endif

#endif
