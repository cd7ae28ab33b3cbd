/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiling rows: all that have no code yet, of one device, are one unit.  For the CPU it is C and
 * becomes a shared object, for other devices what their own compiler makes of it.
 */
#include "base/machine/cache_folder.h"
#include "base/os/os.h"
#include "base/report/log.h"
#include "graph/emit/code_cache.h"
#include "graph/emit/emit_row.h"
#include "tensor/object/device.h"

#include <stdio.h>
#include <string.h>

enum { KINDS = WEFT_I_DEVICE_KINDS, WHY = 1024 };

/* Guarded by the rows' lock. */
static bool held, warned[KINDS];
static char state[KINDS][WHY + 80]; /* of the compilers, for people */

/* Relaxed: the lock orders them. */
static bool is_pending(const weft_i_emit_row *row, weft_device device)
{
    return row->device == device && !row->broken &&
           !atomic_load_explicit(&row->code, memory_order_relaxed) &&
           !atomic_load_explicit(&row->loaded, memory_order_relaxed);
}

/* ---- the source ---- */

static void put_row(weft_i_text *s, const weft_i_emit_row *row)
{
    static const char *const names[] = {"ADDRESSES", "KNOWN", "SHARED"};
    weft_i_text_put(s, "#define FUSED weft_%s\n", row->name);
    if (row->sums)
        weft_i_text_put(s, "#define FUSED_END weft_%s_end\n", row->name);
    if (row->device != WEFT_CPU) {
        weft_i_text_put(s, "#define FUSED_ADDRESSES weft_%s_addresses\n", row->name);
        for (size_t i = 1; i < sizeof names / sizeof *names; i++)
            weft_i_text_put(s, "#define %s weft_%s_%s\n", names[i], row->name, names[i]);
    }
    weft_i_text_put(
        s,
        "%s#undef FUSED\n#undef FUSED_END\n#undef FUSED_ADDRESSES\n#undef KNOWN\n#undef SHARED\n",
        row->text);
}

static void put_source(weft_i_text *s, const weft_i_emit_row *rows, weft_device device)
{
    bool used[WEFT_I_EMIT_EXPRESSIONS] = {false};
    if (device == WEFT_CPU)
        weft_i_emit_prelude(s);
    else
        weft_i_emit_kernel_prelude(s);
    for (const weft_i_emit_row *row = rows; row; row = row->next)
        for (int i = 0; is_pending(row, device) && i < WEFT_I_EMIT_EXPRESSIONS; i++)
            used[i] |= row->used[i];
    weft_i_emit_expressions(s, used);
    for (const weft_i_emit_row *row = rows; row; row = row->next)
        if (is_pending(row, device))
            put_row(s, row);
}

static char *source_of(const weft_i_emit_row *rows, weft_device device)
{
    weft_i_text s = {NULL, 0, 0};
    put_source(&s, rows, device);
    s.room = s.used + 1;
    s.used = 0;
    if ((s.out = WEFT_OS->alloc(s.room)))
        put_source(&s, rows, device);
    return s.out;
}

/* ---- the code ---- */

static bool take_function(weft_i_emit_row *row, void *library, const char *symbol)
{
    char end[80];
    snprintf(end, sizeof end, "%s_end", symbol);
    void *at = WEFT_OS->dlsym(library, symbol), *behind = NULL;
    weft_i_emit_code *code;
    if (row->sums && !(behind = WEFT_OS->dlsym(library, end)))
        return false;
    memcpy(&code, &at, sizeof code);
    memcpy(&row->end, &behind, sizeof row->end);
    atomic_store_explicit(&row->code, code, memory_order_release);
    return at;
}

static bool take_kernel(weft_i_emit_row *row, void *module, const char *symbol)
{
    const weft_i_code *code = weft_i_device_find(row->device)->code;
    row->kernel =
        (weft_i_code_kernel){.threads = row->launch.threads, .by_threads = row->launch.by_threads};
    if (code->find(row->device, module, symbol, &row->kernel) < 0)
        return false;
    atomic_store_explicit(&row->loaded, true, memory_order_release);
    return true;
}

/* Gives the rows their code. */
static bool take_code(weft_i_emit_row *rows, weft_device device, void *library)
{
    bool all = true;
    for (weft_i_emit_row *row = rows; row; row = row->next) {
        char symbol[64];
        if (!is_pending(row, device))
            continue;
        snprintf(symbol, sizeof symbol, "weft_%s", row->name);
        row->broken = device == WEFT_CPU ? !take_function(row, library, symbol)
                                         : !take_kernel(row, library, symbol);
        all &= !row->broken;
    }
    return all;
}

static bool build_source(weft_i_emit_row *rows, weft_device device, const char *source, char *why)
{
    weft_i_compiler compiler;
    weft_i_code_maker maker;
    void *library;
    int kind = weft_i_device_kind(device);
    if (device == WEFT_CPU ? !weft_i_compiler_find(&compiler, why, WHY)
                           : !weft_i_code_maker_of(device, &maker, why, WHY))
        return false;
    if (device == WEFT_CPU)
        weft_i_code_maker_c(&compiler, &maker);
    int64_t start = WEFT_OS->clock_ns();
    weft_i_code_cache_end end = weft_i_code_cache_open(&maker, source, &library, why, WHY);
    if (end == WEFT_I_CODE_CACHE_FAILED)
        return false;
    snprintf(state[kind], sizeof state[kind], "%s", maker.title);
    weft_i_log(WEFT_LOG_INFO, "graph: %zu bytes of C were %s by %s, %.1f ms", strlen(source),
               end == WEFT_I_CODE_CACHE_FOUND ? "compiled before" : "compiled", maker.title,
               (double)(WEFT_OS->clock_ns() - start) / 1e6);
    snprintf(why, WHY, "a function is missing in what was compiled");
    return take_code(rows, device, library);
}

static bool build_device(weft_i_emit_row *rows, weft_device device)
{
    char why[WHY] = "no memory for the source";
    int kind = weft_i_device_kind(device);
    char *source = source_of(rows, device);
    bool built = source && build_source(rows, device, source, why);
    WEFT_OS->free(source);
    if (built)
        return true;
    for (weft_i_emit_row *row = rows; row; row = row->next)
        row->broken |= is_pending(row, device);
    snprintf(state[kind], sizeof state[kind], "none: %s", why);
    weft_i_log(warned[kind] ? WEFT_LOG_INFO : WEFT_LOG_WARN,
               "graphs are interpreted, with the same results: no code: %s", why);
    warned[kind] = true;
    return false;
}

bool weft_i_emit_build(void)
{
    weft_i_emit_row *rows = weft_i_emit_rows_lock();
    bool built = true;
    /* Each round compiles or breaks what is pending of one device. */
    for (weft_i_emit_row *row = rows; row && !held; row = row->next)
        if (is_pending(row, row->device))
            built &= build_device(rows, row->device);
    weft_i_emit_rows_unlock();
    return built;
}

void weft_i_emit_hold(bool hold)
{
    weft_i_emit_rows_lock();
    held = hold;
    weft_i_emit_rows_unlock();
}

bool weft_i_emit_row_ready(const weft_i_op *op)
{
    const weft_i_emit_row *row = (const weft_i_emit_row *)op;
    weft_i_emit_rows_lock();
    bool ready = held || weft_i_emit_row_has_code(row);
    weft_i_emit_rows_unlock();
    return ready;
}

/* ---- for people ---- */

void weft_i_emit_describe(weft_device device, char *out, size_t bytes)
{
    const weft_i_device *table = weft_i_device_find(device);
    weft_i_compiler compiler;
    char why[256] = "";
    weft_i_emit_rows_lock();
    snprintf(out, bytes, "%s", state[weft_i_device_kind(device)]);
    weft_i_emit_rows_unlock();
    if (out[0])
        return;
    if (device != WEFT_CPU && table && table->code)
        table->code->describe(out, bytes);
    else if (device == WEFT_CPU && weft_i_compiler_find(&compiler, why, sizeof why))
        snprintf(out, bytes, "%s", compiler.path);
    else
        snprintf(out, bytes, "none: %s", why);
}

weft_status weft_compiler_describe(weft_compiler_info *out)
{
    weft_i_compiler compiler;
    if (!out)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_compiler_describe: the result is NULL");
    *out = (weft_compiler_info){.reason = ""};
    weft_i_emit_rows_lock();
    if (warned[WEFT_I_KIND_CPU])
        snprintf(out->reason, sizeof out->reason, "%s", state[WEFT_I_KIND_CPU]);
    weft_i_emit_rows_unlock();
    if (weft_i_compiler_find(&compiler, out->reason, sizeof out->reason))
        snprintf(out->program, sizeof out->program, "%s", compiler.path);
    if (!weft_i_cache_folder_path(out->folder, sizeof out->folder, out->reason, sizeof out->reason))
        out->folder[0] = 0;
    weft_i_emit_describe(WEFT_CUDA(0), out->cuda, sizeof out->cuda);
    return WEFT_OK;
}
