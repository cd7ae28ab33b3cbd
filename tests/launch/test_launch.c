/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: launch/launch.c, launch/launch_env.c, launch/attempt.c, launch/cause.c, launch/attempt_record.c */
/*
 * The launcher: weft_launch as a function, and `weft run` around this very program, which acts as a
 * rank when its first argument is "rank".  What a rank does is the next argument.
 */
#include "harness_ranks.h"

#include "base/report/os_look.h"
#include "base/share/segment.h"
#include "fabric/world/job.h"
#include "fault.h"
#include "launch_shell.h"

#include <poll.h>
#include <pty.h>
#include <sched.h>
#include <sys/stat.h>

/* ---- what ranks do ---- */

/* The rank's flight record in the job, emptied; NULL if there is none. */
static weft_i_record *own_record(int rank)
{
    weft_i_segment *segment = NULL;
    int fd = atoi(getenv("WEFT_JOB_FD"));
    struct stat status;
    if (fstat(fd, &status) ||
        weft_i_segment_map(fd, (size_t)status.st_size, (weft_i_key){{0}}, &segment) < 0 ||
        weft_i_job_check(segment, &(int){0}) < 0)
        return NULL;
    weft_i_record *record = &weft_i_job_rank(weft_i_job_of(segment), rank)->record;
    weft_i_record_init(record);
    return record;
}

/* Leaves a word in the flight record of the job, as a rank of weft does. */
static int rank_records(int rank)
{
    weft_i_record *record = own_record(rank);
    if (!record)
        return 9;
    weft_i_record_end(record, weft_i_record_begin(record, "barrier", 0, 0, -1, 1), 0);
    weft_i_record_begin(record, "all_reduce", 0, 4096, -1, 2);
    weft_i_record_end(record, weft_i_record_begin(record, "rendezvous", 0, 96, -1, -1), 0);
    return 0;
}

/* Rank 1 fails; the others are told of it, and end before it, with a code of their own. */
static int rank_is_told(int rank)
{
    weft_i_record *record = own_record(rank);
    if (rank == 1)
        return usleep(100000) ? 8 : 3;
    weft_i_record_end(record, weft_i_record_begin(record, "barrier", 0, 0, -1, 1),
                      WEFT_ERR_PEER_DEAD);
    weft_i_record_end(record, weft_i_record_begin(record, "finish", 0, 0, -1, -1), 0);
    return 9;
}

static atomic_int signals_seen;

static void count_signal(int signal)
{
    (void)signal;
    atomic_fetch_add_explicit(&signals_seen, 1, memory_order_relaxed); /* read by the same thread */
}

static int rank_awaits_signals(int rank)
{
    signal(SIGUSR1, count_signal);
    signal(SIGUSR2, count_signal);
    signal(SIGHUP, count_signal);
    dprintf(1, "ready %d %d\n", rank, getpid());
    while (atomic_load_explicit(&signals_seen, memory_order_relaxed) < 3)
        usleep(10000); /* the launcher ends it if they never come */
    dprintf(1, "signals %d\n", atomic_load_explicit(&signals_seen, memory_order_relaxed));
    /* Behind SIGHUP comes SIGCONT.  LeakSanitizer stops the process when it exits, and waits for ever
     * if that arrives then: it takes the stop back. */
    _exit(0);
}

static int count_cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) ? -1 : CPU_COUNT(&set);
}

/* Says what it is told, and stays.  A shell may lose a signal that comes while it starts a program. */
static int be_told(void)
{
    char word[32];
    if (fgets(word, sizeof word, stdin)) {
        printf("got %s", word);
        fflush(stdout);
    }
    sleep(60);
    return 0;
}

static int rank_main(const char *what)
{
    int rank = atoi(getenv("RANK"));
    if (!strcmp(what, "listen"))
        return be_told();
    if (!strcmp(what, "signals"))
        return rank_awaits_signals(rank);
    if (!strcmp(what, "cores"))
        return dprintf(1, "cores %d\n", count_cores()) < 0;
    if (!strcmp(what, "record-told"))
        return rank_is_told(rank);
    if (!strcmp(what, "record-hang"))
        return rank_records(rank) ? 9 : pause();
    if (!strcmp(what, "record-die")) {
        int failed = rank_records(rank);
        if (rank == 1 && !failed)
            raise(SIGKILL);
        return failed ? 9 : pause();
    }
    if (!strcmp(what, "stubborn")) {
        signal(SIGTERM, SIG_IGN);
        signal(SIGINT, SIG_IGN);
        dprintf(1, "ready %d %d\n", rank, getpid());
        return pause();
    }
    return 64;
}

TEST(test_launch_exit_status)
{
    CHECK_INT(shell("$W run -n 3 true"), 0);
    CHECK(!*out && !*err);
    CHECK_INT(shell("$W run -n 3 sh -c 'exit $((RANK == 1 ? 7 : 0))'"), 7);
    CHECK_CONTAINS(err, "weft: rank 1 of 3 failed first: exit code 7\n");
    CHECK_INT(shell("$W run sh -c 'kill -SEGV $$'"), 128 + SIGSEGV);
    CHECK_CONTAINS(err, "rank 0 of 1 failed: ended by SIGSEGV (Segmentation fault)");
    CHECK_INT(shell("$W run sh -c 'exit 42'"), 42);
    CHECK_CONTAINS(err, "exit code 42 (WEFT_ERR_MISMATCH: the ranks called different things)");
    CHECK_INT(shell("$W run -q sh -c 'exit 5'"), 5);
    CHECK(!*err);
    CHECK_INT(shell("$W run /no/such/program"), 127);
    CHECK_CONTAINS(err, "there is no program \"/no/such/program\"");
    CHECK_INT(shell("$W run /etc/passwd"), 125);
    CHECK_CONTAINS(err, "starting rank 0: /etc/passwd: Permission denied");
}

/* A library that is missing is not a program that is missing.  tests/install/run has the real
 * loader say it. */
TEST(test_launch_code_127)
{
    CHECK_INT(shell("$W run sh -c 'no-such-command-at-all'"), 127);
    CHECK_CONTAINS(err, "exit code 127 (a command or shared library was not found)\n");
    CHECK_INT(shell("$W run -n 2 sh -c 'echo \"./p: error while loading shared libraries: "
                    "libx.so.0: cannot open shared object file: No such file or directory\" >&2; "
                    "exit 127'"),
              127);
    CHECK_CONTAINS(err, "failed first: exit code 127 (the loader could not load libx.so.0)\n");
    CHECK_CONTAINS(err, "then rank");
    CHECK(!strstr(err, "not found"));
    CHECK_INT(shell("$W run sh -c 'echo \"Error loading shared library libm.so: No such\" >&2; "
                    "exit 127'"),
              127);
    CHECK_CONTAINS(err, "(the loader could not load libm.so)");
    char script[600], command[700];
    snprintf(script, sizeof script, "%s/orphan", folder);
    FILE *file = fopen(script, "w");
    CHECK(file && fputs("#!/no/such/interpreter\n", file) >= 0 && !fclose(file));
    CHECK(!chmod(script, 0755));
    snprintf(command, sizeof command, "$W run %s", script);
    CHECK_INT(shell("%s", command), 127);
    CHECK_CONTAINS(err, "the interpreter of \"");
    CHECK(!strstr(err, "there is no program"));
}

TEST(test_launch_wrong_use)
{
    static const char *const wrong[] = {"",
                                        "-n 0 true",
                                        "-n x true",
                                        "-n",
                                        "--wat true",
                                        "--tee true",
                                        "--timeout -1 true",
                                        "--timeout nan true",
                                        "-x =3 true",
                                        "--bind all true",
                                        "--max-restarts -1 true",
                                        "--timeoutx 3 true"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_INT(shell("$W run %s", wrong[i]), 2);
        CHECK_CONTAINS(err, "weft run --help");
    }
    CHECK_INT(shell("$W run --help"), 0);
    CHECK_CONTAINS(out, "usage: weft run");
}

TEST(test_launch_environment)
{
    CHECK_INT(shell("WEFT_RESTART_COUNT=8 RANK=9 $W run -n 2 -x A=1 -x B=x=y -x A=2 -x PATH env"),
              0);
    for (int rank = 0; rank < 2; rank++) {
        char line[64];
        snprintf(line, sizeof line, "[%d] RANK=%d\n", rank, rank);
        CHECK_CONTAINS(out, line);
        snprintf(line, sizeof line, "[%d] LOCAL_RANK=%d\n", rank, rank);
        CHECK_CONTAINS(out, line);
    }
    CHECK_INT(count(out, "] WORLD_SIZE=2\n"), 2);
    CHECK_INT(count(out, "] LOCAL_WORLD_SIZE=2\n"), 2);
    CHECK_INT(count(out, "] GROUP_RANK=0\n"), 2);
    CHECK_INT(count(out, "] MASTER_ADDR=127.0.0.1\n"), 2);
    CHECK_INT(count(out, "] MASTER_PORT="), 2);
    CHECK_INT(count(out, "] WEFT_RESTART_COUNT=0\n"), 2);
    CHECK_INT(count(out, "RANK=9"), 0);
    CHECK_INT(count(out, "] A=2\n"), 2);
    CHECK_INT(count(out, "] A=1\n"), 0);
    CHECK_INT(count(out, "] B=x=y\n"), 2);
}

TEST(test_launch_input_goes_to_rank_0)
{
    CHECK_INT(shell("printf 'one\\ntwo\\n' | $W run -n 3 cat"), 0);
    CHECK(!strcmp(out, "[0] one\n[0] two\n"));
}

/* ---- a kernel that counts a kill for want of memory ---- */

static weft_i_os counting_table;
static int looks, kills_after;

static int counting_open(const char *path, int flags, mode_t mode)
{
    char text[256], name[256];
    if (strcmp(path, "/proc/vmstat"))
        return weft_i_os_linux.open(path, flags, mode);
    snprintf(name, sizeof name, "%s/vmstat", folder);
    snprintf(text, sizeof text, "nr_free_pages 7\noom_kill %d\n", looks++ ? kills_after : 3);
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0 && write(fd, text, strlen(text)) > 0 && lseek(fd, 0, SEEK_SET) == 0);
    return fd;
}

static int kill_rank_1(int rank, void *arg)
{
    (void)arg;
    weft_i_os_now = &weft_i_os_linux;
    return rank == 1 ? raise(SIGKILL) : 0;
}

/* The report of a launch in which rank 1 is killed. */
static void report_kill(int kills)
{
    char path[256];
    weft_launch_opts opts = WEFT_LAUNCH_OPTS_INIT;
    opts.ranks = 2;
    opts.body = kill_rank_1;
    snprintf(path, sizeof path, "%s/err", folder);
    int to = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600), was = dup(2);
    dup2(to, 2);
    counting_table = weft_i_os_linux;
    counting_table.open = counting_open;
    looks = 0;
    kills_after = kills;
    weft_i_os_now = &counting_table;
    int result = weft_launch(&opts);
    weft_i_os_now = &weft_i_os_linux;
    dup2(was, 2);
    close(was);
    close(to);
    slurp("err", err, sizeof err);
    CHECK_INT(result, 128 + SIGKILL);
}

/* A kill for want of memory is told as such; one by hand is not. */
TEST(test_launch_out_of_memory)
{
    report_kill(4);
    CHECK_CONTAINS(err, "rank 1 of 2 failed first: ended by SIGKILL");
    CHECK_CONTAINS(err, "perhaps out of memory");
    report_kill(3);
    CHECK_CONTAINS(err, "rank 1 of 2 failed first: ended by SIGKILL");
    CHECK(!strstr(err, "out of memory"));
}

TEST(test_launch_first_failure)
{
    long long begin = harness_now();
    CHECK_INT(shell("WEFT_KILL_GRACE=100 $W run -n 4 sh -c 'if [ $RANK = 2 ]; then echo it broke "
                    ">&2; exit 3; fi; "
                    "sleep 60'"),
              3);
    CHECK((harness_now() - begin) / 1000000 < 20000);
    CHECK_CONTAINS(err, "weft: rank 2 of 4 failed first: exit code 3\n");
    CHECK_CONTAINS(err, "weft: the last lines of rank 2 on standard error:\nweft:   | it broke\n");
    CHECK_CONTAINS(err, "weft: then ranks 0 1 3: ended by SIGTERM (Terminated), on our request\n");
}

/* A rank that tells of another's death may be seen to end first; it is not the cause. */
TEST(test_launch_cause_not_consequence)
{
    CHECK_INT(
        shell("$W run -n 3 sh -c 'if [ $RANK = 1 ]; then sleep 0.1; kill -ABRT $$; fi; exit 40'"),
        128 + SIGABRT);
    CHECK_CONTAINS(err, "rank 1 of 3 failed first: ended by SIGABRT");
    CHECK_CONTAINS(err, "then ranks 0 2: exit code 40 (WEFT_ERR_PEER_DEAD: a rank died)\n");
}

/* The same if its program has exit codes of its own. */
TEST(test_launch_cause_not_told)
{
    CHECK_INT(shell("$W run -n 3 $S record-told"), 3);
    CHECK_CONTAINS(err, "rank 1 of 3 failed first: exit code 3\n");
    CHECK_CONTAINS(err, "then ranks 0 2: exit code 9\n");
}

TEST(test_launch_tells_flight_record)
{
    CHECK_INT(shell("WEFT_KILL_GRACE=50 $W run -n 2 $S record-die"), 128 + SIGKILL);
    CHECK_CONTAINS(err, "its last operations:\nweft:   | barrier #1 on group 0 channel 1, 0 bytes");
    CHECK_CONTAINS(err, "\nweft:   | all_reduce #2 on group 0 channel 2, 4096 bytes");
}

TEST(test_launch_timeout)
{
    int told = 0;
    for (double limit_s = 0.3; limit_s < 80 && told < 2; limit_s *= 4) { /* until both are there */
        CHECK_INT(shell("WEFT_KILL_GRACE=50 $W run -n 2 --timeout %g $S record-hang", limit_s),
                  124);
        CHECK_CONTAINS(
            err,
            "weft: the job's time is up; what its ranks are doing:\nweft: rank 0 is running\n");
        told = count(err, "all_reduce #2 on group 0 channel 2, 4096 bytes");
    }
    CHECK_INT(told, 2);
    CHECK_INT(count(err, "rendezvous"), 0); /* a part of it, newer and finished: not what they do */
    CHECK_INT(shell("WEFT_KILL_GRACE=50 $W run --timeout 0.2 $S stubborn"), 124);
}

/* The time that it takes to start many ranks counts, and who is not started by then is not. */
TEST(test_launch_timeout_while_starting)
{
    CHECK_INT(shell("WEFT_KILL_GRACE=50 $W run -n 256 --timeout 0.01 sleep 60"), 124);
    CHECK_CONTAINS(err, "weft: the job's time is up");
    CHECK_CONTAINS(err, "weft: of ranks 64-255 0 have ended, ");
    CHECK(!strstr(err, " 0 were not started yet"));
}

TEST(test_launch_restarts)
{
    CHECK_INT(shell("$W run -n 2 --max-restarts 3 --log-dir $D/logs --tee sh -c "
                    "'echo try $WEFT_RESTART_COUNT; [ $WEFT_RESTART_COUNT = 2 ]'"),
              0);
    CHECK_CONTAINS(out, "[1] try 2\n");
    CHECK_INT(count(out, "try 3"), 0);
    CHECK_CONTAINS(err, "starting all ranks again (2 of 3)");
    slurp("logs/rank_1.out", out, sizeof out);
    CHECK(!strcmp(out, "try 0\ntry 1\ntry 2\n"));
    CHECK_INT(shell("rm -r $D/logs; $W run --max-restarts 2 -n 2 false"), 1);
    CHECK_INT(count(err, "starting all ranks again"), 2);
}

TEST(test_launch_binds)
{
    CHECK_INT(shell("$W run -n 3 --bind core $S cores"), 0);
    CHECK_INT(count(out, "cores 1\n"), 3);
    CHECK_INT(shell("$W run -n 2 $S cores"), 0);
    char expected[32];
    snprintf(expected, sizeof expected, "cores %d\n", count_cores());
    CHECK_INT(count(out, expected), 2);
}

/* What should come at once is waited for as long as a test may take: a machine may be slow. */
enum { PATIENCE_MS = 45000 };

/* Waits until the file holds `wanted` lines with `part`. */
static bool wait_for(const char *name, const char *part, int wanted)
{
    for (int i = 0; i < PATIENCE_MS / 10; i++) {
        slurp(name, out, sizeof out);
        if (count(out, part) >= wanted)
            return true;
        usleep(10000);
    }
    return false;
}

/* Starts `weft run` in the background and waits until its ranks are ready. */
static pid_t start(const char *grace, int ranks, const char *what)
{
    char path[256], number[16];
    snprintf(path, sizeof path, "%s/bg", folder);
    snprintf(number, sizeof number, "%d", ranks);
    unlink(path);
    pid_t child = fork();
    if (child == 0) {
        int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
        dup2(fd, 1);
        dup2(fd, 2);
        setenv("WEFT_KILL_GRACE", grace, 1);
        signal(SIGINT, SIG_DFL); /* ignored in background jobs of shells, and under nohup; */
        signal(SIGHUP, SIG_DFL); /* the launcher respects that */
        execl(WEFT_COMMAND, "weft", "run", "-n", number, self, "rank", what, NULL);
        _exit(126);
    }
    return wait_for("bg", "ready", ranks) ? child : -1;
}

static int await(pid_t child)
{
    int status = 0, tries = PATIENCE_MS / 10;
    while (waitpid(child, &status, WNOHANG) == 0)
        if (tries-- > 0)
            usleep(10000);
        else
            kill(child, SIGKILL); /* the test fails by the status then */
    slurp("bg", out, sizeof out);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

TEST(test_launch_passes_signals)
{
    pid_t child = start("60000", 3, "signals");
    CHECK(child > 0);
    static const int sent[] = {SIGUSR1, SIGUSR2, SIGHUP};
    for (int i = 0; i < 3; i++) {
        kill(child, sent[i]);
        usleep(50000);
    }
    CHECK_INT(await(child), 0);
    CHECK_INT(count(out, "signals 3\n"), 3);
}

/* Has the process not taken a signal yet that was sent to it? */
static bool is_pending(pid_t process, int number)
{
    char path[64], line[256];
    unsigned long long pending = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)process);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "ShdPnd: %llx", &pending) == 1)
            break;
    if (file)
        fclose(file);
    return pending >> (number - 1) & 1;
}

TEST(test_launch_interrupted)
{
    pid_t child = start("60000", 2, "signals");
    CHECK(child > 0);
    kill(child, SIGTERM);
    CHECK_INT(await(child), 128 + SIGTERM);
    CHECK_CONTAINS(
        out, "weft: interrupted by SIGTERM\nweft: then ranks 0 1: ended by SIGTERM (Terminated)\n");
    child = start("60000", 2, "stubborn");
    CHECK(child > 0);
    kill(child, SIGINT);
    for (int i = 0; i < PATIENCE_MS / 10 && is_pending(child, SIGINT); i++)
        usleep(10000);   /* two that the launcher has not taken yet are one */
    kill(child, SIGINT); /* the second one kills, long before the grace is over */
    CHECK_INT(await(child), 128 + SIGKILL);
}

/* A rank that is stopped does not hear a signal that ends it: the launcher wakes it. */
TEST(test_launch_interrupted_while_stopped)
{
    int process = 0;
    pid_t child = start("60000", 2, "signals");
    const char *line = strstr(out, "ready 1 ");
    CHECK(child > 0 && line && sscanf(line, "ready 1 %d", &process) == 1);
    CHECK(kill(process, SIGSTOP) == 0);
    for (int i = 0; i < PATIENCE_MS / 10 && weft_i_os_process_state(process) != 'T'; i++)
        usleep(10000);
    CHECK(weft_i_os_process_state(process) == 'T');
    kill(child, SIGTERM);
    CHECK_INT(await(child), 128 + SIGTERM);
    CHECK_CONTAINS(
        out, "weft: interrupted by SIGTERM\nweft: then ranks 0 1: ended by SIGTERM (Terminated)\n");
}

/* Reads from the terminal until it has shown `part`. */
static bool shows(int terminal, const char *part)
{
    size_t used = strlen(out);
    struct pollfd look = {.fd = terminal, .events = POLLIN};
    while (!strstr(out, part) && poll(&look, 1, 10000) > 0) {
        ssize_t n = read(terminal, out + used, sizeof out - 1 - used);
        if (n <= 0)
            break;
        out[used += (size_t)n] = 0;
    }
    return strstr(out, part) != NULL;
}

/* On a terminal: colours, input for rank 0 although it is in the background, and ^Z and ^C for all.
 */
TEST(test_launch_terminal)
{
    int terminal = -1, status = 0;
    pid_t child = forkpty(&terminal, NULL, NULL, NULL);
    if (child < 0)
        SKIP("no terminal to be had");
    if (child == 0) {
        setenv("TERM", "xterm", 1);
        signal(SIGINT, SIG_DFL);
        signal(SIGTSTP, SIG_DFL);
        unsetenv("NO_COLOR");
        execl(WEFT_COMMAND, "weft", "run", "-n", "2", self, "rank", "listen", NULL);
        _exit(126);
    }
    out[0] = 0;
    bool typed = write(terminal, "word\n", 5) == 5,
         fed = shows(terminal, "\033[36m[0]\033[0m got word\r\n");
    bool stopped = write(terminal, "\x1a", 1) == 1 && waitpid(child, &status, WUNTRACED) == child &&
                   WIFSTOPPED(status);
    kill(child, SIGCONT);
    bool ended = write(terminal, "\x03", 1) == 1 && shows(terminal, "interrupted by SIGINT");
    kill(child, ended ? 0 : SIGKILL);
    waitpid(child, &status, 0);
    close(terminal);
    CHECK(typed && fed);
    CHECK(stopped);
    CHECK(ended);
    CHECK_INT(WEXITSTATUS(status), 128 + SIGINT);
}

static bool is_gone(int process)
{
    for (int i = 0; i < 500; i++) {
        char state = weft_i_os_process_state(process);
        if (!state || state == 'Z') /* whoever adopts it reaps it when it likes */
            return true;
        usleep(10000);
    }
    return false;
}

TEST(test_launch_launcher_killed)
{
    pid_t child = start("2000", 4, "stubborn");
    CHECK(child > 0);
    kill(child, SIGKILL);
    CHECK_INT(await(child), 1000 + SIGKILL);
    int seen = 0, rank, process;
    for (const char *at = out; (at = strstr(at, "ready ")); at++)
        if (sscanf(at, "ready %d %d", &rank, &process) == 2) {
            CHECK(is_gone(process));
            seen++;
        }
    CHECK_INT(seen, 4);
}

TEST(test_launch_grandchildren_end)
{
    int process = 0;
    /* One that keeps the pipe open, then one that does not. */
    CHECK_INT(shell("WEFT_KILL_GRACE=200 $W run sh -c 'sleep 60 & echo $!'"), 0);
    CHECK(sscanf(out, "[0] %d", &process) == 1 && is_gone(process));
    CHECK_INT(shell("$W run sh -c 'sleep 60 >/dev/null 2>&1 & echo $!'"), 0);
    CHECK(sscanf(out, "[0] %d", &process) == 1 && is_gone(process));
    /* What a rank leaves running may finish its output within the grace. */
    CHECK_INT(shell("$W run sh -c '(sleep 0.2; echo late) & echo early'"), 0);
    CHECK(!strcmp(out, "[0] early\n[0] late\n"));
}

TEST(test_launch_passes_no_stray_descriptors)
{
    CHECK_INT(shell("ls /proc/self/fd >$D/base; $W run -n 3 ls /proc/self/fd"), 0);
    static char base[4096];
    slurp("base", base, sizeof base);
    CHECK_INT(count(out, "[2] "), count(base, "\n") + 1); /* the job's page is the one more */
}

/* ---- weft_launch itself ---- */

static int add_rank(int rank, void *arg)
{
    char name[16];
    snprintf(name, sizeof name, "%d", rank);
    bool told = getenv("RANK") && !strcmp(getenv("RANK"), name);
    atomic_fetch_add_explicit((atomic_int *)arg, rank + 1,
                              memory_order_relaxed); /* read after the launch */
    return !told;
}

static int fail_in_1(int rank, void *arg)
{
    (void)arg;
    return rank == 1 ? -WEFT_ERR_TIMEOUT : 0;
}

TEST(test_launch_function)
{
    weft_launch_opts opts = WEFT_LAUNCH_OPTS_INIT;
    weft_launch_end end;
    atomic_int *sum = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(sum != MAP_FAILED);
    opts.ranks = 4;
    opts.body = add_rank;
    opts.arg = sum;
    opts.end = &end;
    CHECK_INT(weft_launch(&opts), 0);
    CHECK_INT(atomic_load_explicit(sum, memory_order_relaxed), 10);
    CHECK_INT(end.first_rank, -1);
    munmap(sum, 4096);
    opts.body = fail_in_1;
    opts.flags = WEFT_LAUNCH_QUIET | WEFT_LAUNCH_NO_CAPTURE;
    CHECK_INT(weft_launch(&opts), 22);
    CHECK_INT(end.first_rank, 1);
    CHECK_INT(end.exit_code, 22);
    CHECK_INT(end.signal, 0);
}

TEST(test_launch_refuses)
{
    weft_launch_opts opts = WEFT_LAUNCH_OPTS_INIT;
    CHECK_STATUS(weft_launch(NULL), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_launch(&opts), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "either a program or a function");
    opts.body = fail_in_1;
    opts.ranks = 0;
    CHECK_STATUS(weft_launch(&opts), WEFT_ERR_INVALID_ARG);
    opts.ranks = 1;
    opts.env = (const char *const[]){"NOVALUE", NULL};
    CHECK_STATUS(weft_launch(&opts), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "\"NOVALUE\" is not NAME=VALUE");
}

static int list_descriptors(int rank, void *arg)
{
    (void)rank;
    unsigned char open_ones[1024];
    harness_descriptors(open_ones, NULL);
    int job = atoi(getenv("WEFT_JOB_FD"));
    open_ones[job] = 0;
    return memcmp(open_ones, arg, sizeof open_ones) != 0;
}

static int do_nothing(int rank, void *arg)
{
    (void)rank;
    (void)arg;
    return 0;
}

static void check_nothing_left(const unsigned char *before)
{
    unsigned char after[1024];
    CHECK_INT(harness_descriptors(after, before), -1);
    CHECK(!memcmp(before, after, sizeof after));
    CHECK_INT(waitpid(-1, NULL, WNOHANG), -1);
    CHECK_INT(errno, ECHILD);
}

TEST(test_launch_function_descriptors)
{
    weft_launch_opts opts = WEFT_LAUNCH_OPTS_INIT;
    unsigned char before[1024];
    harness_descriptors(before, NULL);
    opts.ranks = 3;
    opts.flags = WEFT_LAUNCH_SIGNALS;
    opts.body = list_descriptors;
    opts.arg = before;
    CHECK_INT(weft_launch(&opts), 0);
    check_nothing_left(before);
}

TEST(test_launch_thousand)
{
    weft_launch_opts opts = WEFT_LAUNCH_OPTS_INIT;
    char *const program[] = {(char *)"true", NULL};
    unsigned char before[1024];
    sigset_t mask_before, mask_after;
    memset(&mask_before, 0, sizeof mask_before); /* the system fills less than all of it */
    memset(&mask_after, 0, sizeof mask_after);
    sigprocmask(SIG_BLOCK, NULL, &mask_before);
    harness_descriptors(before, NULL);
    for (int i = 0; i < 1000; i++) {
        opts.argv = i % 4 == 0 ? program : NULL;
        opts.body = i % 4 == 0 ? NULL : do_nothing;
        opts.flags = i % 2 ? WEFT_LAUNCH_SIGNALS : 0;
        CHECK_INT(weft_launch(&opts), 0);
    }
    check_nothing_left(before);
    sigprocmask(SIG_BLOCK, NULL, &mask_after);
    CHECK(!memcmp(&mask_before, &mask_after, sizeof mask_before));
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void start_and_end_4(int how)
{
    weft_launch_opts opts = WEFT_LAUNCH_OPTS_INIT;
    char *const program[] = {(char *)"/bin/true", NULL};
    opts.ranks = 4;
    opts.argv = how == 2 ? program : NULL;
    opts.body = how == 2 ? NULL : do_nothing;
    if (how) {
        weft_launch(&opts);
        return;
    }
    for (int i = 0; i < 4; i++)
        if (fork() == 0)
            _exit(0);
    while (wait(NULL) > 0)
        ;
}

/* Shows what four ranks cost; held only to a bound that waiting for a timer would break. */
TEST(test_launch_cost)
{
    enum { TIMES = 21 };
    static const char *const names[] = {"4 times fork and exit", "weft_launch of a function",
                                        "weft_launch of true"};
    double ms[TIMES];
    for (int how = 0; how < 3; how++) {
        for (int i = 0; i < TIMES; i++) {
            long long begin = harness_now();
            start_and_end_4(how);
            ms[i] = (double)(harness_now() - begin) / 1e6;
        }
        qsort(ms, TIMES, sizeof *ms, compare);
        printf("# %s: median %.2f ms\n", names[how], ms[TIMES / 2]);
        CHECK(ms[TIMES / 2] < 1000);
    }
}

static int say_something(int rank, void *arg)
{
    (void)arg;
    /* Plainly, so that the rank itself is not the one whose call fails. */
    ssize_t n = write(2, "a line\n", 7);
    return n == 7 ? 0 : rank + 20;
}

/* Every call that can fail is made to fail once: a clear error or success, and nothing is left. */
static int fail_each_call(weft_launch_opts *opts)
{
    unsigned char before[1024];
    harness_descriptors(before, NULL);
    for (int n = 1; n < 1000; n++) {
        weft_clear_error();
        fault_arm(n);
        int result = weft_launch(opts);
        bool fired = fault_disarm();
        CHECK(result >= 0 || strlen(weft_last_error()) > 10);
        check_nothing_left(before);
        if (!fired) {
            CHECK_INT(result, 0);
            return n;
        }
    }
    return -1;
}

TEST(test_launch_each_call_fails)
{
    weft_launch_opts opts = WEFT_LAUNCH_OPTS_INIT;
    char logs[64], *const program[] = {(char *)"sh", (char *)"-c", (char *)"echo a line >&2", NULL};
    setenv("WEFT_DEBUG", "NONE", 1);
    setenv("WEFT_KILL_GRACE", "100", 1);
    snprintf(logs, sizeof logs, "%s/fault", folder);
    opts.ranks = 3;
    opts.flags = WEFT_LAUNCH_SIGNALS | WEFT_LAUNCH_QUIET;
    opts.log_dir = logs;
    opts.body = say_something;
    int calls = fail_each_call(&opts);
    CHECK(calls > 30);
    opts.body = NULL;
    opts.argv = program;
    CHECK(fail_each_call(&opts) > 30);
    opts.log_dir = NULL; /* to standard error: this test shows a few lines there */
    CHECK(fail_each_call(&opts) > 30);
    unsetenv("WEFT_KILL_GRACE");
    CHECK_INT(shell("rm -r $D/fault"), 0);
}

int main(int argc, char **argv)
{
    return launch_main(argc, argv, rank_main);
}
