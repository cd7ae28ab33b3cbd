/* SPDX-License-Identifier: Apache-2.0 */
/* What a module has, listed by its full names, and put back. */
#include "nn/module.h"

#include "base/os/os.h"
#include "tensor/object/eye.h"
#include "weft/op.h"

#include <string.h>

typedef struct walk {
    weft_named *out;
    int count, room;
    bool state; /* with buffers, and a tensor by every name it has */
    const weft_module *root;
    int visits; /* tensors met so far */
} walk;

/* Counts the tensors of the module, in the order of the walk, up to the first meeting with x; true
 * if x was met. */
static bool count_until(const weft_module *module, const weft_tensor *x, int *count)
{
    for (int i = 0; i < module->count; i++) {
        if (module->entries[i].kind == WEFT_I_ENTRY_CHILD)
            continue;
        if (module->entries[i].tensor == x)
            return true;
        ++*count;
    }
    for (int i = 0; i < module->count; i++)
        if (module->entries[i].kind == WEFT_I_ENTRY_CHILD &&
            count_until(module->entries[i].child, x, count))
            return true;
    return false;
}

static bool is_wanted(const walk *w, const weft_i_entry *entry)
{
    int first = 0;
    if (w->state)
        return true;
    return entry->kind == WEFT_I_ENTRY_PARAM && count_until(w->root, entry->tensor, &first) &&
           first == w->visits;
}

static weft_status list_entry(walk *w, const char *prefix, const weft_i_entry *entry)
{
    bool wanted = is_wanted(w, entry);
    w->visits++;
    if (!wanted)
        return WEFT_OK;
    if (w->count < w->room) {
        weft_named *named = &w->out[w->count];
        int n = snprintf(named->name, sizeof named->name, "%s%s", prefix, entry->name);
        named->tensor = entry->tensor;
        if (n < 0 || (size_t)n >= sizeof named->name)
            return weft_i_fail(WEFT_ERR_LIMIT, "the name %s%s has more than %d characters", prefix,
                               entry->name, WEFT_NAME_MAX - 1);
    }
    w->count++;
    return WEFT_OK;
}

/* A module's own come before those of its children. */
static weft_status list_module(walk *w, const char *prefix, const weft_module *module)
{
    for (int i = 0; i < module->count; i++)
        if (module->entries[i].kind != WEFT_I_ENTRY_CHILD)
            WEFT_TRY(list_entry(w, prefix, &module->entries[i]));
    for (int i = 0; i < module->count; i++) {
        char deeper[WEFT_NAME_MAX + WEFT_I_NAME_PART + 1];
        if (module->entries[i].kind != WEFT_I_ENTRY_CHILD)
            continue;
        int n = snprintf(deeper, sizeof deeper, "%s%s.", prefix, module->entries[i].name);
        if (n < 0 || n >= WEFT_NAME_MAX)
            return weft_i_fail(WEFT_ERR_LIMIT, "names below %s are longer than %d characters",
                               deeper, WEFT_NAME_MAX - 1);
        WEFT_TRY(list_module(w, deeper, module->entries[i].child));
    }
    return WEFT_OK;
}

static int list(const char *what, const weft_module *module, walk w)
{
    WEFT_TRY(weft_i_module_check(what, module));
    if (w.room < 0 || (w.room > 0 && !w.out))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: no room to write to", what);
    w.root = module;
    weft_status status = list_module(&w, "", module);
    return status < 0 ? weft_i_explain(status, "%s", what) : w.count;
}

int weft_module_params(const weft_module *module, weft_named *out, int room)
{
    return list("weft_module_params", module, (walk){.out = out, .room = room});
}

int weft_module_state(const weft_module *module, weft_named *out, int room)
{
    return list("weft_module_state", module, (walk){.out = out, .room = room, .state = true});
}

/* -- putting back -- */

static const weft_named *find(const weft_named *in, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (!strncmp(in[i].name, name, WEFT_NAME_MAX))
            return &in[i];
    return NULL;
}

weft_status weft_i_state_check_elements(const char *whose, const weft_tensor *to,
                                        const weft_tensor *from)
{
    char a[16], b[16];
    weft_device here = weft_i_tensor_device(to), there = weft_i_tensor_device(from);
    if ((here == WEFT_META) != (there == WEFT_META))
        return weft_i_fail(WEFT_ERR_TYPE, "it is on %s, %s on %s: there is nothing to copy",
                           weft_device_name(there, b), whose, weft_device_name(here, a));
    if (to->storage->read_only)
        return weft_i_fail(WEFT_ERR_STATE, "%s is read-only (imported that way)", whose);
    if (weft_i_tensor_overlaps_itself(to))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "several elements of %s share memory (an expanded view?)", whose);
    WEFT_TRY(weft_i_tensor_check_fits("the given", from));
    WEFT_TRY(weft_i_tensor_check_fits(whose, to));
    return weft_i_storage_ready(to->storage, true);
}

static weft_status check_one(const weft_named *own, const weft_named *given)
{
    char a[WEFT_I_SHAPE_TEXT], b[WEFT_I_SHAPE_TEXT];
    if (!given)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_module_load: \"%s\" is missing", own->name);
    if (!given->tensor)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_module_load: \"%s\" is NULL", own->name);
    weft_status live = weft_i_tensor_check_live("the given", given->tensor);
    if (live < 0)
        return weft_i_explain(live, "weft_module_load: \"%s\"", own->name);
    weft_shape shape = weft_i_tensor_shape(given->tensor);
    if (!weft_i_shape_equal(shape, weft_i_tensor_shape(own->tensor)))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "weft_module_load: \"%s\" has shape %s, the module's has %s", own->name,
                           weft_i_shape_text(shape, b),
                           weft_i_shape_text(weft_i_tensor_shape(own->tensor), a));
    /* Under a capture nothing moves now: the program's copies have checks of their own. */
    weft_status status =
        weft_i_eye_open ? WEFT_OK
                        : weft_i_state_check_elements("the module's", own->tensor, given->tensor);
    return status < 0 ? weft_i_explain(status, "weft_module_load: \"%s\"", own->name) : WEFT_OK;
}

static weft_status check_all(const weft_named *own, int owned, const weft_named *in, int count)
{
    for (int i = 0; i < owned; i++)
        WEFT_TRY(check_one(&own[i], find(in, count, own[i].name)));
    for (int i = 0; i < count; i++) {
        if (!find(own, owned, in[i].name))
            return weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_module_load: the module has no \"%.*s\"",
                               WEFT_NAME_MAX, in[i].name);
        if (find(in, count, in[i].name) != &in[i])
            return weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_module_load: \"%s\" is given twice",
                               in[i].name);
    }
    return WEFT_OK;
}

static weft_status copy_all(const weft_named *own, int owned, const weft_named *in, int count)
{
    weft_status status = WEFT_OK;
    WEFT_NO_GRAD
    {
        for (int i = 0; i < owned && status >= 0; i++)
            status = weft_copy(own[i].tensor, find(in, count, own[i].name)->tensor);
    }
    return status;
}

/* The module's state, to be freed. */
static weft_named *own_state(const char *what, const weft_module *module, int *count)
{
    *count = weft_module_state(module, NULL, 0);
    if (*count < 0)
        return NULL;
    weft_named *own = WEFT_OS->alloc((size_t)(*count ? *count : 1) * sizeof *own);
    if (!own)
        weft_i_fail(WEFT_ERR_NO_MEMORY, "%s: no memory for %d names", what, *count);
    else
        weft_module_state(module, own, *count);
    return own;
}

weft_status weft_module_load(weft_module *module, const weft_named *in, int count)
{
    int owned;
    WEFT_TRY(weft_i_module_check("weft_module_load", module));
    if (count < 0 || (count && !in))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_module_load: no state");
    weft_named *own = own_state("weft_module_load", module, &owned);
    if (!own)
        return weft_last_status();
    weft_status status = check_all(own, owned, in, count);
    if (status >= 0)
        status = copy_all(own, owned, in, count);
    WEFT_OS->free(own);
    return status;
}

/* -- another device -- */

/* What a tensor is to have: copies of its elements and of its gradient's, or NULL. */
typedef struct moved {
    weft_tensor *data, *grad;
} moved;

/* Copies what is elsewhere.  A tensor by its second name is copied twice, and set once. */
static weft_status copy_away(const weft_named *own, weft_device device, moved *out)
{
    weft_tensor *x = own->tensor, *grad = weft_grad(x);
    if (weft_i_tensor_device(x) == device)
        return WEFT_OK;
    WEFT_TRY(weft_i_storage_check_pinned("weft_module_to", x->storage, &x->pinned));
    out->data = weft_to(x, x->dtype, device);
    out->grad = grad ? weft_to(grad, grad->dtype, device) : NULL;
    return out->data && (!grad || out->grad) ? WEFT_OK : weft_last_status();
}

static weft_status put_in_place(weft_tensor *x, weft_device device, const moved *to)
{
    if (!to->data || weft_i_tensor_device(x) == device)
        return WEFT_OK;
    if (to->grad) /* one of another device would fit no more */
        WEFT_TRY(weft_set_grad(x, NULL));
    weft_i_tensor_take_over(x, to->data); /* weft_set keeps to one device */
    weft_i_tensor_bump(x);
    return to->grad ? weft_set_grad(x, to->grad) : WEFT_OK;
}

/* All copies first: putting them in place needs no memory. */
static weft_status move_all(const weft_named *own, int count, weft_device device, moved *to)
{
    weft_status status = WEFT_OK;
    WEFT_NO_GRAD
    {
        for (int i = 0; i < count && status >= 0; i++)
            if ((status = copy_away(&own[i], device, &to[i])) < 0)
                weft_i_explain(status, "weft_module_to: \"%s\"", own[i].name);
        for (int i = 0; i < count && status >= 0; i++)
            status = put_in_place(own[i].tensor, device, &to[i]);
    }
    return status;
}

weft_status weft_module_to(weft_module *module, weft_device device)
{
    int count;
    WEFT_TRY(weft_i_module_check("weft_module_to", module));
    if (weft_i_eye_open)
        return weft_i_fail(WEFT_ERR_STATE, "weft_module_to: a module cannot move while a function "
                                           "that uses it is captured; move it before");
    weft_named *own = own_state("weft_module_to", module, &count);
    if (!own)
        return weft_last_status();
    moved *to = WEFT_OS->alloc((size_t)(count ? count : 1) * sizeof *to);
    weft_status status = to ? weft_scope_open() : WEFT_ERR_NO_MEMORY;
    if (!to)
        weft_i_fail(status, "weft_module_to: no memory for %d tensors", count);
    if (status >= 0) {
        memset(to, 0, (size_t)(count ? count : 1) * sizeof *to);
        status = move_all(own, count, device, to);
        weft_scope_close();
    }
    WEFT_OS->free(to);
    WEFT_OS->free(own);
    return status;
}
