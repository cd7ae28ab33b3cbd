/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: include/weft/weft.h */
/*
 * Calls every public function with arguments that no sane program would give: NULL, negative,
 * enormous, of the wrong dtype or device, of groups that are fake, stand-ins, revoked, destroyed or
 * finished, objects that an earlier call made.  Nothing is checked but that the library survives
 * it: run it with AddressSanitizer and UndefinedBehaviorSanitizer.
 *
 *     test_fuzz_api [--seed N] [--calls N]
 *
 * The calls come from gen-api.  A round makes some objects in a scope and CALLS_A_ROUND calls; most
 * rounds are those of one rank, some of three, which draw the same numbers and so make the same
 * calls.  What a caller must keep to is kept: arrays are as long as their counts say, waits have
 * limits, tensors that are too large to walk over are let go.
 */
#include "api_by_hand.h"
#include "api_picks.h"
#include "api_picks_model.h"
#include "api_picks_train.h"
#include "death.h"

#include "api_calls.inc"

enum { ROWS = sizeof fuzz_rows / sizeof *fuzz_rows };

/* ---- rounds ---- */

static void make_tensors(void)
{
    for (int i = 0; i < 6; i++)
        add_tensor(
            weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1 + pick_choice(4), pick_choice(4)), i));
    add_tensor(weft_ones((weft_dtype)pick_choice(14), WEFT_CPU, WEFT_SHAPE(6)));
    add_tensor(weft_ones(WEFT_U32, WEFT_CPU, WEFT_SHAPE(5)));
    add_tensor(weft_empty(WEFT_F32, WEFT_META, WEFT_SHAPE(4, 3)));
    add_tensor(weft_empty(WEFT_U8, WEFT_META, WEFT_SHAPE(1LL << 62)));
    add_tensor(weft_transpose(weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3, 4)), 0, 1));
    add_tensor(
        weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(20000))); /* longer than is copied at once */
    add_tensor(weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(12)));
    add_tensor(weft_symm_empty(WEFT_U32, WEFT_CPU, WEFT_SHAPE(8)));
    add_storage(weft_tensor_storage(pick_tensor()));
}

static void make_groups(weft_group *world)
{
    weft_fake_opts opts = WEFT_FAKE_OPTS(1, 2 + pick_choice(3)), mute = opts;
    weft_group *fake = weft_fake_init(&opts);
    mute.error_on_collective = true;
    for (int i = 0; i < 3; i++)
        add_group(world);
    for (int i = 0; i < 3; i++)
        add_group(fake);
    add_group(weft_fake_init(&mute));
    add_group(weft_group_stand_in("0", 1 + pick_choice(4)));
    weft_group *doomed = weft_group_new(fake, (const int[]){0, 1}, 2, NULL);
    weft_group_revoke(doomed);
    add_group(doomed);
    weft_group *gone = weft_group_new(fake, (const int[]){1, 0}, 2, "gone");
    weft_group_destroy(gone);
    add_group(gone);
    add_mesh(weft_mesh_init(fake, WEFT_CPU, WEFT_SHAPE(weft_size(fake)), "dp"));
    add_symm(weft_symm_rendezvous(me->tensors.item[me->tensors.used - 1], fake));
    add_symm(weft_symm_rendezvous(me->tensors.item[me->tensors.used - 2], world));
}

static void make_others(void)
{
    add_store(weft_store_local());
    add_store(weft_store_fake());
    add_symm_pool(weft_symm_pool_new(WEFT_CPU, 4096));
    add_blobs(weft_all_gather_object((weft_bytes){"ab", 2}, me->groups.item[3]));
    add_work(weft_barrier_start(me->groups.item[3]));
    add_module(weft_nn_sequential(weft_nn_linear(3, 3), weft_nn_dropout(0.5)));
    add_module(weft_nn_linear_plain(2, 3));
    add_optim(weft_optim_adamw(me->modules.item[0], 1e-3, NULL));
}

static void put_all_back(void)
{
    while (me->meshes_entered > 0 && weft_mesh_leave() >= 0)
        me->meshes_entered--;
    while (me->limits_open > 0 && weft_limit_close() >= 0)
        me->limits_open--;
    while (me->collections)
        (void)weft_coalesce_close(me->collecting[--me->collections]);
    weft_set_premul(1);
}

static int rank_of_round(void *unused)
{
    (void)unused;
    weft_init_opts opts = WEFT_INIT_OPTS;
    opts.timeout_ms = LIMIT_MS;
    weft_group *world = weft_init(&opts);
    if (!world)
        return 1;
    me = &states[weft_rank(world)];
    *me = (rank_state){.random = seed * 1000003 + round_number};
    weft_scope_open();
    weft_limit_open(LIMIT_MS);
    make_tensors();
    make_groups(world);
    make_others();
    for (int i = 0; i < CALLS_A_ROUND; i++) {
        const fuzz_row *row = &fuzz_rows[draw() % ROWS];
        me->at = row->name;
        weft_clear_error();
        row->call();
        give_back();
    }
    me->at = "the end of a round";
    put_all_back();
    weft_limit_close();
    weft_scope_close();
    weft_clear_error();
    (void)weft_finish(world);
    return 0;
}

static void tell_where(void)
{
    char text[400];
    int used = snprintf(text, sizeof text, "test_fuzz_api --seed %llu: round %llu",
                        (unsigned long long)seed, round_number);
    for (int i = 0; i < 4 && used < (int)sizeof text; i++)
        if (states[i].at)
            used += snprintf(text + used, sizeof text - (size_t)used, ", rank %d in %s", i,
                             states[i].at);
    used += snprintf(text + used, sizeof text - (size_t)used, "\n");
    if (write(2, text, (size_t)used) < 0)
        return;
}

static void prepare(void)
{
    fuzz_prepare(tell_where);
    nowhere = fopen("/dev/null", "w");
    for (size_t i = 0; i < sizeof ground; i++)
        ground[i] = (unsigned char)(i % 3);
}

int main(int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i += 2)
        if (!strcmp(argv[i], "--seed"))
            seed = strtoull(argv[i + 1], NULL, 0);
        else if (!strcmp(argv[i], "--calls"))
            calls = strtoull(argv[i + 1], NULL, 0);
        else if (!strcmp(argv[i], "--round"))
            round_number = strtoull(argv[i + 1], NULL, 0);
    prepare();
    int failed = 0;
    for (; !failed && calls_made < calls; round_number++) {
        int ranks = round_number % 8 == 7 ? 3 : 1;
        alarm(STUCK_S);
        memset(states, 0, sizeof states);
        failed = weft_spawn(ranks, rank_of_round, NULL);
        calls_made += (unsigned)(ranks * CALLS_A_ROUND);
    }
    fclose(nowhere);
    printf("test_fuzz_api - 1 %s: %llu calls of %d functions, seed %llu\n",
           failed ? "fail" : "pass", calls_made, (int)ROWS, (unsigned long long)seed);
    return failed;
}
