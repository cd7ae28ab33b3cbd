/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An MPI library under weft's meter: `mpirun -n N mpi <board>`.  What to measure stands on the
 * board, and the results go there.  Built with each library's mpicc by `weft bench --peers`.
 */
#include "bench/meter.h"

#include <mpi.h>

typedef struct peer {
    const plan_case *what;
    MPI_Datatype type;
    MPI_Op reduction;
    int count, each; /* elements: of the size, of a part */
    int rank, ranks;
    void *in, *out;
} peer;

/* 0 if the library has no such type. */
static int find_type(int dtype, MPI_Datatype *out)
{
    switch (dtype) {
    case WEFT_F64:
        *out = MPI_DOUBLE;
        return 1;
    case WEFT_F32:
        *out = MPI_FLOAT;
        return 1;
    case WEFT_I8:
        *out = MPI_INT8_T;
        return 1;
    case WEFT_I16:
        *out = MPI_INT16_T;
        return 1;
    case WEFT_I32:
        *out = MPI_INT32_T;
        return 1;
    case WEFT_I64:
        *out = MPI_INT64_T;
        return 1;
    case WEFT_U8:
        *out = MPI_UINT8_T;
        return 1;
    case WEFT_U16:
        *out = MPI_UINT16_T;
        return 1;
    case WEFT_U32:
        *out = MPI_UINT32_T;
        return 1;
    case WEFT_U64:
        *out = MPI_UINT64_T;
        return 1;
    default:
        return 0;
    }
}

static int find_reduction(int reduction, MPI_Op *out)
{
    switch (reduction) {
    case WEFT_SUM:
        *out = MPI_SUM;
        return 1;
    case WEFT_PRODUCT:
        *out = MPI_PROD;
        return 1;
    case WEFT_MIN:
        *out = MPI_MIN;
        return 1;
    case WEFT_MAX:
        *out = MPI_MAX;
        return 1;
    case WEFT_BAND:
        *out = MPI_BAND;
        return 1;
    case WEFT_BOR:
        *out = MPI_BOR;
        return 1;
    case WEFT_BXOR:
        *out = MPI_BXOR;
        return 1;
    default:
        return 0;
    }
}

static int prepare(void *self, const plan_case *what, void **in, void **out)
{
    peer *me = self;
    size_t unit = plan_dtype_size(what->dtype);
    if (!find_type(what->dtype, &me->type) || !find_reduction(what->reduction, &me->reduction) ||
        what->count > INT32_MAX)
        return 1;
    me->what = what;
    me->count = (int)what->count;
    me->each = (int)(what->part / unit);
    /* From malloc, as weft's: not from the begin of a page. */
    me->in = malloc(what->in_bytes + 1);
    me->out = what->in_place ? me->in : malloc(what->out_bytes + 1);
    *in = me->in;
    *out = me->out;
    return !me->in || !me->out;
}

static void finish(void *self)
{
    peer *me = self;
    if (me->out != me->in)
        free(me->out);
    free(me->in);
    me->in = me->out = NULL;
}

static int call_rooted(const peer *me, void *in, void *out, int root)
{
    MPI_Comm world = MPI_COMM_WORLD;
    int at_root = me->rank == root;
    switch (me->what->op) {
    case PLAN_BROADCAST:
        return MPI_Bcast(in, me->count, me->type, root, world);
    case PLAN_REDUCE:
        if (me->what->in_place && at_root)
            return MPI_Reduce(MPI_IN_PLACE, in, me->count, me->type, me->reduction, root, world);
        return MPI_Reduce(in, out, me->count, me->type, me->reduction, root, world);
    case PLAN_GATHER:
        return MPI_Gather(in, me->each, me->type, out, me->each, me->type, root, world);
    case PLAN_SCATTER:
        return MPI_Scatter(in, me->each, me->type, out, me->each, me->type, root, world);
    default:
        return 1;
    }
}

static int call(void *self, void *in, void *out, int root)
{
    const peer *me = self;
    MPI_Comm world = MPI_COMM_WORLD;
    void *from = me->what->in_place ? MPI_IN_PLACE : in;
    int next = (me->rank + 1) % me->ranks, last = (me->rank + me->ranks - 1) % me->ranks;
    switch (me->what->op) {
    case PLAN_ALL_REDUCE:
        return MPI_Allreduce(from, out, me->count, me->type, me->reduction, world);
    case PLAN_ALL_GATHER:
        return MPI_Allgather(in, me->each, me->type, out, me->each, me->type, world);
    case PLAN_REDUCE_SCATTER:
        return MPI_Reduce_scatter_block(in, out, me->each, me->type, me->reduction, world);
    case PLAN_ALL_TO_ALL:
        return MPI_Alltoall(from, me->each, me->type, out, me->each, me->type, world);
    case PLAN_SEND_RECV:
        return MPI_Sendrecv(in, me->count, me->type, next, 0, out, me->count, me->type, last, 0,
                            world, MPI_STATUS_IGNORE);
    case PLAN_BARRIER:
        return MPI_Barrier(world);
    default:
        return call_rooted(me, in, out, root);
    }
}

/* The library's own words about itself, up to the first that are of no interest, on one line. */
static void tell_library(char *out, size_t room)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    size_t used = 0;
    MPI_Get_library_version(text, &length);
    text[strcspn(text, "\n,")] = 0;
    for (const char *at = text; *at && used + 1 < room; at++)
        if (*at > ' ' || (used && out[used - 1] != ' '))
            out[used++] = *at > ' ' ? *at : ' ';
    out[used] = 0;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    meter_board *board = argc == 2 ? meter_board_map(argv[1]) : NULL;
    meter m;
    peer me;
    memset(&m, 0, sizeof m);
    memset(&me, 0, sizeof me);
    MPI_Comm_rank(MPI_COMM_WORLD, &m.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &m.ranks);
    if (!board || board->ranks != m.ranks) {
        fprintf(stderr, "mpi: no board for %d ranks at %s\n", m.ranks, argc == 2 ? argv[1] : "?");
        MPI_Abort(MPI_COMM_WORLD, 2);
        return 2;
    }
    if (m.rank == 0)
        tell_library(board->library, sizeof board->library);
    m.board = board;
    me.rank = m.rank;
    me.ranks = m.ranks;
    if (m.board->bind)
        meter_bind(m.rank);
    meter_contender who = {&me, prepare, call, finish};
    if (meter_sweep(&m, &who) < 0) {
        MPI_Abort(MPI_COMM_WORLD, 1);
        return 1;
    }
    MPI_Finalize();
    return 0;
}
