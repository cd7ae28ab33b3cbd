/* SPDX-License-Identifier: Apache-2.0 */
/* The options of `weft bench`; see bench_options.h. */
#include "bench_options.h"

#include "bench_report.h"

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

static int read_int(const char *text, int low, int high, int *out)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < low || value > high)
        return 0;
    *out = (int)value;
    return 1;
}

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

static int set_begin(reader *r, const char *text)
{
    return read_size(text, &r->begin);
}

static int set_end(reader *r, const char *text)
{
    return read_size(text, &r->end);
}

static int set_factor(reader *r, const char *text)
{
    char *end;
    r->factor = strtod(text, &end);
    return end != text && !*end && r->factor > 1 && r->factor <= 1e9;
}

static int set_step(reader *r, const char *text)
{
    return read_size(text, &r->step) && r->step;
}

static int set_sizes(reader *r, const char *text)
{
    r->sizes = text;
    return *text != 0;
}

static int set_ranks(reader *r, const char *text)
{
    return read_int(text, 1, METER_RANKS, &r->into->ranks);
}

static int set_dtype(reader *r, const char *text)
{
    static const struct {
        const char *name;
        int dtype;
    } also[] = {{"float", WEFT_F32},     {"double", WEFT_F64}, {"half", WEFT_F16},
                {"bfloat16", WEFT_BF16}, {"int32", WEFT_I32},  {"int64", WEFT_I64},
                {"int8", WEFT_I8},       {"uint8", WEFT_U8}};
    for (int d = 0; d < WEFT_DTYPE_COUNT; d++)
        if (!strcmp(text, weft_dtype_name((weft_dtype)d))) {
            r->into->dtype = d;
            return 1;
        }
    for (size_t i = 0; i < sizeof also / sizeof *also; i++)
        if (!strcmp(text, also[i].name)) {
            r->into->dtype = also[i].dtype;
            return 1;
        }
    return 0;
}

static int set_reduction(reader *r, const char *text)
{
    for (int o = 0; o < WEFT_REDUCTIONS; o++)
        if (!strcmp(text, weft_reduction_name((weft_reduction)o))) {
            r->into->reduction = o;
            return 1;
        }
    return 0;
}

static int set_backend(reader *r, const char *text)
{
    r->into->backend = text;
    return !strcmp(text, "shm") || !strcmp(text, "threads");
}

static int set_device(reader *r, const char *text)
{
    r->into->device = text;
    return !strcmp(text, "cuda");
}

static int set_algo(reader *r, const char *text)
{
    r->into->eager = !strcmp(text, "eager") ? BENCH_EAGER_MOST : 0;
    return r->into->eager || !strcmp(text, "rendezvous");
}

static int set_iters(reader *r, const char *text)
{
    return read_int(text, 1, METER_CALLS, &r->into->iters);
}

static int set_warmup(reader *r, const char *text)
{
    return read_int(text, 0, 1000000, &r->into->warmup);
}

static int set_repeats(reader *r, const char *text)
{
    return read_int(text, 1, METER_REPEATS, &r->into->repeats);
}

static int set_rounds(reader *r, const char *text)
{
    return read_int(text, 1, BENCH_ROUNDS, &r->into->rounds);
}

static int set_budget(reader *r, const char *text)
{
    return read_int(text, 1, 600000, &r->into->budget_ms);
}

static int set_bind(reader *r, const char *text)
{
    r->into->bind = !strcmp(text, "core");
    return r->into->bind || !strcmp(text, "none");
}

static int set_memory(reader *r, const char *text)
{
    r->into->symm = !strcmp(text, "symm");
    r->into->weft_memory = !strcmp(text, "weft");
    return r->into->symm || r->into->weft_memory || !strcmp(text, "malloc");
}

static int set_compare(reader *r, const char *text)
{
    r->into->compare = text;
    return *text != 0;
}

static int set_from(reader *r, const char *text)
{
    r->into->from = text;
    return *text != 0;
}

static int set_save(reader *r, const char *text)
{
    r->into->save = text;
    return *text != 0;
}

static int set_threshold(reader *r, const char *text)
{
    char *end;
    r->into->threshold = strtod(text, &end);
    return end != text && !*end && r->into->threshold >= 1;
}

static int set_tune(reader *r, const char *text)
{
    r->into->tune = text;
    return *text != 0;
}

static int set_plot(reader *r, const char *text)
{
    r->into->plot = text;
    return *text != 0;
}

#define FLAG_OF(name_)                                  \
    static int set_##name_(reader *r, const char *text) \
    {                                                   \
        (void)text;                                     \
        return r->into->name_ = 1;                      \
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
static int set_check(reader *r, const char *text)
{
    (void)r;
    (void)text;
    return 1;
}

static const struct {
    const char *name, *value; /* value: what it takes, NULL for none */
    int (*set)(reader *r, const char *text);
    int sweep; /* makes `barrier` the collective */
    const char *text;
} table[] = {
    {"-n", "RANKS", set_ranks, 1, "number of ranks (the cores, 2 to 8)"},
    {"-b", "BYTES", set_begin, 1, "first size (8); K, M and G count in 1024"},
    {"-e", "BYTES", set_end, 1, "last size (64M)"},
    {"-f", "FACTOR", set_factor, 1, "from one size to the next (2)"},
    {"-i", "BYTES", set_step, 1, "step from one size to the next, instead of -f"},
    {"--sizes", "LIST", set_sizes, 1, "just these: 8,1K,64M"},
    {"--dtype", "NAME", set_dtype, 1,
     "f32, f64, f16, bf16, f8e4m3, f8e5m2, i8 ... u64, bool (f32)"},
    {"--op", "NAME", set_reduction, 1,
     "sum, avg, product, min, max, band, bor, bxor, premul_sum (sum)"},
    {"--backend", "NAME", set_backend, 1, "ranks as processes (shm) or threads (shm)"},
    {"--device", "cuda", set_device, 1,
     "tensors on a GPU: host time, eager and replayed from a captured graph"},
    {"--algo", "eager|rendezvous", set_algo, 1,
     "this algorithm wherever it is possible (weft info --algo)"},
    {"--memory", "KIND", set_memory, 1, "operands from malloc, weft (weft_empty) or symm (malloc)"},
    {"--symm", NULL, set_symm, 1, "the same as --memory symm"},
    {"--inplace", NULL, set_in_place, 1, "in place as well, where the operation can be"},
    {"--async", NULL, set_async, 1, "posted and waited for, instead of the plain call"},
    {"--floor", NULL, set_floor, 1, "beside each row what bare prototypes take, in the same run"},
    {"--peers", NULL, set_peers, 0, "against Open MPI, MPICH and Gloo, beside weft and the floor"},
    {"--overhead", NULL, set_overhead, 0, "nanoseconds of calls that wait for nobody"},
    {"--tune", "FILE", set_tune, 0,
     "find the thresholds between algorithms, for WEFT_TUNE (-n, or 2, 4, 8 ...)"},
    {"--check", NULL, set_check, 1, "compare every result; always so"},
    {"--iters", "N", set_iters, 1, "calls of a repetition at most (2000)"},
    {"--warmup", "N", set_warmup, 1, "calls before each repetition (4)"},
    {"--repeats", "N", set_repeats, 1, "repetitions; the median of their medians counts (3)"},
    {"--rounds", "N", set_rounds, 1,
     "with --peers: all take turns, the middle turn of each counts (3)"},
    {"--budget", "MS", set_budget, 1, "time of a repetition (40)"},
    {"--bind", "core|none", set_bind, 1, "one core a rank, counted round (core)"},
    {"--json", NULL, set_json, 0, "print JSON"},
    {"--csv", NULL, set_csv, 1, "print CSV"},
    {"--save", "FILE.json", set_save, 0, "write JSON to a file, beside what is printed"},
    {"--from", "FILE.json", set_from, 0, "take the figures from a file instead of measuring"},
    {"--compare", "OLD.json", set_compare, 0, "ratios to older figures; fails past the threshold"},
    {"--threshold", "RATIO", set_threshold, 0, "how much slower is too slow (1.3)"},
    {"--plot", "OUT.svg", set_plot, 0, "draw time over size with gnuplot (.svg or .png)"},
};

enum { OPTIONS = sizeof table / sizeof *table };

void bench_options_help(FILE *out)
{
    for (int i = 0; i < OPTIONS; i++) {
        char head[32];
        snprintf(head, sizeof head, "%s%s%s", table[i].name, table[i].value ? " " : "",
                 table[i].value ? table[i].value : "");
        fprintf(out, "  %-20s %s\n", head, table[i].text);
    }
}

static int wrong(const char *word, const char *problem)
{
    fprintf(stderr, "weft bench: %s %s\nTry `weft bench --help`.\n", word, problem);
    return 2;
}

/* The option of the word at argv[*at] and its value ("-n4", "-n 4", "--op=sum", "--op sum"). */
static int take(reader *r, int argc, char **argv, int *at)
{
    const char *word = argv[*at];
    for (int i = 0; i < OPTIONS; i++) {
        size_t length = strlen(table[i].name);
        const char *rest = word + length;
        if (strncmp(word, table[i].name, length) != 0 ||
            (*rest && (!table[i].value || (table[i].name[1] == '-' && *rest != '='))))
            continue;
        const char *value = *rest == '=' ? rest + 1 : rest;
        if (table[i].value && !*rest) {
            if (*at + 1 >= argc)
                return wrong(word, "needs a value");
            value = argv[++*at];
        }
        r->into->sweep |= table[i].sweep;
        return table[i].set(r, value) ? 0 : wrong(word, "cannot take that value");
    }
    return wrong(word, "is not an option");
}

static int add_size(bench_options *options, uint64_t bytes)
{
    if (options->sizes == METER_ROWS)
        return wrong("that", "makes more than 64 sizes");
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
            return wrong("--sizes", "takes sizes like 8,1K,64M");
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

int bench_options_read(bench_options *options, int argc, char **argv, const char **others)
{
    reader r = {options, 8, 64 << 20, 0, 2, NULL};
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
    for (int i = 1; i < argc; i++) {
        int op = plan_op_find(argv[i]);
        if (argv[i][0] == '-') {
            if (take(&r, argc, argv, &i))
                return 2;
        } else if (op < 0) {
            *others++ = argv[i];
        } else if (options->ops < PLAN_OPS) {
            options->op[options->ops++] = op;
        }
    }
    *others = NULL;
    return count_sizes(&r);
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
