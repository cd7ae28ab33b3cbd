/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives between hosts under the meter: weft, a raw TCP socket, and other libraries by turns, on
 * hosts made by namespaces (hosts_net.h).  scripts/bench-hosts builds it and says how to start the others.
 *
 *     bench_hosts [-h HOSTS] [-k RANKS] [-o OP,...] [-s SIZE,...] [-r ROUNDS] [-b MS] [NAME=COMMAND...]
 *
 * A COMMAND is run by a shell in the first host.  BENCH_BOARD names the meter's board, BENCH_PIDS the processes
 * that hold the hosts' namespaces, BENCH_RANKS the ranks of a host.
 */
#include "hosts_net.h"
#include "hosts_tcp.h"

#include "bench_weft.h"

enum { CONTENDERS = 8, ROUNDS_MAX = 32 };

typedef struct contender {
    const char *name, *command; /* no command: weft, or the floor */
    double us[METER_ROWS][ROUNDS_MAX];
    uint64_t wrong;
} contender;

typedef struct bench {
    int hosts, ranks, rounds, budget_ms; /* ranks: of a host */
    const char *ops, *sizes;
    contender who[CONTENDERS];
    int count;
    net net;
    meter_board *board;
    char path[64];
} bench;

static int plan_rows(bench *b)
{
    char ops[256], sizes[256], *op_end, *size_end;
    meter_board *board = b->board;
    snprintf(ops, sizeof ops, "%s", b->ops);
    for (char *op = strtok_r(ops, ",", &op_end); op; op = strtok_r(NULL, ",", &op_end)) {
        int number = plan_op_find(op);
        if (number < 0)
            return fprintf(stderr, "bench_hosts: no operation %s\n", op), -1;
        snprintf(sizes, sizeof sizes, "%s", b->sizes);
        for (char *s = strtok_r(sizes, ",", &size_end); s; s = strtok_r(NULL, ",", &size_end)) {
            char *unit;
            uint64_t bytes = strtoull(s, &unit, 10);
            bytes <<= *unit == 'K' ? 10 : *unit == 'M' ? 20 : 0;
            if (board->rows == METER_ROWS)
                return fprintf(stderr, "bench_hosts: more than %d rows\n", METER_ROWS), -1;
            board->row[board->rows++].what =
                plan_case_of(number, WEFT_F32, WEFT_SUM, board->ranks, bytes);
            if (number == PLAN_BARRIER)
                break;
        }
    }
    return 0;
}

/* A file, since other programs map it too. */
static int open_board(bench *b)
{
    int ranks = b->hosts * b->ranks, fd;
    size_t bytes = meter_board_bytes(ranks);
    snprintf(b->path, sizeof b->path, "/dev/shm/bench_hosts.%d", (int)getpid());
    fd = open(b->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)bytes))
        return perror("bench_hosts: board"), -1;
    b->board = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (b->board == MAP_FAILED)
        return perror("bench_hosts: board"), -1;
    b->board->magic = METER_MAGIC;
    b->board->bytes = sizeof *b->board;
    b->board->ranks = ranks;
    b->board->repeats = 1;
    b->board->warmup = 10;
    b->board->calls = METER_CALLS;
    b->board->budget_ns = (int64_t)b->budget_ms * 1000000;
    b->board->wait = METER_YIELD; /* whatever else the machine does */
    return plan_rows(b);
}

static void set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

static void pretend(const bench *b, int host, int index)
{
    char text[24];
    unsetenv("WEFT_JOB_FD");
    setenv("MASTER_ADDR", "10.77.0.1", 1);
    setenv("WEFT_TOKEN", "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff", 0);
    snprintf(text, sizeof text, "cable%d", host);
    setenv("UCX_NET_DEVICES", text, 1);
    snprintf(text, sizeof text, "host%d", host);
    setenv("WEFT_HOST_ID", text, 1);
    set_number("MASTER_PORT", 29500);
    set_number("RANK", host * b->ranks + index);
    set_number("WORLD_SIZE", b->hosts * b->ranks);
    set_number("LOCAL_RANK", index);
    set_number("LOCAL_WORLD_SIZE", b->ranks);
    set_number("GROUP_RANK", host);
}

static int be_weft(const bench *b, int host, int index)
{
    meter m = {.board = b->board, .rank = host * b->ranks + index, .ranks = b->board->ranks};
    pretend(b, host, index);
    bench_weft rank = {.rank = m.rank, .ranks = m.ranks, .malloced = 1};
    rank.world = weft_init(NULL);
    if (!rank.world)
        return meter_fail(&m, weft_last_error());
    meter_contender who = bench_weft_contender(&rank);
    int status = meter_sweep(&m, &who);
    if (status < 0)
        fprintf(stderr, "bench_hosts: rank %d: %s\n", m.rank, weft_last_error());
    return weft_finish(rank.world) < 0 ? -1 : status;
}

static int be_floor(const bench *b, int host)
{
    meter m = {.board = b->board, .rank = host, .ranks = b->board->ranks};
    tcp_floor floor = {0};
    meter_contender who = {&floor, tcp_floor_prepare, tcp_floor_call, tcp_floor_finish};
    if (tcp_floor_open(&floor, host))
        return meter_fail(&m, "no connection of the floor");
    return meter_sweep(&m, &who);
}

static int be_command(const bench *b, const char *command)
{
    char pids[128] = "";
    for (int host = 0; host < b->hosts; host++)
        snprintf(pids + strlen(pids), sizeof pids - strlen(pids), "%s%d", host ? " " : "",
                 (int)b->net.pid[host]);
    setenv("BENCH_PIDS", pids, 1);
    setenv("BENCH_BOARD", b->path, 1);
    set_number("BENCH_RANKS", b->ranks);
    execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    return -1;
}

/* One contender once over all rows; 0, or -1 after a message. */
static int run_one(bench *b, const contender *who)
{
    int floor = !who->command && strcmp(who->name, "weft") != 0, failed = 0, status;
    int a_host = who->command ? 1 : b->ranks, on = who->command ? 1 : b->hosts;
    b->board->failed = b->board->done = b->board->stop = 0;
    memset(b->board->lane, 0, (size_t)b->board->ranks * sizeof *b->board->lane);
    for (int row = 0; row < b->board->rows; row++)
        memset(b->board->row[row].result, 0, sizeof b->board->row[row].result);
    for (int i = 0; i < on * a_host; i++)
        if (net_fork(&b->net, i / a_host) == 0)
            _exit((who->command ? be_command(b, who->command)
                   : floor      ? be_floor(b, i)
                                : be_weft(b, i / a_host, i % a_host)) != 0);
    for (int i = 0; i < on * a_host; i++) {
        failed |= wait(&status) < 0 || status; /* a host that ends is a failure too */
    }
    if (failed)
        fprintf(stderr, "bench_hosts: %s failed: %s\n", who->name, b->board->problem);
    return failed ? -1 : 0;
}

static void keep(const bench *b, contender *who, int round)
{
    for (int row = 0; row < b->board->rows; row++) {
        const meter_result *r = &b->board->row[row].result[0][0];
        who->us[row][round] = r->calls ? r->p50 : -1;
        who->wrong += r->wrong;
    }
}

static double middle(const contender *who, int row, int rounds, double *least)
{
    double known[ROUNDS_MAX];
    int n = 0;
    for (int i = 0; i < rounds; i++)
        if (who->us[row][i] > 0)
            known[n++] = who->us[row][i];
    double value = meter_quantile(known, n, 0.5);
    *least = n ? known[0] : 0;
    return value;
}

/* Of each contender the median of its turns and the least; and what weft takes to that of the floor. */
static void print_table(const bench *b)
{
    const char *unit = "us: median of the turns / the least";
    printf("\n| %s, %d hosts with %d rank%s | size |", unit, b->hosts, b->ranks,
           b->ranks > 1 ? "s each" : "");
    for (int i = 0; i < b->count; i++)
        printf(" %s |", b->who[i].name);
    printf(" weft / least other |\n|---|---|");
    for (int i = 0; i <= b->count; i++)
        printf("---|");
    for (int row = 0; row < b->board->rows; row++) {
        const plan_case *what = &b->board->row[row].what;
        double mine = 0, other = 0, least;
        printf("\n| %s | %llu |", plan_op_name(what->op), (unsigned long long)what->bytes);
        for (int i = 0; i < b->count; i++) {
            double us = middle(&b->who[i], row, b->rounds, &least);
            if (us > 0)
                printf(" %.1f / %.1f |", us, least);
            else
                printf(" - |");
            if (!i)
                mine = us;
            else if (us > 0 && (other <= 0 || us < other))
                other = us;
        }
        printf(other > 0 ? " %.2f |" : " - |", mine / other);
    }
    printf("\n");
    for (int i = 0; i < b->count; i++)
        if (b->who[i].wrong)
            printf("%s: %llu wrong elements\n", b->who[i].name,
                   (unsigned long long)b->who[i].wrong);
}

static int run_all(bench *b)
{
    int rounds = b->rounds;
    for (b->rounds = 0; b->rounds < rounds; b->rounds++)
        for (int i = 0; i < b->count; i++)
            if (run_one(b, &b->who[i]) == 0)
                keep(b, &b->who[i], b->rounds);
            else if (!i)
                return 1;
    print_table(b);
    return b->who[0].wrong != 0;
}

static int read_options(bench *b, int argc, char **argv)
{
    for (int option; (option = getopt(argc, argv, "h:k:o:s:r:b:")) != -1;)
        switch (option) {
        case 'h':
            b->hosts = atoi(optarg);
            break;
        case 'k':
            b->ranks = atoi(optarg);
            break;
        case 'o':
            b->ops = optarg;
            break;
        case 's':
            b->sizes = optarg;
            break;
        case 'r':
            b->rounds = atoi(optarg);
            break;
        case 'b':
            b->budget_ms = atoi(optarg);
            break;
        default:
            return -1;
        }
    b->who[b->count++].name = "weft";
    if (b->hosts == 2 && b->ranks == 1)
        b->who[b->count++].name = "raw TCP";
    for (int i = optind; i < argc && b->count < CONTENDERS; i++) {
        char *equals = strchr(argv[i], '=');
        if (!equals)
            return -1;
        *equals = 0;
        b->who[b->count++] = (contender){.name = argv[i], .command = equals + 1};
    }
    return b->hosts < 2 || b->hosts > NET_HOSTS || b->ranks < 1 ||
                   b->hosts * b->ranks > METER_RANKS || b->rounds < 1 || b->rounds > ROUNDS_MAX
               ? -1
               : 0;
}

int main(int argc, char **argv)
{
    static bench b = {.hosts = 2,
                      .ranks = 1,
                      .rounds = 3,
                      .budget_ms = 20,
                      .ops = "barrier,all_reduce,all_gather,reduce_scatter,broadcast,all_to_all",
                      .sizes = "8,512,4K,16K,64K,256K,1M,4M,16M"};
    if (read_options(&b, argc, argv)) {
        fprintf(stderr, "usage: bench_hosts [-h HOSTS] [-k RANKS] [-o OPS] [-s SIZES] [-r ROUNDS] "
                        "[-b MS] [NAME=COMMAND...]\n");
        return 2;
    }
    const char *why = net_open(&b.net, b.hosts);
    if (why)
        fprintf(stderr, "bench_hosts: no hosts here: %s\n", why);
    int status = why ? 77 : open_board(&b) ? 2 : run_all(&b);
    net_close(&b.net);
    if (*b.path)
        unlink(b.path);
    return status;
}
