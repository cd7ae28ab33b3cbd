/* SPDX-License-Identifier: Apache-2.0 */
/* Weft, its floor and its peers in one table; see bench_peers.h. */
#include "bench_peers.h"

#include "bench_peer.h"
#include "bench_sweep.h"
#include "bench_table.h"

#include <weft/weft.h>

#include <math.h>
#include <stdlib.h>

enum { SYMM, PLAIN, FLOOR, FIRST_PEER, COLUMNS = FIRST_PEER + BENCH_PEERS };

/* The goals of a row: how far above the floor symmetric operands may be; ordinary operands must
 * not be behind any peer. */
static const double FLOOR_GOAL = 1.3;

/* The ratios of one operation, a row each: the best peer's time in that of ordinary operands, and
 * that of symmetric operands in the floor's.  NAN: not known. */
typedef struct ratios {
    int rows;
    uint64_t bytes[METER_ROWS];
    double peer[METER_ROWS], floor[METER_ROWS];
} ratios;

typedef struct table {
    const bench_options *options;
    bench_peer peer[BENCH_PEERS];
    bench_report report;
    ratios of[PLAN_OPS];
    int64_t until;     /* ns; no other round begins after it */
    int behind, above; /* rows that miss a goal */
} table;

static int run_weft(table *t, bench_report *round, int op)
{
    bench_sweep sweep;
    if (bench_sweep_open(&sweep, t->options, op) < 0)
        return 1;
    bench_sweep_add(&sweep, BENCH_SYMM, 0, -1);
    bench_sweep_add(&sweep, BENCH_PLAIN, 0, -1);
    bench_sweep_add(&sweep, BENCH_FLOOR, 0, -1);
    int status = bench_sweep_run(&sweep);
    if (bench_sweep_report(&sweep, round) < 0)
        status = 1;
    bench_sweep_close(&sweep);
    return status;
}

static int run_peer(table *t, bench_report *round, bench_peer *peer, int op)
{
    bench_sweep sweep;
    int status = 0;
    if (!bench_peer_can(peer, t->options, op))
        return 0;
    if (bench_sweep_open(&sweep, t->options, op) < 0)
        return 1;
    bench_progress("%s: %s", plan_op_name(op), peer->name);
    bench_peer_run(peer, &sweep); /* a peer that fails has said so, and has no figures */
    for (int row = 0; row < sweep.board->rows; row++) {
        bench_figure f;
        if (!bench_figure_of(sweep.board, row, 0, &f))
            continue;
        snprintf(f.who, sizeof f.who, "%s", peer->name);
        snprintf(f.backend, sizeof f.backend, "%s", peer->family);
        status |= bench_report_add(round, &f) < 0;
    }
    bench_sweep_close(&sweep);
    bench_progress(NULL);
    return status;
}

/* All contenders one after the other, several times: the machine may change meanwhile. */
static int run_rounds(table *t, int op)
{
    bench_report round[BENCH_ROUNDS] = {0};
    int rounds = 0, status = 0;
    do {
        status |= run_weft(t, &round[rounds], op);
        for (int p = 0; p < BENCH_PEERS; p++)
            status |= run_peer(t, &round[rounds], &t->peer[p], op);
    } while (++rounds < t->options->rounds && meter_ns() < t->until);
    status |= bench_report_merge(&t->report, round, rounds) < 0;
    for (int r = 0; r < rounds; r++)
        bench_report_free(&round[r]);
    return status;
}

static double time_of(const table *t, int op, int column, uint64_t bytes)
{
    const char *who = column == SYMM    ? "weft symm"
                      : column == PLAIN ? "weft"
                      : column == FLOOR ? "floor"
                                        : t->peer[column - FIRST_PEER].name;
    const bench_figure *f = bench_report_find(&t->report, plan_op_name(op), who, 0, bytes);
    return f && !f->wrong ? f->p50 : NAN;
}

static void print_number(double value, int width, int digits)
{
    if (isnan(value))
        printf(" %*s", width, "-");
    else
        printf(" %*.*f", width, value >= 1000 ? 0 : digits, value);
}

static void print_row(table *t, int op, uint64_t bytes)
{
    char size[24];
    double us[COLUMNS], best = NAN;
    for (int c = 0; c < COLUMNS; c++) {
        us[c] = time_of(t, op, c, bytes);
        if (c >= FIRST_PEER && !isnan(us[c]))
            best = isnan(best) ? us[c] : fmin(best, us[c]);
    }
    printf(" %8s", op == PLAN_BARRIER ? "-" : bench_size_text(bytes, size));
    for (int c = 0; c < COLUMNS; c++)
        print_number(us[c], 9, 2);
    print_number(best / us[PLAIN], 11, 2);
    print_number(best / us[SYMM], 10, 2);
    print_number(us[SYMM] / us[FLOOR], 11, 2);
    ratios *kept = &t->of[op];
    kept->bytes[kept->rows] = bytes;
    kept->peer[kept->rows] = best / us[PLAIN];
    kept->floor[kept->rows++] = us[SYMM] / us[FLOOR];
    int behind = best / us[PLAIN]<1, above = us[SYMM] / us[FLOOR]> FLOOR_GOAL;
    printf("%s%s\n", behind ? "  behind a peer" : "", above ? "  above the floor" : "");
    t->behind += behind;
    t->above += above;
}

static void print_op(table *t, int op)
{
    uint64_t last = UINT64_MAX;
    t->of[op].rows = 0; /* an operation may be asked for twice */
    printf("\n# %s (us)\n#%8s %9s %9s %9s", plan_op_name(op), "size", "symm", "plain", "floor");
    for (int i = 0; i < BENCH_PEERS; i++)
        printf(" %9s", t->peer[i].key);
    printf(" %11s %10s %11s\n", "peer/plain", "peer/symm", "symm/floor");
    for (int i = 0; i < t->options->sizes; i++) {
        uint64_t bytes = plan_case_of(op, t->options->dtype, t->options->reduction,
                                      bench_ranks_of(t->options), t->options->size[i])
                             .bytes;
        if (bytes != last)
            print_row(t, op, bytes);
        last = bytes;
    }
    fflush(stdout);
}

/* The middle of those that are known; NAN if none is. */
static double middle(const double *values, int count)
{
    double known[METER_ROWS];
    int used = 0;
    for (int i = 0; i < count; i++)
        if (!isnan(values[i]))
            known[used++] = values[i];
    return used ? meter_quantile(known, used, 0.5) : NAN;
}

/* A cell with the sizes whose ratio is below `least` or above `most`. */
static void print_sizes(const ratios *of, const double *values, double least, double most)
{
    int told = 0;
    printf(" |");
    for (int i = 0; i < of->rows; i++) {
        char size[24];
        if (isnan(values[i]) || (values[i] >= least && values[i] <= most))
            continue;
        printf("%s %s", told++ ? "," : "",
               of->bytes[i] ? bench_size_text(of->bytes[i], size) : "any");
    }
    printf("%s", told ? "" : " none");
}

/* One line per operation, as a table of Markdown. */
static void print_summary(const table *t)
{
    printf("\n| ranks | op | worst (at) | median | behind at | symm/floor | above %.1f at |\n"
           "|---|---|---|---|---|---|---|\n",
           FLOOR_GOAL);
    for (int op = 0; op < PLAN_OPS; op++) {
        const ratios *of = &t->of[op];
        int worst = -1;
        char size[24] = "any";
        for (int i = 0; i < of->rows; i++)
            if (!isnan(of->peer[i]) && (worst < 0 || of->peer[i] < of->peer[worst]))
                worst = i;
        if (!of->rows)
            continue;
        printf("| %d | %s | ", bench_ranks_of(t->options), plan_op_name(op));
        if (worst < 0)
            printf("no peer | -");
        else
            printf("%.2f (%s) | %.2f", of->peer[worst],
                   of->bytes[worst] ? bench_size_text(of->bytes[worst], size) : size,
                   middle(of->peer, of->rows));
        print_sizes(of, of->peer, 1, INFINITY);
        printf(" | %.2f", middle(of->floor, of->rows));
        print_sizes(of, of->floor, 0, FLOOR_GOAL);
        printf(" |\n");
    }
}

/* What ran, by the libraries' own words: a launcher may have found another one than its own. */
static void print_libraries(const table *t)
{
    printf("\n");
    for (int i = 0; i < BENCH_PEERS; i++)
        if (*t->peer[i].ran)
            printf("# %s ran as: %s\n", t->peer[i].key, t->peer[i].ran);
}

static void print_head(const table *t)
{
    bench_print_machine(stdout, bench_ranks_of(t->options), bench_binding(t->options));
    printf("# %s %s; medians, the middle of %s%d rounds; symm and plain: weft with symmetric "
           "operands and "
           "with ordinary ones from %s\n",
           weft_dtype_name((weft_dtype)t->options->dtype),
           weft_reduction_name((weft_reduction)t->options->reduction),
           t->options->limit_s ? "at most " : "", t->options->rounds,
           t->options->weft_memory ? "weft_empty" : "malloc");
    for (int i = 0; i < BENCH_PEERS; i++) {
        const bench_peer *p = &t->peer[i];
        const char *folder = p->install.folder;
        printf("# %s: %s%s%s%s%s\n", p->key, p->name, *folder ? ", from " : "", folder,
               *p->missing ? ": " : "",
               *p->missing ? p->missing
               : bench_crowded(t->options) && !p->crowded
                   ? ": left out, it spins without giving way when ranks share cores"
                   : "");
    }
    fflush(stdout);
}

int bench_peers(const bench_options *options)
{
    static table t;
    int status = bench_possible(options), text = !options->json && !options->csv;
    t.options = options;
    if (status)
        return status;
    if (bench_peer_find_all(t.peer, options->peers_from) < 0)
        return 1;
    if (text)
        print_head(&t);
    int64_t begin = meter_ns(), ops = options->ops ? options->ops : PLAN_OPS;
    for (int i = 0; i < ops; i++) {
        int op = options->ops ? options->op[i] : i;
        t.until = options->limit_s ? begin + options->limit_s * INT64_C(1000000000) * (i + 1) / ops
                                   : INT64_MAX;
        if (op == PLAN_SEND_RECV && bench_ranks_of(options) < 2)
            continue;
        status |= run_rounds(&t, op);
        if (text)
            print_op(&t, op);
    }
    if (text) {
        print_summary(&t);
        print_libraries(&t);
        printf("\n# rows in which ordinary operands are behind the best peer: %d\n"
               "# rows in which symmetric operands take more than %.1f times the floor: %d\n",
               t.behind, FLOOR_GOAL, t.above);
    }
    status |= bench_conclude(options, &t.report);
    bench_report_free(&t.report);
    return status;
}
