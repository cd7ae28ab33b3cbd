/* SPDX-License-Identifier: Apache-2.0 */
/* Layout and making of the job segment; see job.h. */
#include "fabric/world/job.h"

#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/status.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const uint64_t magic = 0x626f6a2074666577; /* "weft job" */

static uint64_t round_up(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

static uint64_t slot_offset(uint64_t rank)
{
    return WEFT_I_JOB_PAGE + rank * round_up(sizeof(weft_i_rank_record), WEFT_I_JOB_PAGE);
}

static uint64_t board_offset(uint64_t ranks)
{
    return slot_offset(ranks);
}

size_t weft_i_job_bytes(int ranks)
{
    return board_offset((uint64_t)ranks) + weft_i_board_bytes(ranks);
}

weft_status weft_i_job_new(int ranks, weft_i_sharing sharing, weft_i_segment **out)
{
    if (ranks < 1 || ranks > WEFT_I_JOB_MAX_RANKS)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "a job has 1 to %d ranks on a host, not %d",
                           WEFT_I_JOB_MAX_RANKS, ranks);
    size_t bytes = weft_i_job_bytes(ranks);
    weft_i_segment *segment = NULL;
    WEFT_TRY(
        weft_i_segment_new(bytes, WEFT_I_BETWEEN_PROCESSES, "the job's shared page", &segment));
    weft_i_job *job = weft_i_job_of(segment);
    job->maker = weft_i_os_process();
    job->threads = sharing == WEFT_I_BETWEEN_THREADS;
    job->layout = WEFT_I_JOB_LAYOUT;
    job->ranks = (uint32_t)ranks;
    job->slot_bytes = (uint32_t)(slot_offset(1) - slot_offset(0));
    job->slots_at = slot_offset(0);
    job->board_at = board_offset((uint64_t)ranks);
    job->bytes = bytes;
    job->key = segment->key;
    if (WEFT_OS->random_bytes(job->token, sizeof job->token)) {
        int error = errno;
        weft_i_segment_drop(segment);
        return weft_i_fail_errno(error, "cannot read random bytes");
    }
    weft_i_job_board(job, ranks)->ranks = (uint32_t)ranks;
    job->magic = magic;
    *out = segment;
    return WEFT_OK;
}

uint32_t weft_i_job_layout_of(int fd)
{
    weft_i_job job;
    bool whole = weft_i_os_sealed_bytes(fd) >= (int64_t)sizeof job &&
                 WEFT_OS->pread(fd, &job, sizeof job, 0) == (ssize_t)sizeof job;
    return whole && job.magic == magic ? job.layout : 0;
}

/* The head as it is at one moment, field by field. */
static weft_i_job read_head(const weft_i_segment *segment)
{
    const weft_i_job *page = (const weft_i_job *)segment->base;
    if (segment->bytes < sizeof *page)
        return (weft_i_job){.magic = 0};
    return (weft_i_job){.magic = WEFT_I_READ_ONCE(page->magic),
                        .layout = WEFT_I_READ_ONCE(page->layout),
                        .ranks = WEFT_I_READ_ONCE(page->ranks),
                        .slot_bytes = WEFT_I_READ_ONCE(page->slot_bytes),
                        .slots_at = WEFT_I_READ_ONCE(page->slots_at),
                        .board_at = WEFT_I_READ_ONCE(page->board_at)};
}

weft_status weft_i_job_check(const weft_i_segment *segment, int *ranks)
{
    weft_i_job head = read_head(segment), *job = &head;
    if (job->magic != magic)
        return weft_i_fail(WEFT_ERR_PROTOCOL,
                           "the descriptor in WEFT_JOB_FD is not a job page of weft");
    uint64_t slot_bytes = slot_offset(1) - slot_offset(0);
    if (job->layout != WEFT_I_JOB_LAYOUT || job->slot_bytes != slot_bytes)
        return weft_i_fail(WEFT_ERR_VERSION,
                           "the launcher's weft lays out its job page in version %u with slots of "
                           "%u bytes, this one in %d with %llu",
                           job->layout, job->slot_bytes, WEFT_I_JOB_LAYOUT,
                           (unsigned long long)slot_bytes);
    uint64_t board_at = board_offset(job->ranks);
    if (job->ranks < 1 || job->ranks > WEFT_I_JOB_MAX_RANKS || job->slots_at != slot_offset(0) ||
        job->board_at != board_at ||
        segment->bytes < board_at + weft_i_board_bytes((int)job->ranks))
        return weft_i_fail(WEFT_ERR_PROTOCOL, "the job page is damaged: %u ranks, %zu bytes",
                           job->ranks, segment->bytes);
    *ranks = (int)job->ranks;
    return WEFT_OK;
}

int weft_i_job_ranks(const weft_i_segment *segment)
{
    uint32_t ranks = read_head(segment).ranks, most = WEFT_I_JOB_MAX_RANKS;
    ranks = ranks < most ? ranks : most;
    while (ranks && slot_offset(ranks) > segment->bytes)
        ranks--;
    return (int)ranks;
}

weft_i_rank_record *weft_i_job_rank(weft_i_job *job, int local_rank)
{
    WEFT_ASSERT(local_rank >= 0 && local_rank < WEFT_I_JOB_MAX_RANKS);
    return (weft_i_rank_record *)(void *)((char *)job + slot_offset((uint64_t)local_rank));
}

weft_i_board *weft_i_job_board(weft_i_job *job, int ranks)
{
    WEFT_ASSERT(ranks > 0 && ranks <= WEFT_I_JOB_MAX_RANKS);
    return (weft_i_board *)(void *)((char *)job + board_offset((uint64_t)ranks));
}

void weft_i_job_note_exit(weft_i_job *job, int local_rank, int wait_status)
{
    /* Pairs with the acquire of a peer that asks whether this rank can still come. */
    atomic_store_explicit(&weft_i_job_rank(job, local_rank)->life.exit,
                          WEFT_I_EXIT_SEEN | (uint32_t)(wait_status & 0xffff),
                          memory_order_release);
}

static uint64_t class_word(const weft_i_rank_record *rank_record, weft_i_key key)
{
    /* Pairs with the release in weft_i_job_refuse. */
    return atomic_load_explicit(&rank_record->refusals[weft_i_job_refusal_class(key)],
                                memory_order_acquire);
}

void weft_i_job_refuse(weft_i_rank_record *mine, weft_i_key key, weft_status why)
{
    WEFT_ASSERT(why < 0 && why > -256);
    uint16_t number = (uint16_t)(weft_i_job_refusal_number(class_word(mine, key)) + 1);
    uint64_t word = key.word[0] << 24 | (uint64_t)number << 8 | ((unsigned)-(int)why & 0xff);
    atomic_store_explicit(&mine->refusals[weft_i_job_refusal_class(key)], word,
                          memory_order_release); /* pairs with the acquire in class_word */
}

void weft_i_job_allow(weft_i_rank_record *mine, weft_i_key key)
{
    uint64_t word = weft_i_job_refusal(mine, key);
    if (word) /* keeps the number, so that the next refusal is not taken for this one */
        atomic_store_explicit(&mine->refusals[weft_i_job_refusal_class(key)],
                              word & ((uint64_t)0xffff << 8), memory_order_release);
}

uint64_t weft_i_job_refusal(const weft_i_rank_record *rank_record, weft_i_key key)
{
    uint64_t word = class_word(rank_record, key);
    return (word & 0xff) && word >> 24 == (key.word[0] & (((uint64_t)1 << 40) - 1)) ? word : 0;
}

void weft_i_job_keep_open(weft_i_segment *page, int fd)
{
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (page->fd < 0) /* closed with the page; read-only, and not for programs we start */
        page->fd = WEFT_OS->open(path, O_RDONLY, 0);
}

void weft_i_job_close(weft_i_segment *page)
{
    if (page->fd >= 0)
        WEFT_OS->close(page->fd);
    page->fd = -1; /* seen by the last holder: our own reference is dropped later (acq_rel) */
}

/* Takes a free entry of the table, or the one that has `id`; NULL if there is none. */
static weft_i_membership *claim(weft_i_rank_record *mine, uint32_t id, uint32_t now)
{
    for (int i = 0; i < WEFT_I_JOB_GROUPS; i++) {
        uint32_t expected = now; /* acquire: not before who had the entry is done with it */
        if (atomic_compare_exchange_strong_explicit(&mine->groups[i].id, &expected, 1,
                                                    memory_order_acquire, memory_order_relaxed))
            return &mine->groups[i];
    }
    return now ? claim(mine, id, 0) : NULL;
}

void weft_i_job_join(weft_i_rank_record *mine, uint32_t id, const char *name, const int *members,
                     int count)
{
    WEFT_ASSERT(id != 1); /* an entry that is being written */
    /* A group without a number has one member, and nobody waits for anybody there. */
    weft_i_membership *entry = id ? claim(mine, id, id) : NULL;
    if (!entry)
        return;
    entry->rank = -1;
    snprintf(entry->name, sizeof entry->name, "%s", name);
    memset(entry->members, 0, sizeof entry->members);
    for (int rank = 0; rank < count; rank++) {
        if (members[rank] == WEFT_I_READ_ONCE(mine->address.world_rank))
            entry->rank = rank;
        if (members[rank] < 8 * (int)sizeof entry->members)
            entry->members[members[rank] / 8] |= (unsigned char)(1u << members[rank] % 8);
    }
    atomic_store_explicit(&entry->id, id, memory_order_release); /* acquired by whoever looks */
}

void weft_i_job_quit(weft_i_rank_record *mine, uint32_t id)
{
    for (int i = 0; id > 1 && i < WEFT_I_JOB_GROUPS; i++) {
        uint32_t expected = id;
        /* Release: pairs with the acquire in `claim`. */
        if (atomic_compare_exchange_strong_explicit(&mine->groups[i].id, &expected, 0,
                                                    memory_order_release, memory_order_relaxed))
            return;
    }
}

static bool name_of(const void *arg, uint32_t id, char *out, size_t bytes)
{
    const weft_i_rank_record *rank_record = arg;
    snprintf(out, bytes, "0");
    if (id == 0)
        return true;
    for (int i = 0; i < WEFT_I_JOB_GROUPS; i++) {
        const weft_i_membership *group = &rank_record->groups[i];
        /* Pairs with the release of whoever entered it. */
        if (atomic_load_explicit(&group->id, memory_order_acquire) != id)
            continue;
        char name[sizeof group->name]; /* a copy, which nobody changes */
        for (size_t c = 0; c < sizeof name; c++)
            name[c] = WEFT_I_READ_ONCE(group->name[c]);
        snprintf(out, bytes, "%.*s", (int)sizeof name, name);
        return true;
    }
    return false;
}

weft_status weft_i_job_write_trace(const weft_i_rank_record *rank_record, int rank,
                                   const char *path)
{
    weft_i_record_trace trace = {.record = &rank_record->record,
                                 .rank = rank,
                                 .process = WEFT_I_READ_ONCE(rank_record->address.process),
                                 .group_name = name_of,
                                 .arg = rank_record};
    return weft_i_record_trace_write(&trace, path);
}

void weft_i_job_note_failed(int fd, int local_rank)
{
    weft_i_job job;
    if (WEFT_OS->pread(fd, &job, sizeof job, 0) != (ssize_t)sizeof job || job.magic != magic ||
        job.layout != WEFT_I_JOB_LAYOUT || local_rank < 0 || local_rank >= (int)job.ranks)
        return;
    if (local_rank >= WEFT_I_JOB_MAX_RANKS)
        return;
    off_t at =
        (off_t)(slot_offset((uint64_t)local_rank) + offsetof(weft_i_rank_record, life.state));
    uint32_t state = 0, failed = WEFT_I_RANK_FAILED;
    if (WEFT_OS->pread(fd, &state, sizeof state, at) != (ssize_t)sizeof state ||
        state != WEFT_I_RANK_AWAITED)
        return; /* another process has this place */
    ssize_t ignored = WEFT_OS->pwrite(fd, &failed, sizeof failed, at);
    (void)ignored;
}
