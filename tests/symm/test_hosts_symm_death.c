/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: symm/remote_moves.c, fabric/group/hosts_puts.c */
/*
 * Symmetric memory between hosts when something goes wrong: the other rank dies, stops, leaves or revokes in
 * the middle of a put, a get, a wait for a signal, a put of one, or a barrier.
 */
#include "fabric/crew.h"
#include "fabric/hosts.h"

#include "base/report/status.h"
#include "fabric/group/hosts.h"

#include <signal.h>

enum { LIMIT_MS = 60000, COUNT = 300000 /* more than a window of pieces */ };

typedef enum deed { PUTS, GETS, WAITS, SIGNALS, MEETS, IS_PUT_TO, ACTS } deed;

static const char *const act_names[ACTS] = {"put",        "get",     "wait_signal",
                                            "put_signal", "barrier", "being put to"};

typedef struct scene {
    int port, size, per_host;
    deed act;
} scene;

#define OK(call_) CREW((call_) == WEFT_OK, "%s", weft_last_error())

static weft_group *join(int rank, const scene *s)
{
    hosts_use_ucx();
    setenv("WEFT_DEBUG", "NONE", 1);
    weft_group *world = hosts_join(rank, s->size, s->per_host, s->port);
    if (world)
        weft_group_set_timeout(world, LIMIT_MS);
    return world;
}

static void run_with(const char *what, int size, int per_host, deed act, int victim,
                     int (*body)(int rank, void *arg))
{
    char reason[192], name[64];
    scene s = {free_port(), size, per_host, act};
    hosts_use_ucx();
    if (!s.port)
        SKIP("no port is free here");
    if (weft_i_remote_engine()->probe(reason, sizeof reason) <= 0)
        SKIP("%s", reason);
    snprintf(name, sizeof name, "%s, %s", what, act_names[act]);
    crew_run(name, size, body, &s, victim);
}

static int leave(int rank, weft_group *world)
{
    weft_clear_error();
    CREW(!weft_finish(world), "%s", weft_last_error());
    crew->rank[rank].done = 1;
    return 0;
}

static weft_tensor *filled(int value, int64_t count)
{
    weft_tensor *x = weft_empty(WEFT_I32, WEFT_CPU, WEFT_SHAPE(count));
    weft_fill(x, value);
    return x;
}

/* One step of what rank 0 does to the last rank. */
static weft_status step_of(const scene *s, weft_symm *mem, weft_tensor *x, int last)
{
    switch (s->act) {
    case PUTS:
        return weft_symm_put(mem, last, x, 0);
    case GETS:
        return weft_symm_get(x, mem, last, 0);
    case WAITS:
    case IS_PUT_TO:
        return weft_symm_wait_signal(mem, last, 1, WEFT_DEFAULT);
    case SIGNALS:
        return weft_symm_put_signal(mem, last, 1, WEFT_DEFAULT);
    default:
        return weft_symm_barrier(mem, 1, WEFT_DEFAULT);
    }
}

/* Rank 0 goes on until it fails; the others meet, which the last one never comes to. */
static weft_status act_until(int rank, const scene *s, weft_symm *mem, int last)
{
    weft_status status = WEFT_OK;
    weft_tensor *x = filled(rank, COUNT);
    crew->given_up++;
    while (rank == 0 && status == WEFT_OK && s->act != MEETS)
        status = step_of(s, mem, x, last);
    return rank == 0 && s->act != MEETS ? status : weft_symm_barrier(mem, 1, WEFT_DEFAULT);
}

/* ---- death ---- */

static void die_when_all_are_there(int rank, const scene *s, weft_symm *mem)
{
    weft_tensor *x = filled(rank, COUNT);
    while (crew->given_up < s->size - 1)
        crew_rest(1);
    for (int i = 0; s->act == IS_PUT_TO && i < 20; i++)
        weft_symm_put(mem, 0, x, 0);
    crew_rest(rank * 5);
    raise(SIGKILL);
}

static int death(int rank, void *arg)
{
    const scene *s = arg;
    int last = s->size - 1;
    char who[32];
    weft_group *world = join(rank, s);
    CREW(world, "%s", weft_last_error());
    weft_symm *mem =
        weft_symm_rendezvous(weft_symm_empty(WEFT_I32, WEFT_CPU, WEFT_SHAPE(COUNT)), world);
    CREW(mem, "%s", weft_last_error());
    if (rank == last)
        die_when_all_are_there(rank, s, mem);
    weft_status status = act_until(rank, s, mem, last);
    CREW(status == WEFT_ERR_PEER_DEAD, "%d, %s", (int)status, weft_last_error());
    snprintf(who, sizeof who, "rank %d", last);
    CREW(strstr(weft_last_error(), who), "%s", weft_last_error());
    weft_clear_error();
    /* Nothing of it is left to wait for. */
    status = weft_symm_barrier(mem, 2, WEFT_DEFAULT);
    CREW(status == WEFT_ERR_PEER_DEAD, "%d, %s", (int)status, weft_last_error());
    crew->go++;
    while (crew->go < last)
        crew_rest(1);
    return leave(rank, world);
}

#define DEATH_TEST(name_, act_)                             \
    TEST(test_hosts_symm_death_##name_)                     \
    {                                                       \
        run_with("2 hosts of 1", 2, 1, act_, 1, death);     \
        run_with("2 hosts of 2", 4, 2, act_, 3, death);     \
        run_with("hosts of 3 and 1", 4, 3, act_, 3, death); \
    }

DEATH_TEST(put, PUTS)
DEATH_TEST(get, GETS)
DEATH_TEST(wait_signal, WAITS)
DEATH_TEST(put_signal, SIGNALS)
DEATH_TEST(barrier, MEETS)
DEATH_TEST(being_put_to, IS_PUT_TO)

/* ---- a rank that is stopped, and goes on ---- */

/* What did not come in time does not come later either: the tensor is its owner's. */
static int stop(int rank, void *arg)
{
    const scene *s = arg;
    int last = s->size - 1;
    weft_group *world = join(rank, s);
    CREW(world, "%s", weft_last_error());
    weft_symm *mem =
        weft_symm_rendezvous(weft_symm_empty(WEFT_I32, WEFT_CPU, WEFT_SHAPE(4 * COUNT)), world);
    CREW(mem, "%s", weft_last_error());
    crew->pid[rank] = getpid();
    weft_fill(weft_symm_tensor(mem, rank), 7);
    OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
    if (rank == 0) {
        weft_tensor *x = filled(1, 4 * COUNT);
        weft_group_set_timeout(world, 400);
        kill(crew->pid[last], SIGSTOP);
        weft_status got = weft_symm_get(x, mem, last, 0);
        weft_status put = weft_symm_put(mem, last, x, 0);
        weft_status first = weft_symm_put_signal(mem, last, 3, 300);
        weft_status second = weft_symm_put_signal(mem, last, 3, 300);
        weft_status taken = weft_symm_wait_signal(mem, last, 3, 300);
        kill(crew->pid[last], SIGCONT);
        CREW(got == WEFT_ERR_TIMEOUT, "%d, %s", (int)got, weft_last_error());
        CREW(put == WEFT_ERR_TIMEOUT, "%d, %s", (int)put, weft_last_error());
        CREW(first == WEFT_ERR_TIMEOUT || first == WEFT_OK, "%d", (int)first);
        CREW(second == WEFT_ERR_TIMEOUT, "%d, %s", (int)second, weft_last_error());
        CREW(taken == WEFT_ERR_TIMEOUT, "%d, %s", (int)taken, weft_last_error());
        weft_group_set_timeout(world, LIMIT_MS);
        for (int i = 0; i < 100; i++) {
            crew_rest(2);
            OK(weft_symm_put(mem, last, filled(9, 1), 4 * COUNT - 1));
        }
        CREW(weft_item(x, 0) == 1 && weft_item(x, 4 * COUNT - 1) == 1, "it was written to");
        OK(weft_symm_get(x, mem, last, 0)); /* of this one all comes */
        CREW(weft_item(x, 4 * COUNT - 2) == 7 && weft_item(x, 4 * COUNT - 1) == 9, "%g, %g",
             weft_item(x, 4 * COUNT - 2), weft_item(x, 4 * COUNT - 1));
        weft_clear_error();
    }
    OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
    return leave(rank, world);
}

TEST(test_hosts_symm_stop)
{
    run_with("2 hosts of 1", 2, 1, PUTS, -1, stop);
    run_with("2 hosts of 2", 4, 2, PUTS, -1, stop);
}

/* ---- revoked, and left ---- */

static int revokes(int rank, void *arg)
{
    const scene *s = arg;
    int last = s->size - 1, all[CREW_MAX];
    weft_group *world = join(rank, s);
    CREW(world, "%s", weft_last_error());
    for (int i = 0; i < s->size; i++)
        all[i] = i;
    weft_group *group = weft_group_new(world, all, s->size, NULL);
    CREW(group, "%s", weft_last_error());
    weft_symm *mem =
        weft_symm_rendezvous(weft_symm_empty(WEFT_I32, WEFT_CPU, WEFT_SHAPE(COUNT)), group);
    CREW(mem, "%s", weft_last_error());
    if (rank == last) {
        while (crew->given_up < last)
            crew_rest(1);
        crew_rest(20);
        OK(weft_group_revoke(group));
    } else {
        weft_status status = act_until(rank, s, mem, last);
        CREW(status == WEFT_ERR_REVOKED, "%d, %s", (int)status, weft_last_error());
    }
    weft_clear_error();
    weft_tensor *x = filled(0, 1);
    weft_status status = weft_symm_put(mem, (rank + 1) % s->size, x, 0);
    CREW(status == WEFT_ERR_REVOKED || !group->hosts->away[(rank + 1) % s->size], "%d",
         (int)status);
    OK(weft_group_barrier(world, WEFT_DEFAULT));
    return leave(rank, world);
}

TEST(test_hosts_symm_revoke)
{
    for (deed act = PUTS; act < IS_PUT_TO; act++) {
        run_with("2 hosts of 1", 2, 1, act, -1, revokes);
        run_with("2 hosts of 2", 4, 2, act, -1, revokes);
    }
}

/* Who leaves in order is named as one who has left. */
static int depart(int rank, void *arg)
{
    const scene *s = arg;
    int last = s->size - 1;
    weft_group *world = join(rank, s);
    CREW(world, "%s", weft_last_error());
    weft_symm *mem =
        weft_symm_rendezvous(weft_symm_empty(WEFT_I32, WEFT_CPU, WEFT_SHAPE(COUNT)), world);
    CREW(mem, "%s", weft_last_error());
    if (rank == last) {
        while (crew->given_up < last)
            crew_rest(1);
        return leave(rank, world);
    }
    weft_status status = act_until(rank, s, mem, last);
    CREW(status == WEFT_ERR_PEER_LEFT, "%d, %s", (int)status, weft_last_error());
    crew->go++;
    while (crew->go < last)
        crew_rest(1);
    return leave(rank, world);
}

TEST(test_hosts_symm_leave)
{
    static const deed acts[] = {GETS, WAITS, MEETS};
    for (int i = 0; i < 3; i++) {
        run_with("2 hosts of 1", 2, 1, acts[i], -1, depart);
        run_with("2 hosts of 2", 4, 2, acts[i], -1, depart);
    }
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
