/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/meet/meet.c, fabric/world/job_find.c */
/*
 * weft_init of one rank, each in a process of its own: what it refuses and with which words, the job
 * page that it inherits, the limits that it takes, and that nothing is left open afterwards.
 */
#include "harness.h"

#include "base/os/os.h"
#include "base/report/status.h"
#include "fabric/group/group.h"
#include "fabric/meet/meet.h"
#include "store/store.h"

#include <weft/fake.h>
#include <weft/version.h>
#include <weft/weft.h>

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* As CHECK, in a child. */
#define MUST(condition_)                                                               \
    do {                                                                               \
        if (!(condition_)) {                                                           \
            dprintf(2, "line %d: %s: %s\n", __LINE__, #condition_, weft_last_error()); \
            _exit(1);                                                                  \
        }                                                                              \
    } while (0)

#define SAYS(status_, wanted_)                                                               \
    do {                                                                                     \
        MUST(weft_last_status() == (status_));                                               \
        if (strcmp(weft_last_error(), (wanted_)) != 0) {                                     \
            dprintf(2, "line %d: it says \"%s\", not \"%s\"\n", __LINE__, weft_last_error(), \
                    (wanted_));                                                              \
            _exit(1);                                                                        \
        }                                                                                    \
    } while (0)

static void forget_launcher(void)
{
    static const char *const names[] = {"RANK",         "WORLD_SIZE",        "LOCAL_RANK",
                                        "MASTER_ADDR",  "MASTER_PORT",       "WEFT_JOB_FD",
                                        "WEFT_TIMEOUT", "WEFT_MEET_TIMEOUT", "LOCAL_WORLD_SIZE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
}

static int open_descriptors(void)
{
    int count = 0;
    for (int fd = 0; fd < 256; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* Runs it in a child, with its error output in `said` if that is wanted. */
static void in_child(void (*body)(void *arg), void *arg, char *said, size_t bytes)
{
    int output = memfd_create("output", MFD_CLOEXEC);
    CHECK(output >= 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        dup2(output, 2);
        close(output);
        forget_launcher();
        alarm(60);
        body(arg);
        _exit(0);
    }
    int status = 0;
    char text[4000] = "";
    CHECK(waitpid(child, &status, 0) == child);
    ssize_t got = pread(output, text, sizeof text - 1, 0);
    close(output);
    text[got > 0 ? got : 0] = 0;
    if (!WIFEXITED(status) || WEXITSTATUS(status))
        FAIL("the child ended with %x: %s", status, text);
    if (said)
        snprintf(said, bytes, "%s", text);
}

/* ---- with a store ---- */

static void ranks_and_sizes(void *arg)
{
    static const int wrong[][2] = {{-1, 2}, {2, 2}, {3, 2}, {0, 0}, {0, -1}, {-1, 0}};
    (void)arg;
    MUST(weft_scope_open() == WEFT_OK);
    weft_init_opts opts = WEFT_INIT_OPTS;
    opts.store = weft_store_local();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char wanted[200];
        opts.rank = wrong[i][0];
        opts.world_size = wrong[i][1];
        MUST(!weft_init(&opts));
        snprintf(wanted, sizeof wanted,
                 "weft_init: with a store, rank (%d) and world_size (%d) are needed", opts.rank,
                 opts.world_size);
        SAYS(WEFT_ERR_INVALID_ARG, wanted);
        MUST(weft_finish(NULL) == -WEFT_ERR_INVALID_ARG);
    }
    opts.rank = 0;
    opts.world_size = 2;
    opts.meet_timeout_ms = 20;
    MUST(!weft_init(&opts)); /* allowed, but nobody comes */
    SAYS(WEFT_ERR_MISSING, "weft_init: of 2 ranks these never came: 1");
    opts.store = weft_store_fake();
    MUST(!weft_init(&opts));
    SAYS(WEFT_ERR_INVALID_ARG, "weft_init: ranks cannot meet through a fake store; a group without "
                               "peers is made by weft_fake_init");
    opts.store = weft_store_local();
    opts.world_size = 1;
    int before = open_descriptors();
    weft_group *world = weft_init(&opts);
    MUST(world && weft_rank(world) == 0 && weft_size(world) == 1);
    MUST(weft_last_status() == WEFT_OK && weft_group_barrier(world, WEFT_DEFAULT) == WEFT_OK);
    MUST(weft_finish(world) == 0);
    weft_release(world);
    MUST(open_descriptors() == before);
    MUST(weft_scope_close() == WEFT_OK);
}

TEST(test_init_with_a_store)
{
    in_child(ranks_and_sizes, NULL, NULL, 0);
}

/* ---- limits ---- */

static void limits(void *arg)
{
    static const struct {
        int64_t given, wanted;
    } cases[] = {
        {0, 4321}, {WEFT_DEFAULT, 4321}, {1234, 1234}, {1, 1}, {WEFT_FOREVER, WEFT_FOREVER}};
    (void)arg;
    setenv("WEFT_TIMEOUT", "4321", 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_init_opts opts = WEFT_INIT_OPTS;
        opts.timeout_ms = cases[i].given;
        weft_group *world = weft_init(&opts);
        MUST(world && weft_group_timeout(world) == cases[i].wanted);
        MUST(weft_finish(world) == 0);
        weft_release(world);
    }
    weft_init_opts opts = WEFT_INIT_OPTS;
    opts.timeout_ms = -7;
    MUST(!weft_init(&opts) && weft_last_status() == WEFT_ERR_INVALID_ARG);
    MUST(strstr(weft_last_error(), "weft_init: timeout_ms"));
    opts.timeout_ms = 0;
    opts.meet_timeout_ms = -7;
    MUST(!weft_init(&opts) && weft_last_status() == WEFT_ERR_INVALID_ARG);
    MUST(strstr(weft_last_error(), "weft_init: meet_timeout_ms"));
    /* How long it waits for others: what it is told, or what the environment says. */
    opts.meet_timeout_ms = 0;
    opts.store = weft_store_local();
    opts.world_size = 2;
    setenv("WEFT_MEET_TIMEOUT", "20", 1);
    MUST(!weft_init(&opts) && weft_last_status() == WEFT_ERR_MISSING);
    opts.store = weft_store_local();
    opts.meet_timeout_ms = WEFT_DEFAULT;
    MUST(!weft_init(&opts) && weft_last_status() == WEFT_ERR_MISSING);
    weft_clear_error();
}

TEST(test_init_limits)
{
    in_child(limits, NULL, NULL, 0);
}

/* ---- alone ---- */

static weft_i_os table;
static int servers;

static int note_server(void)
{
    servers++;
    return weft_i_os_linux.epoll_create();
}

static void alone(void *arg)
{
    (void)arg;
    table = weft_i_os_linux;
    table.epoll_create = note_server;
    weft_i_os_now = &table;
    weft_release(weft_init(NULL)); /* what is opened once stays */
    MUST(servers == 0);            /* one that is alone needs no store */
    int before = open_descriptors();
    weft_i_store_until(WEFT_I_NEVER);
    weft_group *world = weft_init(NULL);
    MUST(world && weft_rank(world) == 0 && weft_size(world) == 1);
    MUST(weft_i_store_until(WEFT_I_NEVER) == WEFT_I_NEVER); /* its limit was the meeting's */
    MUST(weft_finish(world) == 0);
    weft_release(world);
    MUST(open_descriptors() == before);
}

TEST(test_init_alone)
{
    char said[4000], wanted[100];
    in_child(alone, NULL, said, sizeof said);
    CHECK(!strstr(said, "world of"));
    setenv("WEFT_DEBUG", "INFO", 1);
    in_child(alone, NULL, said, sizeof said);
    setenv("WEFT_DEBUG", "NONE", 1);
    CHECK_CONTAINS(said, "world of 1 ranks, 1 on this host");
    CHECK_CONTAINS(said, "backend shm");
    CHECK_CONTAINS(said, "group \"0\" (");
    CHECK_CONTAINS(said, ") made: rank 0 of 1, world ranks 0, ");
    CHECK_CONTAINS(said, ", the world\n");
    snprintf(wanted, sizeof wanted, "weft %s, ", WEFT_VERSION); /* the first rank tells it */
    CHECK_CONTAINS(said, wanted);
    CHECK_CONTAINS(said, "WEFT_DEBUG=INFO (default ");
}

static void finishes(void *unwaited)
{
    weft_group *world = weft_init(NULL);
    MUST(world);
    atomic_store(&world->world->unwaited, unwaited ? 2 : 0);
    MUST(weft_finish(world) == 0);
}

/* Results that nobody has waited for are told as the rank leaves, with their number; else nothing. */
TEST(test_init_unwaited)
{
    static const char words[] = "finished while nobody had waited for the results of";
    char said[4000];
    setenv("WEFT_DEBUG", "INFO", 1);
    in_child(finishes, NULL, said, sizeof said);
    CHECK(!strstr(said, words));
    in_child(finishes, "two", said, sizeof said);
    setenv("WEFT_DEBUG", "NONE", 1);
    CHECK_CONTAINS(said, words);
    CHECK_CONTAINS(said, " of 2 operations\n");
}

/* In a folder of its own, in which it leaves nothing. */
static void without_a_trace(void *arg)
{
    char folder[] = "/tmp/weft-test-init-XXXXXX";
    MUST(mkdtemp(folder) && !chdir(folder));
    alone(arg);
    MUST(!chdir("/") && !rmdir(folder));
}

/* A trace that is written is no reason for a word; one that cannot be is told, and no error. */
TEST(test_init_trace)
{
    char said[4000], path[64];
    snprintf(path, sizeof path, "/tmp/weft-test-init-%d", getpid());
    setenv("WEFT_DEBUG", "WARN", 1);
    in_child(without_a_trace, NULL, said, sizeof said);
    CHECK_INT(strlen(said), 0);
    setenv("WEFT_TRACE", path, 1);
    in_child(alone, NULL, said, sizeof said);
    CHECK_INT(strlen(said), 0);
    snprintf(path, sizeof path, "/tmp/weft-test-init-%d.0", getpid()); /* of rank 0 */
    CHECK(!unlink(path));
    snprintf(path, sizeof path, "/tmp/weft-test-init-%d/none", getpid());
    setenv("WEFT_TRACE", path, 1);
    in_child(alone, NULL, said, sizeof said);
    CHECK_CONTAINS(said, "WARN");
    CHECK_CONTAINS(said, path);
    unsetenv("WEFT_TRACE");
    setenv("WEFT_DEBUG", "NONE", 1);
}

/* ---- with a page of weft run ---- */

static int sockets_fail;

static int no_socket(int domain, int type, int protocol)
{
    return sockets_fail ? (errno = EMFILE, -1) : weft_i_os_linux.socket(domain, type, protocol);
}

/* As the launcher tells it; the descriptor is a copy, as a child has it. */
static int launched(weft_i_segment *page, int rank, int size)
{
    char text[16];
    int fd = page ? fcntl(page->fd, F_DUPFD_CLOEXEC, 50) : 99;
    snprintf(text, sizeof text, "%d", fd);
    setenv("WEFT_JOB_FD", text, 1);
    snprintf(text, sizeof text, "%d", rank);
    setenv("RANK", text, 1);
    snprintf(text, sizeof text, "%d", size);
    setenv("WORLD_SIZE", text, 1);
    return fd;
}

static weft_i_segment *page_for(int ranks)
{
    weft_i_segment *page = NULL;
    MUST(weft_i_job_new(ranks, WEFT_I_BETWEEN_PROCESSES, &page) == WEFT_OK && page->fd >= 0);
    return page;
}

static uint32_t state_of(weft_i_segment *page, int rank)
{
    return atomic_load(&weft_i_job_rank(weft_i_job_of(page), rank)->life.state);
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static void enters_its_page(void *arg)
{
    (void)arg;
    weft_i_segment *page = page_for(1);
    int fd = launched(page, 0, 1);
    weft_group *world = weft_init(NULL);
    MUST(world && weft_size(world) == 1);
    MUST(!is_open(fd) && state_of(page, 0) == WEFT_I_RANK_HERE);
    int again = launched(page, 0, 1); /* the same number, of something else by now */
    MUST(!weft_init(NULL));
    SAYS(WEFT_ERR_STATE, "weft_init was called twice: this process has already entered its job");
    MUST(is_open(again) && state_of(page, 0) == WEFT_I_RANK_HERE);
    weft_clear_error();
    MUST(weft_finish(world) == 0 && state_of(page, 0) == WEFT_I_RANK_LEFT);
    weft_release(world);
    weft_i_segment_drop(page);
}

/* Any descriptor will do, also one that others take for the input. */
static void enters_by_descriptor_0(void *arg)
{
    (void)arg;
    weft_i_segment *page = page_for(1);
    close(launched(page, 0, 1));
    setenv("WEFT_JOB_FD", "0", 1);
    MUST(dup2(page->fd, 0) == 0);
    weft_group *world = weft_init(NULL);
    MUST(world && !is_open(0) && state_of(page, 0) == WEFT_I_RANK_HERE);
    MUST(weft_finish(world) == 0);
    weft_release(world);
    weft_i_segment_drop(page);
}

static void *no_mapping(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    if (fd < 0)
        return weft_i_os_linux.mmap(at, bytes, protection, flags, fd, offset);
    return errno = ENOMEM, MAP_FAILED;
}

static void cannot_map_its_page(void *arg)
{
    (void)arg;
    weft_i_segment *page = page_for(1);
    int before = open_descriptors(), fd = launched(page, 0, 1);
    table = weft_i_os_linux;
    table.mmap = no_mapping;
    weft_i_os_now = &table;
    MUST(!weft_init(NULL) && weft_last_status() == WEFT_ERR_NO_MEMORY);
    MUST(strstr(weft_last_error(), "cannot make shared memory of "));
    MUST(!is_open(fd) && open_descriptors() == before);
    weft_i_segment_drop(page);
}

/* A file that is sealed as a page is, and has nothing in it. */
static void has_an_empty_page(void *arg)
{
    (void)arg;
    int file = memfd_create("empty", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    MUST(file >= 0 && !fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW));
    MUST(dup2(file, 99) == 99);
    launched(NULL, 0, 1);
    MUST(!weft_init(NULL));
    MUST(!strstr(weft_last_error(), "is not an open job page"));
    fprintf(stderr, "%d %s", weft_last_status(), weft_last_error());
}

static void has_no_page(void *arg)
{
    (void)arg;
    launched(NULL, 0, 1);
    MUST(!weft_init(NULL));
    SAYS(WEFT_ERR_STATE,
         "WEFT_JOB_FD=99 is not an open job page: weft_init was called twice, or this program was "
         "started by a rank instead of by weft run");
}

static void has_another_file(void *arg)
{
    (void)arg;
    int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    MUST(dup2(fd, 99) == 99);
    launched(NULL, 0, 1);
    MUST(!weft_init(NULL) && weft_last_status() == WEFT_ERR_STATE);
    MUST(is_open(99)); /* it is not ours to close */
}

/* Whoever fails has told the others in the page, and left its own descriptor. */
static void has_another_size(void *arg)
{
    (void)arg;
    weft_i_segment *page = page_for(2);
    int before = open_descriptors(), fd = launched(page, 1, 3);
    MUST(!weft_init(NULL));
    SAYS(WEFT_ERR_MISMATCH, "WORLD_SIZE is 3 but weft run started 2 ranks");
    MUST(!is_open(fd) && open_descriptors() == before);
    MUST(state_of(page, 0) == WEFT_I_RANK_AWAITED && state_of(page, 1) == WEFT_I_RANK_FAILED);
    weft_i_segment_drop(page);
}

static void has_a_damaged_page(void *arg)
{
    (void)arg;
    weft_i_segment *page = page_for(2);
    weft_i_job_of(page)->magic++;
    int before = open_descriptors(), fd = launched(page, 1, 2);
    MUST(!weft_init(NULL) && weft_last_status() == WEFT_ERR_PROTOCOL);
    MUST(!is_open(fd) && open_descriptors() == before);
    MUST(state_of(page, 1) == WEFT_I_RANK_AWAITED); /* nobody writes to what is not known */
    weft_i_segment_drop(page);
}

static void has_no_sockets(void *arg)
{
    (void)arg;
    weft_i_segment *page = page_for(2);
    int before = open_descriptors(), fd = launched(page, 1, 2);
    table = weft_i_os_linux;
    table.socket = no_socket;
    sockets_fail = 1;
    weft_i_os_now = &table;
    MUST(!weft_init(NULL) && weft_last_status() == WEFT_ERR_LIMIT);
    MUST(!is_open(fd) && open_descriptors() == before);
    MUST(state_of(page, 1) == WEFT_I_RANK_FAILED);
    weft_i_segment_drop(page);
}

static int no_thread(pthread_t *thread, void *(*body)(void *), void *argument)
{
    (void)thread, (void)body, (void)argument;
    return EAGAIN;
}

/* Nobody could see that such a rank lives: also one without others is none. */
static void has_no_threads(void *arg)
{
    (void)arg;
    weft_i_segment *page = page_for(1);
    int before = open_descriptors(), fd = launched(page, 0, 1);
    table = weft_i_os_linux;
    table.thread_create = no_thread;
    weft_i_os_now = &table;
    MUST(!weft_init(NULL));
    SAYS(WEFT_ERR_LIMIT, "cannot start the watch thread: Resource temporarily unavailable");
    MUST(!is_open(fd) && open_descriptors() == before);
    MUST(state_of(page, 0) == WEFT_I_RANK_FAILED);
    weft_i_segment_drop(page);
}

/* Another rank cannot enter: that is what is told, not that it is missing. */
static void meets_a_failed_rank(void *arg)
{
    bool failed = arg != NULL;
    weft_i_segment *page = page_for(3);
    launched(page, 1, 3);
    if (failed)
        weft_i_job_note_failed(page->fd, 2);
    setenv("WEFT_MEET_TIMEOUT", "30", 1);
    MUST(!weft_init(NULL));
    MUST(weft_last_status() == (failed ? WEFT_ERR_PEER_LEFT : WEFT_ERR_MISSING));
    MUST(strstr(weft_last_error(), failed ? "rank 2" : "weft_init"));
    MUST(state_of(page, 1) == WEFT_I_RANK_LEFT || state_of(page, 1) == WEFT_I_RANK_FAILED);
    weft_i_segment_drop(page);
}

/* A rank gave up and left: those whom it waited for are the news. */
static void meets_one_that_gave_up(void *arg)
{
    (void)arg;
    weft_i_segment *page = page_for(4);
    launched(page, 1, 4);
    atomic_store(&weft_i_job_rank(weft_i_job_of(page), 2)->life.state, WEFT_I_RANK_LEFT);
    setenv("WEFT_MEET_TIMEOUT", "20000", 1);
    MUST(!weft_init(NULL) && weft_last_status() == WEFT_ERR_MISSING);
    static const char wanted[] = "weft_init: waited for rank 0 (never called weft_init), rank 3 "
                                 "(never called weft_init): ";
    MUST(!strncmp(weft_last_error(), wanted, strlen(wanted)));
    weft_i_segment_drop(page);
}

TEST(test_init_with_a_page)
{
    char said[4000];
    in_child(enters_its_page, NULL, NULL, 0);
    in_child(enters_by_descriptor_0, NULL, NULL, 0);
    in_child(cannot_map_its_page, NULL, NULL, 0);
    in_child(has_an_empty_page, NULL, said, sizeof said);
    in_child(has_no_page, NULL, NULL, 0);
    in_child(has_another_file, NULL, NULL, 0);
    in_child(has_another_size, NULL, NULL, 0);
    in_child(has_a_damaged_page, NULL, NULL, 0);
    in_child(has_no_sockets, NULL, NULL, 0);
    setenv("WEFT_DEBUG", "INFO", 1);
    in_child(has_no_threads, NULL, said, sizeof said);
    setenv("WEFT_DEBUG", "NONE", 1);
    CHECK(!strstr(said, "group")); /* it makes none to find that out */
}

TEST(test_init_others_do_not_come)
{
    in_child(meets_a_failed_rank, NULL, NULL, 0);
    in_child(meets_a_failed_rank, "failed", NULL, 0);
    in_child(meets_one_that_gave_up, NULL, NULL, 0);
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 1); /* errors are the point here */
    return harness_main(argc, argv);
}
