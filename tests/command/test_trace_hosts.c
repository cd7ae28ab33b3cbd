/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: base/report/clock_note.c, fabric/meet/meet_clock.c, tools/weft/trace_clock.c */
/*
 * Traces of ranks on two hosts whose clocks have nothing in common: one in a time namespace, where it is
 * an hour later, with a wall clock that is minutes wrong.  `weft trace merge` puts them on one clock.
 */
#include "../fabric/crew.h"
#include "../fabric/hosts.h"

#include "base/os/os.h"
#include "base/report/clock_note.h"
#include "store/store.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

enum { BARRIERS = 20, LATER_S = 3600, NS_PER_S = 1000000000 };

static char folder[] = "/tmp/weft-clocks-XXXXXX";
static char text[1 << 17];

/* Runs a shell command in the folder with W the weft command; its output is in `text`. */
static int shell(const char *arguments)
{
    char command[1024];
    snprintf(command, sizeof command, "cd %s && W='%s' && { %s\n} 2>&1", folder, WEFT_COMMAND,
             arguments);
    FILE *pipe = popen(command, "r");
    text[pipe ? fread(text, 1, sizeof text - 1, pipe) : 0] = 0;
    int status = pipe ? pclose(pipe) : -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int write_to(const char *path, const char *content)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    ssize_t count = fd < 0 ? -1 : write(fd, content, strlen(content));
    if (fd >= 0)
        close(fd);
    return count == (ssize_t)strlen(content) ? 0 : -1;
}

/* The children of this process have a monotonic clock that is an hour ahead.  0: the kernel refuses. */
static int be_later(void)
{
    char map[64], offset[64];
    snprintf(map, sizeof map, "0 %d 1", (int)geteuid());
    snprintf(offset, sizeof offset, "monotonic %d 0", LATER_S);
    if (unshare(CLONE_NEWTIME) &&
        (unshare(CLONE_NEWUSER | CLONE_NEWTIME) || write_to("/proc/self/uid_map", map)))
        return 0;
    return write_to("/proc/self/timens_offsets", offset) == 0;
}

static int take_part(int rank, int port)
{
    char path[128];
    snprintf(path, sizeof path, "%s/t.json", folder);
    setenv("WEFT_TRACE", path, 1);
    setenv("WEFT_UCX", "off", 1);
    weft_group *world = hosts_join(rank, 2, 1, port);
    CREW(world, "%s", weft_last_error());
    for (int i = 0; i < BARRIERS; i++) {
        crew_rest(rank ? 3 : 1);
        CREW(weft_group_barrier(world, WEFT_DEFAULT) == WEFT_OK, "%s", weft_last_error());
    }
    crew_rest(1100); /* long enough to tell a drift */
    CREW(weft_group_barrier(world, WEFT_DEFAULT) == WEFT_OK, "%s", weft_last_error());
    CREW(!weft_finish(world), "%s", weft_last_error());
    crew->rank[rank].done = 1;
    return 0;
}

static int on_a_host(int rank, void *arg)
{
    int status = 0;
    if (!rank)
        return take_part(rank, *(int *)arg);
    CREW(be_later(), "the kernel gives no clock of its own: it did to the test");
    pid_t late = fork();
    if (!late)
        _exit(take_part(rank, *(int *)arg));
    CREW(waitpid(late, &status, 0) == late, "no child");
    return status != 0;
}

/* Could a rank have a clock of its own here? */
static int clocks_differ(void)
{
    int status;
    pid_t child = fork();
    if (!child)
        _exit(!be_later());
    return waitpid(child, &status, 0) == child && status == 0;
}

/* Begin and end, in us, of each barrier of a rank in `text`; how many. */
static int find_barriers(int rank, double begin[], double end[], int room)
{
    char wanted[32];
    int count = 0;
    snprintf(wanted, sizeof wanted, "\"pid\":%d,", rank);
    for (char *at = text; (at = strstr(at, "{\"name\":\"group_barrier\"")) && count < room; at++) {
        char *line = strndup(at, strcspn(at, "\n")), *ts = strstr(line, "\"ts\":"),
             *took = strstr(line, "\"dur\":");
        if (strstr(line, wanted) && ts && took) {
            begin[count] = strtod(ts + 5, NULL);
            end[count] = begin[count] + strtod(took + 6, NULL);
            count++;
        }
        free(line);
    }
    return count;
}

/* The first comparison that a trace tells of. */
static double number_behind(const char *name)
{
    const char *at = strstr(text, name);
    CHECK(at);
    return strtod(at + strlen(name), NULL);
}

/* All members are in a barrier at one moment: nobody leaves it before the other has come. */
static void check_barriers(double off_us)
{
    double begin[2][64], end[2][64], worst = 0;
    int count = find_barriers(0, begin[0], end[0], 64);
    CHECK_INT(find_barriers(1, begin[1], end[1], 64), count);
    CHECK(count > BARRIERS);
    for (int i = 0; i < count; i++)
        for (int rank = 0; rank < 2; rank++) {
            double early = begin[1 - rank][i] - end[rank][i];
            worst = early > worst ? early : worst;
        }
    if (worst > off_us)
        FAIL("a rank left a barrier %.1f us before the other came; their clocks are known to "
             "within %.1f us",
             worst, off_us);
}

TEST(test_trace_hosts_merge)
{
    int port = free_port();
    if (!clocks_differ())
        SKIP("the kernel gives processes no clock of their own");
    CHECK(port);
    crew_run("clocks", 2, on_a_host, &port, -1);
    CHECK_INT(shell("cat t.1.json"), 0);
    double ahead = number_behind("\"ahead_ns\":"), within = number_behind("\"within_ns\":");
    CHECK(within > 0 && within < 1e9);
    CHECK(ahead < -(double)LATER_S * NS_PER_S + within &&
          ahead > -(double)LATER_S * NS_PER_S - within);
    /* Its wall clock is five minutes wrong. */
    CHECK_INT(shell("sed -i 's/\"wall_minus_monotonic_ns\": *[0-9]*/&000/' t.1.json && "
                    "grep -c 000, t.1.json"),
              0);
    CHECK_INT(shell("$W trace merge t.0.json t.1.json >all.json"), 0);
    CHECK(!*text); /* it complains of nothing */
    CHECK_INT(shell("cat all.json"), 0);
    check_barriers(2 * within / 1000 + 100);
    CHECK_INT(shell("$W trace merge t.1.json t.0.json"), 0);
    check_barriers(2 * within / 1000 + 100);
}

/* The clock that hosts compare theirs with: of the store's server, where there is one. */
TEST(test_trace_hosts_store_clock)
{
    int64_t ns = 0, before = WEFT_OS->clock_ns();
    uint64_t of = 0, again = 0;
    weft_store *store = weft_store_tcp_serve(NULL, 0, hosts_token);
    CHECK(store);
    CHECK_OK(weft_i_store_clock(store, &ns, &of));
    CHECK(ns >= before && ns <= WEFT_OS->clock_ns() && of);
    CHECK_OK(weft_i_store_clock(weft_store_prefix("a", store), &ns, &again));
    CHECK(of == again);
    weft_release(store);
    CHECK_STATUS(weft_i_store_clock(weft_store_local(), &ns, &of), WEFT_ERR_UNSUPPORTED);
    CHECK_STATUS(weft_i_store_clock(weft_store_fake(), &ns, &of), WEFT_ERR_UNSUPPORTED);
    weft_clear_error();
}

/* What a note says is whole, and the first comparison stays. */
TEST(test_trace_hosts_note)
{
    static weft_i_clock_note note;
    weft_i_clock_point got[WEFT_I_CLOCK_POINTS];
    CHECK_INT(weft_i_clock_note_get(&note, got), 0);
    for (int i = 1; i < 5; i++) {
        weft_i_clock_point next = {7, i, -i, 2 * i};
        weft_i_clock_note_put(&note, &next);
        CHECK_INT(weft_i_clock_note_get(&note, got), i == 1 ? 1 : 2);
        CHECK(got[0].at_ns == 1 && got[0].ahead_ns == -1 && got[0].within_ns == 2);
        CHECK(i == 1 || (got[1].at_ns == i && got[1].ahead_ns == -i && got[1].of == 7));
    }
}

int main(int argc, char **argv)
{
    if (!mkdtemp(folder))
        return 1;
    int result = harness_main(argc, argv);
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) || result;
}
