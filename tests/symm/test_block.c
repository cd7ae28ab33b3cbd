/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: symm/block.c, symm/persistent.c */
/* Blocks of symmetric memory and the tensors that lease them, without any rank: what is counted,
 * what is refused, and what is left when memory runs out. */
#include "harness.h"

#include "base/os/os.h"
#include "base/report/status.h"
#include "fault.h"
#include "symm/block.h"
#include "symm/persistent.h"
#include "symm/registration.h"

#include <weft/weft.h>

static void said(weft_status status, const char *text)
{
    CHECK_INT(weft_last_status(), status);
    if (strcmp(weft_last_error(), text))
        FAIL("\"%s\", not \"%s\"", weft_last_error(), text);
    weft_clear_error();
}

TEST(test_block_pad_sizes)
{
    static const size_t good[] = {64, 72, ((size_t)1 << 30) - 8, (size_t)1 << 30},
                        bad[] = {0, 8, 56, 63, 65, 68, ((size_t)1 << 30) + 8, SIZE_MAX};
    size_t usual = weft_symm_signal_pad_size();
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        CHECK_OK(weft_symm_set_signal_pad_size(good[i]));
        CHECK_INT(weft_symm_signal_pad_size(), good[i]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[128];
        snprintf(text, sizeof text, "a signal pad has 64 bytes to 1 GiB, a multiple of 8, not %zu",
                 bad[i]);
        CHECK_INT(weft_symm_set_signal_pad_size(bad[i]), WEFT_ERR_INVALID_ARG);
        said(WEFT_ERR_INVALID_ARG, text);
        CHECK_INT(weft_symm_signal_pad_size(), good[3]);
    }
    CHECK_OK(weft_symm_set_signal_pad_size(usual));
}

/* Dense: the strides, sorted, are the products of the sizes before them. */
TEST(test_block_layouts)
{
    static const struct {
        weft_shape shape;
        int64_t strides[4];
        bool dense;
    } cases[] = {
        {{.ndim = 1, .dim = {5}}, {1}, true},
        {{.ndim = 1, .dim = {5}}, {2}, false},
        {{.ndim = 1, .dim = {1}}, {7}, true}, /* of one element any stride will do */
        {{.ndim = 1, .dim = {0}}, {3}, true}, /* and of none */
        {{.ndim = 2, .dim = {2, 3}}, {3, 1}, true},
        {{.ndim = 2, .dim = {2, 3}}, {1, 2}, true},
        {{.ndim = 2, .dim = {2, 3}}, {4, 1}, false},
        {{.ndim = 2, .dim = {2, 3}}, {2, 1}, false},
        {{.ndim = 2, .dim = {2, 2}}, {1, 1}, false},
        {{.ndim = 2, .dim = {1, 3}}, {9, 1}, true},
        {{.ndim = 2, .dim = {3, 1}}, {1, 9}, true},
        {{.ndim = 3, .dim = {2, 3, 4}}, {12, 4, 1}, true},
        {{.ndim = 3, .dim = {2, 3, 4}}, {1, 2, 6}, true},
        {{.ndim = 3, .dim = {2, 3, 4}}, {4, 8, 1}, true},
        {{.ndim = 3, .dim = {2, 3, 4}}, {12, 4, 2}, false},
        {{.ndim = 3, .dim = {2, 3, 4}}, {11, 4, 1}, false},
        {{.ndim = 4, .dim = {2, 1, 3, 1}}, {3, 5, 1, 6}, true},
        {{.ndim = 4, .dim = {2, 1, 3, 1}}, {5, 5, 1, 6}, false},
        {{.ndim = 0}, {0}, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_tensor *x = weft_symm_empty_strided_p2p(cases[i].shape, cases[i].strides, WEFT_F64,
                                                     WEFT_CPU, NULL, 0);
        if ((x != NULL) != cases[i].dense)
            FAIL("case %zu: %s", i, weft_last_error());
        for (int d = 0; x && d < cases[i].shape.ndim; d++)
            CHECK_INT(weft_tensor_stride(x, d), cases[i].strides[d]);
        if (x) {
            const weft_i_lease *lease = weft_i_block_lease_of(x);
            CHECK(weft_symm_is(x) && lease && !lease->offset && !lease->ended);
            CHECK_INT(lease->bytes, (size_t)weft_tensor_numel(x) * sizeof(double));
            CHECK_INT(lease->block->bytes, lease->bytes);
            CHECK(lease->block->references == 1 && lease->block->leases == 1);
        }
        weft_release(x);
        weft_clear_error();
    }
    weft_tensor *plain = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3));
    CHECK(!weft_symm_is(plain) && !weft_symm_is(NULL));
    weft_release(plain);
}

/* Who holds it, and how many tensors lie in it. */
TEST(test_block_counts)
{
    weft_i_block *block = NULL;
    CHECK_OK(weft_i_block_new(WEFT_CPU, 1000, NULL, &block));
    CHECK_INT(block->references, 1);
    CHECK(block->leases == 0 && block->bytes == 1000 && block->device == WEFT_CPU);
    CHECK(block->pad_bytes == weft_symm_signal_pad_size() && !block->group && !block->published);
    weft_i_lease part = {.block = block, .offset = 128, .bytes = 40};
    weft_tensor *x = weft_i_block_tensor(&part, WEFT_F64, WEFT_SHAPE(5), NULL);
    CHECK(x && block->leases == 1 && block->references == 2);
    CHECK(weft_tensor_data(x) == (void *)(block->segment->base + 128));
    CHECK(weft_i_block_hold(block) == block && block->references == 3);
    weft_tensor *view = weft_reshape(x, WEFT_SHAPE(1, 5));
    CHECK(view && block->leases == 1); /* it is the storage that counts */
    weft_release(x);
    CHECK(block->leases == 1 && block->references == 3);
    weft_release(view);
    CHECK(block->leases == 0 && block->references == 2);
    weft_i_block_drop(block);
    CHECK_INT(block->references, 1);
    weft_i_block_drop(block);
    weft_i_block_drop(NULL);
}

static int references(const void *object)
{
    return atomic_load(&((const weft_i_object *)object)->references);
}

/* What it holds goes with it, and not before. */
TEST(test_block_holds)
{
    CHECK_OK(weft_scope_open());
    weft_fake_opts opts = WEFT_FAKE_OPTS(0, 2);
    weft_group *world = weft_fake_init(&opts);
    int before = references(world);
    weft_i_block *block = NULL;
    CHECK_OK(weft_i_block_new(WEFT_CPU, 100, world, &block));
    weft_i_segment *segment = weft_i_segment_hold(block->segment);
    weft_i_registration kept = {.references = 2};
    block->registrations = &kept;
    CHECK(block->group == world && references(world) == before + 1 && segment->references == 2);
    weft_i_block_hold(block);
    weft_i_block_drop(block);
    CHECK(references(world) == before + 1 && segment->references == 2 && kept.references == 2);
    weft_i_block_drop(block);
    CHECK(references(world) == before && segment->references == 1 && kept.references == 1);
    weft_i_segment_drop(segment);
    block = NULL;
    CHECK_INT(weft_i_block_new(WEFT_META, 100, NULL, &block), WEFT_ERR_UNSUPPORTED);
    CHECK(!block);
    said(WEFT_ERR_UNSUPPORTED, "no backend of this build makes symmetric memory on meta");
    CHECK_OK(weft_scope_close());
}

static int publishings, failures;
static weft_i_segment *published;

static weft_status publish(weft_i_fdpass *fdpass, weft_i_segment *segment)
{
    publishings++;
    published = segment;
    return failures-- > 0 ? weft_i_fail(WEFT_ERR_IO, "no")
                          : weft_i_fdpass_publish(fdpass, segment->key, segment, WEFT_OK);
}

/* It is offered once for all rendezvous that are under way, and taken away after the last. */
TEST(test_block_published)
{
    weft_i_block *block = NULL;
    weft_i_fdpass *fdpass = NULL;
    CHECK_OK(weft_i_fdpass_open(WEFT_I_BETWEEN_PROCESSES, &fdpass));
    CHECK_OK(weft_i_block_new(WEFT_CPU, 100, NULL, &block));
    weft_i_backend backend = *block->backend;
    weft_i_memory memory = *backend.memory;
    memory.publish = publish;
    backend.memory = &memory;
    block->backend = &backend;
    failures = 1;
    CHECK_INT(weft_i_block_publish(block, fdpass), WEFT_ERR_IO);
    CHECK(block->published == 0 && publishings == 1 && published == block->segment);
    weft_clear_error();
    for (int round = 0; round < 2; round++) {
        CHECK_OK(weft_i_block_publish(block, fdpass));
        CHECK(block->published == 1 && publishings == 2 + round);
        CHECK_OK(weft_i_block_publish(block, fdpass));
        CHECK(block->published == 2 && publishings == 2 + round);
        weft_i_block_withdraw(block, fdpass);
        CHECK(block->published == 1 && block->segment->references == 2); /* it is held there */
        weft_i_block_withdraw(block, fdpass);
        CHECK(block->published == 0 && block->segment->references == 1);
    }
    weft_i_block_drop(block);
    weft_i_fdpass_drop(fdpass);
}

static int endings;
static size_t ended_at;

static void ended(weft_i_lease *lease)
{
    endings++;
    ended_at = lease->offset;
}

/* Whatever is missing, the part goes back to where it came from, once, and the block is as it was.
 */
TEST(test_block_shortage)
{
    weft_i_block *block = NULL;
    bool fired = true;
    CHECK_OK(weft_i_block_new(WEFT_CPU, 1000, NULL, &block));
    for (int n = 1; fired; n++) {
        weft_i_lease part = {.block = block, .offset = 256, .bytes = 40, .ended = ended};
        endings = 0;
        fault_arm(n);
        weft_tensor *x = weft_i_block_tensor(&part, WEFT_F64, WEFT_SHAPE(5), NULL);
        fired = fault_disarm();
        CHECK((x == NULL) == fired && endings == fired);
        if (fired && n == 1)
            said(WEFT_ERR_NO_MEMORY, "no memory for a symmetric tensor");
        weft_release(x);
        CHECK(endings == 1 && ended_at == 256 && block->leases == 0 && block->references == 1);
        CHECK(n < 20);
        weft_clear_error();
    }
    weft_i_block_drop(block);
    fired = true;
    for (int n = 1; fired; n++) { /* a failed call leaves no id behind */
        fault_arm(n);
        weft_tensor *x =
            weft_symm_empty_strided_p2p(WEFT_SHAPE(10), NULL, WEFT_U8, WEFT_CPU, NULL, 77);
        fired = fault_disarm();
        CHECK(n < 200 && (fired || x));
        if (x) /* some of what is missing can be done without */
            weft_release(x);
        CHECK_INT(weft_symm_forget(77), x ? WEFT_OK : WEFT_ERR_NOT_FOUND);
        weft_clear_error();
    }
    weft_tensor *again =
        weft_symm_empty_strided_p2p(WEFT_SHAPE(10), NULL, WEFT_U8, WEFT_CPU, NULL, 77);
    CHECK(again);
    weft_release(again);
    CHECK_OK(weft_symm_forget(77));
    CHECK_INT(weft_symm_forget(77), WEFT_ERR_NOT_FOUND);
    said(WEFT_ERR_NOT_FOUND, "there is no persistent allocation 77");
}

/* Ids from 2^63 on are the library's own, and are neither made nor forgotten by users. */
TEST(test_block_own_ids)
{
    uint64_t own = UINT64_C(1) << 63;
    CHECK(!weft_symm_empty_strided_p2p(WEFT_SHAPE(1), NULL, WEFT_U8, WEFT_CPU, NULL, own));
    said(WEFT_ERR_INVALID_ARG,
         "weft_symm_empty: id 9223372036854775808: those from 2^63 on are the "
         "library's own");
    weft_i_block *block = NULL;
    bool made = false;
    CHECK_OK(weft_i_persistent_block(own | 5, WEFT_CPU, 10, NULL, &block, &made));
    CHECK(made && block->references == 2);
    weft_i_block_drop(block);
    CHECK_INT(weft_symm_forget(own | 5), WEFT_ERR_NOT_FOUND);
    weft_clear_error();
    CHECK_OK(weft_i_persistent_block(own | 5, WEFT_CPU, 10, NULL, &block, &made));
    CHECK(!made);
    weft_i_block_drop(block);
    CHECK(weft_i_persistent_forget(own | 5) && !weft_i_persistent_forget(own | 5));
    weft_tensor *last =
        weft_symm_empty_strided_p2p(WEFT_SHAPE(1), NULL, WEFT_U8, WEFT_CPU, NULL, own - 1);
    CHECK(last);
    weft_release(last);
    CHECK_OK(weft_symm_forget(own - 1));
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
