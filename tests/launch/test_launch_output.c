/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: launch/lines.c, launch/stdin.c, launch/attempt.c */
/* What `weft run` does with the output of the ranks: whole lines, slow and absent readers, logs. */
#include "harness_ranks.h"

#include "launch_shell.h"

#include "launch/stdin.h"

#include <fcntl.h>
#include <poll.h>

enum { LINES = 5000 };

/* Line `i` of a rank: its length varies from 0 to some thousand bytes, its bytes tell rank and
 * place. */
static size_t make_line(int rank, int i, char *line)
{
    size_t length = (size_t)((i * 37 + rank * 11) % 97);
    if (i % 1000 == 999)
        length = 70000; /* more than a pipe holds */
    for (size_t k = 0; k < length; k++)
        line[k] = (char)('!' + (rank * 7 + i + (int)k) % 90);
    line[length] = '\n';
    return length + 1;
}

static int rank_writes(int rank, int fd)
{
    static char line[1 << 17];
    for (int i = 0; i < LINES; i++) {
        size_t length = make_line(rank, i, line);
        for (size_t done = 0; done < length;) {
            /* Now and then in two pieces, so that lines arrive cut. */
            size_t piece = i % 3 == 0 && done == 0 && length > 2 ? length / 2 : length - done;
            ssize_t n = write(fd, line + done, piece);
            if (n <= 0)
                return 9;
            done += (size_t)n;
        }
    }
    return 0;
}

static int rank_main(const char *what)
{
    int rank = atoi(getenv("RANK"));
    if (!strcmp(what, "writes"))
        return rank_writes(rank, 1);
    if (!strcmp(what, "writes-both"))
        return rank_writes(rank, rank % 2 + 1);
    return 64;
}

/* Checks that `text` holds exactly the lines of ranks 0 .. ranks - 1 (of one parity, if `step` is
 * 2), each in order. */
static void check_lines(const char *text, int first, int ranks, int step)
{
    static char line[1 << 17];
    int next[8] = {0};
    const char *at = text;
    while (*at) {
        int rank = at[0] == '[' ? at[1] - '0' : -1;
        CHECK(rank >= first && rank < ranks && (rank - first) % step == 0);
        CHECK(at[2] == ']' && at[3] == ' ');
        size_t length = make_line(rank, next[rank]++, line);
        CHECK(!strncmp(at + 4, line, length));
        at += 4 + length;
    }
    for (int rank = first; rank < ranks; rank += step)
        CHECK_INT(next[rank], LINES);
}

/* ---- input ---- */

static ssize_t typed; /* how much the terminal has */

static ssize_t read_typed(int fd, void *bytes, size_t count)
{
    CHECK(fd == 0 && count > 2);
    memcpy(bytes, "hi", 2);
    return typed;
}

/* What is typed goes to rank 0; at the end of the input, or when it cannot be read, its pipe is
 * closed, so that the rank sees the end too. */
TEST(test_launch_input_ends)
{
    static weft_i_os table;
    static const ssize_t ends[] = {0, -1};
    table = weft_i_os_linux;
    table.read = read_typed;
    for (int i = 0; i < 2; i++) {
        int pipe[2];
        char got[4] = "";
        CHECK(!pipe2(pipe, O_CLOEXEC));
        weft_i_stdin input = {.fd = pipe[1]};
        struct pollfd fds[2] = {{.fd = pipe[1], .revents = POLLOUT}, {.revents = POLLIN}};
        weft_i_os_now = &table;
        typed = 2;
        weft_i_stdin_take(&input, fds, 2);
        CHECK(input.fd == pipe[1] && !input.used);
        typed = ends[i];
        weft_i_stdin_take(&input, fds, 2);
        weft_i_os_now = &weft_i_os_linux;
        CHECK_INT(input.fd, -1);
        CHECK(fcntl(pipe[1], F_GETFD) < 0);
        CHECK(read(pipe[0], got, sizeof got) == 2 && !strcmp(got, "hi"));
        CHECK(read(pipe[0], got, sizeof got) == 0);
        close(pipe[0]);
    }
}

TEST(test_launch_heavy_output)
{
    CHECK_INT(shell("$W run -n 4 $S writes"), 0);
    CHECK(!*err);
    check_lines(out, 0, 4, 1);
}

TEST(test_launch_heavy_output_through_pipes)
{
    CHECK_INT(shell("$W run -n 4 $S writes | (sleep 0.2; cat)"), 0);
    check_lines(out, 0, 4, 1);
    CHECK_INT(shell("$W run -n 4 $S writes-both 2>&1 | cat"), 0); /* two pipes into one */
    check_lines(out, 0, 4, 1);
}

TEST(test_launch_output_and_error_apart)
{
    static char errors[8 << 20];
    CHECK_INT(shell("$W run -n 4 $S writes-both 2>$D/errors"), 0);
    check_lines(out, 0, 4, 2);
    slurp("errors", errors, sizeof errors);
    check_lines(errors, 1, 4, 2);
}

TEST(test_launch_odd_lines)
{
    CHECK_INT(shell("$W run printf 'no end'"), 0);
    CHECK(!strcmp(out, "[0] no end\n"));
    CHECK_INT(shell("$W run printf '\\n\\na\\n'"), 0);
    CHECK(!strcmp(out, "[0] \n[0] \n[0] a\n"));
    CHECK_INT(shell("$W run printf '10%%%%\\r20%%%%\\rdone\\r\\nx'"), 0);
    CHECK(!strcmp(out, "[0] 10%\r[0] 20%\r[0] done\r\n[0] x\n"));
    CHECK_INT(shell("$W run --no-prefix printf 'a\\n\\tb\\0c'"), 0);
    CHECK(!memcmp(out, "a\n\tb\0c", 7));
    /* A line of 3 MiB: broken at 1 MiB with prefixes, exact without. */
    CHECK_INT(shell("$W run --no-prefix sh -c 'head -c 3145728 /dev/zero | tr \"\\0\" x; echo'"),
              0);
    CHECK_INT(strspn(out, "x"), 3145728);
    CHECK(!strcmp(out + 3145728, "\n"));
    CHECK_INT(shell("$W run sh -c 'head -c 3145728 /dev/zero | tr \"\\0\" x; echo'"), 0);
    CHECK_INT(count(out, "[0] x"), 3);
    CHECK_INT(strspn(out + 4, "x"), 1 << 20);
}

TEST(test_launch_reader_goes_away)
{
    shell("$W run -n 3 yes | head -n 1");
    CHECK_INT(count(out, "] y\n"), 1);
    CHECK_CONTAINS(err, "SIGPIPE");
}

/* A full disk behind our output is told, and does not end the ranks. */
TEST(test_launch_output_lost)
{
    static const char program[] = "sh -c 'for i in 1 2 3; do echo $RANK; done; sleep 0.1; echo z'";
    CHECK_INT(shell("$W run -n 2 %s >/dev/full", program), 123);
    CHECK_CONTAINS(err, "output of the ranks is lost: writing to standard output: No space left");
    CHECK_INT(count(err, "failed"), 0); /* no SIGPIPE for anybody */
    CHECK_INT(shell("$W run -n 2 sh -c 'echo $RANK >&2' 2>/dev/full"), 123);
    CHECK_INT(shell("$W run -q -n 2 %s >/dev/full", program), 123);
    CHECK(!*err);
    CHECK_INT(shell("$W run -n 2 sh -c 'echo x; exit 3' >/dev/full"), 3); /* the worse news */
    CHECK_INT(shell("$W run -n 2 %s", program), 0);
}

/* Runs a command whose output goes to a pipe that nobody reads, with a file for standard error;
 * its exit status, and how long it took.  `interrupt`: a signal for it after a while. */
static int run_unread(const char *options, const char *program, int signal_to_send, int *took_ms)
{
    int ends[2], status = 0;
    char command[1024], path[256];
    snprintf(path, sizeof path, "%s/err", folder);
    snprintf(command, sizeof command, "exec %s run %s %s", WEFT_COMMAND, options, program);
    CHECK(!pipe(ends));
    long long began = harness_now();
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        int to = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        dup2(ends[1], 1);
        dup2(to, 2);
        close(ends[0]);
        close(ends[1]);
        signal(SIGINT, SIG_DFL); /* a shell in the background ignores it for us */
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(126);
    }
    close(ends[1]);
    if (signal_to_send) { /* when the pipe is full */
        struct pollfd full = {.fd = ends[0], .events = POLLIN};
        CHECK_INT(poll(&full, 1, 30000), 1);
        usleep(200000);
        kill(child, signal_to_send);
    }
    CHECK(waitpid(child, &status, 0) == child);
    *took_ms = (int)((harness_now() - began) / 1000000);
    close(ends[0]);
    slurp("err", err, sizeof err);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

TEST(test_launch_reader_does_not_read)
{
    int took;
    CHECK_INT(run_unread("-n 2 --timeout 1", "yes", 0, &took), 124);
    CHECK(took >= 990 && took < 30000);
    CHECK_CONTAINS(err, "the job's time is up");
    CHECK_CONTAINS(err, "output of the ranks is lost: writing to standard output: its reader");
    /* Ranks that have ended are no reason to wait longer. */
    CHECK_INT(run_unread("-n 2 --timeout 1", "sh -c 'yes | head -c 300000'", 0, &took), 124);
    CHECK(took >= 990 && took < 30000);
    CHECK_INT(run_unread("-n 2", "yes", SIGINT, &took), 128 + SIGINT);
    CHECK(took < 30000);
    CHECK_INT(run_unread("-n 2", "yes", SIGTERM, &took), 128 + SIGTERM);
    CHECK(took < 30000);
    CHECK_INT(run_unread("-n 1", "sh -c 'yes | head -c 300000'", SIGTERM, &took), 128 + SIGTERM);
    CHECK(took < 30000);
}

/* Logs follow no links, and a FIFO in their place holds nobody up. */
TEST(test_launch_logs_are_files)
{
    CHECK_INT(shell("mkdir $D/traps; echo mine >$D/victim; ln -s $D/victim $D/traps/rank_0.out"),
              0);
    CHECK_INT(shell("$W run --timeout 5 --log-dir $D/traps echo hello"), 125);
    CHECK_CONTAINS(err, "rank_0.out: symbolic links are not followed");
    CHECK_INT(shell("cat $D/victim"), 0);
    CHECK(!strcmp(out, "mine\n"));
    CHECK_INT(shell("rm $D/traps/rank_0.out; mkfifo $D/traps/rank_0.out"), 0);
    CHECK_INT(shell("timeout 5 $W run --timeout 2 --log-dir $D/traps echo hello"), 125);
    CHECK_CONTAINS(err, "rank_0.out: it is a FIFO");
    /* Nor with a reader. */
    CHECK_INT(shell("timeout 5 cat $D/traps/rank_0.out & sleep 0.1; "
                    "timeout 5 $W run --timeout 2 --log-dir $D/traps echo hello; e=$?; "
                    "kill %%1; exit $e"),
              125);
    CHECK_CONTAINS(err, "rank_0.out: it is a FIFO, not a regular file");
    CHECK_INT(shell("rm -r $D/traps"), 0);
}

TEST(test_launch_logs)
{
    static const char program[] = "sh -c 'echo to out $RANK; echo to err $RANK >&2; printf part'";
    CHECK_INT(shell("$W run -n 2 --log-dir $D/logs %s", program), 0);
    CHECK(!*out && !*err);
    slurp("logs/rank_1.out", out, sizeof out);
    CHECK(!strcmp(out, "to out 1\npart"));
    slurp("logs/rank_1.err", err, sizeof err);
    CHECK(!strcmp(err, "to err 1\n"));
    CHECK_INT(shell("$W run -n 2 --tee --log-dir=$D/logs %s", program), 0);
    CHECK_CONTAINS(out, "[1] to out 1\n");
    CHECK_CONTAINS(err, "[0] to err 0\n");
    slurp("logs/rank_0.out", out, sizeof out);
    CHECK(!strcmp(out, "to out 0\npart"));
    CHECK_INT(shell("$W run --log-dir $D/no/such true"), 125);
    CHECK_CONTAINS(err, "making the log directory");
    CHECK_INT(shell("rm -r $D/logs"), 0);
}

int main(int argc, char **argv)
{
    return launch_main(argc, argv, rank_main);
}
