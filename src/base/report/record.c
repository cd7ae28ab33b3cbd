/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The flight recorder.  A writer empties its slot (number 0), fills it, then publishes the number;
 * a reader copies the slot between two looks at the number and keeps the copy only if both agree.
 * A writer may be so late that another one has taken its slot meanwhile, a whole round later; then
 * words of both lie there.  So an entry is sealed: 16 bits follow from all of its words.
 * The outcome word repeats the number, so that a late weft_i_record_end can never finish the
 * operation that has taken its slot.
 */
#include "base/report/record.h"
#include "base/os/assert.h"
#include "base/os/place.h"

#include "base/os/os.h"
#include "base/report/log.h"
#include "base/report/status.h"
#include "base/report/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define TAG(number_) ((uint64_t)(number_) << 33)
#define FINISHED     (UINT64_C(1) << 32)
#define BYTES        ((UINT64_C(1) << 48) - 1)

void weft_i_record_init(weft_i_record *record)
{
    memset(record, 0, sizeof *record);
    record->origin_ticks = weft_i_os_ticks();
    record->origin_ns = WEFT_OS->clock_ns();
}

/*
 * Words of a slot are stored with release order: whoever sees one also sees that the slot was
 * emptied before.  Acquire here pairs with that, and keeps the second look at the number behind the
 * copy.
 */
static inline uint64_t get(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_acquire);
}

/* The next 8 characters of a name, in registers: copying through memory stalls the loads that
 * follow the byte stores. */
static inline uint64_t pack_name(const char *name, int first, int end)
{
    uint64_t word = 0;
    for (int i = first; i < end && name[i]; i++)
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        word |= (uint64_t)(unsigned char)name[i] << 8 * (i - first);
#else
        word |= (uint64_t)(unsigned char)name[i] << 8 * (7 - (i - first));
#endif
    return word;
}

void weft_i_record_tick(weft_i_record *record)
{
    atomic_store_explicit(&record->coarse, weft_i_os_ticks(), memory_order_relaxed);
}

/* Relaxed: a clock orders nothing. */
static inline uint64_t now(const weft_i_record *record)
{
    uint64_t coarse = atomic_load_explicit(&record->coarse, memory_order_relaxed);
    return coarse ? coarse : weft_i_os_ticks();
}

/* Three products whose upper bits depend on every bit of the words; they cost next to nothing
 * beside the stores. */
static inline uint64_t seal(uint64_t number, uint64_t begin, uint64_t bytes, uint64_t low,
                            uint64_t high, uint64_t where)
{
    uint64_t mixed = (number + (begin << 20 | begin >> 44)) * UINT64_C(0x9e3779b97f4a7c15) ^
                     (low + where) * UINT64_C(0xc2b2ae3d27d4eb4f) ^
                     (high + bytes) * UINT64_C(0x165667b19e3779f9);
    return mixed & ~BYTES;
}

/*
 * WEFT_DEBUG=TRACE: every call, as it begins and as it ends.  They read the slot, and are the last
 * thing that their callers do, so that those have nothing to keep for them.
 */
static void name_of(const weft_i_record_slot *slot, char out[WEFT_I_RECORD_NAME])
{
    uint64_t name[2] = {atomic_load_explicit(&slot->name[0], memory_order_relaxed),
                        atomic_load_explicit(&slot->name[1], memory_order_relaxed)};
    memcpy(out, name, sizeof name);
}

WEFT_I_COLD static uint64_t log_begin(const weft_i_record_slot *slot, uint64_t number)
{
    char name[WEFT_I_RECORD_NAME], with[32] = "";
    uint64_t bytes = atomic_load_explicit(&slot->bytes, memory_order_relaxed) & BYTES;
    uint64_t where = atomic_load_explicit(&slot->where, memory_order_relaxed);
    int peer = (int32_t)(uint32_t)where;
    name_of(slot, name);
    if (peer >= 0)
        snprintf(with, sizeof with, ", peer %d", peer);
    weft_i_log(WEFT_LOG_TRACE, "call %" PRIu64 ": %.15s of %" PRIu64 " bytes in group %u%s", number,
               name, bytes, (uint32_t)(where >> 32), with);
    return number;
}

WEFT_I_COLD static void log_end(const weft_i_record_slot *slot, uint64_t number, int status)
{
    uint64_t outcome = atomic_load_explicit(&slot->outcome, memory_order_relaxed);
    const char *by = weft_i_record_way_name((int16_t)(uint16_t)(outcome >> 16));
    char name[WEFT_I_RECORD_NAME];
    name_of(slot, name);
    weft_i_log(WEFT_LOG_TRACE, "call %" PRIu64 ": %.15s ends%s%s: %s", number, name, by ? ", " : "",
               by ? by : "", weft_status_name((weft_status)status));
}

WEFT_I_HOT uint64_t weft_i_record_begin_named(weft_i_record *record, const weft_i_record_name *name,
                                              uint32_t group, size_t bytes, int peer, int channel)
{
    if (!record)
        return 0;
    uint64_t low, high;
    memcpy(&low, name->text, sizeof low);
    memcpy(&high, name->text + sizeof low, sizeof high);
    /* Relaxed: only hands out numbers; the slot's own words order the rest. */
    uint64_t number = atomic_fetch_add_explicit(&record->head, 1, memory_order_relaxed) + 1;
    weft_i_record_slot *slot = &record->slots[weft_i_record_index(number)];
    /* Relaxed: the release stores that follow carry it. */
    atomic_store_explicit(&slot->number, 0, memory_order_relaxed);
    uint64_t ticks = now(record), where = (uint64_t)group << 32 | (uint32_t)peer;
    bytes = bytes < BYTES ? bytes : BYTES;
    /* Release, all of them: see above. */
    atomic_store_explicit(&slot->begin, ticks, memory_order_release);
    atomic_store_explicit(&slot->end, 0, memory_order_release);
    atomic_store_explicit(&slot->bytes, bytes | seal(number, ticks, bytes, low, high, where),
                          memory_order_release);
    atomic_store_explicit(&slot->name[0], low, memory_order_release);
    atomic_store_explicit(&slot->name[1], high, memory_order_release);
    atomic_store_explicit(&slot->where, where, memory_order_release);
    atomic_store_explicit(&slot->outcome, TAG(number) | (uint32_t)(uint16_t)channel << 16,
                          memory_order_release);
    atomic_store_explicit(&slot->number, number, memory_order_release);
    __builtin_prefetch(slot + 1, 1); /* the record is larger than the first cache */
    return weft_i_log_may_want(WEFT_LOG_TRACE) ? log_begin(slot, number) : number;
}

uint64_t weft_i_record_begin(weft_i_record *record, const char *name, uint32_t group, size_t bytes,
                             int peer, int channel)
{
    uint64_t low = pack_name(name, 0, 8), high = low >> 56 & 0xff ? pack_name(name, 8, 15) : 0;
    weft_i_record_name packed;
    memcpy(packed.text, &low, sizeof low);
    memcpy(packed.text + sizeof low, &high, sizeof high);
    return weft_i_record_begin_named(record, &packed, group, bytes, peer, channel);
}

void weft_i_record_want_details(weft_i_record *record)
{
    atomic_store_explicit(&record->detailed, 1, memory_order_relaxed);
}

/* As slots are: emptied, filled, published, each word with release order. */
void weft_i_record_note(weft_i_record *record, uint64_t number, const weft_i_record_detail *detail)
{
    if (!weft_i_record_wants_details(record) || !number)
        return;
    weft_i_record_extra *extra = &record->extras[weft_i_record_index(number)];
    uint64_t rest = (uint64_t)weft_i_os_thread() << 32 | (uint32_t)(detail->dtype + 1);
    atomic_store_explicit(&extra->number, 0, memory_order_release);
    atomic_store_explicit(&extra->posted, detail->posted, memory_order_release);
    atomic_store_explicit(&extra->count, detail->count, memory_order_release);
    atomic_store_explicit(&extra->reduction, pack_name(detail->reduction, 0, 8),
                          memory_order_release);
    atomic_store_explicit(&extra->rest, rest, memory_order_release);
    atomic_store_explicit(&extra->number, number, memory_order_release);
}

bool weft_i_record_noted(const weft_i_record *record, uint64_t number, weft_i_record_detail *out)
{
    const weft_i_record_extra *extra = &record->extras[weft_i_record_index(number)];
    if (get(&extra->number) != number)
        return false;
    uint64_t reduction = get(&extra->reduction), rest = get(&extra->rest);
    *out = (weft_i_record_detail){.posted = get(&extra->posted),
                                  .count = get(&extra->count),
                                  .dtype = (int)(uint32_t)rest - 1,
                                  .thread = (uint32_t)(rest >> 32)};
    memcpy(out->reduction, &reduction, sizeof reduction);
    return get(&extra->number) == number;
}

const char *weft_i_record_way_name(int channel)
{
    static const char *const names[] = {"inline", "eager", "zero-copy", "cma",      "pipelined",
                                        "device", "host",  "pair",      "multicast"};
    _Static_assert(sizeof names / sizeof *names == WEFT_I_WAY_END - WEFT_I_WAY, "a name for each");
    return channel >= WEFT_I_WAY && channel < WEFT_I_WAY_END ? names[channel - WEFT_I_WAY] : NULL;
}

/* The slot is emptied meanwhile, as when it is filled: its seal depends on the turn. */
WEFT_I_HOT void weft_i_record_set_turn(weft_i_record *record, uint64_t number, int turn)
{
    WEFT_ASSERT(turn < 0);
    if (!record || !number)
        return;
    weft_i_record_slot *slot = &record->slots[weft_i_record_index(number)];
    /* Relaxed: the words are our own, or the seal will not fit them. */
    uint64_t begin = atomic_load_explicit(&slot->begin, memory_order_relaxed);
    uint64_t bytes = atomic_load_explicit(&slot->bytes, memory_order_relaxed) & BYTES;
    uint64_t low = atomic_load_explicit(&slot->name[0], memory_order_relaxed);
    uint64_t high = atomic_load_explicit(&slot->name[1], memory_order_relaxed);
    uint64_t where = atomic_load_explicit(&slot->where, memory_order_relaxed);
    if (atomic_load_explicit(&slot->number, memory_order_relaxed) != number)
        return; /* overwritten since */
    where = (where & ~UINT64_C(0xffffffff)) | (uint32_t)turn;
    /* Release, all of them: as in weft_i_record_begin_named. */
    atomic_store_explicit(&slot->number, 0, memory_order_relaxed);
    atomic_store_explicit(&slot->where, where, memory_order_release);
    atomic_store_explicit(&slot->bytes, bytes | seal(number, begin, bytes, low, high, where),
                          memory_order_release);
    atomic_store_explicit(&slot->number, number, memory_order_release);
}

void weft_i_record_way(weft_i_record *record, uint64_t number, int way)
{
    WEFT_ASSERT(way >= WEFT_I_WAY && way < WEFT_I_WAY_END);
    if (!record || !number)
        return;
    weft_i_record_slot *slot = &record->slots[weft_i_record_index(number)];
    uint64_t outcome =
        atomic_load_explicit(&slot->outcome, memory_order_relaxed); /* as in weft_i_record_end */
    if ((outcome & ~UINT64_C(0xffffffff)) == TAG(number))
        /* Pairs with the acquire in `get`. */
        atomic_store_explicit(&slot->outcome,
                              (outcome & ~UINT64_C(0xffff0000)) | (uint32_t)way << 16,
                              memory_order_release);
}

WEFT_I_BACK void weft_i_record_end(weft_i_record *record, uint64_t number, int status)
{
    if (!record || !number)
        return;
    weft_i_record_slot *slot = &record->slots[weft_i_record_index(number)];
    /* Relaxed: written by weft_i_record_begin of the same operation, so by this thread or one it
     * waited for. */
    uint64_t outcome = atomic_load_explicit(&slot->outcome, memory_order_relaxed);
    if ((outcome & ~UINT64_C(0xffffffff)) != TAG(number))
        return;
    /* Both pair with the acquire in `get`. */
    atomic_store_explicit(&slot->end, now(record), memory_order_release);
    atomic_store_explicit(&slot->outcome,
                          (outcome & ~UINT64_C(0xffff)) | FINISHED | (uint16_t)status,
                          memory_order_release);
    if (weft_i_log_may_want(WEFT_LOG_TRACE))
        log_end(slot, number, status);
}

/* Copies entry `number`; false if its slot is being rewritten or holds another one by now. */
static bool copy_entry(const weft_i_record *record, uint64_t number, weft_i_record_entry *out)
{
    const weft_i_record_slot *slot = &record->slots[weft_i_record_index(number)];
    if (get(&slot->number) != number)
        return false;
    uint64_t outcome =
        get(&slot->outcome); /* before `end`: finished then means that `end` is there */
    uint64_t name[2] = {get(&slot->name[0]), get(&slot->name[1])};
    uint64_t where = get(&slot->where);
    int32_t peer = (int32_t)(uint32_t)where;
    uint32_t turn = ~(uint32_t)where; /* -1 - peer */
    uint64_t begin = get(&slot->begin), bytes = get(&slot->bytes);
    bool is_sealed =
        (bytes & ~BYTES) == seal(number, begin, bytes & BYTES, name[0], name[1], where);
    *out = (weft_i_record_entry){
        .number = number,
        .begin = begin,
        .end = get(&slot->end),
        .bytes = bytes & BYTES,
        .group = (uint32_t)(where >> 32),
        .peer = peer < 0 ? -1 : peer,
        .turn = peer < 0 ? turn & (WEFT_I_RECORD_ON_DEVICE - 1) : 0,
        .on_device = peer < 0 && turn & WEFT_I_RECORD_ON_DEVICE,
        .channel = (int16_t)(uint16_t)(outcome >> 16),
        .status = (int16_t)(uint16_t)outcome,
        .finished = (outcome & FINISHED) != 0,
    };
    memcpy(out->name, name, sizeof out->name);
    out->name[sizeof out->name - 1] = 0;
    weft_i_text_tame(out->name, false); /* it is told on terminals */
    bool tag_fits = outcome >> 33 == TAG(number) >> 33;
    if (out->finished && out->end < begin) /* of a late writer; the rest is sealed */
        out->end = begin;
    return tag_fits && is_sealed && get(&slot->number) == number;
}

size_t weft_i_record_newest(const weft_i_record *record, weft_i_record_entry *out, size_t count)
{
    uint64_t newest = get(&record->head), taken = 0;
    uint64_t oldest = newest > WEFT_I_RECORD_ENTRIES ? newest - WEFT_I_RECORD_ENTRIES : 0;
    for (uint64_t number = newest; number > oldest && taken < count; number--)
        taken += copy_entry(record, number, &out[taken]);
    return (size_t)taken;
}

bool weft_i_record_last(const weft_i_record *record, weft_i_record_entry *out)
{
    return weft_i_record_newest(record, out, 1) == 1;
}

bool weft_i_record_last_finished(const weft_i_record *record, weft_i_record_entry *out)
{
    uint64_t newest = get(&record->head);
    uint64_t oldest = newest > WEFT_I_RECORD_ENTRIES ? newest - WEFT_I_RECORD_ENTRIES : 0;
    for (uint64_t number = newest; number > oldest; number--)
        if (copy_entry(record, number, out) && out->finished)
            return true;
    return false;
}

weft_i_record_clock weft_i_record_clock_of(const weft_i_record *record)
{
    /* Relaxed, and once: another process may write nonsense there at any time. */
    weft_i_record_clock clock = {
        .origin_ticks = __atomic_load_n(&record->origin_ticks, __ATOMIC_RELAXED),
        .origin_ns = __atomic_load_n(&record->origin_ns, __ATOMIC_RELAXED)};
    clock.now_ns = WEFT_OS->clock_ns();
    if (clock.origin_ns < 0 || clock.origin_ns > clock.now_ns)
        clock.origin_ns = clock.now_ns;
    double ticks = (double)(int64_t)(weft_i_os_ticks() - clock.origin_ticks);
    double ns = (double)(clock.now_ns - clock.origin_ns);
    clock.ns_per_tick = ticks > 0 && ns > 0 ? ns / ticks : 0;
    return clock;
}

int64_t weft_i_record_clock_ns(const weft_i_record_clock *clock, uint64_t ticks)
{
    /* A damaged entry may hold any number: keep it out of the undefined range of the conversion. */
    double ns = (double)(int64_t)(ticks - clock->origin_ticks) * clock->ns_per_tick;
    return ns > -9e17 && ns < 9e17 ? clock->origin_ns + (int64_t)ns : clock->now_ns;
}

static void put_duration(weft_i_text *text, int64_t ns)
{
    double value = ns > 0 ? (double)ns : 0;
    if (value < 1e6)
        weft_i_text_put(text, "%.1f us", value / 1e3);
    else if (value < 1e9)
        weft_i_text_put(text, "%.1f ms", value / 1e6);
    else
        weft_i_text_put(text, "%.1f s", value / 1e9);
}

bool weft_i_record_is_step(const weft_i_record_entry *entry)
{
    if (!strcmp(entry->name, "lane")) /* always within the first call that needs one */
        return true;
    return entry->finished &&
           (!strcmp(entry->name, "rendezvous end") || !strcmp(entry->name, "cma"));
}

const char *weft_i_record_operation(const char *name)
{
    return !strcmp(name, "rendezvous end") ? "rendezvous" : name;
}

char *weft_i_record_text(const weft_i_record *record, const weft_i_record_entry *entry, char *out,
                         size_t bytes)
{
    weft_i_text text = {out, bytes, 0};
    weft_i_text_put(&text, "%s #%llu on group %x", weft_i_record_operation(entry->name),
                    (unsigned long long)entry->number, entry->group);
    if (entry->turn)
        weft_i_text_put(&text, " operation %u", entry->turn);
    if (weft_i_record_way_name(entry->channel))
        weft_i_text_put(&text, " (%s)", weft_i_record_way_name(entry->channel));
    else if (entry->channel >= 0)
        weft_i_text_put(&text, " channel %d", entry->channel);
    if (entry->peer >= 0)
        weft_i_text_put(&text, " with rank %d", entry->peer);
    /* Times of heartbeats say roughly when, but not how long. */
    bool rough = get(&record->coarse) != 0;
    weft_i_text_put(&text, ", %llu bytes, begun %s", (unsigned long long)entry->bytes,
                    rough ? "about " : "");
    weft_i_record_clock clock = weft_i_record_clock_of(record);
    int64_t begin = weft_i_record_clock_ns(&clock, entry->begin);
    put_duration(&text, clock.now_ns - begin);
    weft_i_text_put(&text, " ago, %s",
                    !entry->finished ? "not finished"
                    : rough          ? "finished"
                                     : "took ");
    if (entry->finished && !rough)
        put_duration(&text, weft_i_record_clock_ns(&clock, entry->end) - begin);
    if (!entry->finished)
        return out;
    if (entry->status < 0)
        weft_i_text_put(&text, ", %s", weft_status_name((weft_status)entry->status));
    return out;
}
