// SPDX-License-Identifier: Apache-2.0
// Gloo under weft's meter: RANK=r WORLD_SIZE=n gloo <board> <folder>.  What to measure stands on
// the board, and the results go there; through the empty folder the ranks meet.  As torch uses it:
// TCP over the loopback, new options and buffers for each call.  float32 sums.  It has no
// reduce_scatter of that kind.
#include "bench/meter.h"

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>

#include <exception>
#include <memory>
#include <vector>

namespace
{

struct Peer {
    std::shared_ptr<gloo::rendezvous::Context> context;
    const plan_case *what = nullptr;
    size_t count = 0, each = 0; // elements: of the size, of a part
    std::vector<float> in, out;
};

int prepare(void *self, const plan_case *what, void **in, void **out)
{
    Peer *me = static_cast<Peer *>(self);
    if (what->dtype != WEFT_F32 || what->reduction != WEFT_SUM || what->op == PLAN_REDUCE_SCATTER)
        return 1;
    me->what = what;
    me->count = what->count;
    me->each = what->part / sizeof(float);
    me->in.assign(what->in_bytes / sizeof(float) + 1, 0);
    me->out.assign(what->in_place ? 1 : what->out_bytes / sizeof(float) + 1, 0);
    *in = me->in.data();
    *out = what->in_place ? *in : me->out.data();
    return 0;
}

void finish(void *self)
{
    Peer *me = static_cast<Peer *>(self);
    me->in = std::vector<float>();
    me->out = std::vector<float>();
}

void add(void *to, const void *a, const void *b, size_t count)
{
    gloo::sum<float>(to, a, b, count);
}

void all_reduce(Peer *me, float *in, float *out)
{
    gloo::AllreduceOptions options(me->context);
    if (in != out)
        options.setInput(in, me->count);
    options.setOutput(out, me->count);
    options.setReduceFunction(add);
    gloo::allreduce(options);
}

void reduce(Peer *me, float *in, float *out, int root)
{
    gloo::ReduceOptions options(me->context);
    if (in != out)
        options.setInput(in, me->count);
    options.setOutput(out, me->count);
    options.setReduceFunction(add);
    options.setRoot(root);
    gloo::reduce(options);
}

void gather(Peer *me, float *in, float *out, int root)
{
    gloo::GatherOptions options(me->context);
    options.setInput(in, me->each);
    if (me->context->rank == root)
        options.setOutput(out, me->count);
    options.setRoot(root);
    gloo::gather(options);
}

void scatter(Peer *me, float *in, float *out, int root)
{
    gloo::ScatterOptions options(me->context);
    if (me->context->rank == root) {
        std::vector<float *> parts;
        for (int r = 0; r < me->context->size; r++)
            parts.push_back(in + me->each * r);
        options.setInputs(parts, me->each);
    }
    options.setOutput(out, me->each);
    options.setRoot(root);
    gloo::scatter(options);
}

void send_recv(Peer *me, float *in, float *out)
{
    int size = me->context->size, rank = me->context->rank;
    auto from = me->context->createUnboundBuffer(in, me->count * sizeof(float));
    auto to = me->context->createUnboundBuffer(out, me->count * sizeof(float));
    to->recv((rank + size - 1) % size, 1);
    from->send((rank + 1) % size, 1);
    to->waitRecv();
    from->waitSend();
}

void run(Peer *me, float *in, float *out, int root)
{
    switch (me->what->op) {
    case PLAN_ALL_REDUCE:
        return all_reduce(me, in, out);
    case PLAN_ALL_GATHER: {
        gloo::AllgatherOptions options(me->context);
        options.setInput(in, me->each);
        options.setOutput(out, me->count);
        return gloo::allgather(options);
    }
    case PLAN_ALL_TO_ALL: {
        gloo::AlltoallOptions options(me->context);
        options.setInput(in, me->count);
        options.setOutput(out, me->count);
        return gloo::alltoall(options);
    }
    case PLAN_BROADCAST: {
        gloo::BroadcastOptions options(me->context);
        options.setOutput(in, me->count);
        options.setRoot(root);
        return gloo::broadcast(options);
    }
    case PLAN_BARRIER: {
        gloo::BarrierOptions options(me->context);
        return gloo::barrier(options);
    }
    case PLAN_REDUCE:
        return reduce(me, in, out, root);
    case PLAN_GATHER:
        return gather(me, in, out, root);
    case PLAN_SCATTER:
        return scatter(me, in, out, root);
    default:
        return send_recv(me, in, out);
    }
}

int call(void *self, void *in, void *out, int root)
{
    try {
        run(static_cast<Peer *>(self), static_cast<float *>(in), static_cast<float *>(out), root);
        return 0;
    } catch (const std::exception &problem) {
        fprintf(stderr, "gloo: %s\n", problem.what());
        return 1;
    }
}

int measure(const char *board, const char *folder, int rank, int ranks)
{
    meter m = {meter_board_map(board), rank, ranks, 0, 0};
    if (!m.board || m.board->ranks != ranks) {
        fprintf(stderr, "gloo: no board for %d ranks at %s\n", ranks, board);
        return 2;
    }
    gloo::transport::tcp::attr loopback("127.0.0.1");
    auto device = gloo::transport::tcp::CreateDevice(loopback);
    gloo::rendezvous::FileStore store(folder);
    Peer me;
    me.context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
    me.context->connectFullMesh(store, device);
    // After the event thread has started, which must stay free to run anywhere.
    if (m.board->bind)
        meter_bind(m.rank);
    meter_contender who = {&me, prepare, call, finish};
    return meter_sweep(&m, &who) < 0;
}

} // namespace

int main(int argc, char **argv)
{
    const char *rank = getenv("RANK"), *ranks = getenv("WORLD_SIZE");
    if (argc != 3 || !rank || !ranks) {
        fprintf(stderr, "usage: RANK=r WORLD_SIZE=n gloo <board> <folder>\n");
        return 2;
    }
    try {
        return measure(argv[1], argv[2], atoi(rank), atoi(ranks));
    } catch (const std::exception &problem) {
        fprintf(stderr, "gloo: %s\n", problem.what());
        return 1;
    }
}
