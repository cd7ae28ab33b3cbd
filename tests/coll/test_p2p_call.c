/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: coll/calls/p2p_call.c */
/*
 * The public functions of point to point in a fake world, where every call that is accepted is done
 * at once: what a request is filled with, what a batch refuses and what it leaves out, and who is
 * told to have sent.
 */
#include "refusals.h"

#include "coll/calls/p2p_call.h"
#include "coll/calls/work.h"

static weft_tensor *floats(int64_t count)
{
    return weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(count));
}

TEST(test_p2p_call_filled)
{
    weft_group *w = open_world();
    char room[40];
    weft_i_p2p_request request;
    memset(&request, 0xee, sizeof request);
    CHECK_OK(weft_group_set_timeout(w, 1234));
    weft_i_p2p_request_fill(&request, w, WEFT_I_RECV, WEFT_I16, 5, room, 40);
    CHECK(request.group == w && request.kind == WEFT_I_RECV && request.dtype == WEFT_I16);
    CHECK(request.peer == 5 && request.source == -1 && request.data == room);
    CHECK(request.bytes == 40 && request.done == 0 && request.tag == 0 && !request.tensor);
    CHECK(request.limit_ms == 1234 && !request.lane && !request.op && !request.status);
    uint32_t digest = request.digest; /* dtype and length, and nothing else */
    CHECK_INT(digest, weft_i_digest(weft_i_digest(1, WEFT_I16), 40));
    weft_i_p2p_request_fill(&request, w, WEFT_I_SEND, WEFT_I16, 2, NULL, 40);
    CHECK_INT(request.digest, digest);
    weft_i_p2p_request_fill(&request, w, WEFT_I_SEND, WEFT_I16, 2, NULL, 42);
    CHECK(request.digest != digest);
    weft_i_p2p_request_fill(&request, w, WEFT_I_SEND, WEFT_U16, 2, NULL, 40);
    CHECK(request.digest != digest);
    weft_tensor *x = floats(7); /* and of a tensor */
    weft_work *work = weft_send_tag_start(x, 6, 9, w);
    CHECK(work && work->bundle.count == 1);
    const weft_i_p2p_request *sent = work->requests;
    CHECK(sent->kind == WEFT_I_SEND && sent->peer == 6 && sent->tag == 9 && sent->tensor == x);
    CHECK(sent->bytes == 28 && sent->data == weft_tensor_data(x) && sent->device == WEFT_CPU);
    work = weft_recv_tag_start(x, 1, 8, w);
    CHECK(work && work->requests->kind == WEFT_I_RECV && work->requests->tag == 8);
    CHECK(weft_send_start(x, 6, w)->requests->tag == 0);
    CHECK(weft_recv_start(x, 6, w)->requests->tag == 0);
    close_world();
}

/* Input and output of one call may touch, and not overlap; nobody on an end, and they may. */
TEST(test_p2p_call_overlap)
{
    weft_group *w = open_world();
    weft_tensor *all = floats(10);
    static const struct {
        int out, out_end, in, in_end;
        bool clash;
    } cases[] = {{0, 4, 4, 8, false}, {4, 8, 0, 4, false}, {0, 5, 4, 8, true}, {4, 8, 0, 5, true},
                 {0, 4, 0, 4, true},  {0, 9, 3, 4, true},  {3, 4, 0, 9, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_tensor *out = weft_slice(all, 0, cases[i].out, cases[i].out_end, 1),
                    *in = weft_slice(all, 0, cases[i].in, cases[i].in_end, 1);
        if (cases[i].clash)
            BAD(weft_send_recv(out, 0, in, 1, w), WEFT_ERR_INVALID_ARG,
                "send_recv: input and output overlap");
        else
            CHECK_OK(weft_send_recv(out, 0, in, 1, w));
        CHECK_OK(weft_send_recv(out, WEFT_NOBODY, in, 1, w));
        CHECK_OK(weft_send_recv(out, 0, in, WEFT_NOBODY, w));
        CHECK_OK(weft_send_recv(out, WEFT_NOBODY, in, WEFT_NOBODY, w));
    }
    CHECK_OK(weft_send_recv(floats(2), ME, floats(2), ME, w)); /* with itself, at once */
    close_world();
}

/* Nobody on the other end: checked all the same, and done. */
TEST(test_p2p_call_nobody)
{
    weft_group *w = open_world();
    weft_tensor *x = floats(3), *gaps = weft_slice(floats(6), 0, 0, 6, 2);
    CHECK_OK(weft_send(x, WEFT_NOBODY, w));
    CHECK_OK(weft_recv(x, WEFT_NOBODY, w));
    BAD(weft_send_tag(x, WEFT_NOBODY, -1, w), WEFT_ERR_INVALID_ARG, "send: tag -1 is negative");
    BAD(weft_send(gaps, WEFT_NOBODY, w), WEFT_ERR_INVALID_ARG,
        "send: the input, of shape [3], is not contiguous; weft_contiguous makes a copy that is");
    NO(weft_send_start(gaps, WEFT_NOBODY, w), WEFT_ERR_INVALID_ARG,
       "send: the input, of shape [3], is not contiguous; weft_contiguous makes a copy that is");
    weft_work *work = weft_recv_start(x, WEFT_NOBODY, w);
    CHECK(work && weft_work_wait(work, 0) == WEFT_OK && work->bundle.count == 0);
    CHECK_INT(weft_work_source(work), -1);
    BAD(weft_send(x, WEFT_ANY, w), WEFT_ERR_INVALID_ARG,
        "send: rank -1 must be in [0, 8): ranks are those of group \"0\"");
    CHECK_OK(weft_group_revoke(w));
    CHECK_STATUS(weft_send(x, WEFT_NOBODY, w), WEFT_ERR_REVOKED);
    weft_clear_error();
    close_world();
}

TEST(test_p2p_call_batch)
{
    weft_group *w = open_world(), *other = weft_group_new(w, (int[]){3, 4}, 2, "other");
    weft_tensor *x = floats(3), *y = floats(4);
    weft_p2p_op ops[] = {{WEFT_P2P_SEND, x, 1, 5, w},
                         {WEFT_P2P_RECV, y, WEFT_NOBODY, 6, w},
                         {WEFT_P2P_RECV, y, 2, 7, w},
                         {WEFT_P2P_SEND, x, WEFT_NOBODY, 0, w},
                         {WEFT_P2P_RECV, x, ME, 0, w}};
    weft_work *work = weft_batch_start(ops, 5);
    CHECK(work && work->bundle.count == 3 && weft_work_wait(work, 0) == WEFT_OK);
    static const int which[] = {0, 2, 4};
    for (int i = 0; i < 3; i++) {
        const weft_i_p2p_request *r = &work->requests[i];
        CHECK(r->op == which[i] && r->peer == ops[which[i]].peer && r->tag == ops[which[i]].tag);
        CHECK(r->tensor == ops[which[i]].x);
        CHECK_INT(r->kind, ops[which[i]].kind == WEFT_P2P_SEND ? WEFT_I_SEND : WEFT_I_RECV);
    }
    static const int sources[] = {-1, -1, 2, -1, ME};
    for (int op = -1; op < 6; op++)
        CHECK_INT(weft_batch_source(work, op), op < 0 || op > 4 ? -1 : sources[op]);
    CHECK(weft_work_source(work) == -1 && weft_work_source(NULL) == -1); /* of one alone */
    CHECK_INT(weft_batch_source(NULL, 0), -1);
    work->requests[1].status = WEFT_IN_PROGRESS; /* not known yet */
    CHECK_INT(weft_batch_source(work, 2), -1);
    work->requests[1].status = WEFT_OK;
    CHECK_INT(weft_work_source(weft_recv_start(x, 6, w)), 6);
    CHECK_INT(weft_work_source(weft_send_start(x, 6, w)), -1);
    work = weft_batch_start(NULL, 0);
    CHECK(work && weft_work_wait(work, 0) == WEFT_OK && weft_work_source(work) == -1);
    work = weft_batch_start(&ops[1], 1); /* nobody at all */
    CHECK(work && weft_work_wait(work, 0) == WEFT_OK && work->bundle.count == 0);
    char text[64];
    snprintf(text, sizeof text, "batch: -1 ops at %p", (void *)ops);
    NO(weft_batch_start(ops, -1), WEFT_ERR_INVALID_ARG, text);
    snprintf(text, sizeof text, "batch: 1 ops at %p", (void *)NULL);
    NO(weft_batch_start(NULL, 1), WEFT_ERR_INVALID_ARG, text);
    ops[2].kind = (weft_p2p_kind)7;
    NO(weft_batch_start(ops, 5), WEFT_ERR_INVALID_ARG,
       "batch: op 2 is neither send nor receive but 7");
    CHECK(weft_batch_start(ops, 2)); /* what comes before it is fine */
    ops[2] = (weft_p2p_op){WEFT_P2P_RECV, y, 1, 7, other};
    NO(weft_batch_start(ops, 5), WEFT_ERR_INVALID_ARG, "batch: op 2 is of another group than op 0");
    ops[2] = (weft_p2p_op){WEFT_P2P_RECV, y, 9, 7, w};
    NO(weft_batch_start(ops, 5), WEFT_ERR_INVALID_ARG,
       "recv: rank 9 must be in [0, 8): ranks are those of group \"0\"");
    close_world();
}

/* While a group collects calls, nothing is posted; plain ones of one kind are collected. */
TEST(test_p2p_call_collected)
{
    weft_group *w = open_world();
    weft_tensor *x = floats(3);
    weft_p2p_op op = {WEFT_P2P_SEND, x, 1, 0, w};
    static const char refusal[] = "send: group \"0\" collects calls, and closing it gives the work "
                                  "for all of them: use the form that is not posted";
    CHECK_OK(weft_coalesce_open(w));
    NO(weft_send_start(x, 1, w), WEFT_ERR_STATE, refusal);
    NO(weft_batch_start(&op, 1), WEFT_ERR_STATE, refusal);
    CHECK(!weft_coalesce_close(w)); /* it has seen a refusal */
    weft_clear_error();
    CHECK(weft_send_start(x, 1, w));
    close_world();
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
