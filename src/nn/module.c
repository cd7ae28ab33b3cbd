/* SPDX-License-Identifier: Apache-2.0 */
/* Modules: what they are made of, and how it is found by name. */
#include "nn/module.h"

#include "base/os/os.h"
#include "nn/ops.h"
#include "tensor/object/eye.h"

#include <string.h>

weft_status weft_i_module_check(const char *what, const weft_module *module)
{
    if (module && module->head.kind == WEFT_I_MODULE)
        return WEFT_OK;
    if (module)
        return weft_i_fail(WEFT_ERR_TYPE, "%s: that is no module", what);
    return weft_i_missing("%s: the module is NULL", what);
}

static void destroy(weft_i_object *object)
{
    weft_module *module = (weft_module *)object;
    for (int point = 0; point < WEFT_I_HOOK_POINTS; point++)
        for (int i = 0; i < module->hook_count[point]; i++)
            weft_i_object_drop(module->hooks[point][i]);
    for (int i = module->count - 1; i >= 0; i--)
        weft_i_object_drop(module->entries[i].object);
    WEFT_OS->free(module->entries);
    for (int i = 0; i < WEFT_I_MODULE_PARTS; i++)
        weft_i_object_drop(module->part[i]);
    if (module->release)
        module->release(module->user);
    weft_i_object_free(object);
}

static weft_module *new_module(const char *kind, void *user)
{
    weft_module *module = weft_i_object_new(WEFT_I_MODULE, sizeof *module, destroy);
    if (!module)
        return NULL;
    module->kind = kind;
    module->user = user;
    module->training = true;
    return module;
}

/* Without a function it only holds what is put into it. */
static const char *kind_of(bool has_function)
{
    return has_function ? "module" : "container";
}

weft_module *weft_module_new(weft_forward forward, void *user)
{
    weft_module *module = new_module(kind_of(forward), user);
    if (module)
        module->forward = forward;
    return module;
}

weft_module *weft_module_new_list(weft_forward_list forward, void *user)
{
    weft_module *module = new_module(kind_of(forward), user);
    if (module)
        module->forward_list = forward;
    return module;
}

static void free_user(void *user)
{
    WEFT_OS->free(user);
}

weft_module *weft_i_module_new_kind(const char *kind, weft_forward forward, void *user)
{
    weft_module *module = new_module(kind, user);
    if (!module) {
        WEFT_OS->free(user);
        return NULL;
    }
    module->forward = forward;
    module->release = user ? free_user : NULL;
    return module;
}

weft_module *weft_i_module_new_kind_list(const char *kind, weft_forward_list forward, void *user)
{
    weft_module *module = weft_i_module_new_kind(kind, NULL, user);
    if (module)
        module->forward_list = forward;
    return module;
}

weft_status weft_module_own_user(weft_module *module, void (*release)(void *user))
{
    WEFT_TRY(weft_i_module_check("weft_module_own_user", module));
    if (module->release)
        return weft_i_fail(WEFT_ERR_STATE,
                           "weft_module_own_user: the %s owns what it was made with", module->kind);
    module->release = release;
    return WEFT_OK;
}

/* -- names -- */

weft_i_entry *weft_i_module_entry(const weft_module *module, const char *name, size_t length)
{
    if (length >= WEFT_I_NAME_PART)
        return NULL;
    for (int i = 0; i < module->count; i++)
        if (!strncmp(module->entries[i].name, name, length) && module->entries[i].name[length] == 0)
            return &module->entries[i];
    return NULL;
}

/* Follows "0.inner.weight" down to its entry, or to NULL. */
static weft_i_entry *find(const weft_module *module, const char *name)
{
    for (;;) {
        size_t length = strcspn(name, ".");
        weft_i_entry *entry = length ? weft_i_module_entry(module, name, length) : NULL;
        if (!entry || !name[length])
            return entry;
        if (entry->kind != WEFT_I_ENTRY_CHILD)
            return NULL;
        module = entry->child;
        name += length + 1;
    }
}

/* The entry of this name and kind; NULL and an error if there is none. */
static weft_i_entry *find_kind(const weft_module *module, const char *what, const char *name,
                               weft_i_entry_kind kind)
{
    if (weft_i_module_check(what, module) < 0)
        return NULL;
    if (!name)
        return weft_i_null(WEFT_ERR_INVALID_ARG, "%s: the name is NULL", what);
    weft_i_entry *entry = find(module, name);
    if (entry && entry->kind == kind)
        return entry;
    weft_i_module_refuse_name(module, what, name);
    return NULL;
}

/* The tensor under a name, as a number to compare. */
static int64_t read_binding(void *object, const char *name)
{
    const weft_i_entry *entry = find(object, name);
    return entry && entry->kind != WEFT_I_ENTRY_CHILD ? (int64_t)(intptr_t)entry->tensor : 0;
}

/* What is captured depends on which tensor was there, unless the capture itself put it there. */
static weft_tensor *read_entry(const weft_module *module, const char *name,
                               const weft_i_entry *entry)
{
    weft_i_eye *eye = weft_i_eye_open;
    if (!entry)
        return NULL;
    if (__builtin_expect(eye != NULL, 0) && !entry->tensor->storage->fake && !entry->bound &&
        eye->depend(eye, (void *)module, read_binding, name) < 0)
        return NULL;
    return entry->tensor;
}

weft_tensor *weft_i_module_read(const weft_module *module, int i)
{
    return read_entry(module, module->entries[i].name, &module->entries[i]);
}

weft_tensor *weft_module_param(const weft_module *module, const char *name)
{
    return read_entry(module, name,
                      find_kind(module, "weft_module_param", name, WEFT_I_ENTRY_PARAM));
}

weft_tensor *weft_module_buffer(const weft_module *module, const char *name)
{
    return read_entry(module, name,
                      find_kind(module, "weft_module_buffer", name, WEFT_I_ENTRY_BUFFER));
}

weft_module *weft_module_child(const weft_module *module, const char *name)
{
    weft_i_entry *entry = find_kind(module, "weft_module_child", name, WEFT_I_ENTRY_CHILD);
    return entry ? entry->child : NULL;
}

/* -- additions -- */

static weft_status check_name(const weft_module *module, const char *what, const char *name)
{
    WEFT_TRY(weft_i_module_check(what, module));
    size_t length = name ? strlen(name) : 0;
    if (length == 0 || length >= WEFT_I_NAME_PART || strchr(name, '.'))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "%s: \"%.80s\" is no name; it has 1 to %d characters and no dot", what,
                           name ? name : "", WEFT_I_NAME_PART - 1);
    if (weft_i_module_entry(module, name, length))
        return weft_i_fail(WEFT_ERR_EXISTS, "%s: the %s has a \"%s\" already", what, module->kind,
                           name);
    return WEFT_OK;
}

weft_status weft_i_module_reserve(weft_module *module)
{
    if (module->count < module->room)
        return WEFT_OK;
    int room = module->room ? 2 * module->room : 4;
    weft_i_entry *entries =
        WEFT_OS->resize(module->entries, (size_t)room * sizeof *module->entries);
    if (!entries)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "a %s: no memory for an entry", module->kind);
    module->entries = entries;
    module->room = room;
    return WEFT_OK;
}

static weft_status add(weft_module *module, const char *what, const char *name,
                       weft_i_entry_kind kind, void *object)
{
    weft_status status = weft_i_module_reserve(module);
    if (status < 0)
        return weft_i_explain(status, "%s: \"%s\"", what, name);
    weft_i_entry *entry = &module->entries[module->count++];
    memset(entry, 0, sizeof *entry);
    strcpy(entry->name, name); /* its length was checked */
    entry->kind = kind;
    entry->object = weft_i_object_hold(object);
    module->changes++;
    return WEFT_OK;
}

static weft_status check_tensor(const char *what, const char *name, const weft_tensor *x,
                                weft_i_entry_kind kind)
{
    if (!x)
        return weft_i_missing("%s: \"%s\" is NULL", what, name);
    if (x->head.kind != WEFT_I_TENSOR)
        return weft_i_fail(WEFT_ERR_TYPE, "%s: \"%s\" is no tensor", what, name);
    if (kind == WEFT_I_ENTRY_PARAM && !weft_is_parameter(x))
        return weft_i_fail(WEFT_ERR_TYPE,
                           "%s: \"%s\" is a plain tensor; weft_parameter makes a parameter of it",
                           what, name);
    return WEFT_OK;
}

weft_status weft_module_add_param(weft_module *module, const char *name, weft_tensor *param)
{
    WEFT_TRY(check_name(module, "weft_module_add_param", name));
    WEFT_TRY(check_tensor("weft_module_add_param", name, param, WEFT_I_ENTRY_PARAM));
    return add(module, "weft_module_add_param", name, WEFT_I_ENTRY_PARAM, param);
}

weft_status weft_module_add_buffer(weft_module *module, const char *name, weft_tensor *buffer)
{
    WEFT_TRY(check_name(module, "weft_module_add_buffer", name));
    WEFT_TRY(check_tensor("weft_module_add_buffer", name, buffer, WEFT_I_ENTRY_BUFFER));
    return add(module, "weft_module_add_buffer", name, WEFT_I_ENTRY_BUFFER, buffer);
}

static bool contains(const weft_module *module, const weft_module *wanted)
{
    if (module == wanted)
        return true;
    for (int i = 0; i < module->count; i++)
        if (module->entries[i].kind == WEFT_I_ENTRY_CHILD &&
            contains(module->entries[i].child, wanted))
            return true;
    return false;
}

weft_status weft_module_add(weft_module *module, const char *name, weft_module *child)
{
    WEFT_TRY(weft_i_module_check("weft_module_add", child));
    WEFT_TRY(check_name(module, "weft_module_add", name));
    if (contains(child, module))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "weft_module_add: the %s would be among its own children, as \"%s\"",
                           module->kind, name);
    return add(module, "weft_module_add", name, WEFT_I_ENTRY_CHILD, child);
}

/* At the end of a capture. */
static void put_back(void *object, const char *name, void *old)
{
    weft_i_entry *entry = find(object, name);
    if (!entry)
        return;
    weft_i_object_drop(entry->tensor);
    entry->tensor = old;
    entry->bound = false;
}

/* The module has the tensor as long as the capture goes on; the program binds it when it runs. */
static weft_status bind_captured(weft_module *module, const char *name, weft_i_entry *entry,
                                 weft_tensor *tensor)
{
    weft_i_eye *eye = weft_i_eye_open;
    WEFT_TRY(WEFT_I_ACT(bind, WEFT_I_TENSOR_ARG(tensor), WEFT_I_GROUP_ARG(module, name, 0)));
    if (entry->bound)
        return WEFT_OK;
    WEFT_TRY(eye->undo(eye, module, put_back, name, weft_i_object_hold(entry->tensor)));
    entry->bound = true;
    return WEFT_OK;
}

weft_status weft_module_bind(weft_module *module, const char *name, weft_tensor *tensor)
{
    WEFT_TRY(weft_i_module_check("weft_module_bind", module));
    weft_i_entry *entry = name ? find(module, name) : NULL;
    if (!entry || entry->kind == WEFT_I_ENTRY_CHILD)
        return weft_i_module_refuse_name(module, "weft_module_bind", name ? name : "");
    WEFT_TRY(check_tensor("weft_module_bind", name, tensor, entry->kind));
    if (weft_i_eye_open)
        WEFT_TRY(bind_captured(module, name, entry, tensor));
    weft_tensor *old = entry->tensor;
    entry->tensor = weft_i_object_hold(tensor);
    weft_i_object_drop(old);
    return WEFT_OK;
}

weft_status weft_i_bind_shape(weft_i_op_call *call)
{
    (void)call;
    return WEFT_OK;
}

weft_status weft_i_bind_run(weft_i_op_call *call)
{
    const weft_i_arg *to = &call->args[1];
    if (call->fake)
        return WEFT_OK;
    if (!to->group.handle)
        return weft_i_fail(WEFT_ERR_STATE, "bind: the module of \"%s\" is not known",
                           to->group.name);
    return weft_module_bind(to->group.handle, to->group.name, call->args[0].tensor);
}

/* -- structure -- */

int64_t weft_module_generation(const weft_module *module)
{
    if (weft_i_module_check("weft_module_generation", module) < 0)
        return 0;
    int64_t sum = module->changes;
    for (int i = 0; i < module->count; i++)
        if (module->entries[i].kind == WEFT_I_ENTRY_CHILD)
            sum += weft_module_generation(module->entries[i].child);
    return sum;
}

weft_status weft_module_train(weft_module *module, bool training)
{
    WEFT_TRY(weft_i_module_check("weft_module_train", module));
    module->changes += module->training != training;
    module->training = training;
    for (int i = 0; i < module->count; i++)
        if (module->entries[i].kind == WEFT_I_ENTRY_CHILD)
            WEFT_TRY(weft_module_train(module->entries[i].child, training));
    return WEFT_OK;
}

bool weft_module_is_training(const weft_module *module)
{
    return weft_i_module_check("weft_module_is_training", module) >= 0 && module->training;
}
