/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: parallel/fuse.c, parallel/fused_grad.c, parallel/pipe.c */
/*
 * A tensor-parallel MLP of two layers, forward and backward, with fused operations and without: the
 * same results, and what a trace (WEFT_TRACE) shows of it.  Compiled for the CPU and for CUDA.
 */
#include "device.h"
#include "functional_jobs.h"

#include <limits.h>

enum { ROWS = 64, WIDE = 96, HIDDEN = 128, LAYERS = 2, STEPS = 4, RESULTS = 2 + 2 * LAYERS };

static char folder[] = "/tmp/weft-fused-XXXXXX";

/* ---- the model ---- */

/* Weights of this rank: its columns of the first product and its rows of the second. */
typedef struct mlp {
    weft_group *group;
    bool fused;
    weft_tensor *x, *weight[2 * LAYERS];
} mlp;

/* Small enough that results and gradients are about 1. */
static weft_tensor *leaf(weft_shape shape)
{
    weft_tensor *x = weft_sub_scalar(weft_rand(WEFT_F32, WEFT_CPU, shape), 0.5);
    x = weft_detach(weft_to(weft_mul_scalar(x, 0.4), WEFT_F32, DEVICE));
    CHECK_OK(weft_require_grad(x, true));
    return x;
}

static mlp make(weft_group *group, int rank, int size)
{
    mlp m = {.group = group};
    weft_seed(7 + (uint64_t)rank);
    m.x = leaf(WEFT_SHAPE(ROWS / size, WIDE));
    for (int i = 0; i < LAYERS; i++) {
        m.weight[2 * i] = leaf(WEFT_SHAPE(WIDE, HIDDEN / size));
        m.weight[2 * i + 1] = leaf(WEFT_SHAPE(HIDDEN / size, WIDE));
    }
    return m;
}

static weft_tensor *up(const mlp *m, weft_tensor *x, weft_tensor *w)
{
    weft_tensor *y = NULL;
    if (!m->fused)
        return weft_mm(weft_all_gather_tensor(x, 0, m->group), w);
    CHECK_OK(weft_all_gather_matmul(NULL, &y, x, &w, 1, 0, m->group));
    return y;
}

static weft_tensor *down(const mlp *m, weft_tensor *x, weft_tensor *w)
{
    if (m->fused)
        return weft_matmul_reduce_scatter(x, w, WEFT_SUM, 0, m->group);
    return weft_wait_tensor(weft_reduce_scatter_tensor(weft_mm(x, w), WEFT_SUM, 0, m->group));
}

/* The output, and the gradients of input and weights, on the host. */
static void step(mlp *m, bool fused, weft_tensor *result[RESULTS])
{
    weft_tensor *y = m->x;
    m->fused = fused;
    CHECK_OK(weft_set_grad(m->x, NULL));
    for (int i = 0; i < 2 * LAYERS; i++)
        CHECK_OK(weft_set_grad(m->weight[i], NULL));
    for (int i = 0; i < LAYERS; i++)
        y = down(m, weft_gelu(up(m, y, m->weight[2 * i])), m->weight[2 * i + 1]);
    CHECK_OK(weft_backward(weft_sum(weft_mul(y, y), NULL, 0, false)));
    result[0] = weft_to(weft_detach(y), WEFT_F32, WEFT_CPU);
    result[1] = weft_to(weft_grad(m->x), WEFT_F32, WEFT_CPU);
    for (int i = 0; i < 2 * LAYERS; i++)
        result[2 + i] = weft_to(weft_grad(m->weight[i]), WEFT_F32, WEFT_CPU);
}

static void check_mlp(int rank, int size)
{
    weft_group *world = join(30000);
    mlp m = make(world, rank, size);
    weft_tensor *plain[RESULTS], *got[RESULTS];
    step(&m, false, plain);
    weft_fused_use(WEFT_FUSED_PIPELINE); /* these products are small */
    for (int k = 0; k < STEPS; k++) {
        step(&m, true, got);
        for (int i = 0; i < RESULTS; i++)
            if (!weft_allclose(got[i], plain[i], 1e-4, 1e-4, false))
                FAIL("step %d: result %d differs", k, i);
    }
    weft_fused_use(WEFT_FUSED_CHOOSE);
    leave(world);
}

/* ---- its trace ---- */

/* An event of a rank's trace; times are in microseconds. */
typedef struct event {
    char name[32];
    int peer;
    double begin, end;
} event;
enum { EVENTS = 2048, RANKS_MOST = 4 };

/* The value of a field of the line, or `otherwise`. */
static double field(const char *line, const char *name, double otherwise)
{
    char key[32];
    snprintf(key, sizeof key, "\"%s\":", name);
    const char *at = strstr(line, key);
    return at ? strtod(at + strlen(key), NULL) : otherwise;
}

static void path_of(int rank, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%s/mlp.%d.json", folder, rank);
}

static int read_trace(int rank, event *events)
{
    char path[PATH_MAX], line[4096];
    int count = 0;
    path_of(rank, path);
    FILE *file = fopen(path, "r");
    if (!file)
        FAIL("%s is not there", path);
    while (count < EVENTS && fgets(line, sizeof line, file)) {
        const char *name = strstr(line, "{\"name\":\"");
        if (!name || !strstr(line, "\"ph\":\"X\""))
            continue;
        event *e = &events[count++];
        snprintf(e->name, sizeof e->name, "%.*s", (int)strcspn(name + 9, "\""), name + 9);
        e->peer = (int)field(line, "peer", -1);
        e->begin = field(line, "ts", 0);
        e->end = e->begin + field(line, "dur", 0);
    }
    fclose(file);
    return count;
}

static bool is(const event *e, const char *name)
{
    return !strcmp(e->name, name);
}

/* Between two events: the first `first`, of a chunk of that rank (-1: any), comes before the first
 * `then`, of another chunk; both are there. */
static void check_order(const event *events, int from, int to, const char *first, int first_of,
                        const char *then, int then_of)
{
    int at = -1, next = -1;
    for (int i = from; i < to; i++) {
        if (at < 0 && is(&events[i], first) && (first_of < 0 || events[i].peer == first_of))
            at = i;
        if (next < 0 && is(&events[i], then) && events[i].peer != then_of)
            next = i;
    }
    if (at < 0 || next < 0 || at > next)
        FAIL("%s is number %d, %s number %d, of events %d to %d", first, at, then, next, from, to);
}

/*
 * A gather multiplies its own chunk before it waits for anybody's; a scatter says that a chunk is
 * there before it multiplies its own.  So there is a product to hide each copy behind.
 */
static int check_interleaved(const event *events, int count, int rank)
{
    int seen = 0;
    for (int i = 0; i < count; i++) {
        bool gathers = is(&events[i], "ag_matmul"), scatters = is(&events[i], "matmul_rs");
        int to = i + 1;
        if (!gathers && !scatters)
            continue;
        while (to < count && events[to].begin < events[i].end)
            to++;
        seen++;
        if (gathers)
            check_order(events, i, to, "chunk", rank, "wait_signal", rank);
        else
            check_order(events, i, to, "put_signal", -1, "wait_signal", rank);
    }
    return seen;
}

/* Copies, and waits for chunks, of one rank during which another rank multiplied. */
static int count_overlaps(const event *a, int count_a, const event *b, int count_b)
{
    int overlaps = 0;
    for (int i = 0; i < count_a; i++)
        if (is(&a[i], "chunk_copy") || is(&a[i], "put_signal") || is(&a[i], "wait_signal"))
            for (int k = 0; k < count_b; k++)
                overlaps += is(&b[k], "chunk") && a[i].begin < b[k].end && b[k].begin < a[i].end;
    return overlaps;
}

/* Rank 0 looks at everybody's, when all have left. */
static void check_trace(int size)
{
    static event events[RANKS_MOST][EVENTS];
    int count[RANKS_MOST], overlaps = 0;
    for (int rank = 0; rank < size; rank++) {
        count[rank] = read_trace(rank, events[rank]);
        /* Forward two of each, backward the same and the gathers of gradients. */
        CHECK(check_interleaved(events[rank], count[rank], rank) >= 4 * LAYERS * STEPS);
    }
    for (int rank = 0; rank < size; rank++)
        for (int other = 0; other < size; other++)
            if (rank != other)
                overlaps += count_overlaps(events[rank], count[rank], events[other], count[other]);
    if (DEVICE == WEFT_CPU) /* on a device these are the times of enqueueing */
        CHECK(overlaps > 0);
}

SIZES_TEST(test_fused_mlp_traced)
{
    check_mlp(rank, size);
    harness_mark();
    if (rank == 0) {
        for (int other = 1; other < size; other++)
            CHECK(harness_await(other, 1));
        check_trace(size);
    }
}

int main(int argc, char **argv)
{
    char trace[64], path[PATH_MAX];
    device_install();
    if (!mkdtemp(folder))
        return 1;
    snprintf(trace, sizeof trace, "%s/mlp.json", folder);
    setenv("WEFT_TRACE", trace, 1);
    int status = harness_main(argc, argv);
    for (int rank = 0; rank < RANKS_MOST; rank++) {
        path_of(rank, path);
        unlink(path);
    }
    rmdir(folder);
    return status;
}
