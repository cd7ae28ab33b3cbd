/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The public face of stores: checks arguments, builds one request per call, hands it to the kind,
 * words the answer's errors.  Nothing is sent before every argument was checked.
 */
#include "store/store.h"

#include "base/os/os.h"
#include "base/report/env.h"
#include "base/report/status.h"
#include "base/report/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- handles ---- */

static void destroy(weft_i_object *object)
{
    weft_store *store = (weft_store *)object;
    store->kind->close(store, store->process != weft_i_os_process());
    weft_i_object_free(object);
}

void *weft_i_store_new(const weft_i_store_kind *kind, size_t bytes, const char *format, ...)
{
    weft_store *store = weft_i_object_new(WEFT_I_STORE, bytes, destroy);
    if (!store)
        return NULL;
    store->kind = kind;
    store->process = weft_i_os_process();
    atomic_init(&store->timeout_ms, weft_i_env_number_or_default(WEFT_I_ENV_STORE_TIMEOUT));
    va_list args;
    va_start(args, format);
    vsnprintf(store->name, sizeof store->name, format, args);
    va_end(args);
    return store;
}

void *weft_i_store_pass_null(const char *function)
{
    weft_i_missing("%s: store is NULL", function);
    return NULL;
}

weft_status weft_i_store_usable(const weft_store *store, const char *function)
{
    if (!store) {
        weft_i_store_pass_null(function);
        return weft_last_status();
    }
    if (store->object.kind != WEFT_I_STORE)
        return weft_i_fail(WEFT_ERR_TYPE, "%s: the handle is not a store", function);
    if (store->process != weft_i_os_process())
        return weft_i_fail(WEFT_ERR_STATE,
                           "%s: store %s belongs to process %d; a forked child must make its own",
                           function, store->name, store->process);
    return WEFT_OK;
}

int weft_store_port(const weft_store *store)
{
    if (weft_i_store_usable(store, "weft_store_port"))
        return 0;
    return store->inner ? weft_store_port(store->inner) : store->port;
}

int64_t weft_store_timeout(const weft_store *store)
{
    if (weft_i_store_usable(store, "weft_store_timeout"))
        return 0;
    while (store->inner)
        store = store->inner;
    return atomic_load_explicit(&store->timeout_ms, memory_order_relaxed);
}

weft_status weft_store_set_timeout(weft_store *store, int64_t timeout_ms)
{
    WEFT_TRY(weft_i_store_usable(store, "weft_store_set_timeout"));
    if (timeout_ms < 0 && timeout_ms != WEFT_FOREVER)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_store_set_timeout: %lld ms is negative",
                           (long long)timeout_ms);
    while (store->inner)
        store = store->inner;
    atomic_store_explicit(&store->timeout_ms, timeout_ms, memory_order_relaxed);
    return WEFT_OK;
}

static _Thread_local int64_t until = WEFT_I_NEVER;

int64_t weft_i_store_until(int64_t deadline)
{
    int64_t before = until;
    until = deadline;
    return before;
}

int64_t weft_i_store_late(int64_t deadline)
{
    const int64_t late_ns = 30000000;
    return deadline < WEFT_I_NEVER - late_ns ? deadline + late_ns : WEFT_I_NEVER;
}

int64_t weft_i_store_deadline(const weft_store *store, int64_t timeout_ms)
{
    if (timeout_ms == WEFT_DEFAULT) {
        timeout_ms = weft_store_timeout(store);
        if (!timeout_ms)
            return until;
    }
    int64_t deadline = weft_i_os_deadline(timeout_ms);
    return deadline < until ? deadline : until;
}

weft_store *weft_store_clone(weft_store *store)
{
    if (!store)
        return weft_i_store_pass_null("weft_store_clone");
    if (weft_i_store_usable(store, "weft_store_clone"))
        return NULL;
    weft_store *copy = store->kind->clone(store);
    if (copy && !copy->inner)
        atomic_store_explicit(&copy->timeout_ms, weft_store_timeout(store), memory_order_relaxed);
    return copy;
}

/* ---- answers ---- */

void weft_i_store_answer_clear(weft_i_store_answer *answer)
{
    WEFT_OS->free(answer->memory);
    WEFT_OS->free(answer->array);
    *answer = (weft_i_store_answer){0};
}

bool weft_i_store_answer_reserve(weft_i_store_answer *answer, size_t count)
{
    answer->value = &answer->one;
    if (count > 1 &&
        !(answer->value = answer->array = WEFT_OS->alloc(count * sizeof *answer->value)))
        return false;
    answer->values = count;
    return true;
}

void weft_store_value_clear(weft_store_value *value)
{
    if (!value)
        return;
    WEFT_OS->free(value->data);
    *value = (weft_store_value){0};
}

/* Turns the answer's only value into the caller's without a copy that could fail: the block itself
 * changes hands. */
static void give(weft_i_store_answer *answer, weft_store_value *out)
{
    weft_i_view view = answer->one;
    char *block = answer->memory;
    memmove(block, view.data, view.bytes);
    block[view.bytes] = 0;
    answer->memory = NULL;
    *out = (weft_store_value){block, view.bytes};
}

static weft_status give_all(const weft_i_store_answer *answer, weft_store_value *out)
{
    for (size_t i = 0; i < answer->values; i++) {
        char *copy = WEFT_OS->alloc(answer->value[i].bytes + 1);
        if (!copy) {
            while (i--)
                weft_store_value_clear(&out[i]);
            return weft_i_fail(WEFT_ERR_NO_MEMORY, "weft_store_multi_get: no memory for %zu values",
                               answer->values);
        }
        memcpy(copy, answer->value[i].data, answer->value[i].bytes);
        out[i] = (weft_store_value){copy, answer->value[i].bytes};
    }
    return WEFT_OK;
}

/* ---- words ---- */

const char *weft_i_store_op_name(weft_i_store_op op)
{
    static const char *const names[WEFT_I_STORE_OPS] = {
        [WEFT_I_STORE_SET] = "set",
        [WEFT_I_STORE_GET] = "get",
        [WEFT_I_STORE_ADD] = "add",
        [WEFT_I_STORE_COMPARE_SET] = "compare_set",
        [WEFT_I_STORE_APPEND] = "append",
        [WEFT_I_STORE_CHECK] = "check",
        [WEFT_I_STORE_WAIT] = "wait",
        [WEFT_I_STORE_DELETE] = "delete_key",
        [WEFT_I_STORE_NUM_KEYS] = "num_keys",
        [WEFT_I_STORE_MULTI_GET] = "multi_get",
        [WEFT_I_STORE_MULTI_SET] = "multi_set",
        [WEFT_I_STORE_PUSH] = "queue_push",
        [WEFT_I_STORE_POP] = "queue_pop",
        [WEFT_I_STORE_LENGTH] = "queue_len",
        [WEFT_I_STORE_WILL] = "will",
        [WEFT_I_STORE_CLOCK] = "clock",
    };
    return op < WEFT_I_STORE_OPS && names[op] ? names[op] : "?";
}

bool weft_i_store_waits(const weft_i_store_request *request)
{
    return request->may_block &&
           (request->op == WEFT_I_STORE_GET || request->op == WEFT_I_STORE_WAIT ||
            request->op == WEFT_I_STORE_MULTI_GET || request->op == WEFT_I_STORE_POP);
}

const char *weft_i_store_keys_text(const weft_i_store_request *request, char *out, size_t bytes)
{
    weft_i_text text = {out, bytes, 0};
    *out = 0;
    for (size_t i = 0; i < request->keys && i < 8; i++) {
        int shown = (int)(request->key[i].bytes < 64 ? request->key[i].bytes : 64);
        weft_i_text_put(&text, "%s\"%.*s\"", i ? ", " : "", shown,
                        (const char *)request->key[i].data);
    }
    if (request->keys > 8)
        weft_i_text_put(&text, " and %zu more", request->keys - 8);
    return out;
}

static const char *reason(const weft_i_store_request *request, weft_status status)
{
    bool queue = request->op == WEFT_I_STORE_PUSH || request->op == WEFT_I_STORE_POP ||
                 request->op == WEFT_I_STORE_LENGTH;
    switch (status) {
    case WEFT_ERR_TIMEOUT:
        if (!weft_i_store_waits(request))
            return "the deadline passed before the store was free";
        return queue ? "the deadline passed and nothing was pushed"
                     : "the deadline passed and not all of the keys were set";
    case WEFT_ERR_NOT_FOUND:
        return "no such key";
    case WEFT_ERR_EMPTY:
        return "nothing queued";
    case WEFT_ERR_TYPE:
        if (request->op == WEFT_I_STORE_ADD)
            return "the key holds something that is not a number";
        return queue ? "the key holds a value, not a queue" : "the key holds a queue, not a value";
    case WEFT_ERR_LIMIT:
        return "a value over 8 MiB, a message over 16 MiB, or more than WEFT_STORE_MEMORY in the "
               "store";
    case WEFT_ERR_NO_MEMORY:
        return "the store ran out of memory";
    case WEFT_ERR_INVALID_ARG:
        return "the sum leaves the range of 64 bits";
    default:
        return weft_strerror(status);
    }
}

static weft_status word(const weft_store *store, const weft_i_store_request *request,
                        weft_status status)
{
    char keys[640];
    bool tried = !request->may_block && (status == WEFT_ERR_NOT_FOUND || status == WEFT_ERR_EMPTY);
    weft_status (*tell)(weft_status, const char *, ...) = tried ? weft_i_miss : weft_i_fail;
    return tell(status, "store %s: %s(%s): %s", store->name, weft_i_store_op_name(request->op),
                weft_i_store_keys_text(request, keys, sizeof keys), reason(request, status));
}

/* ---- one call ---- */

static weft_status check_sizes(const weft_i_store_request *request)
{
    size_t total = 0;
    for (size_t i = 0; i < request->values; i++) {
        if (request->value[i].bytes > WEFT_STORE_VALUE_BYTES)
            return weft_i_fail(
                WEFT_ERR_LIMIT, "weft_store_%s: a value of %zu bytes; the limit is %d",
                weft_i_store_op_name(request->op), request->value[i].bytes, WEFT_STORE_VALUE_BYTES);
        if (!request->value[i].data && request->value[i].bytes)
            return weft_i_fail(WEFT_ERR_INVALID_ARG,
                               "weft_store_%s: data is NULL but has %zu bytes",
                               weft_i_store_op_name(request->op), request->value[i].bytes);
        total += request->value[i].bytes;
    }
    for (size_t i = 0; i < request->keys; i++)
        total += request->key[i].bytes;
    if (total > WEFT_I_STORE_MESSAGE_BYTES - 8 * WEFT_I_STORE_KEYS - 64)
        return weft_i_fail(WEFT_ERR_LIMIT,
                           "weft_store_%s: %zu bytes in one call; set fewer keys at once",
                           weft_i_store_op_name(request->op), total);
    return WEFT_OK;
}

static weft_status perform(weft_store *store, weft_i_store_request *request, int64_t timeout_ms,
                           weft_i_store_answer *answer)
{
    WEFT_TRY(check_sizes(request));
    if (timeout_ms < 0 && timeout_ms != WEFT_FOREVER && timeout_ms != WEFT_DEFAULT)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_store_%s: a timeout of %lld ms",
                           weft_i_store_op_name(request->op), (long long)timeout_ms);
    request->may_block = timeout_ms != WEFT_STORE_NOW;
    /* What does not wait for a key still waits for the store to answer. */
    int64_t deadline =
        weft_i_store_deadline(store, timeout_ms == WEFT_STORE_NOW ? WEFT_DEFAULT : timeout_ms);
    WEFT_TRY(store->kind->perform(store, request, deadline, answer));
    if (answer->status >= 0)
        return WEFT_OK;
    weft_status status = answer->status;
    weft_i_store_answer_clear(answer);
    return word(store, request, status);
}

static weft_status view_key(const char *key, const char *function, weft_i_view *out)
{
    if (!key)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: key is NULL", function);
    size_t length = strnlen(key, WEFT_STORE_KEY_BYTES + 1);
    if (!length || length > WEFT_STORE_KEY_BYTES)
        return weft_i_fail(length ? WEFT_ERR_LIMIT : WEFT_ERR_INVALID_ARG,
                           "%s: a key has 1 to %d bytes, not %s", function, WEFT_STORE_KEY_BYTES,
                           length ? "more" : "none");
    *out = (weft_i_view){key, length};
    return WEFT_OK;
}

/* A call about one key with up to two values. */
static weft_status call(weft_store *store, weft_i_store_op op, const char *key, size_t values,
                        const weft_i_view *value, int64_t number, int64_t timeout_ms,
                        weft_i_store_answer *answer)
{
    char function[40];
    snprintf(function, sizeof function, "weft_store_%s", weft_i_store_op_name(op));
    WEFT_TRY(weft_i_store_usable(store, function));
    weft_i_view view;
    WEFT_TRY(view_key(key, function, &view));
    weft_i_store_request request = {
        .op = op, .keys = 1, .key = &view, .values = values, .value = value, .number = number};
    return perform(store, &request, timeout_ms, answer);
}

/* For answers without values. */
static weft_status call_number(weft_store *store, weft_i_store_op op, const char *key,
                               size_t values, const weft_i_view *value, int64_t number,
                               int64_t *out)
{
    weft_i_store_answer answer = {0};
    WEFT_TRY(call(store, op, key, values, value, number, WEFT_DEFAULT, &answer));
    if (out)
        *out = answer.number;
    weft_i_store_answer_clear(&answer);
    return WEFT_OK;
}

static weft_status need(const void *out, const char *function)
{
    return out ? WEFT_OK : weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: out is NULL", function);
}

/* ---- values ---- */

weft_status weft_store_set(weft_store *store, const char *key, const void *data, size_t bytes)
{
    weft_i_view value = {data, bytes};
    return call_number(store, WEFT_I_STORE_SET, key, 1, &value, 0, NULL);
}

weft_status weft_store_append(weft_store *store, const char *key, const void *data, size_t bytes)
{
    weft_i_view value = {data, bytes};
    return call_number(store, WEFT_I_STORE_APPEND, key, 1, &value, 0, NULL);
}

weft_status weft_i_store_will(weft_store *store, const char *key, const void *data, size_t bytes)
{
    weft_i_view value = {data, bytes};
    return call_number(store, WEFT_I_STORE_WILL, key, 1, &value, 0, NULL);
}

weft_status weft_i_store_clock(weft_store *store, int64_t *ns, uint64_t *of)
{
    weft_i_store_answer answer = {0};
    WEFT_TRY(call(store, WEFT_I_STORE_CLOCK, "clock", 0, NULL, 0, WEFT_DEFAULT, &answer));
    bool whole = answer.values == 1 && answer.value[0].bytes == sizeof *of;
    if (whole) {
        *ns = answer.number;
        memcpy(of, answer.value[0].data, sizeof *of);
    }
    weft_i_store_answer_clear(&answer);
    return whole && *of ? WEFT_OK
                        : weft_i_fail(WEFT_ERR_UNSUPPORTED, "store %s has no clock", store->name);
}

weft_status weft_store_add(weft_store *store, const char *key, int64_t delta, int64_t *out)
{
    return call_number(store, WEFT_I_STORE_ADD, key, 0, NULL, delta, out);
}

weft_status weft_store_delete_key(weft_store *store, const char *key, bool *out)
{
    int64_t removed = 0;
    WEFT_TRY(call_number(store, WEFT_I_STORE_DELETE, key, 0, NULL, 0, &removed));
    if (out)
        *out = removed != 0;
    return WEFT_OK;
}

/* A call whose answer is one value; `name` is the caller's. */
static weft_status call_value(weft_store *store, weft_i_store_op op, const char *key,
                              int64_t timeout_ms, const char *name, weft_store_value *out)
{
    WEFT_TRY(need(out, name));
    weft_i_store_answer answer = {0};
    WEFT_TRY(call(store, op, key, 0, NULL, 0, timeout_ms, &answer));
    give(&answer, out);
    weft_i_store_answer_clear(&answer);
    return WEFT_OK;
}

weft_status weft_store_get(weft_store *store, const char *key, int64_t timeout_ms,
                           weft_store_value *out)
{
    return call_value(store, WEFT_I_STORE_GET, key, timeout_ms, __func__, out);
}

weft_status weft_store_compare_set(weft_store *store, const char *key, const void *expected,
                                   size_t expected_bytes, const void *desired, size_t desired_bytes,
                                   bool *out_stored, weft_store_value *out_current)
{
    weft_i_view values[2] = {{expected, expected_bytes}, {desired, desired_bytes}};
    weft_i_store_answer answer = {0};
    WEFT_TRY(call(store, WEFT_I_STORE_COMPARE_SET, key, 2, values, 0, WEFT_DEFAULT, &answer));
    if (out_stored)
        *out_stored = answer.number != 0;
    if (out_current)
        give(&answer, out_current);
    weft_i_store_answer_clear(&answer);
    return WEFT_OK;
}

weft_status weft_store_num_keys(weft_store *store, size_t *out)
{
    WEFT_TRY(weft_i_store_usable(store, "weft_store_num_keys"));
    WEFT_TRY(need(out, "weft_store_num_keys"));
    weft_i_view everything = {"", 0};
    weft_i_store_request request = {.op = WEFT_I_STORE_NUM_KEYS, .keys = 1, .key = &everything};
    weft_i_store_answer answer = {0};
    WEFT_TRY(perform(store, &request, WEFT_DEFAULT, &answer));
    *out = (size_t)answer.number;
    weft_i_store_answer_clear(&answer);
    return WEFT_OK;
}

/* ---- several keys ---- */

/* `values` more views follow the keys in the same block, for multi_set. */
static weft_status view_keys(weft_store *store, size_t count, const char *const *keys,
                             size_t values, const char *function, weft_i_view **out)
{
    WEFT_TRY(weft_i_store_usable(store, function));
    if (count && !keys)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: keys is NULL", function);
    if (count > WEFT_I_STORE_KEYS)
        return weft_i_fail(WEFT_ERR_LIMIT, "%s: %zu keys in one call; the limit is %d", function,
                           count, WEFT_I_STORE_KEYS);
    weft_i_view *views = WEFT_OS->alloc((count + values) * sizeof *views);
    if (!views)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "%s: no memory for %zu keys", function, count);
    for (size_t i = 0; i < count; i++) {
        weft_status status = view_key(keys[i], function, &views[i]);
        if (status < 0) {
            WEFT_OS->free(views);
            return status;
        }
    }
    *out = views;
    return WEFT_OK;
}

static weft_status call_keys(weft_store *store, weft_i_store_op op, size_t count,
                             const char *const *keys, int64_t timeout_ms,
                             weft_i_store_answer *answer)
{
    char function[40];
    snprintf(function, sizeof function, "weft_store_%s", weft_i_store_op_name(op));
    weft_i_view *views = NULL;
    WEFT_TRY(view_keys(store, count, keys, 0, function, &views));
    weft_i_store_request request = {.op = op, .keys = count, .key = views};
    weft_status status = perform(store, &request, timeout_ms, answer);
    WEFT_OS->free(views);
    return status;
}

weft_status weft_store_check(weft_store *store, size_t count, const char *const *keys, bool *out)
{
    WEFT_TRY(need(out, "weft_store_check"));
    weft_i_store_answer answer = {0};
    WEFT_TRY(call_keys(store, WEFT_I_STORE_CHECK, count, keys, WEFT_DEFAULT, &answer));
    *out = answer.number != 0;
    weft_i_store_answer_clear(&answer);
    return WEFT_OK;
}

weft_status weft_store_wait(weft_store *store, size_t count, const char *const *keys,
                            int64_t timeout_ms)
{
    weft_i_store_answer answer = {0};
    WEFT_TRY(call_keys(store, WEFT_I_STORE_WAIT, count, keys, timeout_ms, &answer));
    weft_i_store_answer_clear(&answer);
    return WEFT_OK;
}

weft_status weft_store_multi_get(weft_store *store, size_t count, const char *const *keys,
                                 int64_t timeout_ms, weft_store_value *out)
{
    if (count)
        WEFT_TRY(need(out, "weft_store_multi_get"));
    weft_i_store_answer answer = {0};
    WEFT_TRY(call_keys(store, WEFT_I_STORE_MULTI_GET, count, keys, timeout_ms, &answer));
    weft_status status = give_all(&answer, out);
    weft_i_store_answer_clear(&answer);
    return status;
}

weft_status weft_store_multi_set(weft_store *store, size_t count, const char *const *keys,
                                 const void *const *data, const size_t *bytes)
{
    if (count && (!data || !bytes))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_store_multi_set: %s is NULL",
                           data ? "bytes" : "data");
    weft_i_view *views = NULL;
    WEFT_TRY(view_keys(store, count, keys, count, "weft_store_multi_set", &views));
    for (size_t i = 0; i < count; i++)
        views[count + i] = (weft_i_view){data[i], bytes[i]};
    weft_i_store_request request = {.op = WEFT_I_STORE_MULTI_SET,
                                    .keys = count,
                                    .key = views,
                                    .values = count,
                                    .value = views + count};
    weft_i_store_answer answer = {0};
    weft_status status = perform(store, &request, WEFT_DEFAULT, &answer);
    WEFT_OS->free(views);
    weft_i_store_answer_clear(&answer);
    return status;
}

/* ---- queues ---- */

weft_status weft_store_queue_push(weft_store *store, const char *key, const void *data,
                                  size_t bytes)
{
    weft_i_view value = {data, bytes};
    return call_number(store, WEFT_I_STORE_PUSH, key, 1, &value, 0, NULL);
}

weft_status weft_store_queue_pop(weft_store *store, const char *key, int64_t timeout_ms,
                                 weft_store_value *out)
{
    return call_value(store, WEFT_I_STORE_POP, key, timeout_ms, __func__, out);
}

weft_status weft_store_queue_len(weft_store *store, const char *key, size_t *out)
{
    WEFT_TRY(need(out, "weft_store_queue_len"));
    int64_t length = 0;
    WEFT_TRY(call_number(store, WEFT_I_STORE_LENGTH, key, 0, NULL, 0, &length));
    *out = (size_t)length;
    return WEFT_OK;
}
