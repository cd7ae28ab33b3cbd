/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/group/registry.c, fabric/group/group_find.c */
/* Tags, names and the registry: what finds which group, and every way of not finding one. */
#include "jobs.h"

#include "fabric/group/group.h"

#include <weft/weft.h>

#include <errno.h>
#include <pthread.h>

/* This rank's group of two neighbours with a tag. */
static weft_group *pair(weft_group *world, const char *tag)
{
    weft_group_opts opts = WEFT_GROUP_OPTS_INIT;
    opts.tag = tag;
    weft_group *group = weft_group_new_blocks(world, 2, &opts);
    if (!group)
        FAIL("pair with tag %s: %s", tag, weft_last_error());
    return group;
}

/* Expands and looks up again, with an overriding tag or "". */
static weft_group *roundtrip(weft_group *group, const char *tag)
{
    weft_expansion x;
    if (weft_ranks_expand(NULL, weft_ranks_group(group), tag, &x) < 0)
        FAIL("expand: %s", weft_last_error());
    weft_group *found = weft_group_find(group, x.tag, x.ranks, x.count);
    weft_expansion_clear(&x);
    return found;
}

RANKS_TEST(test_pg_creation_with_tag, 4)
{
    weft_group *world = join(0);
    weft_group *blu = pair(world, "blu"), *again = pair(world, "blu");
    CHECK(blu == again);
    CHECK(!strcmp(weft_group_tag(blu), "blu"));
    weft_group *blu2 = pair(world, "blu2");
    CHECK(blu2 != blu);
    weft_group *untagged = pair(world, NULL), *second = pair(world, "");
    CHECK(untagged != blu && untagged != blu2 && second != untagged);
    CHECK(second != blu && second != blu2);
    CHECK_OK(weft_group_barrier(blu, WEFT_DEFAULT));
    CHECK_OK(weft_group_barrier(second, WEFT_DEFAULT));
    finish(world);
}

RANKS_TEST(test_pg_lookup_roundtrip, 4)
{
    weft_group *world = join(0);
    weft_group *groups[] = {pair(world, "blu"), pair(world, "blu2"), pair(world, NULL),
                            pair(world, NULL), world};
    for (int i = 0; i < 5; i++)
        CHECK(roundtrip(groups[i], "") == groups[i]);
    finish(world);
}

RANKS_TEST(test_pg_lookup_with_tag, 4)
{
    weft_group *world = join(0);
    weft_group *blu = pair(world, "blu"), *bla = pair(world, "bla"), *none = pair(world, NULL);
    CHECK(roundtrip(bla, "blu") == blu);
    CHECK(roundtrip(none, "blu") == blu);
    CHECK(roundtrip(blu, "") == blu);
    CHECK(roundtrip(blu, "bla") == bla);
    CHECK(!roundtrip(blu, "green"));
    CHECK_INT(weft_last_status(), WEFT_OK); /* not found is no error */
    finish(world);
}

RANKS_TEST(test_find_or_create_pg, 4)
{
    weft_group *world = join(0);
    int all[] = {0, 1, 2, 3};
    weft_group *made = weft_group_find_or_new(world, "blu", all, 4, 2);
    CHECK(made);
    CHECK(pair(world, "blu") == made);
    CHECK_INT(weft_size(made), 2);
    CHECK_INT(weft_group_world_rank(made, 0), rank / 2 * 2);
    CHECK(weft_group_find_or_new(made, "blu", all, 4, 2) ==
          made); /* any group of the job will do */
    CHECK_OK(weft_group_barrier(made, WEFT_DEFAULT));
    finish(world);
}

RANKS_TEST(test_find_root_pg, 4)
{
    weft_group *world = join(0);
    int all[] = {0, 1, 2, 3}, shuffled[] = {2, 0, 3, 1};
    weft_group *other = weft_group_new(world, all, 4, NULL);
    CHECK(other && weft_group_find(other, "", all, 4) == world);
    CHECK(weft_group_find(world, NULL, shuffled, 4) == world);
    CHECK(weft_group_world(other) == world);
    CHECK(!strcmp(weft_group_tag(world), "ptd:0"));
    finish(world);
}

/* The rest of the rules: stored tags, splits, order, errors. */
RANKS_TEST(test_tag_rules, 4)
{
    weft_group *world = join(0);
    int all[] = {0, 1, 2, 3}, back[] = {3, 2, 1, 0}, some[] = {0, 1, 2};
    weft_group *split = weft_group_split(world, 0, -rank);
    CHECK(split && weft_group_find(world, "", all, 4) == world);
    CHECK(!strncmp(weft_group_tag(split), "ptd:", 4));
    CHECK(weft_group_find(world, weft_group_tag(split), all, 4) == split);
    weft_group_opts opts = WEFT_GROUP_OPTS_INIT;
    opts.tag = "t";
    weft_group *tagged = weft_group_new_with(world, back, 4, &opts);
    CHECK(tagged && weft_group_world_rank(tagged, 0) == 3);
    CHECK(weft_group_new_with(world, all, 4, &opts) == tagged); /* the same set of ranks */
    opts.tag = "user:t";
    CHECK(weft_group_new_with(world, NULL, 0, &opts) == tagged);
    CHECK(weft_group_find(world, "user:t", all, 4) == tagged);
    CHECK(weft_group_find(world, "t", all, 4) == tagged);
    CHECK(weft_group_find(world, "", all, 4) == world);
    CHECK(!weft_group_find(world, "t", some, 3));
    weft_scope_open(); /* a tagged group does not go with a scope */
    opts.tag = "inner";
    weft_group *inner = weft_group_new_with(world, NULL, 0, &opts);
    weft_scope_close();
    CHECK(weft_group_find(world, "inner", all, 4) == inner);
    CHECK_OK(weft_group_barrier(inner, WEFT_DEFAULT));
    opts.tag = "ptd:0";
    CHECK(!weft_group_new_with(world, NULL, 0, &opts));
    CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
    char tag[80];
    memset(tag, 't', sizeof tag);
    tag[64] = 0;
    opts.tag = tag;
    CHECK(!weft_group_new_with(world, NULL, 0, &opts));
    CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
    tag[63] = 0;
    CHECK(weft_group_new_with(world, NULL, 0, &opts));
    CHECK(weft_group_find(world, tag, all, 4));
    snprintf(tag, sizeof tag, "user:%063d", 7); /* as it is stored it is as long */
    weft_group *longest = weft_group_new_with(world, NULL, 0, &opts);
    CHECK(longest && !strcmp(weft_group_tag(longest), tag + 5));
    weft_group *own = weft_group_find_or_new(world, "own", all, 4, 1);
    CHECK(own && weft_size(own) == 1 && weft_group_world_rank(own, 0) == rank);
    /* Who looks at the job finds its groups by name. */
    int named = 0;
    for (int i = 0; i < WEFT_I_JOB_GROUPS; i++)
        named += world->world->mine->groups[i].id == tagged->id &&
                 !strcmp(world->world->mine->groups[i].name, weft_group_name(tagged));
    CHECK_INT(named, 1);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    finish(world);
}

RANKS_TEST(test_tag_find_errors, 4)
{
    weft_group *world = join(0);
    int all[] = {0, 1, 2, 3}, others[] = {(rank + 1) % 4, (rank + 2) % 4};
    CHECK(!weft_group_find(world, "", NULL, 0));
    CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "empty");
    CHECK(!weft_group_find_or_new(world, "t", all, 4, 3));
    CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "no multiple of a stride of 3");
    CHECK(!weft_group_find_or_new(world, "t", all, 4, 0));
    CHECK(!weft_group_find_or_new(world, "t", others, 2, 2));
    CHECK_CONTAINS(weft_last_error(), "rankset doesn't include the current node");
    CHECK(!weft_group_find_or_new(world, "", all, 4, 2));
    CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "Cannot automatically create PG with empty tag");
    CHECK(weft_group_find_or_new(world, "", all, 4, 4) == world);
    weft_clear_error();
    CHECK(!weft_group_find(NULL, "", all, 4));
    CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    finish(world);
}

/* ---- names ---- */

RANKS_TEST(test_registry_names, 4)
{
    weft_group *world = join(0);
    int all[] = {0, 1, 2, 3}, some[] = {0, 2, 3};
    CHECK_INT(weft_group_count(world), 1);
    CHECK(weft_group_named(world, "0") == world);
    weft_group *first = weft_group_new(world, all, 4, NULL);
    weft_group *second = weft_group_new(world, all, 4, NULL);
    weft_group *three = weft_group_new(world, some, 3, NULL);
    weft_group *given = weft_group_new(world, all, 4, "mine");
    CHECK(first && second && given);
    CHECK_INT(weft_group_count(world), rank == 1 ? 4 : 5);
    CHECK(!strcmp(weft_group_name(first), "0/0-3"));
    CHECK(!strcmp(weft_group_name(second), "0/0-3#1"));
    CHECK(weft_group_named(first, "0/0-3#1") == second);
    CHECK(weft_group_named(world, "mine") == given);
    if (three)
        CHECK(!strcmp(weft_group_name(three), "0/0,2-3"));
    CHECK(!weft_group_named(world, "0/0-3#7")); /* never was */
    CHECK_INT(weft_last_status(), WEFT_ERR_NOT_FOUND);
    CHECK_CONTAINS(weft_last_error(), "could not resolve");
    weft_release(second);
    CHECK(!weft_group_named(world, "0/0-3#1")); /* was, and is gone */
    CHECK_INT(weft_last_status(), WEFT_ERR_STATE);
    CHECK_CONTAINS(weft_last_error(), "already destroyed");
    CHECK_OK(weft_group_destroy(given));
    CHECK(!weft_group_named(world, "mine"));
    CHECK_INT(weft_last_status(), WEFT_ERR_STATE);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    weft_group *reborn = weft_group_new(world, all, 4, "mine"); /* the name is free again */
    CHECK(reborn && weft_group_named(world, "mine") == reborn);
    CHECK(!weft_group_named(world, NULL));
    CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
    finish(world);
}

/* A name that one rank has given already: it fails, and the others are told at once. */
static void *try_lock(void *lock)
{
    int error = pthread_mutex_trylock(lock);
    if (!error)
        pthread_mutex_unlock(lock);
    return error == EBUSY ? lock : NULL;
}

/* Does another thread find the lock taken? */
static bool is_held(pthread_mutex_t *lock)
{
    pthread_t thread;
    void *held = NULL;
    CHECK(!pthread_create(&thread, NULL, try_lock, lock));
    CHECK(!pthread_join(thread, &held));
    return held != NULL;
}

/* Whoever looks something up takes the lock before it lets go of it: with a lock that counts, and is
 * held already, it is held afterwards. */
RANKS_TEST(test_registry_locks, 1)
{
    weft_group *world = join(0);
    CHECK_INT(weft_rank(world), rank);
    pthread_mutex_t *lock = &world->world->registry.lock;
    pthread_mutexattr_t counts;
    pthread_mutexattr_init(&counts);
    pthread_mutexattr_settype(&counts, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_destroy(lock);
    CHECK_INT(pthread_mutex_init(lock, &counts), 0);
    pthread_mutex_lock(lock);
    CHECK(weft_group_named(world, "0") == world && is_held(lock));
    CHECK(!weft_group_named(world, "none") && is_held(lock));
    CHECK(weft_group_count(world) == size && is_held(lock));
    CHECK(weft_group_find(world, "", &rank, 1) == world && is_held(lock));
    pthread_mutex_unlock(lock);
    CHECK(!is_held(lock));
    pthread_mutex_destroy(lock);
    pthread_mutex_init(lock, NULL);
    finish(world);
}

RANKS_TEST(test_registry_taken, 3)
{
    weft_group *world = join(0);
    int pair_ranks[] = {0, 1}, all[] = {0, 1, 2};
    weft_group *pair_group = weft_group_new(world, pair_ranks, 2, "taken");
    CHECK((pair_group != NULL) == (rank != 2));
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    long long began = harness_now();
    CHECK(!weft_group_new(world, all, 3, "taken"));
    CHECK_INT(weft_last_status(), WEFT_ERR_EXISTS);
    CHECK((harness_now() - began) / 1000000 < 20000);
    if (rank != 2)
        CHECK_CONTAINS(weft_last_error(), "\"taken\"");
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    weft_clear_error();
    CHECK(weft_group_new(world, all, 3, "free"));
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    const char *wrong[] = {"0", "a/b"};
    for (int i = 0; i < 2; i++) {
        CHECK(!weft_group_new(world, all, 3, wrong[i]));
        CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
    }
    finish(world);
}

/* Ranks that are in very different numbers of groups still mean the same one: names and keys come
 * from parent, ranks and how often that list was made, not from a rank's own count. */
RANKS_TEST(test_registry_diverging_counts, 4)
{
    weft_group *world = join(0);
    int all[] = {0, 1, 2, 3}, alone[] = {rank}, pair_ranks[] = {0, 1};
    for (int i = 0; i < 3 * rank; i++) /* 0, 3, 6 and 9 groups of their own */
        CHECK(weft_group_new(world, alone, 1, NULL));
    for (int i = 0; i < 5; i++)
        CHECK((weft_group_new(world, pair_ranks, 2, NULL) != NULL) == (rank < 2));
    for (int i = 0; i < 3; i++) {
        weft_group *group = weft_group_new(world, all, 4, NULL);
        char name[32];
        if (!group)
            FAIL("%s", weft_last_error());
        snprintf(name, sizeof name, i ? "0/0-3#%d" : "0/0-3", i);
        CHECK(!strcmp(weft_group_name(group), name));
        CHECK_OK(weft_group_barrier(group, WEFT_DEFAULT));
    }
    finish(world);
}

/* What another thread of a rank does with its registry. */
typedef struct other_thread {
    weft_group *world, *tagged; /* made by the first thread */
    weft_group *by_tag, *by_name, *absent, *made;
    weft_status status;
} other_thread;

static void *use_registry(void *arg)
{
    other_thread *t = arg;
    int ranks[2];
    weft_scope_open();
    for (int i = 0; i < 2; i++)
        ranks[i] = weft_group_world_rank(t->tagged, i);
    t->by_tag = weft_group_find(t->world, "blu", ranks, 2);
    t->by_name = weft_group_named(t->world, weft_group_name(t->tagged));
    t->absent = weft_group_find(t->world, "bla", ranks, 2);
    weft_group *made = weft_group_new_blocks(
        t->world, 2, &(weft_group_opts){.size = sizeof(weft_group_opts), .tag = "other"});
    t->status = weft_group_barrier(made, WEFT_DEFAULT);
    t->made = weft_keep(made);
    weft_scope_close();
    return NULL;
}

/* The registry belongs to the rank: a group that one of its threads has made another one finds. */
RANKS_TEST(test_registry_in_other_threads, 4)
{
    weft_group *world = join(0);
    other_thread t = {.world = world, .tagged = pair(world, "blu")};
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, use_registry, &t));
    CHECK(!pthread_join(thread, NULL));
    CHECK(t.by_tag == t.tagged && t.by_name == t.tagged && !t.absent);
    CHECK_OK(t.status);
    CHECK(t.made && t.made != t.tagged);
    CHECK(weft_group_named(world, weft_group_name(t.made)) == t.made);
    CHECK(roundtrip(t.tagged, "other") == t.made);
    CHECK(pair(world, "other") == t.made); /* found, not made again */
    CHECK_OK(weft_group_barrier(t.made, WEFT_DEFAULT));
    weft_release(t.made);
    finish(world);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
