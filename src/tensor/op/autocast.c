/* SPDX-License-Identifier: Apache-2.0 */
/* Autocast: which operands are converted, and the parameters that were. */
#include "tensor/op/autocast.h"

#include "base/os/os.h"
#include "tensor/object/eye.h"
#include "tensor/op/ops.h"
#include "weft/op.h"

#include <string.h>

_Thread_local int weft_i_autocast;
_Atomic int weft_i_autocast_blocks;

enum {
    KEPT = 1024
}; /* parameters whose conversions are kept; those beyond are converted each time */

/* A parameter, and what it became at this version; both held. */
typedef struct kept {
    weft_tensor *param, *cast;
    int64_t version;
    weft_storage *storage; /* to compare: a parameter may be given another */
    bool recorded;         /* while gradients were recorded */
} kept;

/* Of the thread's outermost block; open addressing by the parameter's address. */
static _Thread_local kept *table;

static bool (*is_recording)(void); /* set before there is more than one thread */

void weft_i_autocast_set_recording(bool (*function)(void))
{
    is_recording = function;
}

typedef enum treatment { AS_IS, LOWER, FULL, WIDEST } treatment;

static treatment list_of(const weft_i_op *op)
{
    static const struct {
        const weft_i_op *op;
        treatment list;
    } rows[] = {{&weft_i_op_mm, LOWER},
                {&weft_i_op_bmm, LOWER},
                {&weft_i_op_linear, LOWER},
                {&weft_i_op_attention, LOWER},
                {&weft_i_op_linear_cross_entropy, LOWER},
                {&weft_i_op_exp, FULL},
                {&weft_i_op_log, FULL},
                {&weft_i_op_pow, FULL},
                {&weft_i_op_rsqrt, FULL},
                {&weft_i_op_sum, FULL},
                {&weft_i_op_prod, FULL},
                {&weft_i_op_cumsum, FULL},
                {&weft_i_op_softmax, FULL},
                {&weft_i_op_log_softmax, FULL},
                {&weft_i_op_layer_norm, FULL},
                {&weft_i_op_cat, WIDEST},
                {&weft_i_op_scatter_add, WIDEST}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].op == op)
            return rows[i].list;
    return AS_IS;
}

/* f32, bf16 and f16. */
static bool may_cast(const weft_tensor *x)
{
    return x->dtype == WEFT_F32 || x->dtype == WEFT_BF16 || x->dtype == WEFT_F16;
}

/* ---- parameters ---- */

static kept *place_of(const weft_tensor *param)
{
    size_t at = (size_t)((uint64_t)(uintptr_t)param * 0x9e3779b97f4a7c15u >> 54);
    for (size_t i = 0; i < KEPT; i++) {
        kept *k = &table[(at + i) % KEPT];
        if (!k->param || k->param == param)
            return k;
    }
    return NULL;
}

static void forget(kept *k)
{
    weft_i_object_drop(k->cast);
    weft_i_object_drop(k->param);
    k->param = k->cast = NULL;
}

static bool is_fresh(const kept *k, const weft_tensor *x, weft_dtype dtype)
{
    return k->param && k->cast->dtype == dtype && k->version == weft_i_tensor_version(x) &&
           k->storage == x->storage && (!is_recording || k->recorded == is_recording());
}

/* The conversion of a parameter, kept until the block ends; a reference of the caller.  Not in a
 * capture, whose stand-ins end with it. */
static weft_tensor *cast_parameter(weft_tensor *x, weft_dtype dtype)
{
    if (!table) {
        table = WEFT_OS->alloc(KEPT * sizeof *table);
        if (table)
            memset(table, 0, KEPT * sizeof *table);
    }
    kept *k = table ? place_of(x) : NULL;
    if (k && is_fresh(k, x, dtype))
        return weft_i_object_hold(k->cast);
    weft_tensor *cast = weft_keep(weft_to_dtype(x, dtype));
    if (!cast || !k)
        return cast;
    weft_i_object_drop(k->cast);
    if (!k->param)
        k->param = weft_i_object_hold(x);
    k->cast = weft_i_object_hold(cast);
    k->version = weft_i_tensor_version(x);
    k->storage = x->storage;
    k->recorded = is_recording && is_recording();
    return cast;
}

static weft_tensor *cast_one(weft_tensor *x, weft_dtype dtype)
{
    bool keep = x->parameter && !weft_i_eye_open && !x->storage->fake;
    return keep ? cast_parameter(x, dtype) : weft_keep(weft_to_dtype(x, dtype));
}

/* ---- calls ---- */

static bool is_tensor(const weft_tensor *x)
{
    return x && x->head.kind == WEFT_I_TENSOR;
}

/* The dtype that the operands are to have; 0: as they are. */
static weft_dtype wanted(treatment how, const weft_i_op *op, const weft_i_arg *args)
{
    weft_dtype widest = (weft_dtype)0;
    if (how != WIDEST)
        return how == LOWER ? (weft_dtype)weft_i_autocast : WEFT_F32;
    for (int i = 0; i < op->arity; i++)
        for (size_t k = 0; k < (args[i].kind == WEFT_I_ARG_TENSORS ? args[i].count : 1); k++) {
            bool one = args[i].kind == WEFT_I_ARG_TENSOR;
            if (!one && args[i].kind != WEFT_I_ARG_TENSORS)
                continue;
            const weft_tensor *x = weft_i_see(one ? args[i].tensor : args[i].tensors[k]);
            if (!is_tensor(x) || !may_cast(x))
                continue;
            if (widest && widest != x->dtype)
                return WEFT_F32;
            widest = x->dtype;
        }
    return widest;
}

static weft_tensor *cast_if(weft_tensor *x, weft_dtype dtype, weft_tensor **made)
{
    const weft_tensor *seen = x ? weft_i_see(x) : NULL;
    *made = NULL;
    if (!is_tensor(seen) || !may_cast(seen) || seen->dtype == dtype)
        return x;
    return *made = cast_one(x, dtype);
}

static weft_status cast_list(const weft_i_arg *arg, weft_dtype dtype, weft_i_autocast_casts *casts)
{
    size_t n = arg->count;
    casts->list = WEFT_OS->alloc(2 * (n + 1) * sizeof *casts->list);
    if (!casts->list)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "autocast: no memory for %zu tensors", n);
    casts->listed = n;
    memset(casts->list, 0, 2 * (n + 1) * sizeof *casts->list);
    for (size_t i = 0; i < n; i++)
        if (!(casts->list[i] = cast_if(arg->tensors[i], dtype, &casts->list[n + 1 + i])) &&
            arg->tensors[i])
            return weft_last_status();
    return WEFT_OK;
}

const weft_i_arg *weft_i_autocast_begin(const weft_i_op *op, const weft_i_arg *args,
                                        weft_i_autocast_casts *casts)
{
    treatment how = list_of(op);
    casts->count = casts->listed = 0;
    casts->list = NULL;
    weft_dtype dtype = how == AS_IS ? (weft_dtype)0 : wanted(how, op, args);
    if (!dtype)
        return args;
    for (int i = 0; i < op->arity; i++) {
        casts->args[i] = args[i];
        if (args[i].kind == WEFT_I_ARG_TENSORS) {
            if (cast_list(&args[i], dtype, casts) < 0)
                return NULL;
            casts->args[i].tensors = casts->list;
        } else if (args[i].kind == WEFT_I_ARG_TENSOR && args[i].tensor) {
            weft_tensor *made;
            if (!(casts->args[i].tensor = cast_if(args[i].tensor, dtype, &made)))
                return NULL;
            if (made)
                casts->made[casts->count++] = made;
        }
    }
    return casts->args;
}

void weft_i_autocast_end(weft_i_autocast_casts *casts)
{
    for (size_t i = 0; i < casts->count; i++)
        weft_i_object_drop(casts->made[i]);
    for (size_t i = 0; i < casts->listed; i++)
        weft_i_object_drop(casts->list[casts->listed + 1 + i]);
    WEFT_OS->free(casts->list);
}

weft_tensor *weft_i_autocast_lower(weft_tensor *x, bool *made)
{
    weft_tensor *cast = NULL;
    if (weft_i_autocast)
        x = cast_if(x, (weft_dtype)weft_i_autocast, &cast);
    *made = cast != NULL;
    return x;
}

/* ---- blocks ---- */

weft_dtype weft_autocast_now(void)
{
    return weft_i_autocast ? (weft_dtype)weft_i_autocast : WEFT_F32;
}

weft_autocast_block weft_autocast_block_enter(weft_dtype dtype)
{
    weft_autocast_block block = {weft_autocast_now(), true, !table && !weft_i_autocast};
    if (dtype != WEFT_BF16 && dtype != WEFT_F16 && dtype != WEFT_F32)
        weft_i_fail(WEFT_ERR_INVALID_ARG, "WEFT_AUTOCAST: to %s; it takes bf16, f16 or f32",
                    weft_dtype_name(dtype));
    atomic_fetch_add_explicit(&weft_i_autocast_blocks, 1, memory_order_relaxed);
    weft_i_autocast = dtype == WEFT_BF16 || dtype == WEFT_F16 ? (int)dtype : 0;
    return block;
}

void weft_autocast_block_leave(weft_autocast_block *block)
{
    if (!block)
        return;
    atomic_fetch_sub_explicit(&weft_i_autocast_blocks, 1, memory_order_relaxed);
    weft_i_autocast = block->before == WEFT_F32 ? 0 : (int)block->before;
    if (!block->outermost || !table)
        return;
    kept *old = table;
    table = NULL; /* what dies may run calls */
    for (size_t i = 0; i < KEPT; i++)
        forget(&old[i]);
    WEFT_OS->free(old);
}
