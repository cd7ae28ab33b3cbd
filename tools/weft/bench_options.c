/* SPDX-License-Identifier: Apache-2.0 */
/* The options of `weft bench`; see bench_options.h. */
#include "bench_options.h"

#include "bench_report.h"
#include "command.h"

#include <weft/weft.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef struct reader {
    bench_options *into;
    uint64_t begin, end, step;
    double factor;
    const char *sizes;
} reader;

/* "64", "64K", "64M", "64G"; powers of 1024. */
static int read_size(const char *text, uint64_t *out)
{
    static const char units[] = "KMGT";
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno || end == text || *text == '-')
        return 0;
    const char *unit = *end ? strchr(units, *end & ~0x20) : NULL;
    int shift = unit ? 10 * (int)(unit - units + 1) : 0;
    end += unit != NULL;
    if (!strcasecmp(end, "iB") || !strcasecmp(end, "B"))
        end += strlen(end);
    if (*end || value >> (63 - shift))
        return 0;
    *out = (uint64_t)value << shift;
    return 1;
}

/* Each takes the value of an option into the reader; 0 refuses it. */
#define SET(name_) static int set_##name_(void *into, const char *text, long number)
#define READER        \
    reader *r = into; \
    (void)text, (void)number, (void)r

SET(begin)
{
    READER;
    return read_size(text, &r->begin);
}

SET(end)
{
    READER;
    return read_size(text, &r->end);
}

SET(factor)
{
    READER;
    char *end;
    r->factor = strtod(text, &end);
    return end != text && !*end && r->factor > 1 && r->factor <= 1e9;
}

SET(step)
{
    READER;
    return read_size(text, &r->step) && r->step;
}

SET(sizes)
{
    READER;
    r->sizes = text;
    return *text != 0;
}

SET(dtype)
{
    READER;
    static const struct {
        const char *name;
        int dtype;
    } also[] = {{"float", WEFT_F32},     {"double", WEFT_F64}, {"half", WEFT_F16},
                {"bfloat16", WEFT_BF16}, {"int32", WEFT_I32},  {"int64", WEFT_I64},
                {"int8", WEFT_I8},       {"uint8", WEFT_U8}};
    for (int d = 0; d < WEFT_DTYPE_COUNT; d++)
        if (!strcmp(text, weft_dtype_name((weft_dtype)d))) {
            r->into->dtype = d;
            return r->into->typed = 1;
        }
    for (size_t i = 0; i < sizeof also / sizeof *also; i++)
        if (!strcmp(text, also[i].name)) {
            r->into->dtype = also[i].dtype;
            return r->into->typed = 1;
        }
    return 0;
}

SET(reduction)
{
    READER;
    for (int o = 0; o < WEFT_REDUCTIONS; o++)
        if (!strcmp(text, weft_reduction_name((weft_reduction)o))) {
            r->into->reduction = o;
            return 1;
        }
    return 0;
}

/* "4096x8192x8192,...": rows, columns and the inner dimension of products. */
SET(shape)
{
    READER;
    bench_options *o = r->into;
    long long m, n, k;
    int used = 0;
    for (o->shapes = 0; o->shapes < BENCH_SHAPES; text += used + 1) {
        if (sscanf(text, "%8lldx%8lldx%8lld%n", &m, &n, &k, &used) != 3 || m < 1 || n < 1 || k < 1)
            return 0;
        o->shape[o->shapes++] = (bench_shape){m, n, k};
        if (text[used] != ',')
            return !text[used];
    }
    return 0;
}

/* "12x768x4x64": layers, width, batch and time of a GPT-2. */
SET(model)
{
    READER;
    bench_model *m = &r->into->model;
    int used = 0;
    return sscanf(text, "%4dx%6dx%6dx%6d%n", &m->layers, &m->width, &m->batch, &m->time, &used) ==
               4 &&
           !text[used] && m->layers > 0 && m->width > 0 && m->batch > 0 && m->time > 0;
}

SET(backend)
{
    READER;
    r->into->backend = text;
    return !strcmp(text, "shm") || !strcmp(text, "threads");
}

SET(device)
{
    READER;
    r->into->device = text;
    return !strcmp(text, "cuda");
}

SET(algo)
{
    READER;
    r->into->eager = !strcmp(text, "eager") ? BENCH_EAGER_MOST : 0;
    return r->into->eager || !strcmp(text, "rendezvous");
}

SET(bind)
{
    READER;
    r->into->bind = !strcmp(text, "core");
    return r->into->bind || !strcmp(text, "none");
}

SET(memory)
{
    READER;
    r->into->symm = !strcmp(text, "symm");
    r->into->weft_memory = !strcmp(text, "weft");
    return r->into->symm || r->into->weft_memory || !strcmp(text, "malloc");
}

SET(threshold)
{
    READER;
    char *end;
    r->into->threshold = strtod(text, &end);
    return end != text && !*end && r->into->threshold >= 1;
}

#define NUMBER_OF(name_)              \
    SET(name_)                        \
    {                                 \
        READER;                       \
        r->into->name_ = (int)number; \
        return 1;                     \
    }
NUMBER_OF(ranks)
NUMBER_OF(iters)
NUMBER_OF(warmup)
NUMBER_OF(rounds)
NUMBER_OF(budget_ms)
NUMBER_OF(limit_s)

SET(repeats)
{
    READER;
    r->into->repeats = (int)number;
    return r->into->repeated = 1;
}

#define TEXT_OF(name_)         \
    SET(name_)                 \
    {                          \
        READER;                \
        r->into->name_ = text; \
        return *text != 0;     \
    }
TEXT_OF(compare)
TEXT_OF(from)
TEXT_OF(save)
TEXT_OF(tune)
TEXT_OF(plot)
TEXT_OF(peers_from)

#define FLAG_OF(name_)             \
    SET(name_)                     \
    {                              \
        READER;                    \
        return r->into->name_ = 1; \
    }
FLAG_OF(in_place)
FLAG_OF(symm)
FLAG_OF(async)
FLAG_OF(floor)
FLAG_OF(json)
FLAG_OF(csv)
FLAG_OF(peers)
FLAG_OF(overhead)

/* Results are always compared: reading them is part of the method.  nccl-tests has the option. */
SET(check)
{
    READER;
    return 1;
}

enum { SWEEP = 1 }; /* a mark: the option makes `barrier` the collective */

#define SIZE      "a size such as 8, 64K or 1M"
#define FILE_NAME "the name of a file"

const command_option bench_options_table[] = {
    {'n', "ranks", "N", 1, METER_RANKS, NULL, "number of ranks, 1 to 64 (the cores, 2 to 8)", SWEEP,
     set_ranks},
    {'b', "begin", "BYTES", 0, 0, SIZE, "first size (8); K, M and G count in 1024", SWEEP,
     set_begin},
    {'e', "end", "BYTES", 0, 0, SIZE, "last size (64M)", SWEEP, set_end},
    {'f', "factor", "FACTOR", 0, 0, "a number above 1", "from one size to the next (2)", SWEEP,
     set_factor},
    {'i', "step", "BYTES", 0, 0, SIZE " from 1 on", "step from one size to the next, instead of -f",
     SWEEP, set_step},
    {0, "sizes", "LIST", 0, 0, "sizes such as 8,1K,64M", "just these: 8,1K,64M", SWEEP, set_sizes},
    {0, "dtype", "NAME", 0, 0, "f32|f64|f16|bf16|f8e4m3|f8e5m2|i8|i16|i32|i64|u8|u16|u32|u64|bool",
     "f32, f64, f16, bf16, f8e4m3, f8e5m2, i8 ... u64, bool (f32)", SWEEP, set_dtype},
    {0, "op", "NAME", 0, 0, "sum|avg|product|min|max|band|bor|bxor|premul_sum",
     "sum, avg, product, min, max, band, bor, bxor, premul_sum (sum)", SWEEP, set_reduction},
    {0, "backend", "NAME", 0, 0, "shm|threads", "shm: ranks are processes; threads: threads (shm)",
     SWEEP, set_backend},
    {0, "device", "cuda", 0, 0, "cuda",
     "tensors on a GPU: host time, eager and replayed from a captured graph", SWEEP, set_device},
    {0, "shape", "MxNxK,...", 0, 0, "shapes such as 4096x8192x8192",
     "of `fused`: [M, K] times [K, N], one or several", 0, set_shape},
    {0, "model", "LxWxBxT", 0, 0, "layers x width x batch x time, such as 12x768x4x64",
     "of `model`: layers, width, batch, time (4x256x4x64); --dtype: of its products", 0, set_model},
    {0, "algo", "eager|rendezvous", 0, 0, "eager|rendezvous",
     "this algorithm wherever it is possible (weft info --algo)", SWEEP, set_algo},
    {0, "memory", "KIND", 0, 0, "malloc|weft|symm",
     "operands from malloc, weft (weft_empty) or symm (malloc)", SWEEP, set_memory},
    {0, "symm", NULL, 0, 0, NULL, "the same as --memory symm", SWEEP, set_symm},
    {0, "inplace", NULL, 0, 0, NULL, "in place as well, where the operation can be", SWEEP,
     set_in_place},
    {0, "async", NULL, 0, 0, NULL, "posted and waited for, instead of the plain call", SWEEP,
     set_async},
    {0, "floor", NULL, 0, 0, NULL, "beside each row what bare prototypes take, in the same run",
     SWEEP, set_floor},
    {0, "peers", NULL, 0, 0, NULL,
     "against Open MPI, MPICH and Intel MPI, beside weft and the floor", 0, set_peers},
    {0, "peers-from", "FOLDER", 0, 0, "the name of a folder",
     "with --peers: a virtual environment of Python with one of them, or a folder with such ones "
     "called openmpi, mpich and impi",
     0, set_peers_from},
    {0, "overhead", NULL, 0, 0, NULL, "nanoseconds of calls that wait for nobody", 0, set_overhead},
    {0, "tune", "FILE", 0, 0, FILE_NAME,
     "find the thresholds between algorithms, for WEFT_TUNE (-n, or 2, 4, 8 ...); with --device "
     "cuda, between weft's kernels and NCCL",
     0, set_tune},
    {0, "check", NULL, 0, 0, NULL, "compare every result; always so", SWEEP, set_check},
    {0, "iters", "N", 1, METER_CALLS, NULL, "calls of a repetition at most, 1 to 2000 (2000)",
     SWEEP, set_iters},
    {0, "warmup", "N", 0, 1000000, NULL, "calls before each repetition, 0 to 1000000 (4)", SWEEP,
     set_warmup},
    {0, "repeats", "N", 1, METER_REPEATS, NULL,
     "repetitions, 1 to 9; the median of their medians counts (3)", SWEEP, set_repeats},
    {0, "rounds", "N", 1, BENCH_ROUNDS, NULL,
     "with --peers: all take turns, the middle turn of each counts, 1 to 15 (3)", SWEEP,
     set_rounds},
    {0, "limit", "SECONDS", 1, 86400, NULL,
     "with --peers: fewer rounds, but one at least, where all would take longer", SWEEP,
     set_limit_s},
    {0, "budget", "MS", 1, 600000, NULL, "time of a repetition, 1 to 600000 (40)", SWEEP,
     set_budget_ms},
    {0, "bind", "core|none", 0, 0, "core|none", "one core a rank, counted round (core)", SWEEP,
     set_bind},
    {0, "json", NULL, 0, 0, NULL, "print JSON", 0, set_json},
    {0, "csv", NULL, 0, 0, NULL, "print CSV", SWEEP, set_csv},
    {0, "save", "FILE.json", 0, 0, FILE_NAME, "write JSON to a file, beside what is printed", 0,
     set_save},
    {0, "from", "FILE.json", 0, 0, FILE_NAME, "take the figures from a file instead of measuring",
     0, set_from},
    {0, "compare", "OLD.json", 0, 0, FILE_NAME, "ratios to older figures; fails past the threshold",
     0, set_compare},
    {0, "threshold", "RATIO", 0, 0, "a number from 1 on", "how much slower is too slow (1.3)", 0,
     set_threshold},
    {0, "plot", "OUT.svg", 0, 0, FILE_NAME, "draw time over size with gnuplot (.svg or .png)", 0,
     set_plot},
    {0},
};

static int add_size(bench_options *options, uint64_t bytes)
{
    if (options->sizes == METER_ROWS)
        return command_wrong(&weft_command_bench, "that makes more than 64 sizes");
    options->size[options->sizes++] = bytes;
    return 0;
}

static int list_sizes(reader *r)
{
    char word[32];
    for (const char *at = r->sizes; *at;) {
        size_t length = strcspn(at, ",");
        uint64_t bytes;
        snprintf(word, sizeof word, "%.*s", (int)length, at);
        if (!read_size(word, &bytes))
            return command_wrong(&weft_command_bench,
                                 "--sizes cannot take \"%s\": it takes sizes such as 8,1K,64M",
                                 r->sizes);
        if (add_size(r->into, bytes))
            return 2;
        at += length + (at[length] == ',');
    }
    return 0;
}

static int count_sizes(reader *r)
{
    if (r->sizes)
        return list_sizes(r);
    if (r->end < r->begin)
        r->end = r->begin;
    for (uint64_t bytes = r->begin; bytes <= r->end;) {
        if (add_size(r->into, bytes))
            return 2;
        uint64_t next = r->step ? bytes + r->step : (uint64_t)((double)bytes * r->factor);
        bytes = next > bytes ? next : bytes + 1;
    }
    return 0;
}

static void set_defaults(bench_options *options)
{
    memset(options, 0, sizeof *options);
    options->dtype = WEFT_F32;
    options->reduction = WEFT_SUM;
    options->backend = "shm";
    options->iters = METER_CALLS;
    options->warmup = 4;
    options->repeats = 3;
    options->rounds = 3;
    options->budget_ms = 40;
    options->bind = 1;
    options->eager = -1;
    options->threshold = 1.3;
}

int bench_options_read(bench_options *options, int argc, char **argv, char **others)
{
    reader r = {options, 8, 64 << 20, 0, 2, NULL};
    unsigned marks = 0;
    set_defaults(options);
    int status = command_read(&weft_command_bench, argc, argv, &r, others, &marks);
    if (status != COMMAND_GOES_ON)
        return status;
    options->sweep = (marks & SWEEP) != 0;
    char **kept = others;
    for (char **word = others; *word; word++) {
        int op = plan_op_find(*word);
        if (op < 0)
            *kept++ = *word;
        else if (options->ops < PLAN_OPS)
            options->op[options->ops++] = op;
    }
    *kept = NULL;
    return count_sizes(&r) ? COMMAND_WRONG_USE : COMMAND_GOES_ON;
}

char *bench_size_text(uint64_t bytes, char out[24])
{
    static const char units[] = " KMGT";
    int unit = 0;
    while (bytes >= 1024 && bytes % 1024 == 0 && unit < 4) {
        bytes /= 1024;
        unit++;
    }
    snprintf(out, 24, unit ? "%llu%c" : "%llu", (unsigned long long)bytes, units[unit]);
    return out;
}
