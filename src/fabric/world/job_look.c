/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looking at a job page from outside.  The page belongs to running processes, perhaps of another
 * mind: nothing in it is trusted, every text is cut and cleaned, every number is only shown.
 *
 * Whom a rank waits for follows from the flight records.  First each rank's operation is read, then
 * the others' records: a rank whose record, read later, does not hold the operation has not entered
 * it yet, so the first one was still waiting for it at that moment.
 */
#include "fabric/world/job_look.h"

#include "base/os/os.h"
#include "base/report/os_look.h"
#include "base/report/status.h"
#include "base/report/text.h"
#include "fabric/world/watch.h"

#include <stdio.h>
#include <string.h>

enum {
    DEPTH = 128, /* entries of a record that are read */
    SILENCE_NS = 1000 * 1000 * 1000
};

/* ---- groups ---- */

/* The rank's entry for group `id`; NULL if it is not a member, or its table is full. */
static const weft_i_membership *find_group(const weft_i_rank_record *rank_record, uint32_t id)
{
    for (int i = 0; i < WEFT_I_JOB_GROUPS; i++)
        /* Pairs with the release in weft_i_job_join. */
        if (atomic_load_explicit(&rank_record->groups[i].id, memory_order_acquire) == id)
            return &rank_record->groups[i];
    return NULL;
}

static int world_rank_of(const weft_i_rank_record *rank_record)
{
    return WEFT_I_READ_ONCE(rank_record->address.world_rank);
}

/* Whether the owner of `slot` has `world_rank` among the members of group `id`. */
static bool is_member(const weft_i_rank_record *rank_record, uint32_t id, int world_rank)
{
    const weft_i_membership *entry = id ? find_group(rank_record, id) : NULL;
    if (!entry || world_rank < 0 || world_rank >= 8 * (int)sizeof entry->members)
        return id == 0;
    return WEFT_I_READ_ONCE(entry->members[world_rank / 8]) >> world_rank % 8 & 1;
}

/* Rank of the record's owner in group `id`, -1 if it is not a member. */
static int rank_in(const weft_i_rank_record *rank_record, uint32_t id)
{
    const weft_i_membership *entry = id ? find_group(rank_record, id) : NULL;
    return id == 0 ? world_rank_of(rank_record) : entry ? WEFT_I_READ_ONCE(entry->rank) : -1;
}

/* Copies a text that somebody else may be writing. */
static void copy_text(char *out, size_t bytes, const char *text, size_t length)
{
    size_t n = 0;
    for (; n + 1 < bytes && n < length; n++) {
        out[n] = WEFT_I_READ_ONCE(text[n]);
        if (!out[n])
            break;
    }
    out[n] = 0;
    weft_i_text_tame(out, false);
}

static void name_group(const weft_i_rank_record *rank_record, uint32_t id, char *out, size_t bytes)
{
    const weft_i_membership *entry = id ? find_group(rank_record, id) : NULL;
    if (id == 0)
        snprintf(out, bytes, "0");
    else if (entry)
        copy_text(out, bytes, entry->name, sizeof entry->name);
    else
        *out = 0;
}

/* ---- ranks ---- */

/* Whether the rank's address and record can be read: it has entered.  Pairs with the rank's
 * releases.
 */
static bool has_come(const weft_i_rank_record *rank_record)
{
    uint32_t state = atomic_load_explicit(&rank_record->life.state, memory_order_acquire);
    return state == WEFT_I_RANK_HERE || state == WEFT_I_RANK_LEFT;
}

/* `threads`: the ranks are threads of one process. */
static weft_job_state state_alive(bool threads, const weft_i_rank_record *rank_record,
                                  weft_job_rank *out)
{
    char state = weft_i_os_process_state(out->process);
    int64_t beat_ns = atomic_load_explicit(&rank_record->heart.beat_ns, memory_order_relaxed);
    int64_t now = WEFT_OS->clock_ns();
    out->silent_ns = threads || beat_ns < 0 || beat_ns > now ? 0 : now - beat_ns;
    if (state == 'T' || state == 't')
        return WEFT_JOB_STOPPED;
    if (state == 0 || state == 'Z' || state == 'X') /* threads have no life word */
        return WEFT_JOB_DEAD;
    return out->silent_ns > SILENCE_NS ? WEFT_JOB_SILENT : WEFT_JOB_ALIVE;
}

static weft_job_state state_of(bool threads, const weft_i_rank_record *rank_record,
                               weft_job_rank *out)
{
    uint32_t state = atomic_load_explicit(&rank_record->life.state, memory_order_acquire);
    if (state == WEFT_I_RANK_LEFT)
        return WEFT_JOB_LEFT;
    if (state == WEFT_I_RANK_FAILED)
        return WEFT_JOB_FAILED;
    if (weft_i_watch_fate(rank_record) == WEFT_I_DEAD)
        return WEFT_JOB_DEAD;
    return has_come(rank_record) ? state_alive(threads, rank_record, out) : WEFT_JOB_AWAITED;
}

static void copy_op(const weft_i_rank_record *rank_record, const weft_i_record_entry *entry,
                    weft_job_op *out)
{
    weft_i_record_clock clock = weft_i_record_clock_of(&rank_record->record);
    int64_t ago = clock.now_ns - weft_i_record_clock_ns(&clock, entry->begin);
    *out = (weft_job_op){.number = entry->number,
                         .turn = entry->turn,
                         .on_device = entry->on_device,
                         .bytes = entry->bytes,
                         .begun_ns = ago > 0 ? ago : 0,
                         .peer = entry->peer,
                         .channel = weft_i_record_way_name(entry->channel) ? -1 : entry->channel,
                         .status = entry->finished ? entry->status : 0};
    char name[sizeof out->name];
    copy_text(name, sizeof name, entry->name, sizeof entry->name);
    snprintf(out->name, sizeof out->name, "%s", weft_i_record_operation(name));
    name_group(rank_record, entry->group, out->group, sizeof out->group);
}

/* The innermost operation that has not finished. */
static const weft_i_record_entry *current(const weft_i_record_entry *newest, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!newest[i].finished)
            return &newest[i];
    return NULL;
}

/* How much the newest operations were, for whoever wants calls and bytes a second. */
static void add_up(const weft_i_record_entry *newest, size_t count, weft_job_rank *out)
{
    out->begun = count ? newest[0].number : 0;
    out->recent = (int)count;
    for (size_t i = 0; i < count; i++)
        if (!weft_i_record_is_step(&newest[i])) {
            out->recent_calls++;
            out->recent_bytes += newest[i].bytes;
        }
}

/* Fills `now` with the operation the rank is in; leaves it as it was if it is in none. */
static void look_rank(const weft_job_info *job, const weft_i_rank_record *rank_record, int index,
                      weft_job_rank *out, weft_i_record_entry *now)
{
    weft_i_record_entry newest[DEPTH];
    *out = (weft_job_rank){.rank = index};
    out->now.peer = out->now.channel = out->last.peer = out->last.channel = -1;
    if (has_come(rank_record)) {
        out->rank = world_rank_of(rank_record);
        out->process = job->threads ? job->process : WEFT_I_READ_ONCE(rank_record->address.process);
    }
    out->state = state_of(job->threads, rank_record, out);
    if (!has_come(rank_record))
        return;
    size_t count = weft_i_record_newest(&rank_record->record, newest, DEPTH);
    const weft_i_record_entry *open = current(newest, count);
    add_up(newest, count, out);
    size_t last = 0;
    while (last < count && !newest[last].finished)
        last++;
    if (last < count)
        copy_op(rank_record, &newest[last], &out->last);
    if (!open || out->state == WEFT_JOB_LEFT)
        return;
    copy_op(rank_record, open, &out->now);
    const weft_i_record_entry *outer = current(open + 1, count - (size_t)(open + 1 - newest));
    if (outer && outer->group == open->group)
        copy_text(out->now.part_of, sizeof out->now.part_of, outer->name, sizeof outer->name);
    *now = *open;
}

/* ---- who waits for whom ---- */

static bool same_operation(const weft_i_record_entry *a, const weft_i_record_entry *b)
{
    if (a->group != b->group || strncmp(a->name, b->name, sizeof a->name))
        return false;
    return a->turn ? a->turn == b->turn && a->on_device == b->on_device
                   : !b->finished && a->channel == b->channel;
}

static bool has_entered(const weft_i_rank_record *rank_record, const weft_i_record_entry *operation)
{
    weft_i_record_entry newest[DEPTH];
    size_t count =
        has_come(rank_record) ? weft_i_record_newest(&rank_record->record, newest, DEPTH) : 0;
    for (size_t i = 0; i < count; i++)
        if (same_operation(operation, &newest[i]))
            return true;
    return false;
}

/* Does the owner of `slot`, which is in operation `now`, wait for that of `other`? */
static bool awaits(const weft_i_rank_record *rank_record, const weft_i_rank_record *other,
                   const weft_i_record_entry *now)
{
    if (now->peer >= 0)
        return rank_in(other, now->group) == now->peer;
    return is_member(rank_record, now->group, world_rank_of(other)) && !has_entered(other, now);
}

static void note_missing(weft_i_job *page, weft_job *job, int index, const weft_i_record_entry *now)
{
    unsigned char *row = job->missing + (size_t)index * job->row_bytes;
    for (int other = 0; other < job->info.ranks; other++)
        if (other != index &&
            awaits(weft_i_job_rank(page, index), weft_i_job_rank(page, other), now))
            row[other / 8] |= (unsigned char)(1u << other % 8);
}

/* ---- the whole ---- */

static void destroy(weft_i_object *object)
{
    weft_job *job = (weft_job *)object;
    WEFT_OS->free(job->ranks);
    WEFT_OS->free(job->missing);
    weft_i_object_free(object);
}

/* The program of the first rank that has one; else of the page's maker. */
static void name_program(weft_job *job)
{
    int process = job->info.process;
    for (int i = 0; i < job->info.ranks; i++)
        if (job->ranks[i].process && job->ranks[i].state != WEFT_JOB_DEAD) {
            process = job->ranks[i].process;
            break;
        }
    char program[sizeof job->info.program];
    weft_i_os_process_program(process, program, sizeof program);
    copy_text(job->info.program, sizeof job->info.program, program, sizeof program);
}

weft_job *weft_i_job_look(weft_i_job *page, int count)
{
    weft_job *job = weft_i_object_new(WEFT_I_JOB, sizeof *job, destroy);
    if (!job)
        return NULL;
    size_t ranks = (size_t)count;
    job->info = (weft_job_info){.process = WEFT_I_READ_ONCE(page->maker),
                                .ranks = count,
                                .threads = WEFT_I_READ_ONCE(page->threads) == 1};
    job->row_bytes = (ranks + 7) / 8;
    job->ranks = WEFT_OS->alloc(ranks * sizeof *job->ranks);
    job->missing = WEFT_OS->alloc(ranks * job->row_bytes);
    weft_i_record_entry *now = WEFT_OS->alloc(ranks * sizeof *now);
    if (!job->ranks || !job->missing || !now) {
        WEFT_OS->free(now);
        weft_release(job);
        return weft_i_null(WEFT_ERR_NO_MEMORY, "no memory to look at a job of %zu ranks", ranks);
    }
    for (int i = 0; i < (int)ranks; i++)
        look_rank(&job->info, weft_i_job_rank(page, i), i, &job->ranks[i], &now[i]);
    for (int i = 0; i < (int)ranks; i++)
        if (now[i].number)
            note_missing(page, job, i, &now[i]);
    WEFT_OS->free(now);
    name_program(job);
    return job;
}

/* ---- what is told ---- */

static weft_status check_job(const weft_job *job, const char *what, const void *out)
{
    if (!job && weft_last_status() < 0)
        return weft_last_status();
    if (!job || job->object.kind != WEFT_I_JOB || !out)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: the %s is NULL, or not one", what,
                           out ? "job" : "result");
    return WEFT_OK;
}

static weft_status check_index(const weft_job *job, const char *what, int index, const void *out)
{
    WEFT_TRY(check_job(job, what, out));
    return index >= 0 && index < job->info.ranks
               ? WEFT_OK
               : weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: there is no rank %d among %d", what, index,
                             job->info.ranks);
}

weft_status weft_job_describe(const weft_job *job, weft_job_info *out)
{
    WEFT_TRY(check_job(job, "weft_job_describe", out));
    *out = job->info;
    return WEFT_OK;
}

weft_status weft_job_describe_rank(const weft_job *job, int index, weft_job_rank *out)
{
    WEFT_TRY(check_index(job, "weft_job_describe_rank", index, out));
    *out = job->ranks[index];
    return WEFT_OK;
}

int weft_job_missing(const weft_job *job, int index, int *out, int room)
{
    WEFT_TRY(check_index(job, "weft_job_missing", index, room > 0 ? (const void *)out : job));
    const unsigned char *row = job->missing + (size_t)index * job->row_bytes;
    int count = 0;
    for (int other = 0; other < job->info.ranks; other++)
        if (row[other / 8] >> other % 8 & 1) {
            if (count < room)
                out[count] = other;
            count++;
        }
    return count;
}

const char *weft_job_state_name(weft_job_state state)
{
    static const char *const names[] = {"awaited", "alive",  "stopped", "silent",
                                        "left",    "failed", "dead"};
    _Static_assert(sizeof names / sizeof *names == WEFT_JOB_DEAD + 1, "a name for each state");
    return (unsigned)state < sizeof names / sizeof *names ? names[state] : "unknown";
}
