/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The eye of a capture.  While a thread captures, what it asks about a tensor is answered by the
 * tensor's stand-in, a fake (fake.h), and so is what it does; the real tensor stays as it is. Every
 * public function that reads a field of a tensor looks through the eye first.  Calls of rows pass
 * the eye before anybody else sees them (op.c).
 */
#ifndef WEFT_TENSOR_EYE_H
#define WEFT_TENSOR_EYE_H

#include "weft/status.h"
#include "weft/storage.h"
#include "weft/tensor.h"

#include <stddef.h>
#include <stdint.h>

struct weft_i_op_call;

typedef struct weft_i_eye {
    /* The stand-in of a tensor; of a stand-in itself.  NULL and an error if there can be none. */
    weft_tensor *(*see)(struct weft_i_eye *eye, const weft_tensor *x);
    weft_storage *(*see_storage)(struct weft_i_eye *eye, const weft_storage *storage);
    /* Instead of the call: as weft_i_op_apply. */
    weft_tensor *(*apply)(struct weft_i_eye *eye, const struct weft_i_op_call *call);
    /* The counter of a stand-in was read as a plain number, or the size of a storage. */
    weft_status (*read_version)(struct weft_i_eye *eye, const weft_tensor *x, int64_t *out);
    size_t (*read_bytes)(struct weft_i_eye *eye, const weft_storage *storage);
    weft_status (*resize)(struct weft_i_eye *eye, weft_storage *storage, size_t bytes);
    /* `made` was filled by other means than rows: what is in it now is a constant. */
    weft_status (*constant)(struct weft_i_eye *eye, weft_tensor *made);
    /* A value was asked for and refused: so will the capture be. */
    void (*broken)(struct weft_i_eye *eye);
    /* What cannot be captured was called; the capture will fail.  Sets the error. */
    weft_status (*refuse)(struct weft_i_eye *eye, const char *what);
    /* Whether the stand-in has a gradient was asked, and nobody gave it one here. */
    weft_status (*read_grad)(struct weft_i_eye *eye, const weft_tensor *x, bool present);
    /* What is captured depends on this number of an object: `read` must give the same later. */
    weft_status (*depend)(struct weft_i_eye *eye, void *object,
                          int64_t (*read)(void *object, const char *name), const char *name);
    /* A field of an object was changed for the time of the capture: `put_back` gives it `old`
     * again, and takes that reference over. */
    weft_status (*undo)(struct weft_i_eye *eye, void *object,
                        void (*put_back)(void *object, const char *name, void *old),
                        const char *name, void *old);
    bool hooked;    /* a hook was put on a stand-in */
    int entered;    /* hooks that are running: what they ask for, an opaque one might */
    int collecting; /* groups that collect calls (coll/calls/coalesce.c) */
    bool factored;  /* the factor of premul_sum was set here: it is not that of the caller */
} weft_i_eye;

/* NULL unless the thread is capturing. */
extern _Thread_local weft_i_eye *weft_i_eye_open;

static inline weft_tensor *weft_i_see(const weft_tensor *x)
{
    weft_i_eye *eye = weft_i_eye_open;
    return __builtin_expect(!eye, 1) || !x ? (weft_tensor *)x : eye->see(eye, x);
}

static inline weft_storage *weft_i_see_storage(const weft_storage *storage)
{
    weft_i_eye *eye = weft_i_eye_open;
    return __builtin_expect(!eye, 1) || !storage ? (weft_storage *)storage
                                                 : eye->see_storage(eye, storage);
}

/* For functions that cannot be captured; `what` names one. */
static inline weft_status weft_i_not_captured(const char *what)
{
    weft_i_eye *eye = weft_i_eye_open;
    return __builtin_expect(!eye, 1) ? WEFT_OK : eye->refuse(eye, what);
}

#endif
