/* SPDX-License-Identifier: Apache-2.0 */
/* What an optimizer remembers, listed by name, and put back. */
#include "nn/optim/optim.h"

#include "base/os/os.h"
#include "tensor/object/eye.h"
#include "weft/op.h"
#include "weft/shard.h"

#include <stdlib.h>
#include <string.h>

static const int64_t MOST_STEPS = (int64_t)1 << 53; /* what a double holds exactly */

/* How many entries a parameter has: its steps and its states, or nothing. */
static int entries_of(const weft_optim *optim, const weft_i_trained *trained)
{
    int states = weft_i_optim_states(optim, trained);
    return states ? states + 1 : 0;
}

static int count_entries(const weft_optim *optim)
{
    int count = 0;
    for (int i = 0; i < optim->count; i++)
        count += entries_of(optim, &optim->trained[i]);
    return count;
}

/* -- names -- */

/* By which parameter `i` is known: its name, or its number. */
static const char *name_of(const weft_optim *optim, int i, char number[16])
{
    if (optim->trained[i].name[0])
        return optim->trained[i].name;
    snprintf(number, 16, "%d", i);
    return number;
}

static weft_status put_name(const weft_optim *optim, int i, const char *what,
                            char out[WEFT_NAME_MAX])
{
    char number[16];
    const char *name = name_of(optim, i, number);
    int n = snprintf(out, WEFT_NAME_MAX, "%s.%s", name, what);
    if (n > 0 && n < WEFT_NAME_MAX)
        return WEFT_OK;
    return weft_i_fail(WEFT_ERR_LIMIT, "the name %s.%s has more than %d characters", name, what,
                       WEFT_NAME_MAX - 1);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The names of states are different if those of parameters are. */
static weft_status check_names(const char *what, const weft_optim *optim)
{
    size_t count = (size_t)optim->count;
    const char **names = WEFT_OS->alloc(count * sizeof *names + count * 16);
    if (!names)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "%s: no memory for %zu names", what, count);
    char(*numbers)[16] = (char(*)[16])(names + count);
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < count; i++)
        names[i] = name_of(optim, (int)i, numbers[i]);
    qsort(names, count, sizeof *names, by_name);
    for (size_t i = 1; i < count && status >= 0; i++)
        if (!strcmp(names[i - 1], names[i]))
            status = weft_i_fail(WEFT_ERR_INVALID_ARG,
                                 "%s: two parameters of this %s have the name \"%s\"; their states "
                                 "could not be told apart",
                                 what, optim->kind->name, names[i]);
    WEFT_OS->free(names);
    return status;
}

/* -- listing -- */

/* A copy of the number of steps, which is a tensor only here. */
static weft_status list_steps(weft_i_trained *trained)
{
    if (!trained->listed_steps)
        trained->listed_steps = weft_keep(weft_zeros(WEFT_I64, WEFT_CPU, WEFT_SCALAR));
    return trained->listed_steps ? weft_fill(trained->listed_steps, (double)trained->steps)
                                 : weft_last_status();
}

/* The states of a part are parts of states, at the same place. */
static weft_status mark_states(const weft_optim *optim, const weft_i_trained *trained)
{
    weft_shard_place place;
    int states = weft_i_optim_states(optim, trained);
    if (!weft_shard_place_of(trained->param, &place))
        return WEFT_OK;
    for (int k = 0; k < states; k++)
        WEFT_TRY(weft_shard_mark(trained->state[k], &place));
    return WEFT_OK;
}

/* The entries of parameter `i`, as far as there is room. */
static weft_status list_one(const weft_optim *optim, int i, weft_named *out, int room)
{
    weft_i_trained *trained = &optim->trained[i];
    int entries = entries_of(optim, trained);
    if (!entries)
        return WEFT_OK;
    WEFT_TRY(weft_i_optim_make_states(optim, trained));
    WEFT_TRY(mark_states(optim, trained));
    WEFT_TRY(list_steps(trained));
    for (int k = 0; k < entries && k < room; k++) {
        WEFT_TRY(put_name(optim, i, k ? optim->kind->state[k - 1] : "step", out[k].name));
        out[k].tensor = k ? trained->state[k - 1] : trained->listed_steps;
    }
    return WEFT_OK;
}

static weft_status list_all(const weft_optim *optim, weft_named *out, int room)
{
    int used = 0;
    for (int i = 0; i < optim->count && used < room; i++) {
        WEFT_TRY(list_one(optim, i, out + used, room - used));
        used += entries_of(optim, &optim->trained[i]);
    }
    return WEFT_OK;
}

static weft_status list(const char *what, weft_optim *optim, weft_named *out, int room)
{
    weft_status status = WEFT_OK;
    WEFT_NO_GRAD
    {
        status = list_all(optim, out, room);
    }
    return status < 0 ? weft_i_explain(status, "%s", what) : WEFT_OK;
}

int weft_optim_state(weft_optim *optim, weft_named *out, int room)
{
    WEFT_TRY(weft_i_optim_check("weft_optim_state", optim));
    WEFT_TRY(weft_i_not_captured("weft_optim_state"));
    if (room < 0 || (room > 0 && !out))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_optim_state: no room to write to");
    WEFT_TRY(check_names("weft_optim_state", optim));
    WEFT_TRY(list("weft_optim_state", optim, out, room));
    return count_entries(optim);
}

/* -- putting back -- */

/* What is put back: an entry of the optimizer, and the one given for it. */
typedef struct entry {
    weft_named own;
    weft_tensor *given;
    int64_t steps; /* of an entry that counts them */
    int taken;     /* at this place of the given list: for which entry, from 1 */
} entry;

/* The same place first: lists mostly have the same order. */
static int find(const weft_named *in, int count, int at, const char *name)
{
    if (at < count && !strncmp(in[at].name, name, WEFT_NAME_MAX))
        return at;
    for (int i = 0; i < count; i++)
        if (!strncmp(in[i].name, name, WEFT_NAME_MAX))
            return i;
    return -1;
}

static weft_status check_form(const entry *e)
{
    char a[WEFT_I_SHAPE_TEXT], b[WEFT_I_SHAPE_TEXT];
    const weft_tensor *own = e->own.tensor;
    if (!e->given)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_optim_load: \"%s\" is NULL", e->own.name);
    weft_status live = weft_i_tensor_check_live("the given", e->given);
    if (live < 0)
        return weft_i_explain(live, "weft_optim_load: \"%s\"", e->own.name);
    weft_shape shape = weft_i_tensor_shape(e->given), wanted = weft_i_tensor_shape(own);
    if (e->given->dtype != own->dtype || !weft_i_shape_equal(shape, wanted))
        return weft_i_fail(
            WEFT_ERR_INVALID_ARG, "weft_optim_load: \"%s\" is %s %s, the optimizer's is %s %s",
            e->own.name, weft_dtype_name(e->given->dtype), weft_i_shape_text(shape, a),
            weft_dtype_name(own->dtype), weft_i_shape_text(wanted, b));
    weft_status status = weft_i_state_check_elements("the optimizer's", own, e->given);
    return status < 0 ? weft_i_explain(status, "weft_optim_load: \"%s\"", e->own.name) : WEFT_OK;
}

static weft_status read_steps(entry *e)
{
    e->steps = weft_item_int(e->given, 0);
    if (e->steps >= 0 && e->steps <= MOST_STEPS)
        return WEFT_OK;
    return weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_optim_load: \"%s\" is %lld; it counts steps",
                       e->own.name, (long long)e->steps);
}

/* Every entry of the optimizer is given, and fits. */
static weft_status match(entry *all, int owned, const weft_named *in, int count)
{
    for (int i = 0; i < owned; i++) {
        int at = find(in, count, i, all[i].own.name);
        if (at < 0)
            return weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_optim_load: \"%s\" is missing",
                               all[i].own.name);
        all[at].taken = i + 1;
        all[i].given = in[at].tensor;
        WEFT_TRY(check_form(&all[i]));
        if (all[i].own.tensor->dtype == WEFT_I64) /* states are floats */
            WEFT_TRY(read_steps(&all[i]));
    }
    return WEFT_OK;
}

/* Whatever else is given is unknown, or given twice. */
static weft_status check_others(const weft_optim *optim, const entry *all, int owned,
                                const weft_named *in, int count)
{
    for (int i = 0; i < count; i++) {
        bool known = false;
        if (all[i].taken)
            continue;
        for (int k = 0; k < owned && !known; k++)
            known = !strncmp(all[k].own.name, in[i].name, WEFT_NAME_MAX);
        if (known)
            return weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_optim_load: \"%s\" is given twice",
                               in[i].name);
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_optim_load: the %s has no \"%.*s\"",
                           optim->kind->name, WEFT_NAME_MAX, in[i].name);
    }
    return WEFT_OK;
}

static weft_status copy_all(const weft_optim *optim, const entry *all)
{
    for (int i = 0, at = 0; i < optim->count; i++) {
        weft_i_trained *trained = &optim->trained[i];
        int entries = entries_of(optim, trained);
        for (int k = 1; k < entries; k++)
            WEFT_TRY(weft_copy(all[at + k].own.tensor, all[at + k].given));
        if (entries)
            trained->steps = all[at].steps;
        at += entries;
    }
    return WEFT_OK;
}

static weft_status load(weft_optim *optim, entry *all, const weft_named *in, int count)
{
    int owned = count_entries(optim), at = 0;
    for (int i = 0; i < optim->count; i++) {
        weft_named own[WEFT_I_OPTIM_STATES + 1];
        WEFT_TRY(list_one(optim, i, own, WEFT_I_OPTIM_STATES + 1));
        for (int k = 0; k < entries_of(optim, &optim->trained[i]); k++)
            all[at++].own = own[k];
    }
    WEFT_TRY(match(all, owned, in, count));
    WEFT_TRY(check_others(optim, all, owned, in, count));
    return copy_all(optim, all);
}

weft_status weft_optim_load(weft_optim *optim, const weft_named *in, int count)
{
    WEFT_TRY(weft_i_optim_check("weft_optim_load", optim));
    WEFT_TRY(weft_i_not_captured("weft_optim_load"));
    if (count < 0 || (count && !in))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_optim_load: no state");
    WEFT_TRY(check_names("weft_optim_load", optim));
    int owned = count_entries(optim), places = owned > count ? owned : count;
    size_t bytes = (size_t)(places ? places : 1) * sizeof(entry);
    entry *all = WEFT_OS->alloc(bytes);
    if (!all)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "weft_optim_load: no memory for %d names", places);
    memset(all, 0, bytes);
    weft_status status = WEFT_OK;
    WEFT_NO_GRAD
    {
        status = load(optim, all, in, count);
    }
    WEFT_OS->free(all);
    return status;
}
