/* SPDX-License-Identifier: Apache-2.0 */
/* A store that takes everything and keeps nothing: for groups without peers (weft/fake.h). */
#include "store/store.h"

#include "base/os/os.h"
#include "base/report/status.h"

/* Empty values, all at the zero byte that is the answer's memory. */
static weft_status answer_empty(weft_i_store_answer *answer, size_t values)
{
    if (!values)
        return WEFT_OK;
    answer->memory = WEFT_OS->alloc(1);
    if (!answer->memory || !weft_i_store_answer_reserve(answer, values)) {
        weft_i_store_answer_clear(answer);
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for the answer of a fake store");
    }
    for (size_t i = 0; i < values; i++)
        answer->value[i] = (weft_i_view){answer->memory, 0};
    return WEFT_OK;
}

/* An empty value for each one that was asked for. */
static weft_status perform(weft_store *store, const weft_i_store_request *request, int64_t deadline,
                           weft_i_store_answer *answer)
{
    (void)store;
    (void)deadline;
    *answer = (weft_i_store_answer){.status = WEFT_OK, .number = 1};
    size_t values = 0;
    switch (request->op) {
    case WEFT_I_STORE_GET:
    case WEFT_I_STORE_COMPARE_SET:
    case WEFT_I_STORE_POP:
        values = 1;
        break;
    case WEFT_I_STORE_MULTI_GET:
        values = request->keys;
        break;
    case WEFT_I_STORE_ADD:
        answer->number = request->number;
        break;
    case WEFT_I_STORE_NUM_KEYS:
    case WEFT_I_STORE_LENGTH:
        answer->number = 0;
        break;
    default:
        break;
    }
    return answer_empty(answer, values);
}

static weft_store *another(weft_store *store)
{
    (void)store;
    return weft_store_fake();
}

static void nothing(weft_store *store, bool forked)
{
    (void)store;
    (void)forked;
}

static const weft_i_store_kind kind = {.perform = perform, .clone = another, .close = nothing};

weft_store *weft_store_fake(void)
{
    return weft_i_store_new(&kind, sizeof(weft_store), "fake");
}

bool weft_i_store_is_fake(const weft_store *store)
{
    while (store->inner)
        store = store->inner;
    return store->kind == &kind;
}
