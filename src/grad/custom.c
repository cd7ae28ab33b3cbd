/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations of the user: rows like ours, added while the program runs.  They stay until the
 * process ends, because graphs and captures hold rows by address.
 */
#include "weft/custom.h"

#include "base/os/os.h"
#include "base/report/opts.h"
#include "grad/rule.h"
#include "tensor/object/device.h"
#include "weft/symm.h"

#include <ctype.h>
#include <pthread.h>
#include <string.h>

struct weft_custom {
    weft_i_op op;
    weft_i_op *row; /* what the table lists */
    weft_i_op_table table;
    weft_i_gradient gradient;
    weft_custom_opts opts;
};

static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER;

static const weft_custom *custom_of(const weft_i_op *op)
{
    return (const weft_custom *)(const void *)op;
}

/* The arguments as the user's functions see them. */
static void read_values(const weft_i_op *op, const weft_i_arg *args, weft_value *out)
{
    for (int i = 0; i < op->arity; i++) {
        out[i] = (weft_value){NULL, 0, 0};
        if (args[i].kind == WEFT_I_ARG_TENSOR)
            out[i].tensor = args[i].tensor;
        else if (args[i].kind == WEFT_I_ARG_NUMBER)
            out[i].number = args[i].number;
        else if (args[i].kind == WEFT_I_ARG_INTEGER)
            out[i].integer = args[i].integer;
    }
}

/* A failure is explained by what failed; the user's own status may come without a message. */
static weft_status outcome(const weft_i_op *op, weft_status status, const char *what)
{
    if (status >= 0)
        return WEFT_OK;
    return weft_last_status() == status ? weft_i_explain(status, "%s", op->name)
                                        : weft_i_fail(status, "%s: its %s function returned %s",
                                                      op->name, what, weft_status_name(status));
}

static weft_status find_shape(weft_i_op_call *call)
{
    const weft_custom *custom = custom_of(call->op);
    weft_value in[WEFT_I_OP_ARGS];
    const weft_tensor *first = call->args[0].tensor;
    weft_custom_result result = {first->dtype, weft_i_tensor_shape(first)};
    read_values(call->op, call->args, in);
    if (custom->opts.shape)
        WEFT_TRY(outcome(call->op, custom->opts.shape(&result, in, custom->opts.user), "shape"));
    WEFT_TRY(weft_i_shape_check(call->op->name, result.dtype, result.shape, NULL));
    call->result.dtype = result.dtype;
    call->result.shape = result.shape;
    weft_i_shape_strides(result.shape, call->result.stride);
    return WEFT_OK;
}

/* A compiled graph puts what it makes into symmetric memory; everybody else must bring some. */
static weft_status check_symmetric(const weft_i_op_call *call)
{
    int length;
    for (int i = 0; i < call->op->arity; i++) {
        if (call->op->kinds[i] != 'y' || weft_symm_is(call->args[i].tensor))
            continue;
        const char *name = weft_i_op_param_name(call->op, i, &length);
        return weft_i_fail(WEFT_ERR_TYPE,
                           "%s: %.*s is not symmetric memory; make it with weft_symm_empty",
                           call->op->name, length, name);
    }
    return WEFT_OK;
}

static weft_status run(weft_i_op_call *call)
{
    const weft_custom *custom = custom_of(call->op);
    weft_value in[WEFT_I_OP_ARGS];
    WEFT_TRY(check_symmetric(call));
    read_values(call->op, call->args, in);
    return outcome(call->op, custom->opts.run(call->out, in, custom->opts.user), "run");
}

static weft_status back(weft_i_back *c)
{
    const weft_custom *custom = custom_of(c->op);
    weft_value in[WEFT_I_OP_ARGS];
    read_values(c->op, c->arg, in);
    weft_status status = custom->opts.gradient(c->grad, c->g[0], c->y[0], in, custom->opts.user);
    return outcome(c->op, status, "gradient");
}

/* ---- declaring ---- */

static bool is_word(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (!isalnum((unsigned char)text[i]) && text[i] != '_')
            return false;
    return length > 0;
}

/* "x:t eps:n": words, a colon, one of the letters. */
static weft_status check_params(const char *name, const char *params)
{
    int count = 0;
    for (const char *at = params; at; count++) {
        size_t length = strcspn(at, ":");
        char letter = at[length] ? at[length + 1] : 0;
        char after = letter ? at[length + 2] : 0;
        bool known = letter && strchr(count ? "tyoni" : "ty", letter);
        if (!is_word(at, length) || !known || (after && after != ' '))
            return weft_i_fail(WEFT_ERR_INVALID_ARG,
                               "weft_custom_new: %s: parameter %d of \"%s\" is not of the form "
                               "name:kind, with a kind of t y o n i, and t or y for the first",
                               name, count, params);
        at = after ? at + length + 3 : NULL;
    }
    return count <= WEFT_I_OP_ARGS
               ? WEFT_OK
               : weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_custom_new: %s: %d parameters, %d is most",
                             name, count, WEFT_I_OP_ARGS);
}

static weft_status check(const weft_custom_opts *opts)
{
    if (!opts->name || !is_word(opts->name, strlen(opts->name)))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "weft_custom_new: the name is not made of letters, digits and _");
    if (!opts->params || !opts->run)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_custom_new: %s: params or run are NULL",
                           opts->name);
    return check_params(opts->name, opts->params);
}

static const char *copy_text(char **at, const char *text)
{
    char *copy = strcpy(*at, text);
    *at += strlen(text) + 1;
    return copy;
}

static unsigned saved(const weft_custom_opts *opts)
{
    if (!opts->save)
        return (1u << WEFT_I_OP_ARGS) - 1;
    return opts->save & (((1u << WEFT_I_OP_ARGS) - 1) | WEFT_CUSTOM_RESULT);
}

static weft_custom *make(const weft_custom_opts *opts)
{
    size_t text = strlen(opts->name) + strlen(opts->params) + 2;
    weft_custom *custom = WEFT_OS->alloc(sizeof *custom + text);
    if (!custom)
        return weft_i_null(WEFT_ERR_NO_MEMORY, "weft_custom_new: no memory for %s", opts->name);
    char *at = (char *)(custom + 1);
    custom->opts = *opts;
    custom->op.name = copy_text(&at, opts->name);
    custom->op.params = copy_text(&at, opts->params);
    custom->op.shape = find_shape;
    custom->op.run[WEFT_I_KIND_CPU] = run;
    if (opts->any_device)
        custom->op.run[WEFT_I_KIND_CUDA] = run;
    /* It talks to other ranks: never left out, nor swapped with others that do. */
    custom->op.flags = strstr(opts->params, ":y") ? WEFT_I_OP_EFFECT : 0;
    custom->op.gradient = &custom->gradient;
    custom->gradient.save = saved(opts);
    custom->gradient.back = opts->gradient ? back : NULL;
    custom->gradient.why = opts->gradient ? NULL : "it was declared without a gradient";
    custom->gradient.refused = !opts->gradient;
    custom->row = &custom->op;
    custom->table.rows = &custom->row;
    custom->table.count = 1;
    return custom;
}

weft_custom *weft_custom_new(const weft_custom_opts *given)
{
    weft_custom_opts opts = {0};
    if (!given)
        return weft_i_null(WEFT_ERR_INVALID_ARG, "%s: the options are NULL", __func__);
    if (weft_i_opts_copy(&opts, sizeof opts, given, __func__) < 0 || check(&opts) < 0)
        return NULL;
    pthread_mutex_lock(&adding);
    bool taken = weft_i_op_find(opts.name) != NULL;
    weft_custom *custom = taken ? NULL : make(&opts);
    if (custom)
        weft_i_op_add_table(&custom->table);
    pthread_mutex_unlock(&adding);
    return taken ? weft_i_null(WEFT_ERR_EXISTS, "%s: there is an operation %s already", __func__,
                               opts.name)
                 : custom;
}

weft_custom *weft_custom_find(const char *name)
{
    weft_i_op *op = name ? weft_i_op_find(name) : NULL;
    return op && op->shape == find_shape
               ? (weft_custom *)(void *)op
               : weft_i_null(WEFT_ERR_NOT_FOUND, "%s: nobody added an operation %s", __func__,
                             name ? name : "without a name");
}

weft_tensor *weft_custom_call(weft_custom *custom, const weft_value *in)
{
    weft_i_arg args[WEFT_I_OP_ARGS];
    if ((!custom || !in) &&
        weft_i_missing("%s: the %s NULL", __func__, custom ? "values are" : "operation is") < 0)
        return NULL;
    for (int i = 0; i < custom->op.arity; i++) {
        char kind = custom->op.kinds[i];
        args[i] = kind == 'n'   ? WEFT_I_NUMBER_ARG(in[i].number)
                  : kind == 'i' ? WEFT_I_INTEGER_ARG(in[i].integer)
                  : kind == 'o' ? WEFT_I_OPTIONAL_ARG(in[i].tensor)
                                : WEFT_I_TENSOR_ARG(in[i].tensor);
    }
    return weft_i_op_apply(&custom->op, NULL, args);
}
