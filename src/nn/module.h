/* SPDX-License-Identifier: Apache-2.0 */
/* What is inside a module, and what the files of this floor ask about it. */
#ifndef WEFT_NN_MODULE_H
#define WEFT_NN_MODULE_H

#include "tensor/object/tensor.h"
#include "weft/module.h"

enum {
    WEFT_I_HOOK_POINTS = WEFT_HOOK_BACKWARD + 1,
    WEFT_I_HOOKS_MAX = 32, /* of one point of a module: a run of them takes a copy of the list */
    WEFT_I_NAME_PART = 64  /* bytes of one name between dots, with its zero */
};

typedef enum weft_i_entry_kind {
    WEFT_I_ENTRY_PARAM,
    WEFT_I_ENTRY_BUFFER,
    WEFT_I_ENTRY_CHILD
} weft_i_entry_kind;

/* A parameter, buffer or child. */
typedef struct weft_i_entry {
    char name[WEFT_I_NAME_PART];
    weft_i_entry_kind kind;
    bool bound; /* a capture gave it another tensor, and will take it back */
    union {
        weft_tensor *tensor; /* held */
        weft_module *child;  /* held */
        weft_i_object *object;
    };
} weft_i_entry;

typedef struct weft_i_module_hook {
    weft_i_object head;
    int64_t number;
    weft_module_hook hook;
    void *user;
    unsigned flags;
    bool removed; /* while a run of hooks still has it in its list */
    int count;
    weft_tensor *held[];
} weft_i_module_hook;

/* What a floor above keeps of a module: dropped with it, after its entries. */
typedef enum weft_i_module_part {
    WEFT_I_PART_REPLICA, /* it is replicated (parallel/replicate.c) */
    WEFT_I_PART_UNIT,    /* it is a unit that is sharded (parallel/unit.h) */
    WEFT_I_PART_CUT,     /* it is cut by a plan (parallel/cut.h) */
    WEFT_I_MODULE_PARTS
} weft_i_module_part;

struct weft_module {
    weft_i_object head;
    const char *kind; /* "linear": what messages call it */
    weft_forward forward;
    weft_forward_list forward_list; /* instead of `forward`; NULL too: a container */
    void *user;
    void (*release)(void *user); /* NULL: the user's own business */
    weft_i_entry *entries;       /* in the order in which they were added */
    int count, room;
    int hook_count[WEFT_I_HOOK_POINTS];
    weft_i_module_hook *hooks[WEFT_I_HOOK_POINTS][WEFT_I_HOOKS_MAX];
    weft_i_object *part[WEFT_I_MODULE_PARTS]; /* held; NULL: none */
    int64_t hooks_made;
    int64_t changes; /* of its own structure; weft_module_generation adds those of its children */
    bool training;
};

/* WEFT_OK if it is a module; else an error in the name of `what`.  NULL passes the last error on.
 */
weft_status weft_i_module_check(const char *what, const weft_module *module);

/* A layer: a module that owns `user`, which is released with WEFT_OS->free.  If it fails, `user`
 * has been freed.  `user` may be NULL. */
weft_module *weft_i_module_new_kind(const char *kind, weft_forward forward, void *user);

/* The same of a function of several tensors. */
weft_module *weft_i_module_new_kind_list(const char *kind, weft_forward_list forward, void *user);

/* The entry of this name, `length` bytes, or NULL. */
weft_i_entry *weft_i_module_entry(const weft_module *module, const char *name, size_t length);

/* Makes sure that the next entry finds room. */
weft_status weft_i_module_reserve(weft_module *module);

/* WEFT_ERR_NOT_FOUND in the name of `what`, with the names beside the one that is not there. */
weft_status weft_i_module_refuse_name(const weft_module *module, const char *what,
                                      const char *name);

/* The tensor of an entry, of which a capture takes note. */
weft_tensor *weft_i_module_read(const weft_module *module, int i);

/* The tensor of entry `i`; NULL if there are fewer. */
static inline weft_tensor *weft_i_module_tensor(const weft_module *module, int i)
{
    return i < module->count ? weft_i_module_read(module, i) : NULL;
}

/* Whatever would make the copy of a state fail half way, for want of elements here or there; `whose`
 * is what messages call `to`. */
weft_status weft_i_state_check_elements(const char *whose, const weft_tensor *to,
                                        const weft_tensor *from);

/* As weft_module_call, but the result is the caller's reference, and in no scope. */
weft_tensor *weft_i_module_call_held(weft_module *module, weft_tensor *x);

/*
 * Runs the hooks of a point on the event.  What they put into its `in` or `out`, by the point, is
 * checked.  `ran` (or NULL) gets how many of them were begun.
 */
weft_status weft_i_module_run_hooks(weft_module *module, weft_hook_point point,
                                    weft_hook_event *event, int *ran);
/* Calls one hook on the event, with these tensors for those that it holds, and checks what it put
 * into it. */
typedef weft_status weft_i_module_enter(weft_module *module, weft_hook_point point,
                                        weft_i_module_hook *hook, weft_hook_event *event,
                                        weft_tensor *const *held);
/* The same for a hook that captures do not enter: it is called, or becomes a node (opaque.c). */
weft_status weft_i_module_hook_opaque(weft_module *module, weft_hook_point point,
                                      weft_i_module_hook *hook, weft_hook_event *event,
                                      weft_i_module_enter *enter);
/* After a failure: those hooks of WEFT_HOOK_FORWARD that run always, without the first `from`.  The
 * thread's errors stay as they are. */
void weft_i_module_run_always(weft_module *module, weft_hook_event *event, int from);

static inline bool weft_i_module_has_backward(const weft_module *module)
{
    return module->hook_count[WEFT_HOOK_BACKWARD_PRE] || module->hook_count[WEFT_HOOK_BACKWARD];
}

#endif
