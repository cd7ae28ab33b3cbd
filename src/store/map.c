/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hash map of keys that hold a value, a queue, or nothing yet but waiters.  Invariants: waiters
 * hang only on entries without data; an entry with neither data nor waiters does not exist; every
 * request allocates all it needs before it changes anything.
 */
#include "store/map.h"

#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_BUCKETS = 64, NUMBER_TEXT = 24 };

struct weft_i_store_entry {
    weft_i_store_entry *next;
    uint64_t hash;
    size_t key_bytes;
    bool has_value;
    char *value;
    size_t value_bytes;
    weft_i_store_item *first, **last; /* the queue; `first` NULL: none */
    size_t queued;
    weft_i_store_waiter *waiters, **waiters_end;
    char key[];
};

typedef struct call {
    weft_i_store_map *map;
    const weft_i_store_request *request;
    weft_i_store_waiter *waiter;
    weft_i_store_answer *answer;
    weft_i_store_outcome *outcome;
} call;

/* ---- entries ---- */

static uint64_t hash_of(weft_i_view key)
{
    uint64_t hash =
        0xcbf29ce484222325u; /* FNV-1a; the ranks of a job trust each other's choice of keys */
    for (size_t i = 0; i < key.bytes; i++)
        hash = (hash ^ ((const uint8_t *)key.data)[i]) * 0x100000001b3u;
    return hash ^ hash >> 32;
}

static weft_i_store_entry **place_of(const weft_i_store_map *map, weft_i_view key, uint64_t hash)
{
    WEFT_ASSERT(map->bucket_count && !(map->bucket_count & (map->bucket_count - 1)));
    weft_i_store_entry **at = &map->buckets[hash & (map->bucket_count - 1)];
    while (*at && ((*at)->hash != hash || (*at)->key_bytes != key.bytes ||
                   memcmp((*at)->key, key.data, key.bytes) != 0))
        at = &(*at)->next;
    return at;
}

static weft_i_store_entry *find(const weft_i_store_map *map, weft_i_view key)
{
    return *place_of(map, key, hash_of(key));
}

static bool present(const weft_i_store_entry *entry)
{
    return entry && (entry->has_value || entry->first);
}

static size_t entry_bytes(size_t key_bytes)
{
    return sizeof(weft_i_store_entry) + key_bytes;
}

static size_t item_bytes(size_t bytes)
{
    return sizeof(weft_i_store_item) + bytes;
}

/* Twice the buckets.  Without memory for them the chains merely get longer. */
static void widen(weft_i_store_map *map)
{
    size_t count = 2 * map->bucket_count;
    weft_i_store_entry **wider = WEFT_OS->alloc(count * sizeof(*wider));
    if (!wider)
        return;
    for (size_t i = 0; i < map->bucket_count; i++)
        for (weft_i_store_entry *entry = map->buckets[i], *next; entry; entry = next) {
            next = entry->next;
            entry->next = wider[entry->hash & (count - 1)];
            wider[entry->hash & (count - 1)] = entry;
        }
    WEFT_OS->free(map->buckets);
    map->buckets = wider;
    map->bucket_count = count;
}

static weft_i_store_entry *find_or_make(weft_i_store_map *map, weft_i_view key)
{
    uint64_t hash = hash_of(key);
    weft_i_store_entry *entry = *place_of(map, key, hash);
    if (entry || !(entry = WEFT_OS->alloc(entry_bytes(key.bytes))))
        return entry;
    if (map->entries >= map->bucket_count)
        widen(map);
    entry->hash = hash;
    entry->key_bytes = key.bytes;
    memcpy(entry->key, key.data, key.bytes);
    entry->last = &entry->first;
    entry->waiters_end = &entry->waiters;
    entry->next = map->buckets[hash & (map->bucket_count - 1)];
    map->buckets[hash & (map->bucket_count - 1)] = entry;
    map->entries++;
    map->bytes += entry_bytes(key.bytes);
    return entry;
}

static void forget_if_empty(weft_i_store_map *map, weft_i_store_entry *entry)
{
    if (!entry || present(entry) || entry->waiters)
        return;
    weft_i_view key = {entry->key, entry->key_bytes};
    WEFT_ASSERT(find(map, key) == entry && map->entries > 0);
    *place_of(map, key, entry->hash) = entry->next;
    map->entries--;
    map->bytes -= entry_bytes(entry->key_bytes);
    WEFT_OS->free(entry);
}

static void empty_entry(weft_i_store_map *map, weft_i_store_entry *entry)
{
    WEFT_ASSERT(!present(entry) || (map->keys > 0 && !entry->waiters));
    if (present(entry))
        map->keys--;
    if (entry->has_value)
        map->bytes -= entry->value_bytes;
    WEFT_OS->free(entry->value);
    entry->value = NULL;
    entry->has_value = false;
    while (entry->first) {
        weft_i_store_item *item = entry->first;
        entry->first = item->next;
        map->bytes -= item_bytes(item->bytes);
        WEFT_OS->free(item);
    }
    entry->last = &entry->first;
    entry->value_bytes = entry->queued = 0;
}

weft_status weft_i_store_map_open(weft_i_store_map *map, size_t limit)
{
    *map = (weft_i_store_map){.limit = limit, .bucket_count = FIRST_BUCKETS};
    map->buckets = WEFT_OS->alloc(FIRST_BUCKETS * sizeof(*map->buckets));
    return map->buckets ? WEFT_OK : WEFT_ERR_NO_MEMORY;
}

void weft_i_store_map_close(weft_i_store_map *map)
{
    for (size_t i = 0; map->buckets && i < map->bucket_count; i++)
        while (map->buckets[i]) {
            weft_i_store_entry *entry = map->buckets[i];
            map->buckets[i] = entry->next;
            empty_entry(map, entry);
            WEFT_OS->free(entry);
        }
    WEFT_OS->free(map->buckets);
    *map = (weft_i_store_map){0};
}

/* ---- waiters ---- */

static void hang(weft_i_store_entry *entry, weft_i_store_waiter *waiter)
{
    WEFT_ASSERT(!present(entry) && !waiter->link);
    waiter->entry = entry;
    waiter->next = NULL;
    waiter->link = entry->waiters_end;
    *entry->waiters_end = waiter;
    entry->waiters_end = &waiter->next;
}

/* The key came: everybody who waits for it moves to the list of those to try again, behind those
 * already there. */
static void wake(weft_i_store_map *map, weft_i_store_entry *entry)
{
    if (!entry->waiters)
        return;
    if (!map->ready)
        map->ready_end = &map->ready;
    entry->waiters->link = map->ready_end;
    *map->ready_end = entry->waiters;
    map->ready_end = entry->waiters_end;
    for (weft_i_store_waiter *waiter = entry->waiters; waiter; waiter = waiter->next)
        waiter->entry = NULL;
    entry->waiters = NULL;
    entry->waiters_end = &entry->waiters;
}

static void cut(weft_i_store_map *map, weft_i_store_waiter *waiter)
{
    WEFT_ASSERT(*waiter->link == waiter);
    *waiter->link = waiter->next;
    if (waiter->next)
        waiter->next->link = waiter->link;
    else if (waiter->entry)
        waiter->entry->waiters_end = waiter->link;
    else
        map->ready_end = waiter->link;
    waiter->link = NULL;
}

weft_i_store_waiter *weft_i_store_map_ready(weft_i_store_map *map)
{
    weft_i_store_waiter *waiter = map->ready;
    if (waiter)
        cut(map, waiter);
    return waiter;
}

void weft_i_store_map_unhang(weft_i_store_map *map, weft_i_store_waiter *waiter)
{
    if (!waiter->link)
        return;
    cut(map, waiter);
    forget_if_empty(map, waiter->entry);
}

/* ---- requests about one key ---- */

/* Whether `more` bytes fit; says LIMIT if not. */
static bool fits(call *c, size_t more, size_t less)
{
    if (c->map->bytes - less + more <= c->map->limit)
        return true;
    c->answer->status = WEFT_ERR_LIMIT;
    return false;
}

static void *allocate(call *c, size_t bytes)
{
    void *memory = WEFT_OS->alloc(bytes);
    if (!memory)
        c->answer->status = WEFT_ERR_NO_MEMORY;
    return memory;
}

static void answer_value(call *c, const weft_i_store_entry *entry)
{
    weft_i_store_answer_reserve(c->answer, 1);
    c->answer->one = (weft_i_view){entry->value, entry->value_bytes};
}

/* Puts a ready-made value in place; nothing here can fail. */
static void install(call *c, weft_i_store_entry *entry, char *value, size_t bytes)
{
    empty_entry(c->map, entry);
    entry->value = value;
    entry->value_bytes = bytes;
    entry->has_value = true;
    c->map->keys++;
    c->map->bytes += bytes;
    c->outcome->changed = true;
    wake(c->map, entry);
}

static void store_value(call *c, weft_i_view key, weft_i_view value)
{
    weft_i_store_entry *entry = find(c->map, key);
    size_t freed = entry ? entry->value_bytes : 0;
    if (!fits(c, value.bytes + (entry ? 0 : entry_bytes(key.bytes)), freed))
        return;
    char *copy = allocate(c, value.bytes + 1);
    if (!copy)
        return;
    if (value.bytes)
        memcpy(copy, value.data, value.bytes);
    entry = find_or_make(c->map, key);
    if (!entry) {
        WEFT_OS->free(copy);
        c->answer->status = WEFT_ERR_NO_MEMORY;
        return;
    }
    install(c, entry, copy, value.bytes);
}

static void apply_set(call *c)
{
    store_value(c, c->request->key[0], c->request->value[0]);
}

/* Without its key a request waits, or answers `otherwise`. */
static void miss(call *c, weft_i_view key, weft_status otherwise)
{
    weft_i_store_entry *entry = NULL;
    if (!c->request->may_block || !c->waiter)
        c->answer->status = otherwise;
    else if (!(entry = find_or_make(c->map, key)))
        c->answer->status = WEFT_ERR_NO_MEMORY;
    else {
        hang(entry, c->waiter);
        c->outcome->blocked = true;
    }
}

static void apply_get(call *c)
{
    const weft_i_store_entry *entry = find(c->map, c->request->key[0]);
    if (!present(entry))
        miss(c, c->request->key[0], WEFT_ERR_NOT_FOUND);
    else if (!entry->has_value)
        c->answer->status = WEFT_ERR_TYPE;
    else
        answer_value(c, entry);
}

static bool parse_number(const weft_i_store_entry *entry, int64_t *out)
{
    char text[NUMBER_TEXT], *end = NULL;
    if (!entry->value_bytes || entry->value_bytes >= sizeof text)
        return false;
    memcpy(text, entry->value, entry->value_bytes);
    text[entry->value_bytes] = 0;
    /* strtoll also takes spaces and a plus sign; numbers we wrote have neither */
    if (text[0] != '-' && (text[0] < '0' || text[0] > '9'))
        return false;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    *out = value;
    return end == text + entry->value_bytes && errno != ERANGE;
}

static void apply_add(call *c)
{
    const weft_i_store_entry *entry = find(c->map, c->request->key[0]);
    int64_t total = 0;
    if (present(entry) && (!entry->has_value || !parse_number(entry, &total))) {
        c->answer->status = WEFT_ERR_TYPE;
        return;
    }
    if (__builtin_add_overflow(total, c->request->number, &total)) {
        c->answer->status = WEFT_ERR_INVALID_ARG;
        return;
    }
    c->answer->number = total;
    if (present(entry) && !c->request->number)
        return; /* the idiom that reads a counter */
    char text[NUMBER_TEXT];
    int length = snprintf(text, sizeof text, "%" PRId64, total);
    store_value(c, c->request->key[0], (weft_i_view){text, (size_t)length});
}

static void apply_compare_set(call *c)
{
    weft_i_view expected = c->request->value[0];
    const weft_i_store_entry *entry = find(c->map, c->request->key[0]);
    bool there = present(entry);
    if (there && !entry->has_value) {
        c->answer->status = WEFT_ERR_TYPE;
        return;
    }
    if (!there && expected.bytes) {
        c->answer->status = WEFT_ERR_NOT_FOUND;
        return;
    }
    if (!there || (entry->value_bytes == expected.bytes &&
                   (!expected.bytes || memcmp(entry->value, expected.data, expected.bytes) == 0))) {
        store_value(c, c->request->key[0], c->request->value[1]);
        c->answer->number = 1;
    }
    if (c->answer->status >= 0)
        answer_value(c, find(c->map, c->request->key[0]));
}

static void apply_append(call *c)
{
    weft_i_view more = c->request->value[0];
    weft_i_store_entry *entry = find(c->map, c->request->key[0]);
    if (!present(entry)) {
        store_value(c, c->request->key[0], more);
        return;
    }
    if (!entry->has_value)
        c->answer->status = WEFT_ERR_TYPE;
    else if (entry->value_bytes + more.bytes > WEFT_STORE_VALUE_BYTES)
        c->answer->status = WEFT_ERR_LIMIT;
    if (c->answer->status < 0 || !more.bytes || !fits(c, more.bytes, 0))
        return;
    char *longer = WEFT_OS->resize(entry->value, entry->value_bytes + more.bytes + 1);
    if (!longer) {
        c->answer->status = WEFT_ERR_NO_MEMORY;
        return;
    }
    memcpy(longer + entry->value_bytes, more.data, more.bytes);
    entry->value = longer;
    entry->value_bytes += more.bytes;
    c->map->bytes += more.bytes;
    c->outcome->changed = true;
}

static void apply_delete(call *c)
{
    weft_i_store_entry *entry = find(c->map, c->request->key[0]);
    if (!present(entry))
        return;
    empty_entry(c->map, entry);
    forget_if_empty(c->map, entry);
    c->answer->number = 1;
    c->outcome->changed = true;
}

static void apply_num_keys(call *c)
{
    weft_i_view prefix = c->request->key[0];
    if (!prefix.bytes) {
        c->answer->number = (int64_t)c->map->keys;
        return;
    }
    for (size_t i = 0; i < c->map->bucket_count; i++)
        for (weft_i_store_entry *entry = c->map->buckets[i]; entry; entry = entry->next)
            c->answer->number += present(entry) && entry->key_bytes >= prefix.bytes &&
                                 memcmp(entry->key, prefix.data, prefix.bytes) == 0;
}

/* ---- requests about several keys ---- */

static const weft_i_view *first_missing(const call *c)
{
    for (size_t i = 0; i < c->request->keys; i++)
        if (!present(find(c->map, c->request->key[i])))
            return &c->request->key[i];
    return NULL;
}

static void apply_check(call *c)
{
    c->answer->number = !first_missing(c);
}

static void apply_wait(call *c)
{
    const weft_i_view *missing = first_missing(c);
    if (missing)
        miss(c, *missing, WEFT_ERR_NOT_FOUND);
}

static void apply_multi_get(call *c)
{
    const weft_i_view *missing = first_missing(c);
    if (missing) {
        miss(c, *missing, WEFT_ERR_NOT_FOUND);
        return;
    }
    size_t total = 64;
    for (size_t i = 0; i < c->request->keys; i++) {
        const weft_i_store_entry *entry = find(c->map, c->request->key[i]);
        if (!entry->has_value) {
            c->answer->status = WEFT_ERR_TYPE;
            return;
        }
        total += weft_i_wire_blob_bytes(entry->value_bytes);
        if (total > WEFT_I_STORE_MESSAGE_BYTES) {
            c->answer->status = WEFT_ERR_LIMIT;
            return;
        }
    }
    if (!weft_i_store_answer_reserve(c->answer, c->request->keys)) {
        c->answer->status = WEFT_ERR_NO_MEMORY;
        return;
    }
    for (size_t i = 0; i < c->request->keys; i++) {
        const weft_i_store_entry *entry = find(c->map, c->request->key[i]);
        c->answer->value[i] = (weft_i_view){entry->value, entry->value_bytes};
    }
}

/* Makes all entries and copies; on failure takes back what was made. */
static bool prepare_multi_set(call *c, char **copies)
{
    for (size_t i = 0; i < c->request->keys; i++) {
        weft_i_view value = c->request->value[i];
        if (!(copies[i] = allocate(c, value.bytes + 1)))
            return false;
        if (value.bytes)
            memcpy(copies[i], value.data, value.bytes);
        if (!find_or_make(c->map, c->request->key[i])) {
            c->answer->status = WEFT_ERR_NO_MEMORY;
            return false;
        }
    }
    return true;
}

static void apply_multi_set(call *c)
{
    size_t count = c->request->keys, more = 0;
    for (size_t i = 0; i < count; i++)
        more += c->request->value[i].bytes + entry_bytes(c->request->key[i].bytes);
    if (!count || !fits(c, more, 0))
        return;
    char **copies = allocate(c, count * sizeof(*copies));
    if (!copies)
        return;
    bool complete = prepare_multi_set(c, copies);
    for (size_t i = 0; i < count; i++) {
        weft_i_store_entry *entry = find(c->map, c->request->key[i]);
        if (complete) {
            install(c, entry, copies[i], c->request->value[i].bytes);
            continue;
        }
        WEFT_OS->free(copies[i]);
        forget_if_empty(c->map, entry);
    }
    WEFT_OS->free(copies);
}

/* ---- queues ---- */

static void apply_push(call *c)
{
    weft_i_view key = c->request->key[0], value = c->request->value[0];
    weft_i_store_entry *entry = find(c->map, key);
    if (entry && entry->has_value) {
        c->answer->status = WEFT_ERR_TYPE;
        return;
    }
    if (!fits(c, item_bytes(value.bytes) + (entry ? 0 : entry_bytes(key.bytes)), 0))
        return;
    weft_i_store_item *item = allocate(c, item_bytes(value.bytes));
    if (!item)
        return;
    if (!(entry = find_or_make(c->map, key))) {
        WEFT_OS->free(item);
        c->answer->status = WEFT_ERR_NO_MEMORY;
        return;
    }
    item->bytes = value.bytes;
    if (value.bytes)
        memcpy(item->data, value.data, value.bytes);
    c->map->keys += !entry->first;
    c->map->bytes += item_bytes(value.bytes);
    *entry->last = item;
    entry->last = &item->next;
    c->answer->number = (int64_t)++entry->queued;
    c->outcome->changed = true;
    wake(c->map, entry);
}

static void apply_pop(call *c)
{
    weft_i_store_entry *entry = find(c->map, c->request->key[0]);
    if (!present(entry)) {
        miss(c, c->request->key[0], WEFT_ERR_EMPTY);
        return;
    }
    if (entry->has_value) {
        c->answer->status = WEFT_ERR_TYPE;
        return;
    }
    weft_i_store_item *item = entry->first;
    entry->first = item->next;
    entry->queued--;
    if (!entry->first) {
        entry->last = &entry->first;
        c->map->keys--;
    }
    c->map->bytes -= item_bytes(item->bytes);
    item->next = NULL;
    forget_if_empty(c->map, entry);
    weft_i_store_answer_reserve(c->answer, 1);
    c->answer->one = (weft_i_view){item->data, item->bytes};
    c->outcome->taken = item;
    c->outcome->changed = true;
}

static void apply_length(call *c)
{
    const weft_i_store_entry *entry = find(c->map, c->request->key[0]);
    if (entry && entry->has_value)
        c->answer->status = WEFT_ERR_TYPE;
    else
        c->answer->number = entry ? (int64_t)entry->queued : 0;
}

void weft_i_store_map_put_back(weft_i_store_map *map, weft_i_view key, weft_i_store_item *item)
{
    weft_i_store_entry *entry = find_or_make(map, key);
    if (!entry || entry->has_value) {
        weft_i_log(WEFT_LOG_WARN, "store: an element of \"%.*s\" that was not received is lost: %s",
                   (int)(key.bytes < 64 ? key.bytes : 64), (const char *)key.data,
                   entry ? "the key holds a value now" : "no memory");
        WEFT_OS->free(item);
        return;
    }
    item->next = entry->first;
    if (!entry->first) {
        entry->last = &item->next;
        map->keys++;
    }
    entry->first = item;
    entry->queued++;
    map->bytes += item_bytes(item->bytes);
    wake(map, entry);
}

void weft_i_store_map_drop(weft_i_store_item *item)
{
    WEFT_OS->free(item);
}

void weft_i_store_map_apply(weft_i_store_map *map, const weft_i_store_request *request,
                            weft_i_store_waiter *waiter, weft_i_store_answer *answer,
                            weft_i_store_outcome *outcome)
{
    static void (*const rows[WEFT_I_STORE_OPS])(call *) = {
        [WEFT_I_STORE_SET] = apply_set,
        [WEFT_I_STORE_GET] = apply_get,
        [WEFT_I_STORE_ADD] = apply_add,
        [WEFT_I_STORE_COMPARE_SET] = apply_compare_set,
        [WEFT_I_STORE_APPEND] = apply_append,
        [WEFT_I_STORE_CHECK] = apply_check,
        [WEFT_I_STORE_WAIT] = apply_wait,
        [WEFT_I_STORE_DELETE] = apply_delete,
        [WEFT_I_STORE_NUM_KEYS] = apply_num_keys,
        [WEFT_I_STORE_MULTI_GET] = apply_multi_get,
        [WEFT_I_STORE_MULTI_SET] = apply_multi_set,
        [WEFT_I_STORE_PUSH] = apply_push,
        [WEFT_I_STORE_POP] = apply_pop,
        [WEFT_I_STORE_LENGTH] = apply_length,
    };
    call c = {map, request, waiter, answer, outcome};
    *answer = (weft_i_store_answer){0};
    *outcome = (weft_i_store_outcome){0};
    if (request->op < WEFT_I_STORE_OPS && rows[request->op])
        rows[request->op](&c);
    else /* a will: here is nobody who would see an end */
        answer->status = WEFT_ERR_UNSUPPORTED;
}
