/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions as rows of the interpreter, and the units in which they are compiled.  Equal texts are
 * one row for the whole process; its name is made of the digest of its text, so all ranks give it
 * the same.
 */
#include "graph/emit.h"

#include "base/cache_folder.h"
#include "base/digest.h"
#include "base/log.h"
#include "base/os.h"
#include "graph/code_cache.h"

#include <stdio.h>
#include <string.h>

typedef struct made {
    weft_dtype dtype;
    weft_shape shape;
    int64_t stride[WEFT_MAX_DIMS];
} made;

struct weft_i_emit_row {
    weft_i_op op; /* first: dispatch knows only this */
    char name[40];
    char *text;
    bool used[WEFT_I_EMIT_EXPRESSIONS];
    size_t ins, outs, scratch;
    bool in_place, broken; /* cannot be compiled */
    made *results;
    /* Release, pairs with the acquire of who runs it: the library's code is there. */
    _Atomic(weft_i_emit_code *) code;
    weft_i_emit_row *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the list and what follows */
static weft_i_emit_row *rows;
static bool held, warned;
static char state[1100]; /* of the compiler, for people */

static weft_status row_shape(weft_i_op_call *call)
{
    const weft_i_emit_row *row = (const weft_i_emit_row *)call->op;
    const made *result = &row->results[call->which];
    if (call->args[0].count != row->ins)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: %zu operands, not %zu", row->name,
                           call->args[0].count, row->ins);
    call->result.dtype = result->dtype;
    call->result.shape = result->shape;
    memcpy(call->result.stride, result->stride, sizeof result->stride);
    return WEFT_OK;
}

weft_status weft_i_emit_row_run(const weft_i_op *op, weft_tensor *const *ins, size_t count,
                                weft_tensor *const *outs)
{
    const weft_i_emit_row *row = (const weft_i_emit_row *)op;
    char *addresses[2 * WEFT_I_EMIT_OPERANDS], *scratch = NULL;
    weft_i_emit_code *code = atomic_load_explicit(&row->code, memory_order_acquire);
    if (!code || count != row->ins)
        return weft_i_fail(WEFT_ERR_STATE, "%s: %s", row->name,
                           code ? "wrong number of operands" : "was not compiled");
    for (size_t i = 0; i < row->ins; i++)
        addresses[i] = weft_i_tensor_data(ins[i]);
    for (size_t i = 0; i < row->outs; i++)
        addresses[row->ins + i] = weft_i_tensor_data(outs[i]);
    if (row->scratch && !(scratch = WEFT_OS->alloc_aligned(64, (row->scratch + 63) / 64 * 64)))
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "%s: no memory for rows of %zu bytes", row->name,
                           row->scratch);
    code(addresses, scratch);
    WEFT_OS->free(scratch);
    return WEFT_OK;
}

static weft_status row_run(weft_i_op_call *call)
{
    return weft_i_emit_row_run(call->op, call->args[0].tensors, call->args[0].count,
                               call->outs ? call->outs : &call->out);
}

bool weft_i_emit_row_is(const weft_i_op *op)
{
    return op->shape == row_shape;
}

const char *weft_i_emit_row_text(const weft_i_op *op)
{
    return ((const weft_i_emit_row *)op)->text;
}

bool weft_i_emit_row_in_place(const weft_i_op *op)
{
    return ((const weft_i_emit_row *)op)->in_place;
}

/* ---- making one ---- */

static void put_layout(weft_i_text *s, const weft_i_graph_value *value)
{
    weft_i_text_put(s, " %s[", weft_dtype_name(value->dtype));
    for (int d = 0; d < value->shape.ndim; d++)
        weft_i_text_put(s, "%s%lld", d ? ", " : "", (long long)value->shape.dim[d]);
    weft_i_text_put(s, "]:");
    for (int d = 0; d < value->shape.ndim; d++)
        weft_i_text_put(s, "%s%lld", d ? "," : "", (long long)value->stride[d]);
}

/* What it stands for and how its operands lie, as a comment, and the function. */
static void put_text(weft_i_text *s, const weft_i_emit_outline *o)
{
    weft_i_text_put(s, "/*");
    for (int i = 0; i < o->count; i++)
        weft_i_text_put(s, " %s", o->graph->nodes[o->members[i].node].op->name);
    weft_i_text_put(s, "\n * from");
    for (int i = 0; i < o->ins; i++)
        put_layout(s, &o->graph->values[o->in[i]]);
    weft_i_text_put(s, "\n * to");
    for (int i = 0; i < o->outs; i++)
        put_layout(s, &o->graph->values[o->out[i]]);
    weft_i_text_put(s, " */\n");
    weft_i_emit_function(s, o, "FUSED");
}

static char *text_of(const weft_i_emit_outline *o)
{
    weft_i_text s = {NULL, 0, 0};
    put_text(&s, o);
    s.room = s.used + 1;
    s.used = 0;
    if ((s.out = WEFT_OS->alloc(s.room)))
        put_text(&s, o);
    return s.out;
}

static void fill_row(weft_i_emit_row *row, const weft_i_emit_outline *o)
{
    uint8_t digest[WEFT_I_DIGEST_BYTES];
    char hex[WEFT_I_DIGEST_TEXT];
    weft_i_digest d;
    weft_i_digest_begin(&d);
    weft_i_digest_add(&d, row->text, strlen(row->text));
    weft_i_digest_end(&d, digest);
    weft_i_digest_text(digest, hex);
    snprintf(row->name, sizeof row->name, "fused_%.12s", hex);
    row->ins = (size_t)o->ins;
    row->outs = (size_t)o->outs;
    row->scratch = weft_i_emit_scratch(o);
    row->in_place = o->group->inner == 0 && !o->angles;
    weft_i_emit_uses(o, row->used);
    row->results = (made *)(row + 1);
    for (int i = 0; i < o->outs; i++) {
        const weft_i_graph_value *value = &o->graph->values[o->out[i]];
        row->results[i] = (made){value->dtype, value->shape, {0}};
        memcpy(row->results[i].stride, value->stride, sizeof value->stride);
    }
    row->op = (weft_i_op){.name = row->name,
                          .params = "from:l",
                          .flags = WEFT_I_OP_STRIDED,
                          .shape = row_shape,
                          .results = o->outs > 1 ? o->outs : 0,
                          .arity = 1,
                          .kinds = "l",
                          .takes = {1 << WEFT_I_ARG_TENSORS}};
    row->op.run[0] = row_run;
}

static weft_i_emit_row *find_row(const char *text)
{
    for (weft_i_emit_row *row = rows; row; row = row->next)
        if (!strcmp(row->text, text))
            return row;
    return NULL;
}

const weft_i_op *weft_i_emit_row_make(const weft_i_emit_outline *outline)
{
    char *text = text_of(outline);
    weft_i_emit_row *row = NULL;
    pthread_mutex_lock(&lock);
    if (text && !(row = find_row(text))) {
        row = WEFT_OS->alloc(sizeof *row + (size_t)outline->outs * sizeof(made));
        if (row) {
            row->text = text;
            text = NULL;
            fill_row(row, outline);
            row->next = rows;
            rows = row;
        }
    }
    pthread_mutex_unlock(&lock);
    WEFT_OS->free(text);
    if (!row)
        return weft_i_null(WEFT_ERR_NO_MEMORY, "no memory for a function of %d nodes",
                           outline->count);
    return &row->op;
}

/* ---- compiling ---- */

static bool is_pending(const weft_i_emit_row *row)
{
    return !row->broken && !atomic_load_explicit(&row->code, memory_order_relaxed);
}

static void put_source(weft_i_text *s)
{
    bool used[WEFT_I_EMIT_EXPRESSIONS] = {false};
    weft_i_emit_prelude(s);
    for (weft_i_emit_row *row = rows; row; row = row->next)
        for (int i = 0; is_pending(row) && i < WEFT_I_EMIT_EXPRESSIONS; i++)
            used[i] |= row->used[i];
    weft_i_emit_expressions(s, used);
    for (weft_i_emit_row *row = rows; row; row = row->next)
        if (is_pending(row))
            weft_i_text_put(s, "#define FUSED weft_%s\n%s#undef FUSED\n", row->name, row->text);
}

static char *source_of(void)
{
    weft_i_text s = {NULL, 0, 0};
    put_source(&s);
    s.room = s.used + 1;
    s.used = 0;
    if ((s.out = WEFT_OS->alloc(s.room)))
        put_source(&s);
    return s.out;
}

/* Gives the rows their code. */
static bool take_code(void *library)
{
    bool all = true;
    for (weft_i_emit_row *row = rows; row; row = row->next) {
        char symbol[64];
        if (!is_pending(row))
            continue;
        snprintf(symbol, sizeof symbol, "weft_%s", row->name);
        void *at = WEFT_OS->dlsym(library, symbol);
        weft_i_emit_code *code;
        memcpy(&code, &at, sizeof code);
        atomic_store_explicit(&row->code, code, memory_order_release);
        row->broken = !at;
        all &= at != NULL;
    }
    return all;
}

static bool build_source(const char *source, char *why, size_t bytes)
{
    weft_i_compiler compiler;
    void *library;
    if (!weft_i_compiler_find(&compiler, why, bytes))
        return false;
    int64_t start = WEFT_OS->clock_ns();
    weft_i_code_cache_end end = weft_i_code_cache_open(&compiler, source, &library, why, bytes);
    if (end == WEFT_I_CODE_CACHE_FAILED)
        return false;
    snprintf(state, sizeof state, "%s", compiler.path);
    weft_i_log(WEFT_LOG_INFO, "graph: %zu bytes of C were %s by %s, %.1f ms", strlen(source),
               end == WEFT_I_CODE_CACHE_FOUND ? "compiled before" : "compiled", compiler.path,
               (double)(WEFT_OS->clock_ns() - start) / 1e6);
    snprintf(why, bytes, "a function is missing in what was compiled");
    return take_code(library);
}

static bool build_locked(void)
{
    char why[1024] = "no memory for the source";
    bool pending = false;
    for (weft_i_emit_row *row = rows; row && !pending; row = row->next)
        pending = is_pending(row);
    if (!pending)
        return true;
    char *source = source_of();
    bool built = source && build_source(source, why, sizeof why);
    WEFT_OS->free(source);
    if (built)
        return true;
    for (weft_i_emit_row *row = rows; row; row = row->next)
        row->broken |= is_pending(row);
    snprintf(state, sizeof state, "none: %s", why);
    weft_i_log(warned ? WEFT_LOG_INFO : WEFT_LOG_WARN,
               "graphs are interpreted, with the same results: no code: %s", why);
    warned = true;
    return false;
}

bool weft_i_emit_build(void)
{
    pthread_mutex_lock(&lock);
    bool built = held || build_locked();
    pthread_mutex_unlock(&lock);
    return built;
}

void weft_i_emit_hold(bool hold)
{
    pthread_mutex_lock(&lock);
    held = hold;
    pthread_mutex_unlock(&lock);
}

bool weft_i_emit_row_ready(const weft_i_op *op)
{
    const weft_i_emit_row *row = (const weft_i_emit_row *)op;
    pthread_mutex_lock(&lock);
    bool ready = held || atomic_load_explicit(&row->code, memory_order_acquire);
    pthread_mutex_unlock(&lock);
    return ready;
}

void weft_i_emit_describe(char *out, size_t bytes)
{
    weft_i_compiler compiler;
    char why[256];
    pthread_mutex_lock(&lock);
    snprintf(out, bytes, "%s", state);
    pthread_mutex_unlock(&lock);
    if (!out[0] && weft_i_compiler_find(&compiler, why, sizeof why))
        snprintf(out, bytes, "%s", compiler.path);
    else if (!out[0])
        snprintf(out, bytes, "none: %s", why);
}

weft_status weft_compiler_describe(weft_compiler_info *out)
{
    weft_i_compiler compiler;
    if (!out)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_compiler_describe: the result is NULL");
    *out = (weft_compiler_info){.reason = ""};
    pthread_mutex_lock(&lock);
    snprintf(out->reason, sizeof out->reason, "%s", warned ? state : "");
    pthread_mutex_unlock(&lock);
    if (weft_i_compiler_find(&compiler, out->reason, sizeof out->reason))
        snprintf(out->program, sizeof out->program, "%s", compiler.path);
    if (!weft_i_cache_folder(out->folder, sizeof out->folder, out->reason, sizeof out->reason))
        out->folder[0] = 0;
    return WEFT_OK;
}
