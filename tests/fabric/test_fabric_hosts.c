/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/group/exchange_store.c, fabric/group/group_new.c, fabric/meet/meet_store.c */
/*
 * Ranks on several hosts, as threads of one process: each has a world of its own in which all others
 * are elsewhere, and one store in memory is between them.  So everything that hosts do together is
 * reached in milliseconds, and the store can fail for one rank at any of its requests.
 */
#include "fault.h"
#include "store_script.h"

#include <pthread.h>

enum { RANKS = 3, ROOM = 400 };

typedef struct host {
    int rank;
    weft_store *data;
    void (*body)(struct host *host);
    script *script;
    weft_i_world *world;
    weft_group *group;
    int fails_at; /* the rank's request that fails; 0: none */
    weft_status fails_with;
    int requests;       /* that it made */
    weft_status status; /* of what it did last, as it tells */
    char message[ROOM];
} host;

static weft_status note(host *h, weft_status status)
{
    h->status = status;
    snprintf(h->message, sizeof h->message, "%s", status < 0 ? weft_last_error() : "");
    return status;
}

static weft_status of(const void *object)
{
    return object ? WEFT_OK : weft_last_status();
}

static bool settle(host *h)
{
    if (weft_scope_open() < 0 || weft_i_world_new(h->rank, RANKS, &h->world) < 0)
        return false;
    h->script = weft_i_store_new(&script_kind, sizeof *h->script, "script");
    if (!h->script)
        return false;
    h->script->data = weft_i_object_hold(h->data);
    h->world->store = weft_i_object_hold(&h->script->store);
    h->world->key = (weft_i_key){{5, 6}};
    h->world->timeout_ms = 20000;
    for (int i = 0; i < RANKS; i++)
        snprintf(h->world->peers[i].host, sizeof h->world->peers[i].host, "h%d", i);
    h->group = weft_i_group_of_world(h->world);
    return h->group != NULL;
}

static void *live(void *argument)
{
    host *h = argument;
    if (!settle(h)) {
        note(h, WEFT_ERR_INTERNAL);
        return NULL;
    }
    h->script->fails_at = h->fails_at;
    h->script->fails_with = h->fails_with;
    h->body(h);
    h->requests = h->script->requests;
    weft_clear_error();
    weft_scope_close();
    return NULL;
}

static void together(host *hosts, void (*body)(host *), int failing, int at, weft_status with)
{
    pthread_t threads[RANKS];
    CHECK_OK(weft_scope_open());
    weft_store *data = weft_store_local();
    CHECK(data);
    for (int rank = 0; rank < RANKS; rank++) {
        hosts[rank] = (host){.rank = rank, .data = data, .body = body};
        if (rank == failing) {
            hosts[rank].fails_at = at;
            hosts[rank].fails_with = with;
        }
        CHECK(!pthread_create(&threads[rank], NULL, live, &hosts[rank]));
    }
    for (int rank = 0; rank < RANKS; rank++)
        CHECK(!pthread_join(threads[rank], NULL));
    CHECK_OK(weft_scope_close());
}

/* ---- what hosts do together ---- */

static void barriers(host *h)
{
    for (int i = 0; i < 5; i++)
        if (note(h, weft_group_barrier(h->group, WEFT_DEFAULT)) < 0)
            return;
}

static weft_status check_group(weft_group *group, int size, const int *ranks)
{
    if (!group)
        return weft_last_status();
    bool right = weft_size(group) == size;
    for (int i = 0; right && i < size; i++)
        right = weft_group_world_rank(group, i) == ranks[i];
    right = right && weft_group_world_rank(group, weft_rank(group)) == group->world->rank;
    return !right ? weft_i_fail(WEFT_ERR_INTERNAL, "wrong members") : WEFT_OK;
}

static void groups(host *h)
{
    static const int turned[] = {2, 0, 1}, outer[] = {0, 2};
    weft_group *all = weft_group_new(h->group, turned, 3, "turned");
    if (note(h, check_group(all, 3, turned)) < 0)
        return;
    weft_group *two = h->rank == 1 ? NULL : weft_group_new(h->group, outer, 2, NULL);
    if (h->rank != 1 && (note(h, check_group(two, 2, outer)) < 0 ||
                         note(h, weft_group_barrier(two, WEFT_DEFAULT)) < 0))
        return;
    note(h, weft_group_barrier(all, WEFT_DEFAULT));
}

static void splits(host *h)
{
    static const int turned[] = {2, 1, 0};
    weft_group *all = weft_group_split(h->group, 4, 10 - h->rank);
    if (note(h, check_group(all, 3, turned)) < 0)
        return;
    weft_group *odd = weft_group_split(h->group, h->rank == 1 ? 1 : 0, h->rank);
    if (note(h, of(odd)) < 0)
        return;
    if (weft_size(odd) != (h->rank == 1 ? 1 : 2))
        note(h, weft_i_fail(WEFT_ERR_INTERNAL, "wrong size"));
    weft_rank_list list = {turned, 3};
    weft_group *listed = weft_group_split_lists(h->group, &list, 1, NULL);
    note(h, check_group(listed, 3, turned));
}

static void meshes(host *h)
{
    static const int line[] = {0, 1, 2};
    weft_mesh *mesh = weft_mesh_init(h->group, WEFT_CPU, WEFT_SHAPE(3, 1), "a,b");
    if (note(h, of(mesh)) < 0 || note(h, check_group(weft_mesh_group(mesh, 0), 3, line)) < 0)
        return;
    weft_mesh *again = weft_mesh_init(h->group, WEFT_CPU, WEFT_SHAPE(1, 3), "a,b");
    note(h, of(again));
}

static void agreements(host *h)
{
    for (int i = 0; i < 3; i++) {
        uint64_t flags = 7u & ~(1u << h->rank) & (i ? ~0u : 6u);
        if (note(h, weft_group_agree(h->group, &flags, WEFT_DEFAULT)) < 0)
            return;
        if (flags != 0)
            note(h, weft_i_fail(WEFT_ERR_INTERNAL, "wrong flags"));
    }
}

static void shrinks(host *h)
{
    static const int all[] = {0, 1, 2};
    weft_group *again = weft_group_shrink(h->group);
    if (note(h, check_group(again, 3, all)) == WEFT_OK)
        note(h, weft_group_barrier(again, WEFT_DEFAULT));
}

/* Rank 1 is known to be dead by rank 2 alone; the others follow. */
static void shrinks_without(host *h)
{
    static const int left[] = {0, 2};
    if (h->rank == 1)
        return;
    if (h->rank == 2)
        atomic_store(&h->world->peers[1].gone, WEFT_I_DEAD);
    weft_group *again = weft_group_shrink(h->group);
    if (note(h, check_group(again, 2, left)) == WEFT_OK)
        note(h, weft_group_barrier(again, WEFT_DEFAULT));
}

static const struct {
    const char *name;
    void (*body)(host *h);
} acts[] = {{"barriers", barriers},
            {"groups", groups},
            {"splits", splits},
            {"meshes", meshes},
            {"agreements", agreements},
            {"shrinks", shrinks},
            {"shrinks without", shrinks_without}};
enum { ACTS = sizeof acts / sizeof *acts };

TEST(test_hosts_together)
{
    host hosts[RANKS];
    for (int a = 0; a < ACTS; a++) {
        together(hosts, acts[a].body, -1, 0, WEFT_OK);
        for (int rank = 0; rank < RANKS; rank++)
            if (hosts[rank].status < 0)
                FAIL("%s: rank %d: %d: %s", acts[a].name, rank, hosts[rank].status,
                     hosts[rank].message);
    }
}

/* ---- a store that fails one of them ---- */

static void (*limited_body)(host *h);

/* So that the others do not wait long for one that has failed. */
static void limited(host *h)
{
    h->group->timeout_ms = h->world->timeout_ms = 20;
    limited_body(h);
}

/*
 * Nobody hangs, nobody crashes, and the rank whose store fails says so itself, unless it was only
 * tidying.  The others succeed, or their limit passes, or they are told.
 */
TEST(test_hosts_store_fails_one)
{
    host hosts[RANKS];
    for (int a = 0; a < ACTS; a++) {
        int told = 0;
        bool failed = true;
        for (int at = 1; at <= 36 && failed; at += at < 8 ? 1 : 7) {
            limited_body = acts[a].body;
            together(hosts, limited, 0, at, WEFT_ERR_NO_MEMORY);
            failed = hosts[0].requests >= at;
            told += hosts[0].status == WEFT_ERR_NO_MEMORY;
            if (hosts[0].status == WEFT_ERR_NO_MEMORY &&
                !strstr(hosts[0].message, "the script wants request"))
                FAIL("%s, %d: %s", acts[a].name, at, hosts[0].message);
            for (int rank = 0; rank < RANKS; rank++)
                if (hosts[rank].status == WEFT_ERR_INTERNAL ||
                    (hosts[rank].status < 0 && !hosts[rank].message[0]))
                    FAIL("%s, %d: rank %d: %d: %s", acts[a].name, at, rank, hosts[rank].status,
                         hosts[rank].message);
        }
        if (told < 3)
            FAIL("%s: only %d failures were told", acts[a].name, told);
    }
}

/* ---- what they say ---- */

static void differing_meshes(host *h)
{
    weft_mesh *mesh = weft_mesh_init(h->group, WEFT_CPU,
                                     h->rank == 2 ? WEFT_SHAPE(1, 3) : WEFT_SHAPE(3, 1), NULL);
    note(h, of(mesh));
}

static void differing_lists(host *h)
{
    static const int one[] = {0, 1, 2}, other[] = {0, 2, 1};
    weft_rank_list list = {h->rank == 2 ? other : one, 3};
    note(h, of(weft_group_split_lists(h->group, &list, 1, NULL)));
}

static void revoked(host *h)
{
    weft_group *child = weft_group_split(h->group, 0, 0);
    if (note(h, of(child)) < 0)
        return;
    if (h->rank == 1)
        note(h, weft_group_revoke(h->group));
    else
        while (note(h, weft_group_barrier(child, WEFT_DEFAULT)) == WEFT_OK)
            ;
}

static void expect_all(void (*body)(host *), weft_status status, const char *text)
{
    host hosts[RANKS];
    together(hosts, body, -1, 0, WEFT_OK);
    for (int rank = 0; rank < RANKS; rank++)
        if (hosts[rank].status != status || !strstr(hosts[rank].message, text))
            FAIL("rank %d: %d: %s", rank, hosts[rank].status, hosts[rank].message);
}

TEST(test_hosts_mismatches)
{
    expect_all(differing_meshes, WEFT_ERR_MISMATCH,
               "the ranks gave different meshes: rank 0 the mesh of 3 x 1 on cpu: [[0], [1], [2]], "
               "rank 2 the mesh of 1 x 3 on cpu: [[0, 1, 2]]");
    expect_all(differing_lists, WEFT_ERR_MISMATCH,
               "weft_group_split_lists of \"0\": ranks 0 and 2 gave different lists");
}

TEST(test_hosts_revoked)
{
    host hosts[RANKS];
    together(hosts, revoked, -1, 0, WEFT_OK);
    CHECK_INT(hosts[1].status, WEFT_OK);
    for (int rank = 0; rank < RANKS; rank += 2) {
        CHECK_INT(hosts[rank].status, WEFT_ERR_REVOKED);
        CHECK_CONTAINS(hosts[rank].message,
                       "rank 1 of the world revoked group \"0\", from which this one was made");
    }
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* errors are the point here */
    return harness_main(argc, argv);
}
