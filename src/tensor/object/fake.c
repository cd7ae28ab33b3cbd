/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors without memory, for captures; see fake.h. */
#include "tensor/object/fake.h"

#include "tensor/object/eye.h"

#include <stdio.h>

_Thread_local weft_i_eye *weft_i_eye_open;

static bool never(const weft_i_claim *claim)
{
    (void)claim;
    return false;
}

static weft_status not_known(const weft_i_fake *fake, weft_log_level level, const char *what,
                             const char *instead)
{
    char text[WEFT_I_SHAPE_TEXT];
    weft_i_eye *eye = weft_i_eye_open;
    weft_status status = weft_i_fail_at(
        level, WEFT_ERR_STATE, "%sthe value of %%%d (%s, %s %s) is not known while capturing%s",
        what, fake->value, fake->op ? fake->op : "new", weft_dtype_name(fake->dtype),
        weft_i_shape_text(fake->shape, text), instead);
    if (eye)
        eye->broken(eye);
    return status;
}

static weft_status refuse(const weft_i_claim *claim)
{
    return not_known((const weft_i_fake *)claim->owner, WEFT_LOG_INFO, "", "");
}

weft_status weft_i_fake_no_data(const weft_i_fake *fake, const char *what)
{
    static _Thread_local uint64_t told; /* a program may ask for many in one capture */
    weft_log_level level = told == fake->capture ? WEFT_LOG_INFO : WEFT_LOG_WARN;
    char of[64];
    told = fake->capture;
    snprintf(of, sizeof of, "%s: NULL: ", what);
    return not_known(fake, level, of,
                     "; use operations of tensors instead, or an operation of your own "
                     "(weft_custom_new), or leave this out while weft_tracing()");
}

static void ended(const weft_i_claim *claim, bool waited)
{
    (void)claim, (void)waited;
}

static const weft_i_claimant claimant = {.done = never, .wait = refuse, .ended = ended};

static void destroy(weft_i_object *object)
{
    weft_i_object_free(object);
}

weft_storage *weft_i_fake_storage(uint64_t capture, weft_device device, size_t bytes)
{
    weft_i_fake *fake = weft_i_object_new_unscoped(WEFT_I_FAKE, sizeof *fake, destroy);
    if (!fake)
        return NULL;
    fake->capture = capture;
    fake->storage = fake->value = -1;
    fake->read = -1;
    fake->claim = (weft_i_claim){.claimant = &claimant, .owner = &fake->head, .writes = true};
    weft_storage *storage = weft_i_storage_new_empty(device, bytes);
    if (storage) {
        storage->fake = fake;
        weft_i_claim_put(&fake->claim, storage); /* holds it as long as the storage lives */
    }
    weft_i_object_drop(fake);
    return storage;
}

weft_tensor *weft_i_fake_new(uint64_t capture, weft_dtype dtype, weft_device device,
                             weft_shape shape, const int64_t *strides)
{
    weft_tensor layout = {.dtype = dtype, .ndim = shape.ndim};
    for (int i = 0; i < shape.ndim; i++) {
        layout.dim[i] = shape.dim[i];
        layout.stride[i] = strides[i];
    }
    weft_i_tensor_measure(&layout);
    weft_storage *storage = weft_i_fake_storage(capture, device, layout.end);
    if (!storage)
        return NULL;
    weft_tensor *x = weft_i_tensor_new_view(storage, &storage->version, dtype, shape, strides, 0);
    weft_i_object_drop(storage);
    return x;
}
