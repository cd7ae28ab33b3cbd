/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: include/weft/shim/nccl.h */
/*
 * Every function of the shim between four processes that have the id from their parent, with values
 * that tell ranks and places apart; and what it must refuse.  tests/test-from builds it.
 */
#include <weft/shim/nccl.h>

#include <stdlib.h>
#include <sys/wait.h>

enum { RANKS = 4, COUNT = 100 };

static int me;
static ncclComm_t comm;

#define CHECK(what_)                                                                            \
    do {                                                                                        \
        if (!(what_)) {                                                                         \
            fprintf(stderr, "%s:%d: rank %d: not so: %s; %s\n", __FILE__, __LINE__, me, #what_, \
                    ncclGetLastError(comm));                                                    \
            exit(1);                                                                            \
        }                                                                                       \
    } while (0)
#define CHECK_OK(call_) CHECK((call_) == ncclSuccess)

static void reductions(void)
{
    static const struct {
        ncclRedOp_t op;
        double result;
    } row[] = {{ncclSum, 14}, {ncclProd, 120}, {ncclMax, 5}, {ncclMin, 2}, {ncclAvg, 3.5}};
    for (size_t k = 0; k < sizeof row / sizeof *row; k++) {
        double x[COUNT], y[COUNT] = {0};
        for (int i = 0; i < COUNT; i++)
            x[i] = me + 2;
        CHECK_OK(ncclAllReduce(x, y, COUNT, ncclDouble, row[k].op, comm, NULL));
        CHECK(y[0] == row[k].result && y[COUNT - 1] == row[k].result && x[0] == me + 2);
        y[0] = -1;
        CHECK_OK(ncclReduce(x, y, COUNT, ncclDouble, row[k].op, 2, comm, NULL));
        CHECK(y[0] == (me == 2 ? row[k].result : -1));
    }
}

static void dtypes(void)
{
    int8_t small[4] = {-1, 2, -3, 4};
    uint64_t large[2] = {UINT64_C(1) << 40, 3};
    uint16_t half = 0x3c00, brain = 0x3f80; /* 1 */
    CHECK_OK(ncclAllReduce(small, small, 4, ncclInt8, ncclSum, comm, NULL));
    CHECK(small[0] == -4 && small[3] == 16);
    CHECK_OK(ncclAllReduce(large, large, 2, ncclUint64, ncclSum, comm, NULL));
    CHECK(large[0] == UINT64_C(1) << 42 && large[1] == 12);
    CHECK_OK(ncclAllReduce(&half, &half, 1, ncclHalf, ncclSum, comm, NULL));
    CHECK_OK(ncclAllReduce(&brain, &brain, 1, ncclBfloat16, ncclSum, comm, NULL));
    CHECK(half == 0x4400 && brain == 0x4080); /* 4 */
}

static void movements(void)
{
    int mine[2] = {me, 10 * me}, all[2 * RANKS] = {0}, word = me == 1 ? 77 : 0, copy = 0;
    CHECK_OK(ncclAllGather(mine, all, 2, ncclInt, comm, NULL));
    for (int r = 0; r < RANKS; r++)
        CHECK(all[2 * r] == r && all[2 * r + 1] == 10 * r);
    CHECK_OK(ncclReduceScatter(all, mine, 2, ncclInt, ncclSum, comm, NULL));
    CHECK(mine[0] == RANKS * me && mine[1] == 10 * RANKS * me);
    CHECK_OK(ncclBroadcast(&word, &copy, 1, ncclInt32, 1, comm, NULL));
    CHECK(copy == 77 && word == (me == 1 ? 77 : 0));
}

/* Each rank sends to all, itself included, in an order in which single messages would deadlock. */
static void messages(void)
{
    static float out[RANKS][100000], in[RANKS][100000];
    CHECK_OK(ncclGroupStart());
    CHECK_OK(ncclGroupStart()); /* groups nest */
    for (int r = 0; r < RANKS; r++) {
        out[r][99999] = (float)(10 * me + r);
        CHECK_OK(ncclSend(out[r], 100000, ncclFloat, r, comm, NULL));
    }
    CHECK_OK(ncclGroupEnd());
    for (int r = 0; r < RANKS; r++)
        CHECK_OK(ncclRecv(in[r], 100000, ncclFloat, r, comm, NULL));
    CHECK_OK(ncclGroupEnd());
    for (int r = 0; r < RANKS; r++)
        CHECK(in[r][99999] == (float)(10 * r + me));
    if (me == 0)
        CHECK_OK(ncclSend(out[0], 10, ncclFloat, 3, comm, NULL));
    if (me == 3)
        CHECK_OK(ncclRecv(in[0], 10, ncclFloat, 0, comm, NULL));
}

static void groups(void)
{
    double x[3] = {1, 2, 3};
    CHECK_OK(ncclGroupStart());
    for (int i = 0; i < 3; i++)
        CHECK_OK(ncclAllReduce(&x[i], &x[i], 1, ncclDouble, ncclSum, comm, NULL));
    CHECK_OK(ncclGroupEnd());
    CHECK(x[0] == 4 && x[1] == 8 && x[2] == 12);
}

static void refusals(void)
{
    float x = 1;
    int count = 0, rank = -1;
    CHECK_OK(ncclCommCount(comm, &count));
    CHECK_OK(ncclCommUserRank(comm, &rank));
    CHECK(count == RANKS && rank == me);
    CHECK(ncclCommCount(NULL, &count) == ncclInvalidArgument);
    CHECK(ncclGroupEnd() == ncclInvalidUsage);
    CHECK(ncclAllReduce(&x, &x, 1, ncclNumTypes, ncclSum, comm, NULL) == ncclInvalidArgument);
    CHECK(ncclAllReduce(&x, &x, 1, ncclFloat, ncclNumOps, comm, NULL) == ncclInvalidArgument);
    CHECK(ncclBroadcast(&x, &x, 1, ncclFloat, RANKS, comm, NULL) == ncclInvalidArgument);
    CHECK(ncclSend(&x, 1, ncclFloat, RANKS, comm, NULL) == ncclInvalidArgument);
    CHECK_OK(ncclGroupStart());
    ncclSend(&x, 1, ncclFloat, RANKS, comm, NULL);
    CHECK(ncclGroupEnd() == ncclInvalidArgument);
    CHECK(!strcmp(ncclGetErrorString(ncclSuccess), "no error"));
    CHECK(!strcmp(ncclGetErrorString(ncclNumResults), "unknown result code"));
    weft_clear_error();
}

/* Rank 3 goes without a word: the others are told, and by whom. */
static int death(void)
{
    float x = 1;
    if (me == 3)
        _exit(0);
    CHECK(ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, comm, NULL) == ncclRemoteError);
    CHECK(strstr(ncclGetLastError(comm), "rank 3"));
    ncclCommDestroy(comm);
    return 0;
}

static int rank_of(ncclUniqueId id)
{
    CHECK_OK(ncclCommInitRank(&comm, RANKS, id, me));
    refusals();
    reductions();
    dtypes();
    movements();
    messages();
    groups();
    return death();
}

int main(void)
{
    ncclUniqueId id;
    int failed = 0, status;
    CHECK_OK(ncclGetUniqueId(&id));
    for (me = 0; me < RANKS; me++)
        if (fork() == 0)
            _exit(rank_of(id));
    for (int r = 0; r < RANKS; r++)
        failed |= wait(&status) < 0 || status != 0;
    printf("test_shim_nccl shm %d %s\n", RANKS, failed ? "fail: see above" : "pass");
    return failed;
}
