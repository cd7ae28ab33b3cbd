/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks: of one gradient (weft/grad.h), and of all gradients of a node at once. */
#ifndef WEFT_GRAD_HOOK_H
#define WEFT_GRAD_HOOK_H

#include "tensor/object/tensor.h"
#include "weft/grad.h"

/* Sees the gradients of all results of a node, NULL where none came, and may replace them by others
 * in the current scope. */
typedef weft_status (*weft_i_node_hook)(weft_tensor **g, size_t count, void *user);

/* What a hook of a node does, beyond its functions: an object and a number of it.  Two hooks with
 * the same ones do the same. */
typedef const void *weft_i_hook_identity(const void *user, int64_t *number);

typedef struct weft_i_hook {
    struct weft_i_hook *next;
    int64_t number;
    int output;                     /* of the node it is on */
    bool opaque;                    /* a capture does not enter it (opaque.h) */
    bool accumulated;               /* it runs behind the addition to a leaf */
    weft_hook hook;                 /* or: */
    weft_i_node_hook on_all;        /* of the whole node */
    weft_i_hook_identity *identity; /* of those; NULL: `user` itself */
    void *user;
    void (*done)(void *user);
    const weft_tensor *self; /* the hooked tensor, which cannot hold itself */
    size_t count;
    weft_tensor *held[];
} weft_i_hook;

/* NULL and an error if memory runs out or a tensor to be held is none. */
weft_i_hook *weft_i_hook_new(const char *what, weft_hook hook, void *user, weft_held held,
                             weft_tensor *self);
void weft_i_hook_append(weft_i_hook **list, weft_i_hook *hook);
/* Takes the hook of this number out of the list and frees it; false if it is not there. */
bool weft_i_hook_remove(weft_i_hook **list, int64_t number);
void weft_i_hook_free(weft_i_hook *hook);
void weft_i_hook_free_all(weft_i_hook **list);

/* The hook of this number; NULL: it is not there, or was removed. */
weft_i_hook *weft_i_hook_find(weft_i_hook *list, int64_t number);
bool weft_i_hook_is_removed(const weft_i_hook *hook);

/* Runs those of `output` on *grad; checks what they leave there. */
weft_status weft_i_hook_run(const weft_i_hook *list, int output, weft_tensor **grad);
weft_status weft_i_hook_run_all(const weft_i_hook *list, weft_tensor **g, size_t count);

#endif
