/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/world/job.c */
/*
 * The job page by itself (fabric/world/job.c): what it says of itself, which pages are refused, refusals of
 * groups, the table of groups, and what is noted of ranks that end or never come.
 */
#include "harness.h"

#include "base/report/status.h"
#include "fabric/world/job.h"

#include <weft/status.h>

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096 };

static size_t slot_bytes(void)
{
    return (sizeof(weft_i_rank_record) + PAGE - 1) / PAGE * PAGE;
}

static size_t page_bytes(size_t ranks)
{
    return PAGE + ranks * slot_bytes() + weft_i_board_bytes((int)ranks);
}

/* ---- the head ---- */

TEST(test_job_page_of_two)
{
    for (int threads = 0; threads < 2; threads++) {
        weft_i_segment *page = NULL;
        CHECK_OK(
            weft_i_job_new(2, threads ? WEFT_I_BETWEEN_THREADS : WEFT_I_BETWEEN_PROCESSES, &page));
        const weft_i_job *job = weft_i_job_of(page);
        CHECK_INT(job->maker, getpid());
        CHECK_INT(job->threads, threads);
        CHECK_INT(job->layout, WEFT_I_JOB_LAYOUT);
        CHECK_INT(job->ranks, 2);
        CHECK_INT(job->slot_bytes, slot_bytes());
        CHECK_INT(job->slots_at, PAGE);
        CHECK_INT(job->board_at, PAGE + 2 * slot_bytes());
        CHECK_INT(job->bytes, page_bytes(2));
        CHECK_INT(page->bytes, page_bytes(2));
        CHECK_INT(weft_i_job_bytes(2), page_bytes(2));
        CHECK(weft_i_key_equal(job->key, page->key));
        unsigned char none[sizeof job->token] = {0};
        CHECK(memcmp(job->token, none, sizeof none) != 0);
        CHECK(page->fd >= 0); /* weft info --job finds threads too */
        CHECK_INT(weft_i_job_layout_of(page->fd), WEFT_I_JOB_LAYOUT);
        int ranks = 0;
        CHECK_OK(weft_i_job_check(page, &ranks));
        CHECK_INT(ranks, 2);
        CHECK_INT(weft_i_job_ranks(page), 2);
        char *base = page->base;
        CHECK((char *)weft_i_job_rank(weft_i_job_of(page), 0) == base + PAGE);
        CHECK((char *)weft_i_job_rank(weft_i_job_of(page), 1) == base + PAGE + slot_bytes());
        weft_i_board *board = weft_i_job_board(weft_i_job_of(page), 2);
        CHECK((char *)board == base + job->board_at);
        CHECK_INT(board->ranks, 2);
        weft_i_segment_drop(page);
    }
}

TEST(test_job_page_sizes)
{
    weft_i_segment *page = NULL;
    CHECK_STATUS(weft_i_job_new(0, WEFT_I_BETWEEN_PROCESSES, &page), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "a job has 1 to 4096 ranks on a host, not 0");
    CHECK_STATUS(weft_i_job_new(4097, WEFT_I_BETWEEN_PROCESSES, &page), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "a job has 1 to 4096 ranks on a host, not 4097");
    CHECK(!page);
    static const int allowed[] = {1, 4096};
    for (int i = 0; i < 2; i++) {
        CHECK_OK(weft_i_job_new(allowed[i], WEFT_I_BETWEEN_PROCESSES, &page));
        CHECK_INT(weft_i_job_ranks(page), allowed[i]);
        weft_i_segment_drop(page);
    }
}

/* A page that says it has so many ranks, in a mapping of that many bytes; nothing of it is touched
 * beyond the head. */
static weft_i_segment page_like(const weft_i_segment *model, uint32_t ranks, size_t bytes)
{
    char *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(base != MAP_FAILED);
    size_t head = bytes < sizeof(weft_i_job) ? bytes : sizeof(weft_i_job);
    memcpy(base, model->base, head);
    if (bytes >= sizeof(weft_i_job)) {
        ((weft_i_job *)(void *)base)->ranks = ranks;
        ((weft_i_job *)(void *)base)->board_at = PAGE + ranks * slot_bytes();
    }
    return (weft_i_segment){.base = base, .bytes = bytes, .fd = -1};
}

static void check_like(const weft_i_segment *model, uint32_t ranks, size_t bytes,
                       weft_status expected)
{
    weft_i_segment page = page_like(model, ranks, bytes);
    int found = -7;
    weft_status status = weft_i_job_check(&page, &found);
    munmap(page.base, bytes);
    if (status != expected)
        FAIL("%u ranks in %zu bytes: %d, not %d: %s", ranks, bytes, status, expected,
             weft_last_error());
    CHECK_INT(found, status == WEFT_OK ? (int)ranks : -7);
}

TEST(test_job_page_checks_its_size)
{
    weft_i_segment *model = NULL;
    CHECK_OK(weft_i_job_new(1, WEFT_I_BETWEEN_PROCESSES, &model));
    check_like(model, 1, page_bytes(1), WEFT_OK);
    check_like(model, 1, page_bytes(1) - 1, WEFT_ERR_PROTOCOL);
    check_like(model, 3, page_bytes(3), WEFT_OK);
    check_like(model, 3, page_bytes(3) - 1, WEFT_ERR_PROTOCOL);
    CHECK_CONTAINS(weft_last_error(), "the job page is damaged: 3 ranks");
    check_like(model, 0, page_bytes(1), WEFT_ERR_PROTOCOL);
    check_like(model, 4096, page_bytes(4096), WEFT_OK);
    check_like(model, 4097, page_bytes(4097), WEFT_ERR_PROTOCOL);
    check_like(model, 1, sizeof(weft_i_job) - 1, WEFT_ERR_PROTOCOL);
    CHECK_CONTAINS(weft_last_error(), "is not a job page of weft");
    check_like(model, 1, sizeof(weft_i_job), WEFT_ERR_PROTOCOL);
    CHECK_CONTAINS(weft_last_error(), "the job page is damaged");
    weft_i_segment_drop(model);
}

/* How many slots can be looked at, whatever the head says. */
TEST(test_job_page_ranks_in_sight)
{
    weft_i_segment *model = NULL;
    CHECK_OK(weft_i_job_new(1, WEFT_I_BETWEEN_PROCESSES, &model));
    const struct {
        uint32_t says;
        size_t bytes;
        int sees;
    } cases[] = {{5, PAGE + 2 * slot_bytes(), 2},      {5, PAGE + 2 * slot_bytes() - 1, 1},
                 {1, PAGE + 2 * slot_bytes(), 1},      {5, PAGE - 1, 0},
                 {4096, page_bytes(4100), 4096},       {4097, page_bytes(4100), 4096},
                 {0xffffffff, page_bytes(4100), 4096}, {0, page_bytes(1), 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_i_segment page = page_like(model, cases[i].says, cases[i].bytes);
        int sees = weft_i_job_ranks(&page);
        munmap(page.base, cases[i].bytes);
        CHECK_INT(sees, cases[i].sees);
    }
    weft_i_segment_drop(model);
}

TEST(test_job_page_of_another_kind)
{
    weft_i_segment *page = NULL;
    int ranks = -7;
    CHECK_OK(weft_i_job_new(2, WEFT_I_BETWEEN_PROCESSES, &page));
    weft_i_job *job = weft_i_job_of(page), sound = *job;
    job->magic++;
    CHECK_STATUS(weft_i_job_check(page, &ranks), WEFT_ERR_PROTOCOL);
    CHECK_INT(weft_i_job_layout_of(page->fd), 0);
    *job = sound;
    job->layout++;
    CHECK_STATUS(weft_i_job_check(page, &ranks), WEFT_ERR_VERSION);
    CHECK_INT(weft_i_job_layout_of(page->fd), WEFT_I_JOB_LAYOUT + 1);
    *job = sound;
    job->slot_bytes++;
    CHECK_STATUS(weft_i_job_check(page, &ranks), WEFT_ERR_VERSION);
    char want[96];
    snprintf(want, sizeof want, "in version %d with slots of %zu bytes, this one in %d with %zu",
             WEFT_I_JOB_LAYOUT, slot_bytes() + 1, WEFT_I_JOB_LAYOUT, slot_bytes());
    CHECK_CONTAINS(weft_last_error(), want);
    *job = sound;
    job->slots_at++;
    CHECK_STATUS(weft_i_job_check(page, &ranks), WEFT_ERR_PROTOCOL);
    *job = sound;
    job->board_at++;
    CHECK_STATUS(weft_i_job_check(page, &ranks), WEFT_ERR_PROTOCOL);
    *job = sound;
    CHECK_INT(ranks, -7);
    CHECK_OK(weft_i_job_check(page, &ranks));
    weft_i_segment_drop(page);
}

static int file_of(const void *bytes, size_t count, bool sealed)
{
    int fd = memfd_create("test", MFD_ALLOW_SEALING | MFD_CLOEXEC);
    CHECK(fd >= 0 && write(fd, bytes, count) == (ssize_t)count);
    if (sealed)
        CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
    return fd;
}

/* Only files that nobody can cut off, and that hold a whole head, are looked into. */
TEST(test_job_page_layout_of_files)
{
    weft_i_segment *page = NULL;
    CHECK_OK(weft_i_job_new(1, WEFT_I_BETWEEN_PROCESSES, &page));
    int whole = file_of(page->base, sizeof(weft_i_job), true);
    int open = file_of(page->base, sizeof(weft_i_job), false);
    int cut = file_of(page->base, sizeof(weft_i_job) - 1, true);
    CHECK_INT(weft_i_job_layout_of(whole), WEFT_I_JOB_LAYOUT);
    CHECK_INT(weft_i_job_layout_of(open), 0);
    CHECK_INT(weft_i_job_layout_of(cut), 0);
    CHECK_INT(weft_i_job_layout_of(-1), 0);
    close(whole);
    close(open);
    close(cut);
    weft_i_segment_drop(page);
}

/* ---- ranks that end or never come ---- */

TEST(test_job_page_notes_an_exit)
{
    weft_i_segment *page = NULL;
    CHECK_OK(weft_i_job_new(2, WEFT_I_BETWEEN_PROCESSES, &page));
    weft_i_job *job = weft_i_job_of(page);
    weft_i_job_note_exit(job, 1, 0x10309);
    CHECK_INT(weft_i_job_rank(job, 1)->life.exit, WEFT_I_EXIT_SEEN | 0x309);
    CHECK_INT(weft_i_job_rank(job, 0)->life.exit, 0);
    weft_i_job_note_exit(job, 0, 0xffff);
    CHECK_INT(weft_i_job_rank(job, 0)->life.exit, WEFT_I_EXIT_SEEN | 0xffff);
    weft_i_segment_drop(page);
}

static uint32_t state_of(const weft_i_segment *page, int rank)
{
    return weft_i_job_rank(weft_i_job_of((weft_i_segment *)page), rank)->life.state;
}

TEST(test_job_page_notes_a_failure)
{
    weft_i_segment *page = NULL;
    CHECK_OK(weft_i_job_new(2, WEFT_I_BETWEEN_PROCESSES, &page));
    weft_i_job *job = weft_i_job_of(page), sound = *job;
    static char before[1 << 20];
    CHECK(page->bytes <= sizeof before);
    memcpy(before, page->base, page->bytes);
    weft_i_job_note_failed(page->fd, -1);
    weft_i_job_note_failed(page->fd, 2);
    weft_i_job_note_failed(-1, 0);
    job->magic++;
    weft_i_job_note_failed(page->fd, 0);
    *job = sound;
    job->layout++;
    weft_i_job_note_failed(page->fd, 0);
    *job = sound;
    CHECK(!memcmp(before, page->base, page->bytes));
    weft_i_job_note_failed(page->fd, 1);
    CHECK(state_of(page, 0) == WEFT_I_RANK_AWAITED && state_of(page, 1) == WEFT_I_RANK_FAILED);
    weft_i_job_note_failed(page->fd, 0);
    CHECK(state_of(page, 0) == WEFT_I_RANK_FAILED && state_of(page, 1) == WEFT_I_RANK_FAILED);
    weft_i_job_rank(job, 0)->life.state = WEFT_I_RANK_HERE; /* another process has the place */
    weft_i_job_note_failed(page->fd, 0);
    CHECK_INT(state_of(page, 0), WEFT_I_RANK_HERE);
    /* Nothing else was written, and no head that is cut off is believed. */
    CHECK(!memcmp(job, &sound, sizeof sound) && weft_i_job_check(page, &(int){0}) == WEFT_OK);
    int cut = file_of(page->base, sizeof sound - 1, false);
    weft_i_job_note_failed(cut, 0);
    CHECK_INT(lseek(cut, 0, SEEK_END), sizeof sound - 1);
    close(cut);
    weft_i_segment_drop(page);
}

/* ---- refusals ---- */

static weft_i_rank_record *fresh_record(weft_i_segment **page)
{
    CHECK_OK(weft_i_job_new(1, WEFT_I_BETWEEN_PROCESSES, page));
    return weft_i_job_rank(weft_i_job_of(*page), 0);
}

TEST(test_job_page_refusal)
{
    weft_i_segment *page = NULL;
    weft_i_rank_record *mine = fresh_record(&page);
    weft_i_key key = {{0x123456789abcdef0, 6}}, near = {{0x123456789abcdef1, 6}},
               far = {{0x123456789abcdef0, 7}};
    CHECK_INT(weft_i_job_refusal_class(key), 2);
    CHECK_INT(weft_i_job_refusal(mine, key), 0);
    weft_i_job_refuse(mine, key, WEFT_ERR_NO_MEMORY);
    uint64_t first = weft_i_job_refusal(mine, key);
    CHECK(first != 0);
    CHECK_INT(weft_i_job_refusal_status(first), WEFT_ERR_NO_MEMORY);
    CHECK_INT(weft_i_job_refusal_number(first), 1);
    CHECK_INT(weft_i_job_refusal(mine, near), 0);
    CHECK_INT(weft_i_job_refusal(mine, far), 0);
    weft_i_job_refuse(mine, key, WEFT_ERR_LIMIT);
    uint64_t second = weft_i_job_refusal(mine, key);
    CHECK_INT(weft_i_job_refusal_status(second), WEFT_ERR_LIMIT);
    CHECK_INT(weft_i_job_refusal_number(second), 2);
    /* The next of its class takes the place; the first is no longer told. */
    weft_i_job_refuse(mine, near, WEFT_ERR_IO);
    CHECK_INT(weft_i_job_refusal(mine, key), 0);
    CHECK_INT(weft_i_job_refusal_number(weft_i_job_refusal(mine, near)), 3);
    CHECK_INT(weft_i_job_refusal_status(weft_i_job_refusal(mine, near)), WEFT_ERR_IO);
    weft_i_segment_drop(page);
}

/* Taken back, its number stays, so that the next refusal is not taken for this one. */
TEST(test_job_page_refusal_is_taken_back)
{
    weft_i_segment *page = NULL;
    weft_i_rank_record *mine = fresh_record(&page);
    weft_i_key key = {{0x123456789abcdef0, 5}}, near = {{0x223456789abcdef0, 5}};
    weft_i_job_allow(mine, key); /* nothing to take back */
    CHECK_INT(mine->refusals[1], 0);
    weft_i_job_refuse(mine, key, WEFT_ERR_NO_MEMORY);
    /* The same 40 bits: only those are kept. */
    CHECK(weft_i_job_refusal(mine, near) == weft_i_job_refusal(mine, key));
    weft_i_key other = {{0x123456789abcdef2, 5}};
    weft_i_job_allow(mine, other); /* not its own */
    CHECK(weft_i_job_refusal(mine, key) != 0);
    weft_i_job_allow(mine, key);
    CHECK_INT(weft_i_job_refusal(mine, key), 0);
    CHECK_INT(mine->refusals[1], 1 << 8);
    weft_i_job_refuse(mine, key, WEFT_ERR_NO_SPACE);
    CHECK_INT(weft_i_job_refusal_number(weft_i_job_refusal(mine, key)), 2);
    for (int i = 2; i < 0xffff; i++)
        weft_i_job_refuse(mine, key, WEFT_ERR_NO_SPACE);
    CHECK_INT(weft_i_job_refusal_number(weft_i_job_refusal(mine, key)), 0xffff);
    weft_i_job_allow(mine, key);
    CHECK_INT(mine->refusals[1], 0xffff << 8);
    weft_i_job_refuse(mine, key, WEFT_ERR_NO_SPACE); /* counts on from 0, and keeps to its bits */
    CHECK_INT(weft_i_job_refusal_number(weft_i_job_refusal(mine, key)), 0);
    CHECK_INT(weft_i_job_refusal_status(weft_i_job_refusal(mine, key)), WEFT_ERR_NO_SPACE);
    CHECK(!mine->refusals[0] && !mine->refusals[2] && !mine->refusals[3]);
    weft_i_segment_drop(page);
}

/* ---- the descriptor by which the page is found ---- */

TEST(test_job_page_descriptor)
{
    weft_i_segment *page = NULL;
    CHECK_OK(weft_i_job_new(1, WEFT_I_BETWEEN_PROCESSES, &page));
    int first = page->fd;
    weft_i_job_keep_open(page, first); /* has one */
    CHECK_INT(page->fd, first);
    int twin = dup(first);
    weft_i_job_close(page);
    CHECK_INT(page->fd, -1);
    CHECK(fcntl(first, F_GETFD) < 0 && errno == EBADF);
    weft_i_job_keep_open(page, twin);
    CHECK(page->fd >= 0 && page->fd != twin);
    CHECK_INT(fcntl(page->fd, F_GETFL) & O_ACCMODE, O_RDONLY);
    CHECK_INT(fcntl(page->fd, F_GETFD), FD_CLOEXEC);
    close(twin);
    weft_i_job_close(page);
    weft_i_job_close(page); /* twice is once */
    weft_i_segment_drop(page);
}

/* A program may run without standard input: then 0 is a descriptor like any other. */
TEST(test_job_page_descriptor_0)
{
    weft_i_segment *page = NULL;
    CHECK_OK(weft_i_job_new(1, WEFT_I_BETWEEN_PROCESSES, &page));
    int input = dup(0);
    close(0);
    int twin = dup(page->fd);
    weft_i_job_close(page);
    page->fd = twin;
    weft_i_job_keep_open(page, twin);
    bool kept = twin == 0 && page->fd == 0;
    weft_i_job_close(page);
    bool closed = fcntl(0, F_GETFD) < 0;
    dup2(input, 0);
    close(input);
    CHECK(kept);
    CHECK(closed);
    weft_i_segment_drop(page);
}

/* ---- the table of groups ---- */

TEST(test_job_page_groups)
{
    weft_i_segment *page = NULL;
    weft_i_rank_record *mine = fresh_record(&page);
    mine->address.world_rank = 511;
    const int members[] = {9, 511, 512, 1000};
    weft_i_job_join(mine, 77, "a", members, 4);
    weft_i_membership *entry = &mine->groups[0];
    CHECK(entry->id == 77 && entry->rank == 1 && !strcmp(entry->name, "a"));
    unsigned char want[64] = {0};
    want[1] = 2;
    want[63] = 0x80;
    CHECK(!memcmp(entry->members, want, sizeof want));
    CHECK(!mine->groups[1].id && !mine->groups[1].rank); /* nothing beyond the bits */
    weft_i_job_join(mine, 77, "b", members, 1);          /* again: the same entry */
    want[63] = 0;
    CHECK(entry->id == 77 && entry->rank == -1 && !strcmp(entry->name, "b"));
    CHECK(!memcmp(entry->members, want, sizeof want) && !mine->groups[1].id);
    weft_i_segment_drop(page);
}

TEST(test_job_page_groups_come_and_go)
{
    weft_i_segment *page = NULL;
    weft_i_rank_record *mine = fresh_record(&page);
    const int one = 0;
    for (uint32_t i = 0; i < WEFT_I_JOB_GROUPS + 1; i++) /* the last is not shown */
        weft_i_job_join(mine, 2 + i, "x", &one, 1);
    for (uint32_t i = 0; i < WEFT_I_JOB_GROUPS; i++)
        CHECK_INT(mine->groups[i].id, 2 + i);
    CHECK_INT(mine->record.head, 0); /* which lies behind the table */
    mine->record.head = 2 + WEFT_I_JOB_GROUPS;
    weft_i_job_quit(mine, 2 + WEFT_I_JOB_GROUPS); /* is not there */
    CHECK_INT(mine->record.head, 2 + WEFT_I_JOB_GROUPS);
    weft_i_job_quit(mine, 2);
    weft_i_job_quit(mine, 1 + WEFT_I_JOB_GROUPS);
    CHECK(!mine->groups[0].id && !mine->groups[WEFT_I_JOB_GROUPS - 1].id);
    for (uint32_t i = 1; i < WEFT_I_JOB_GROUPS - 1; i++)
        CHECK_INT(mine->groups[i].id, 2 + i);
    weft_i_job_join(mine, 99, "y", &one, 1);
    CHECK(mine->groups[0].id == 99 && !mine->groups[WEFT_I_JOB_GROUPS - 1].id);
    mine->groups[1].id = 1; /* being written by another thread */
    weft_i_job_quit(mine, 1);
    CHECK_INT(mine->groups[1].id, 1);
    weft_i_segment_drop(page);
}

/* Traces name groups by the table, also one whose name fills its place to the end. */
TEST(test_job_page_trace_names_groups)
{
    weft_i_segment *page = NULL;
    weft_i_rank_record *mine = fresh_record(&page);
    const int one = 0;
    char path[] = "/tmp/weft-test-XXXXXX", place[64], text[8192] = "", longest[57];
    CHECK(mkdtemp(path) != NULL);
    snprintf(place, sizeof place, "%s/t.json", path);
    weft_i_record_init(&mine->record);
    memset(longest, 'n', sizeof longest);
    longest[56] = 0;
    weft_i_job_join(mine, 15, "five", &one, 1);
    weft_i_job_join(mine, 6, "six", &one, 1);
    weft_i_job_join(mine, 7, "seven", &one, 1);
    memcpy(mine->groups[2].name, longest, 56);
    /* The last is as many as there are operations: the number of those lies behind the table. */
    const uint32_t ids[] = {0, 15, 6, 7, 5};
    for (int i = 0; i < 5; i++)
        weft_i_record_end(&mine->record,
                          weft_i_record_begin(&mine->record, "op", ids[i], 0, -1, -1), 0);
    CHECK_OK(weft_i_job_write_trace(mine, 3, place));
    snprintf(place, sizeof place, "%s/t.3.json", path);
    int fd = open(place, O_RDONLY);
    CHECK(fd >= 0 && read(fd, text, sizeof text - 1) > 0);
    close(fd);
    unlink(place);
    rmdir(path);
    const char *at = text, *const names[] = {"0", "five", "six", longest};
    for (int i = 0; i < 4; i++) {
        char want[96];
        snprintf(want, sizeof want, "\"group_name\":\"%s\"", names[i]);
        at = strstr(at, "\"group_name\"");
        CHECK(at != NULL);
        CHECK(!strncmp(at, want, strlen(want)));
        at++;
    }
    CHECK(!strstr(at, "\"group_name\"")); /* of 5 nothing is known */
    weft_i_segment_drop(page);
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* errors are the point here */
    return harness_main(argc, argv);
}
