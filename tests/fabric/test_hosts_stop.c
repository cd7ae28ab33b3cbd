/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/world/lifeline_hosts.c, fabric/world/lifeline_news.c, fabric/group/hosts_meet.c */
/*
 * Ranks of another host that are stopped (SIGSTOP) for longer than WEFT_SILENCE.  They are told of as stopped,
 * never taken for dead, and go on with the others afterwards.  A rank is also stopped at steps of its life: a run
 * takes some, which follow from HARNESS_SEED; HOSTS_STOP_STRIDE=1, by hand, takes all.
 */
#include "crew.h"
#include "hosts.h"
#include "hosts_life.h"

#include "base/os/os.h"
#include "base/report/status.h"
#include "doom.h"
#include "fabric/group/hosts.h"
#include "values_seed.h"

#include <signal.h>

enum { SILENCE_MS = 2000, LIMIT_MS = 60000, STOPPED_MS = 5000 };

typedef struct scene {
    int port, size, per_host;
    unsigned stopped; /* a bit for each rank */
    int step;         /* of its calls to the system */
} scene;

#define OK(call_) CREW((call_) == WEFT_OK, "%s", weft_last_error())

static bool is_stopped(const scene *s, int rank)
{
    return s->stopped >> rank & 1;
}

static void send_all(const scene *s, int number)
{
    for (int rank = 0; rank < s->size; rank++)
        if (is_stopped(s, rank))
            kill(crew->pid[rank], number);
}

/* Whoever is stopped is known as that, on the other host too; nobody is dead. */
static int check_told(const scene *s, int rank, const weft_group *world, weft_status status)
{
    bool whole_host = __builtin_popcount(s->stopped) == s->per_host;
    CREW(status == WEFT_ERR_TIMEOUT, "%s: %s", weft_status_name(status), weft_last_error());
    for (int other = 0; other < s->size; other++) {
        char text[512];
        weft_i_world_describe(world->world, other, text, sizeof text);
        CREW(weft_i_world_fate(world->world, other) == WEFT_OK, "is taken for dead: %s", text);
        /* Of a host in which nobody answers only the guards of others know that its kernel does. */
        if (whole_host && rank > 0 && rank < s->per_host)
            continue;
        CREW(weft_i_world_is_stopped(world->world, other) == is_stopped(s, other), "%s", text);
        CREW(!is_stopped(s, other) || strstr(text, "stopped"), "%s", text);
    }
    return 0;
}

static int stop(int rank, void *arg)
{
    const scene *s = arg;
    hosts_use_ucx();
    setenv("WEFT_DEBUG", "NONE", 0);
    hosts_set_number("WEFT_SILENCE", SILENCE_MS);
    weft_group *world = hosts_join(rank, s->size, s->per_host, s->port);
    CREW(world, "%s", weft_last_error());
    weft_group_set_timeout(world, LIMIT_MS);
    crew->pid[rank] = getpid();
    OK(weft_group_barrier(world, WEFT_DEFAULT));
    OK(weft_group_barrier(world, WEFT_DEFAULT));
    if (rank == 0) {
        send_all(s, SIGSTOP);
        crew->go = 1;
    }
    if (is_stopped(s, rank)) {
        while (crew->go < 2) /* it is stopped somewhere here */
            crew_rest(1);
        crew->given_up++;
    } else {
        while (!crew->go)
            crew_rest(1);
        if (check_told(s, rank, world, weft_group_barrier(world, STOPPED_MS)))
            return 1;
        crew->given_up++;
    }
    int living = s->size;
    if (rank == 0) {
        while (crew->given_up < living - __builtin_popcount(s->stopped))
            crew_rest(1);
        crew->go = 2;
        send_all(s, SIGCONT);
    }
    while (crew->given_up < living)
        crew_rest(1);
    weft_clear_error();
    /* Where a partner was stopped nobody could know whether its host had gone on: that group has ended. */
    weft_group *rest = weft_group_shrink(world);
    CREW(rest, "%s", weft_last_error());
    CREW(weft_size(rest) == living, "%d of %d live", weft_size(rest), living);
    for (int i = 0; i < 10; i++)
        OK(weft_group_barrier(rest, WEFT_DEFAULT));
    weft_clear_error();
    weft_finish(world);
    crew->rank[rank].done = 1;
    return 0;
}

static void run(const char *what, unsigned stopped)
{
    char reason[192];
    scene s = {free_port(), 4, 2, stopped, 0};
    hosts_use_ucx();
    if (!s.port)
        SKIP("no port is free here");
    if (weft_i_remote_engine()->probe(reason, sizeof reason) <= 0)
        SKIP("%s", reason);
    crew_run(what, s.size, stop, &s, -1);
}

TEST(test_hosts_stop_a_rank)
{
    run("rank 3, stopped", 1u << 3);
}

TEST(test_hosts_stop_a_guard)
{
    run("rank 2, the guard of its host, stopped", 1u << 2);
}

TEST(test_hosts_stop_a_host)
{
    run("both ranks of a host stopped", 3u << 2);
}

/* ---- at every step ---- */

enum { STEP_SILENCE_MS = 500, PAUSE_MS = 1500 };

/* A child that lets this process go on, a while after it was stopped. */
static pid_t wake_later(void)
{
    char path[32], text[256] = "";
    pid_t parent = getpid(), child = fork();
    if (child)
        return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    snprintf(path, sizeof path, "/proc/%d/stat", (int)parent);
    for (const char *state = NULL; !state || state[2] != 'T'; crew_rest(2)) {
        FILE *file = fopen(path, "re");
        if (!file || !fgets(text, sizeof text, file))
            _exit(1);
        fclose(file);
        state = strrchr(text, ')');
    }
    crew_rest(PAUSE_MS);
    _exit(kill(parent, SIGCONT));
}

/* Nobody has a limit that is over: all goes well, only later. */
static int paused(int rank, void *arg)
{
    const scene *s = arg;
    pid_t waker = 0;
    int status;
    hosts_use_ucx();
    setenv("WEFT_DEBUG", "NONE", 0);
    setenv("WEFT_MEET_TIMEOUT", "60000", 1);
    hosts_set_number("WEFT_SILENCE", STEP_SILENCE_MS);
    if (is_stopped(s, rank)) {
        waker = wake_later();
        doom_arm_with(s->step, SIGSTOP);
    }
    weft_group *world = hosts_join(rank, s->size, s->per_host, s->port);
    CREW(world, "%s", weft_last_error());
    weft_group_set_timeout(world, LIMIT_MS);
    OK(life_live(world, rank, s->size));
    CREW(!weft_finish(world), "%s", weft_last_error());
    crew->rank[rank].steps = atomic_load(&doom_steps);
    if (waker) {
        kill(waker, SIGKILL);
        waitpid(waker, &status, 0);
    }
    crew->rank[rank].done = 1;
    return 0;
}

/* From some step before the first stride on. */
static void stop_at_steps(int size, int per_host, int victim)
{
    char what[64], reason[192];
    const char *text = getenv("HOSTS_STOP_STRIDE");
    int stride = text ? atoi(text) : VALUES_SANITIZED ? 500 : 250;
    int step = values_first((uint64_t)(size * CREW_MAX + victim), stride), last = step;
    hosts_use_ucx();
    if (weft_i_remote_engine()->probe(reason, sizeof reason) <= 0)
        SKIP("%s", reason);
    for (; step <= last; step += stride) {
        scene s = {free_port(), size, per_host, 1u << victim, step};
        if (!s.port)
            SKIP("no port is free here");
        snprintf(what, sizeof what, "rank %d of %d stopped at step %d", victim, size, step);
        crew_run(what, size, paused, &s, -1);
        last = crew->rank[victim].steps;
    }
}

TEST(test_hosts_stop_steps)
{
    stop_at_steps(4, 2, 1);
    stop_at_steps(3, 1, 1);
}

TEST(test_hosts_stop_steps_of_a_guard)
{
    stop_at_steps(4, 2, 2);
}

TEST(test_hosts_stop_steps_of_the_server)
{
    stop_at_steps(4, 2, 0);
}

int main(int argc, char **argv)
{
    values_choose_seed();
    return harness_main(argc, argv);
}
