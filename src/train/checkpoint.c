/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints: what they are made of, and when they are saved. */
#include "weft/checkpoint.h"

#include "base/os/os.h"
#include "base/report/opts.h"
#include "base/team/team.h"
#include "fabric/group/group.h"
#include "parallel/accord.h"
#include "tensor/object/eye.h"
#include "tensor/object/tensor.h"
#include "train/checkpoint.h"
#include "train/sum.h"

#include <stdio.h>
#include <string.h>

/* ---- making ---- */

/* The thread has ended, or does so now. */
static void join(weft_checkpoint *c)
{
    if (c->running)
        WEFT_OS->thread_join(c->thread);
    c->running = false;
}

static void destroy(weft_i_object *object)
{
    weft_checkpoint *c = (weft_checkpoint *)object;
    join(c);
    for (int i = 0; i < c->count; i++)
        if (c->saved[i].kind != WEFT_I_ADDED_VALUE)
            weft_i_object_drop(c->saved[i].object);
    weft_i_copied_clear(&c->copied);
    weft_i_index_clear(&c->index);
    WEFT_OS->free(c->saved);
    WEFT_OS->free(c->message);
    weft_i_object_drop(c->group);
    weft_i_object_free(object);
}

static weft_status check_opts(const char *folder, const weft_checkpoint_opts *opts)
{
    if (!folder || !*folder)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_checkpoint_new: no folder");
    if (strlen(folder) > WEFT_I_DISK_PATH - 128)
        return weft_i_fail(WEFT_ERR_LIMIT,
                           "weft_checkpoint_new: the path of the folder is too long");
    if (opts->keep < 0)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_checkpoint_new: keeps %d checkpoints",
                           opts->keep);
    return WEFT_OK;
}

weft_checkpoint *weft_checkpoint_new(const char *folder, weft_group *group,
                                     const weft_checkpoint_opts *given)
{
    weft_checkpoint_opts opts = WEFT_CHECKPOINT_OPTS_INIT;
    weft_group_opts own = WEFT_GROUP_OPTS_INIT;
    if (!group)
        return weft_i_missing("weft_checkpoint_new: the group is NULL"), NULL;
    if (weft_i_opts_copy(&opts, sizeof opts, given, "weft_checkpoint_new") < 0 ||
        check_opts(folder, &opts) < 0)
        return NULL;
    own.description = "checkpoint";
    weft_checkpoint *c = weft_i_object_new(WEFT_I_CHECKPOINT, sizeof *c, destroy);
    if (!c)
        return NULL;
    c->lock = -1;
    c->opts = opts;
    snprintf(c->folder, sizeof c->folder, "%s", folder);
    if ((c->group = weft_keep(weft_group_new_with(group, NULL, 0, &own))))
        return c;
    weft_i_explain(weft_last_status(), "weft_checkpoint_new");
    weft_release(c);
    return NULL;
}

static weft_status check(const char *what, const weft_checkpoint *c)
{
    if (!c)
        return weft_i_missing("%s: the checkpoint is NULL", what);
    return c->head.kind == WEFT_I_CHECKPOINT
               ? weft_i_not_captured(what)
               : weft_i_fail(WEFT_ERR_TYPE, "%s: this is no checkpoint, or one that was released",
                             what);
}

/* ---- adding ---- */

static weft_status check_name(const char *what, const weft_checkpoint *c, const char *name)
{
    size_t length = name ? strnlen(name, WEFT_I_ADDED_NAME) : 0;
    if (!length || length == WEFT_I_ADDED_NAME)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: a name has 1 to %d characters", what,
                           WEFT_I_ADDED_NAME - 1);
    WEFT_TRY(weft_i_header_check_text("the name", name));
    for (int i = 0; i < c->count; i++) {
        const char *other = c->saved[i].name;
        size_t n = strlen(other), least = n < length ? n : length;
        const char *longer = n < length ? name : other;
        /* "model" and "model.head" would have names in common. */
        if (!strncmp(name, other, least) && (longer[least] == 0 || longer[least] == '.'))
            return weft_i_fail(WEFT_ERR_EXISTS, "%s: \"%s\" is taken by \"%s\"", what, name, other);
    }
    return WEFT_OK;
}

static weft_status add(const char *what, weft_checkpoint *c, const char *name,
                       weft_i_added_kind kind, void *object, size_t bytes)
{
    WEFT_TRY(check_name(what, c, name));
    join(c); /* its thread reads none of this, but its owner is known then */
    weft_i_added *more = WEFT_OS->resize(c->saved, ((size_t)c->count + 1) * sizeof *more);
    if (!more)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "%s: no memory for a name", what);
    c->saved = more;
    c->saved[c->count] = (weft_i_added){.kind = kind, .object = object, .bytes = bytes};
    snprintf(c->saved[c->count].name, WEFT_I_ADDED_NAME, "%s", name);
    if (kind != WEFT_I_ADDED_VALUE)
        weft_i_object_hold(object);
    c->count++;
    return WEFT_OK;
}

weft_status weft_checkpoint_add_module(weft_checkpoint *checkpoint, const char *name,
                                       weft_module *module)
{
    WEFT_TRY(check("weft_checkpoint_add_module", checkpoint));
    int count = weft_module_params(module, NULL, 0); /* looks whether it is a module */
    return count < 0 ? (weft_status)count
                     : add("weft_checkpoint_add_module", checkpoint, name, WEFT_I_ADDED_MODULE,
                           module, 0);
}

weft_status weft_checkpoint_add_optim(weft_checkpoint *checkpoint, const char *name,
                                      weft_optim *optim)
{
    WEFT_TRY(check("weft_checkpoint_add_optim", checkpoint));
    int count = weft_optim_state(optim, NULL, 0);
    return count < 0
               ? (weft_status)count
               : add("weft_checkpoint_add_optim", checkpoint, name, WEFT_I_ADDED_OPTIM, optim, 0);
}

weft_status weft_checkpoint_add_tensor(weft_checkpoint *checkpoint, const char *name,
                                       weft_tensor *tensor)
{
    WEFT_TRY(check("weft_checkpoint_add_tensor", checkpoint));
    if (!tensor)
        return weft_i_missing("weft_checkpoint_add_tensor: the tensor is NULL");
    WEFT_TRY(weft_i_tensor_check_live("weft_checkpoint_add_tensor", tensor));
    return add("weft_checkpoint_add_tensor", checkpoint, name, WEFT_I_ADDED_TENSOR, tensor, 0);
}

weft_status weft_checkpoint_add_value(weft_checkpoint *checkpoint, const char *name, void *value,
                                      size_t bytes)
{
    WEFT_TRY(check("weft_checkpoint_add_value", checkpoint));
    if (!value || !bytes || bytes > WEFT_I_VALUE_MOST)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "weft_checkpoint_add_value: \"%.63s\" of %zu bytes; 1 to %d",
                           name ? name : "", bytes, WEFT_I_VALUE_MOST);
    return add("weft_checkpoint_add_value", checkpoint, name, WEFT_I_ADDED_VALUE, value, bytes);
}

/* ---- saving ---- */

static void *write_behind(void *arg)
{
    weft_checkpoint *c = arg;
    weft_i_world *world = c->group->world;
    weft_i_status_serve(world->rank);
    weft_i_team_alone();
    c->outcome = weft_i_checkpoint_write(c);
    if (c->outcome < 0)
        c->message = weft_i_error_copy();
    /* Pairs with the acquire of weft_finish, which waits for what is under way. */
    atomic_fetch_sub_explicit(&world->under_way, 1, memory_order_release);
    return NULL;
}

/* Without a thread it is done here: a save that takes longer, but no other. */
static void start(weft_checkpoint *c)
{
    atomic_int *under_way = &c->group->world->under_way;
    WEFT_OS->free(c->message);
    c->message = NULL;
    c->told = false;
    /* Relaxed: weft_finish is called by this thread, or after it. */
    atomic_fetch_add_explicit(under_way, 1, memory_order_relaxed);
    c->running = !WEFT_OS->thread_create(&c->thread, write_behind, c);
    if (c->running)
        return;
    c->outcome = weft_i_checkpoint_write(c);
    if (c->outcome < 0)
        c->message = weft_i_error_copy();
    atomic_fetch_sub_explicit(under_way, 1, memory_order_relaxed);
}

/* What became of the last save. */
static weft_status settle(weft_checkpoint *c)
{
    join(c);
    bool told = c->told;
    c->told = true;
    if (c->outcome >= 0 || told)
        return WEFT_OK;
    return weft_i_fail(c->outcome, "%s",
                       c->message ? c->message : "a save failed, and no memory to say why");
}

/* All ranks say the same of what is no tensor. */
static weft_status describe(const weft_checkpoint *c, int64_t step, weft_i_deed *deed)
{
    char sum[WEFT_I_SUM_TEXT];
    WEFT_TRY(weft_i_deed_add(deed, "step %lld into %.200s", (long long)step, c->folder));
    for (int i = 0; i < c->count; i++) {
        const weft_i_added *saved = &c->saved[i];
        bool value = saved->kind == WEFT_I_ADDED_VALUE;
        WEFT_TRY(weft_i_deed_add(
            deed, "\"%s\"%s%s", saved->name, value ? " with bytes that add up to " : "",
            value ? weft_i_sum_text(weft_i_sum_of(saved->object, saved->bytes), sum) : ""));
    }
    return WEFT_OK;
}

static weft_status keep_values(weft_checkpoint *c)
{
    weft_i_index_clear(&c->index);
    for (int i = 0; i < c->count; i++)
        if (c->saved[i].kind == WEFT_I_ADDED_VALUE)
            WEFT_TRY(weft_i_index_add_value(&c->index, c->saved[i].name, c->saved[i].object,
                                            c->saved[i].bytes));
    return WEFT_OK;
}

/* After a common plan, whose error all have: the folder and the copies, and whether all have them. */
static weft_status copy(weft_checkpoint *c, const weft_i_items *items, const bool *mine,
                        weft_status planned)
{
    weft_status status = planned;
    if (status >= 0)
        status = keep_values(c);
    if (status >= 0)
        status = weft_i_checkpoint_copy(c, items, mine);
    if (status >= 0 && weft_rank(c->group) == 0)
        status = weft_i_folder_begin(c);
    if (status < 0 && weft_status_scope(status) > WEFT_SCOPE_OP)
        return status;
    status = weft_i_accord(c->group, "weft_checkpoint_save", status, NULL);
    if (status < 0)
        weft_i_folder_end(c);
    return status;
}

static weft_status save(weft_checkpoint *c, int64_t step, weft_i_items *items)
{
    weft_i_deed deed = {0};
    weft_status status = weft_i_items_list(c, items);
    bool *mine = WEFT_OS->alloc((size_t)items->count + 1);
    if (!mine && status >= 0)
        status = weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for a plan");
    if (status >= 0 && step < 0)
        status = weft_i_fail(WEFT_ERR_INVALID_ARG, "step %lld", (long long)step);
    if (status >= 0)
        status = describe(c, step, &deed);
    status = weft_i_accord(c->group, "weft_checkpoint_save", status, &deed);
    weft_i_deed_clear(&deed);
    if (status >= 0) {
        c->step = step;
        status = copy(c, items, mine, weft_i_checkpoint_plan(c, items, mine));
    }
    WEFT_OS->free(mine);
    return status;
}

weft_status weft_checkpoint_save(weft_checkpoint *checkpoint, int64_t step)
{
    weft_i_items items = {0};
    WEFT_TRY(check("weft_checkpoint_save", checkpoint));
    WEFT_TRY(settle(checkpoint));
    WEFT_TRY(weft_scope_open());
    weft_status status = save(checkpoint, step, &items);
    weft_scope_close();
    weft_i_items_clear(&items);
    WEFT_TRY(status);
    start(checkpoint);
    return checkpoint->opts.wait ? settle(checkpoint) : WEFT_OK;
}

weft_status weft_checkpoint_wait(weft_checkpoint *checkpoint)
{
    WEFT_TRY(check("weft_checkpoint_wait", checkpoint));
    return settle(checkpoint);
}
