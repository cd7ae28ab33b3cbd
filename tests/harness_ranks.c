/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the ranks of a test and judges how they ended; see harness_ranks.h. */
#include "harness_ranks.h"

#include "backends/ucx/wire.h"
#include "base/os/os.h"
#include "free_port.h"
#include "sanitized.h"

#include <poll.h>

harness_rank *harness_ranks;
const harness_test *harness_current;
_Thread_local int harness_this_rank;
int harness_in_threads;
int harness_hosts, harness_host_sizes[HARNESS_HOSTS_MAX];
static int harness_port;                         /* where ranks of several hosts meet */
static volatile sig_atomic_t harness_time_is_up; /* it was told to end */

void harness_rank_dies(void)
{
    harness_ranks[harness_this_rank].dies = 1;
}

/* Release: pairs with the load in harness_marks_of. */
void harness_mark(void)
{
    atomic_fetch_add_explicit(&harness_ranks[harness_this_rank].marks, 1, memory_order_release);
}

int harness_marks_of(int rank)
{
    /* Acquire: see harness_mark. */
    return atomic_load_explicit(&harness_ranks[rank].marks, memory_order_acquire);
}

int harness_marks(void)
{
    int marks = 0;
    for (int rank = 0; rank < harness_current->ranks; rank++)
        marks += harness_marks_of(rank);
    return marks;
}

bool harness_await(int rank, int marks)
{
    for (int ms = 0; ms < 20000 && harness_marks_of(rank) < marks; ms++)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    return harness_marks_of(rank) >= marks;
}

void harness_await_marks(int marks)
{
    while (harness_marks() < marks) {
        for (int rank = 0; rank < harness_current->ranks; rank++)
            if (atomic_load_explicit(&harness_ranks[rank].failed, memory_order_relaxed))
                FAIL("%d of %d marks came before rank %d failed", harness_marks(), marks, rank);
        nanosleep(&(struct timespec){0, 100000}, NULL);
    }
}

long long harness_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long long)now.tv_sec * 1000000000 + now.tv_nsec;
}

int harness_descriptors(unsigned char open[1024], const unsigned char *before)
{
    int surplus = -1;
    DIR *list = opendir("/proc/self/fd");
    memset(open, 0, 1024);
    for (struct dirent *entry; list && (entry = readdir(list));) {
        int fd = atoi(entry->d_name);
        if (entry->d_name[0] == '.' || fd == dirfd(list) || fd >= 1024)
            continue;
        open[fd] = 1;
        if (before && !before[fd] && surplus < 0)
            surplus = fd;
    }
    if (list)
        closedir(list);
    const char *cuda =
        getenv("WEFT_TEST_CUDA"); /* the driver keeps its own until the process ends */
    /* So does UCX, with those of workers that it must not destroy yet (backends/ucx/transport.c). */
    return harness_hosts || (cuda && !strcmp(cuda, "real")) ? -1 : surplus;
}

static void harness_leaked_descriptor(char *out, size_t bytes, int fd)
{
    char path[64], target[256] = "?";
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(path, target, sizeof target - 1);
    target[n > 0 ? n : 0] = 0;
    snprintf(out, bytes, "descriptor %d (%s) was left open", fd, target);
}

/* The body of one rank, in its process or thread, inside a scope of its own. */
static int harness_run_rank(int rank)
{
    harness_rank *mine = &harness_ranks[rank];
    harness_this_rank = rank;
    harness_reason[0] = 0;
    weft_scope_open();
    int outcome = setjmp(harness_out);
    if (outcome == HARNESS_PASS)
        harness_current->ranks_body(rank, harness_current->ranks);
    weft_scope_close();
    mine->when = harness_now();
    memcpy(mine->reason, harness_reason, sizeof mine->reason);
    mine->outcome = outcome;
    atomic_store_explicit(&mine->failed, outcome == HARNESS_FAIL, memory_order_relaxed);
    return outcome == HARNESS_FAIL;
}

/* ---- told to end ---- */

/* SIGTERM to the harness lets the launcher's deadline come: its clock leaps to it. */
static int64_t harness_limit_ns;
static weft_i_os harness_table;
static const weft_i_os *harness_table_before;

static void harness_hear_the_end(int signal)
{
    (void)signal;
    harness_time_is_up = 1;
}

static int64_t harness_clock(void)
{
    return harness_table_before->clock_ns() + (harness_time_is_up ? harness_limit_ns : 0);
}

/* Wakes now and then, to hear of it. */
static int harness_poll(struct pollfd *fds, nfds_t count, int ms)
{
    static bool told;
    int result = harness_table_before->poll(fds, count, ms < 0 || ms > 500 ? 500 : ms);
    if (harness_time_is_up && !told) {
        fprintf(stderr, "told to end; by the clock, all has begun %lld s later than is said here\n",
                (long long)(harness_limit_ns / 1000000000));
        told = true;
    }
    return result;
}

/* The ranks' clock is not the launcher's. */
static void harness_give_table_back(void)
{
    signal(SIGTERM, SIG_DFL);
    weft_i_os_now = harness_table_before;
}

static int harness_launch(const weft_launch_opts *opts)
{
    harness_table_before = weft_i_os_now;
    harness_table = *weft_i_os_now;
    harness_table.clock_ns = harness_clock;
    harness_table.poll = harness_poll;
    harness_limit_ns = opts->timeout_ms * 1000000;
    weft_i_os_now = &harness_table;
    signal(SIGTERM, harness_hear_the_end);
    int result = weft_launch(opts);
    harness_give_table_back();
    return result;
}

/* ---- what is left behind ---- */

/* A helper thread may still be dropping what a test has abandoned: it gets some time. */
static int harness_leaves_nothing(harness_rank *rank, const unsigned char *before)
{
    unsigned char after[1024];
    int surplus = harness_descriptors(after, before);
    for (int i = 0; i < 50 && surplus >= 0; i++) {
        nanosleep(&(struct timespec){0, 10000000}, NULL);
        surplus = harness_descriptors(after, before);
    }
    if (surplus >= 0)
        harness_leaked_descriptor(rank->reason, sizeof rank->reason, surplus);
    else if (__lsan_do_recoverable_leak_check && __lsan_do_recoverable_leak_check())
        snprintf(rank->reason, sizeof rank->reason, "memory was leaked; standard error tells");
    else
        return 1;
    rank->outcome = HARNESS_FAIL;
    return 0;
}

/* ---- several hosts ---- */

/* One of the two spreads that most tests know: by the seed of the run, and not the same for all tests of it. */
static const char *harness_draw_spread(const char *name)
{
    const char *seed = getenv("HARNESS_SEED");
    unsigned long draw = seed ? strtoul(seed, NULL, 10) : 0;
    for (; seed && *name; name++)
        draw += (unsigned char)*name;
    return draw % 2 ? "uneven" : "even";
}

/* "2+1": how the ranks of the test are spread; "even": over two hosts; "uneven": all but one are on the first.
 * False: they are not as many. */
static int harness_spread(const char *sizes, int ranks)
{
    int sum = 0, here = !strcmp(sizes, "uneven") ? ranks - 1 : (ranks + 1) / 2;
    harness_hosts = 0;
    if (!strcmp(sizes, "even") || !strcmp(sizes, "uneven")) {
        harness_host_sizes[0] = here, harness_host_sizes[1] = ranks - here, harness_hosts = 2;
        return 1;
    }
    for (const char *c = sizes; *c && harness_hosts < HARNESS_HOSTS_MAX; c += strcspn(c, "+")) {
        c += *c == '+';
        sum += harness_host_sizes[harness_hosts++] = atoi(c);
    }
    return sum == ranks && harness_host_sizes[harness_hosts - 1] > 0;
}

static void harness_set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

/* What a launcher of several hosts would say to this rank. */
static void harness_pretend(int rank)
{
    int host = 0, first = 0;
    char name[16];
    while (rank >= first + harness_host_sizes[host])
        first += harness_host_sizes[host++];
    snprintf(name, sizeof name, "host%d", host);
    unsetenv("WEFT_JOB_FD");
    setenv("WEFT_HOST_ID", name, 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("WEFT_TOKEN", "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff", 1);
    harness_set_number("MASTER_PORT", harness_port);
    harness_set_number("RANK", rank);
    harness_set_number("WORLD_SIZE", harness_current->ranks);
    harness_set_number("LOCAL_RANK", rank - first);
    harness_set_number("LOCAL_WORLD_SIZE", harness_host_sizes[host]);
    harness_set_number("GROUP_RANK", host);
}

static int harness_process_rank(int rank, void *unused)
{
    (void)unused;
    unsigned char before[1024];
    if (harness_hosts)
        harness_pretend(rank);
    harness_give_table_back();
    harness_descriptors(before, NULL);
    int failed = harness_run_rank(rank);
    return failed || !harness_leaves_nothing(&harness_ranks[rank], before);
}

static const weft_i_seat
    *harness_a_place; /* of some rank: leads to the records of all when time is up */

static int harness_thread_rank(void *unused)
{
    (void)unused;
    const weft_i_seat *place = weft_i_spawn_seat();
    __atomic_store_n(&harness_a_place, place,
                     __ATOMIC_RELEASE); /* pairs with the load in the handler */
    return harness_run_rank(place->rank);
}

/* Not safe in a handler in general; here the test has failed already and everything ends. */
static void harness_tell_records(int signal)
{
    const weft_i_seat *place = __atomic_load_n(&harness_a_place, __ATOMIC_ACQUIRE);
    for (int rank = 0; place && rank < harness_current->ranks; rank++) {
        const weft_i_record *record = &weft_i_job_rank(weft_i_job_of(place->job), rank)->record;
        weft_i_record_entry entry;
        char text[256] = "nothing recorded";
        if (weft_i_record_last(record, &entry))
            weft_i_record_text(record, &entry, text, sizeof text);
        fprintf(stderr, "rank %d: %s\n", rank, text);
    }
    _exit(128 + signal);
}

static int harness_all_threads(int rank, void *unused)
{
    (void)rank;
    (void)unused;
    unsigned char before[1024];
    harness_give_table_back();
    signal(SIGTERM, harness_tell_records);
    harness_descriptors(before, NULL);
    int result = weft_spawn(harness_current->ranks, harness_thread_rank, NULL);
    if (result < 0) {
        snprintf(harness_ranks[0].reason, sizeof harness_ranks[0].reason, "weft_spawn: %s",
                 weft_last_error());
        harness_ranks[0].outcome = HARNESS_FAIL;
    }
    return result != 0 || !harness_leaves_nothing(&harness_ranks[0], before);
}

/* Says why the test failed: the failure that came first, a rank that said nothing, or an exit
 * status that is not 0 though all ranks passed (ThreadSanitizer ends so).  False if it did not. */
static int harness_find_failure(const weft_launch_end *end, int result, char *reason, size_t bytes)
{
    const harness_rank *worst = NULL;
    int silent = -1, dies = 0;
    for (int i = 0; i < harness_current->ranks; i++) {
        const harness_rank *rank = &harness_ranks[i];
        if (rank->outcome == HARNESS_FAIL && (!worst || rank->when < worst->when))
            worst = rank;
        if (rank->outcome == HARNESS_NOTHING && !rank->dies && silent < 0)
            silent = i;
        dies |= rank->dies;
    }
    if (result < 0)
        snprintf(reason, bytes, "could not be launched: %s", weft_last_error());
    else if (end->timed_out && harness_time_is_up)
        snprintf(reason, bytes,
                 "was told to end%s%s; standard error tells what the ranks were doing",
                 worst ? ", after: " : "", worst ? worst->reason : "");
    else if (end->timed_out && !worst)
        snprintf(
            reason, bytes,
            "took longer than HARNESS_TIMEOUT; standard error tells what the ranks were doing");
    else if (end->timed_out)
        snprintf(reason, bytes, "took longer than HARNESS_TIMEOUT, after rank %d: %s",
                 (int)(worst - harness_ranks), worst->reason);
    else if (worst)
        snprintf(reason, bytes, "rank %d: %s", (int)(worst - harness_ranks), worst->reason);
    else if (silent >= 0)
        snprintf(reason, bytes, "rank %d ended early; first to fail: rank %d, %s %d", silent,
                 end->first_rank, end->signal ? "signal" : "exit code",
                 end->signal ? end->signal : end->exit_code);
    else if (result > 0 && !dies)
        snprintf(reason, bytes,
                 "ended with status %d after its ranks had passed; standard error tells", result);
    else
        return 0;
    return 1;
}

static int harness_judge(const weft_launch_end *end, int result, char *reason, size_t bytes)
{
    if (harness_find_failure(end, result, reason, bytes))
        return HARNESS_FAIL;
    for (int i = 0; i < harness_current->ranks; i++)
        if (harness_ranks[i].outcome == HARNESS_SKIP) {
            snprintf(reason, bytes, "%s", harness_ranks[i].reason);
            return HARNESS_SKIP;
        }
    return HARNESS_PASS;
}

/* Children, and orphans, whose parent we are made.  Who killed a rank is at its end by then, but on a
 * busy machine it may not have come to it yet: it has a second. */
static int harness_leaves_processes(void)
{
    enum { PATIENCE_MS = 1000 };
    for (int ms = 0; ms <= PATIENCE_MS; ms++) {
        pid_t child;
        while ((child = waitpid(-1, NULL, WNOHANG)) > 0)
            ;
        if (child < 0)
            return 0;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    return 1;
}

/* After a test: no process and no descriptor more than before. */
static int harness_check_leftovers(const unsigned char *before, int outcome, char *reason,
                                   size_t bytes)
{
    unsigned char after[1024];
    int surplus = harness_descriptors(after, before);
    if (harness_leaves_processes()) {
        size_t at = outcome == HARNESS_FAIL ? strlen(reason) : 0; /* what came before stays */
        snprintf(reason + at, bytes - at, "%sprocesses were left running", at ? "; " : "");
        return HARNESS_FAIL;
    }
    if (outcome == HARNESS_FAIL || surplus < 0)
        return outcome;
    harness_leaked_descriptor(reason, bytes, surplus);
    return HARNESS_FAIL;
}

static int harness_run_backend(const char *backend, int processes,
                               int (*body)(int rank, void *unused))
{
    weft_launch_opts opts = WEFT_LAUNCH_OPTS_INIT;
    weft_launch_end end = {.first_rank = -1};
    unsigned char before[1024];
    char reason[1200] = "";
    const char *limit = getenv("HARNESS_TIMEOUT");
    opts.ranks = processes;
    harness_in_threads = !strcmp(backend, "threads");
    opts.body = body;
    opts.end = &end;
    opts.timeout_ms = (limit ? atoi(limit) : 60) * 1000LL;
    memset(harness_ranks, 0, HARNESS_RANKS_MAX * sizeof *harness_ranks);
    for (int i = 0; i < harness_current->ranks; i++)
        harness_ranks[i].outcome = HARNESS_NOTHING;
    harness_descriptors(before, NULL);
    int result = harness_launch(&opts);
    int outcome = harness_judge(&end, result, reason, sizeof reason);
    outcome = harness_check_leftovers(before, outcome, reason, sizeof reason);
    const char *label = harness_current->label ? harness_current->label(backend) : backend;
    int failed =
        harness_report(harness_current->name, label, harness_current->ranks, outcome, reason);
    if (harness_time_is_up) /* no other test begins */
        exit(1);
    return failed;
}

/* The memory that UCX forgets is suppressed by the name of its library, for which LeakSanitizer asks where a
 * caller of malloc is.  gcc's reads the symbols and lines of all libraries for the first such question of a
 * process, which takes longer than most ranks live.  Ranks inherit what was read before they were there. */
#if SANITIZED_ADDRESS && !defined __clang__
static int harness_run_hosts(const harness_test *test);
__attribute__((weak)) void __sanitizer_symbolize_pc(void *pc, const char *format, char *out,
                                                    size_t bytes);

static void harness_read_symbols(void)
{
    char text[256];
    if (__sanitizer_symbolize_pc)
        __sanitizer_symbolize_pc((void *)harness_run_hosts, "%f", text, sizeof text);
}
#else
static void harness_read_symbols(void)
{
}
#endif

/* Can messages go between hosts here?  A child loads UCX and says so. */
static int harness_has_ucx(char *reason, size_t bytes)
{
    static int usable = -1;
    static char why[192];
    if (usable < 0) {
        char *told = (char *)harness_ranks; /* shared, and not in use yet */
        pid_t child = fork();
        if (!child)
            _exit(weft_i_ucx_transport.probe(told, sizeof why) > 0 ? 0 : 1);
        int status = 1;
        waitpid(child, &status, 0);
        usable = status == 0;
        snprintf(why, sizeof why, "%s", told);
        if (usable)
            harness_read_symbols();
    }
    snprintf(reason, bytes, "%s", why);
    return usable;
}

static int harness_run_hosts(const harness_test *test)
{
    const char *sizes = getenv("WEFT_TEST_HOSTS"), *own = test->hosts ? test->hosts : "";
    char reason[200];
    if (!sizes || !*sizes)
        sizes = harness_draw_spread(test->name);
    if (*own)
        sizes = own;
    if (test->ranks < 2)
        return 0;
    if (!harness_has_ucx(reason, sizeof reason))
        return harness_report(test->name, "ucx", test->ranks, HARNESS_SKIP, reason);
    if (!harness_spread(sizes, test->ranks))
        harness_spread("even", test->ranks);
    harness_port = free_port();
    int failed = harness_run_backend("ucx", test->ranks, harness_process_rank);
    harness_hosts = 0;
    return failed;
}

static int harness_wants_backend(const char *name)
{
    const char *allowed = getenv("WEFT_TEST_BACKENDS");
    return (!harness_backend || !strcmp(harness_backend, name)) &&
           (!allowed || !*allowed || strstr(allowed, name));
}

int harness_run_ranks(const harness_test *test)
{
    int failures = 0;
    harness_current = test;
    if (!harness_ranks) {
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
        harness_ranks = mmap(NULL, HARNESS_RANKS_MAX * sizeof *harness_ranks,
                             PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (harness_ranks == MAP_FAILED || test->ranks > HARNESS_RANKS_MAX)
            return harness_report(test->name, "-", test->ranks, HARNESS_FAIL,
                                  "no memory for its ranks, or too many");
    }
    bool asked =
        harness_backend && !strcmp(harness_backend, "ucx"); /* any test, to see how far it gets */
    if ((test->hosts || asked) && harness_wants_backend("ucx"))
        failures += harness_run_hosts(test);
    if (test->only_hosts)
        return failures;
    if (harness_wants_backend("shm"))
        failures += harness_run_backend("shm", test->ranks, harness_process_rank);
    if (harness_wants_backend("threads"))
        failures += harness_run_backend("threads", 1, harness_all_threads);
    return failures;
}
