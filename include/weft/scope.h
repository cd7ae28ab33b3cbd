/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scopes own temporaries.  Every object a function returns (tensor, group, symmetric handle ...)
 * belongs to the calling thread's current scope and is released when that scope closes.  weft_keep()
 * takes an object out of its scope and gives it to the caller; weft_release() drops it.  A root
 * scope always exists; it closes with its thread.
 */
#ifndef WEFT_SCOPE_H
#define WEFT_SCOPE_H

#include "weft/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Opens a scope inside the current one.  Scopes nest without limit. */
WEFT_API weft_status weft_scope_open(void);

/* Closes the innermost scope and releases what it owns, newest first.  WEFT_ERR_STATE in the root
 * scope. */
WEFT_API weft_status weft_scope_close(void);

/*
 * Takes `object` (any handle of weft; NULL passes through) out of the scope that owns it, so that
 * it lives until weft_release().  If no scope of this thread owns it, takes one more reference.
 * Returns `object`.
 */
WEFT_API void *weft_keep(void *object);

/*
 * Drops one reference.  An object that a scope of this thread owns leaves that scope.  Local, never
 * blocks; NULL is fine.  The object is freed with its last reference.
 */
WEFT_API void weft_release(void *object);

#ifdef __cplusplus
}
#endif

#endif
