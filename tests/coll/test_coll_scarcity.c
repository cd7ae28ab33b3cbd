/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: coll/calls/coll.c, coll/calls/work.c, functional/run.c, parts/parts.c, parts/object.c,
 * symm_coll/row.c */
/* Operations of a rank that is short of memory: whichever allocation fails, the call says so and
 * gives nothing, or it is right; and the next one works.  One rank, so that nobody waits for it. */
#include "fault.h"
#include "jobs.h"

#include <weft/weft.h>

static weft_group *world;
static weft_tensor *x, *y, *symm; /* [2, 6] of 3, of 0; symmetric [12] of 3 */

static weft_status of(const void *object)
{
    return object ? WEFT_OK : weft_last_status();
}

static bool all(const weft_tensor *t, double value)
{
    for (int64_t i = 0; i < weft_tensor_numel(t); i++)
        if (weft_item(t, i) != value)
            return false;
    return weft_tensor_numel(t) == 12;
}

/* Gives it to the caller if it is what it should be. */
static weft_status right(weft_tensor *t)
{
    if (!t)
        return weft_last_status();
    fault_disarm(); /* looking at it is not part of the call */
    if (!all(weft_wait_tensor(t), 3))
        FAIL("a wrong result");
    return WEFT_OK;
}

static weft_status all_reduce(void)
{
    return right(weft_all_reduce(x, WEFT_SUM, world));
}

static weft_status all_gather(void)
{
    return right(weft_all_gather_tensor(x, 1, world));
}

static weft_status reduce_scatter(void)
{
    return right(weft_reduce_scatter_tensor(x, WEFT_SUM, 1, world));
}

static weft_status all_to_all(void)
{
    return right(weft_all_to_all_single(x, NULL, NULL, world));
}

static weft_status broadcast(void)
{
    return right(weft_broadcast(x, 0, world));
}

static weft_status permuted(void)
{
    return right(weft_permute_tensor(x, (int[]){0}, world));
}

static weft_status gathered_turned(void)
{
    return right(weft_all_gather_tensor(weft_transpose(x, 0, 1), 1, world));
}

static weft_status gather_out(void)
{
    return right(weft_all_gather_into_tensor_out(y, x, 1, world));
}

static weft_status scatter_out(void)
{
    return right(weft_reduce_scatter_tensor_out(y, x, WEFT_SUM, 0, world));
}

static weft_status several(weft_status status, weft_tensor **out)
{
    if (status < 0) {
        CHECK(!out[0] && !out[1]);
        return status;
    }
    CHECK(out[0] && out[1]);
    return right(out[0]) < 0 ? weft_last_status() : right(out[1]);
}

static weft_status reduced_together(void)
{
    weft_tensor *in[] = {x, x}, *out[2] = {NULL, NULL};
    return several(weft_all_reduce_coalesced(out, in, 2, WEFT_SUM, world), out);
}

static weft_status gathered_together(void)
{
    weft_tensor *in[] = {x, x}, *out[2] = {NULL, NULL};
    return several(weft_all_gather_into_tensor_coalesced(out, in, 2, world), out);
}

static weft_status scattered_together(void)
{
    weft_tensor *in[] = {x, x}, *out[2] = {NULL, NULL};
    return several(weft_reduce_scatter_tensor_coalesced(out, in, 2, WEFT_SUM, (int[]){0, 1}, world),
                   out);
}

static weft_status objects(void)
{
    weft_blobs *got = weft_all_gather_object((weft_bytes){"abc", 3}, world);
    if (!got)
        return weft_last_status();
    weft_bytes blob = weft_blobs_get(got, 0);
    CHECK(weft_blobs_count(got) == 1 && blob.length == 3 && !memcmp(blob.data, "abc", 3));
    return WEFT_OK;
}

static weft_status objects_sent(void)
{
    weft_bytes list[] = {{"abc", 3}, {"", 0}};
    weft_blobs *got = weft_broadcast_object(list, 2, 0, world);
    if (!got)
        return weft_last_status();
    CHECK(weft_blobs_count(got) == 2 && weft_blobs_get(got, 0).length == 3);
    return WEFT_OK;
}

static weft_status work_done(weft_work *work)
{
    return work ? weft_work_wait(work, WEFT_DEFAULT) : weft_last_status();
}

static weft_status posted(void)
{
    return work_done(weft_all_reduce_start(y, x, WEFT_SUM, world));
}

static weft_status posted_list(void)
{
    return work_done(weft_all_reduce_list_start(&y, &x, 1, WEFT_SUM, world));
}

static weft_status sent_to_itself(void)
{
    weft_p2p_op ops[] = {{.kind = WEFT_P2P_SEND, .x = x, .peer = 0, .group = world},
                         {.kind = WEFT_P2P_RECV, .x = y, .peer = 0, .group = world}};
    return work_done(weft_batch_start(ops, 2));
}

static weft_status one_shot(void)
{
    return right(weft_symm_one_shot_all_reduce(symm, WEFT_SUM, world));
}

static weft_status low_gather(void)
{
    weft_work *work = NULL;
    weft_tensor *out = weft_symm_low_contention_all_gather(symm, world, &work);
    return out ? work_done(work) : weft_last_status();
}

static weft_status symmetric(void)
{
    weft_tensor *fresh = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(12));
    return fresh ? of(weft_symm_rendezvous(fresh, world)) : weft_last_status();
}

static weft_status handles(void)
{
    weft_symm *mem = weft_symm_rendezvous(symm, world);
    weft_tensor *t = weft_symm_tensor(mem, 0);
    return t ? of(weft_symm_buffer(mem, 0, WEFT_SHAPE(2), WEFT_F32, 1)) : weft_last_status();
}

static weft_status links(void)
{
    weft_connectivity found;
    weft_status status = weft_symm_detect_connectivity(world, WEFT_CPU, "shm", &found);
    if (status < 0)
        return status;
    CHECK(found.size == 1 && found.links[0] == 0);
    weft_symm_free_connectivity(&found);
    return WEFT_OK;
}

static weft_status mesh(void)
{
    weft_mesh *m = weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(1, 1), "a,b");
    if (!m)
        return weft_last_status();
    CHECK_INT(weft_mesh_size(m, WEFT_MESH_ONLY), 1);
    weft_mesh *part = weft_mesh_slice(m, "b");
    if (!part)
        return weft_last_status();
    CHECK_INT(weft_mesh_ndim(part), 1);
    return of(weft_mesh_unflatten(part, 0, WEFT_SHAPE(1, 1), "c,d"));
}

static weft_status group(void)
{
    return of(weft_group_new(world, (const int[]){0}, 1, NULL));
}

static weft_status tensors(void)
{
    weft_tensor *t = weft_matmul(weft_view(x, WEFT_SHAPE(2, 6)), weft_view(y, WEFT_SHAPE(6, 2)));
    weft_tensor *u = weft_cat((weft_tensor *[]){x, y}, 2, 0);
    return t ? of(u) : weft_last_status();
}

/* Of a layout that cannot be written in one go. */
static weft_status uniform(void)
{
    return weft_uniform(weft_transpose(y, 0, 1), 0, 1);
}

static weft_status normal(void)
{
    return weft_normal(weft_transpose(y, 0, 1), 0, 1);
}

static const struct {
    const char *name;
    weft_status (*run)(void);
} rows[] = {{"all_reduce", all_reduce},
            {"all_gather", all_gather},
            {"reduce_scatter", reduce_scatter},
            {"all_to_all", all_to_all},
            {"broadcast", broadcast},
            {"permute", permuted},
            {"all_gather of a view", gathered_turned},
            {"all_gather out", gather_out},
            {"reduce_scatter out", scatter_out},
            {"all_reduce coalesced", reduced_together},
            {"all_gather coalesced", gathered_together},
            {"reduce_scatter coalesced", scattered_together},
            {"all_gather object", objects},
            {"broadcast object", objects_sent},
            {"posted", posted},
            {"posted list", posted_list},
            {"batch", sent_to_itself},
            {"one shot", one_shot},
            {"low contention", low_gather},
            {"symmetric memory", symmetric},
            {"handles", handles},
            {"connectivity", links},
            {"mesh", mesh},
            {"group", group},
            {"tensors", tensors},
            {"uniform", uniform},
            {"normal", normal}};

static void make_operands(void)
{
    world = join(0);
    x = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 6), 3);
    y = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 6), 0);
    symm = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(12));
    weft_fill(symm, 3);
    CHECK(x && y && symm && weft_symm_rendezvous(symm, world));
}

RANKS_TEST(test_scarcity_every_allocation, 1)
{
    (void)rank, (void)size;
    if (harness_in_threads)
        SKIP("ranks that are threads share their calls to the system");
    make_operands();
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++) {
        int failures = 0, n = 1;
        CHECK_OK(weft_scope_open());
        if (rows[row].run() < 0) /* as it should be */
            FAIL("%s: %s", rows[row].name, weft_last_error());
        CHECK_OK(weft_scope_close());
        for (; n < 150; n++) {
            CHECK_OK(weft_scope_open());
            weft_clear_error();
            fault_arm(n);
            weft_status status = rows[row].run();
            bool fired = fault_disarm();
            if (status < 0) {
                failures++;
                if (!fired || weft_last_status() != status || !weft_last_error()[0])
                    FAIL("%s, call %d (%s): %d, but the error is %d \"%s\"", rows[row].name, n,
                         fired ? fault_name : "none", status, weft_last_status(),
                         weft_last_error());
            }
            weft_clear_error();
            CHECK_OK(weft_scope_close());
            if (!fired)
                break;
        }
        if (!failures || n == 150)
            FAIL("%s: %d failures of %d", rows[row].name, failures, n);
        CHECK_OK(weft_scope_open());
        if (rows[row].run() < 0)
            FAIL("%s, after it had failed: %s", rows[row].name, weft_last_error());
        CHECK_OK(weft_scope_close());
    }
    weft_clear_error();
    CHECK(!weft_finish(world));
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* shortage is the point here */
    return harness_main(argc, argv);
}
