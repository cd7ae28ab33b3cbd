/* SPDX-License-Identifier: Apache-2.0 */
/* Peers: found, built and started; see bench_peer.h. */
#include "bench_peer.h"
#include "bench_start.h"
#include "bench_tree.h"

#include "base/machine/cache_folder.h"

#include <weft/weft.h>

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

/* Names by which an MPI may be installed: Debian's own, then the plain ones, which may be any. */
static const struct {
    const char *family, *launcher, *compiler, *sign;
} installs[] = {
    {"openmpi", "mpirun.openmpi", "mpicc.openmpi", ""},
    {"openmpi", "mpirun", "mpicc", "Open MPI"},
    {"openmpi", "mpirun", "mpicc", "OpenRTE"},
    {"mpich", "mpirun.mpich", "mpicc.mpich", ""},
    {"mpich", "mpiexec.hydra", "mpicc", "HYDRA"},
    {"mpich", "mpirun", "mpicc", "HYDRA"},
};

static const bench_peer all_peers[BENCH_PEERS] = {
    {.key = "ompi", .family = "openmpi", .library = "Open MPI", .way = "", .crowded = 1},
    /* It spins without giving way; what it takes when ranks share cores is the scheduler's. */
    {.key = "ompi sm", .family = "openmpi", .library = "Open MPI", .way = " coll/sm"},
    {.key = "mpich", .family = "mpich", .library = "MPICH", .way = "", .crowded = 1},
};

/* The folder for programs and logs: in the user's cache, since the command's own may be the
 * system's.  The library makes and checks the cache: programs that are run from here must be the
 * user's, and graphs are kept there too, only if it is closed to others. */
static int own_folder(char *out, size_t room)
{
    char why[512] = "";
    size_t length = 0;
    if (weft_i_cache_folder_path(out, room, why, sizeof why)) {
        length = strlen(out);
        snprintf(out + length, room - length, "/peers");
        if (mkdir(out, 0700) == 0 || errno == EEXIST)
            return 0;
        snprintf(why, sizeof why, "%.400s: %s", out, strerror(errno));
    }
    fprintf(stderr,
            "weft bench: no place for the programs of the peers: %s; WEFT_CACHE_DIR can name "
            "another\n",
            why);
    return -1;
}

/* The first lines of what a command prints; empty if it is not there. */
static void first_words(const char *command, char *out, size_t room)
{
    FILE *from = popen(command, "r");
    size_t length = from ? fread(out, 1, room - 1, from) : 0;
    out[length] = 0;
    while (from && fgetc(from) != EOF)
        ;
    if (from && pclose(from) != 0)
        out[0] = 0;
}

/* The first number with a dot in a text: its version. */
static void find_version(const char *text, char *out, size_t room)
{
    for (; *text; text++) {
        size_t digits = strspn(text, "0123456789");
        if (digits && text[digits] == '.' && text[digits + 1] >= '0' && text[digits + 1] <= '9') {
            snprintf(out, room, "%.*s", (int)strspn(text, "0123456789."), text);
            return;
        }
        text += digits ? digits - 1 : 0;
    }
    snprintf(out, room, "of unknown version");
}

static int find_mpi(bench_peer *peer)
{
    char command[256], text[512], version[32];
    for (size_t i = 0; i < sizeof installs / sizeof *installs; i++) {
        if (strcmp(installs[i].family, peer->family) != 0)
            continue;
        snprintf(command, sizeof command, "command -v %s >/dev/null 2>&1 && %s --version 2>&1",
                 installs[i].compiler, installs[i].launcher);
        first_words(command, text, sizeof text);
        if (!*text || !strstr(text, installs[i].sign))
            continue;
        find_version(text, version, sizeof version);
        snprintf(peer->name, sizeof peer->name, "%s %s%s", peer->library, version, peer->way);
        snprintf(peer->launcher, sizeof peer->launcher, "%s", installs[i].launcher);
        snprintf(peer->compiler, sizeof peer->compiler, "%s", installs[i].compiler);
        return 1;
    }
    return 0;
}

/* Runs a program with its output in files of `folder`; its exit status. */
static int run_quietly(char *const *argv, int ranks, const char *folder, int64_t timeout_ms,
                       const char *const *env)
{
    weft_launch_opts opts = WEFT_LAUNCH_OPTS_INIT;
    opts.ranks = ranks;
    opts.argv = argv;
    opts.env = env;
    opts.log_dir = folder;
    opts.timeout_ms = timeout_ms;
    return bench_start(&opts);
}

static int build(bench_peer *peer, const char *folder)
{
    enum { ROOM = BENCH_TREE_PATH + 32 };
    bench_tree tree;
    char headers[ROOM], root[ROOM], source[ROOM], log[4200];
    if (bench_tree_find(&tree) < 0) {
        snprintf(peer->missing, sizeof peer->missing, "its source is not installed with weft");
        return -1;
    }
    snprintf(peer->program, sizeof peer->program, "%.4000s/%s", folder, peer->family);
    snprintf(root, sizeof root, "-I%s", tree.root);
    snprintf(headers, sizeof headers, "-I%s", tree.headers);
    snprintf(source, sizeof source, "%s/bench/peers/mpi.c", tree.root);
    snprintf(log, sizeof log, "%s/%s.build", folder, peer->family);
    char *argv[] = {peer->compiler, "-O2",  "-D_GNU_SOURCE", headers,     root, "-o",
                    peer->program,  source, "-lm",           "-lpthread", NULL};
    if (run_quietly(argv, 1, log, 120000, NULL) == 0)
        return 0;
    snprintf(peer->missing, sizeof peer->missing, "could not be built, see %.80s", log);
    return -1;
}

int bench_peer_find_all(bench_peer peers[BENCH_PEERS])
{
    char folder[4096];
    if (own_folder(folder, sizeof folder) < 0)
        return -1;
    memcpy(peers, all_peers, sizeof all_peers);
    for (int i = 0; i < BENCH_PEERS; i++) {
        bench_peer *peer = &peers[i];
        snprintf(peer->name, sizeof peer->name, "%s%s", peer->library, peer->way);
        if (!find_mpi(peer))
            snprintf(peer->missing, sizeof peer->missing,
                     "not installed (scripts/setup peers installs it)");
        else if (i && !strcmp(peers[i - 1].family, peer->family)) {
            snprintf(peer->program, sizeof peer->program, "%s", peers[i - 1].program);
            snprintf(peer->missing, sizeof peer->missing, "%s", peers[i - 1].missing);
        } else {
            bench_progress("building %s", peer->name);
            build(peer, folder);
        }
    }
    bench_progress(NULL);
    return 0;
}

static int mpi_has(int dtype)
{
    return dtype == WEFT_F32 || dtype == WEFT_F64 ||
           (!pattern_is_float(dtype) && dtype != WEFT_BOOL);
}

int bench_peer_can(const bench_peer *peer, const bench_options *options, int op)
{
    int reduction = plan_op_reduces(op) ? options->reduction : (int)WEFT_SUM;
    if (*peer->missing || (bench_crowded(options) && !peer->crowded))
        return 0;
    return mpi_has(options->dtype) && reduction != WEFT_AVG && reduction != WEFT_PREMUL_SUM;
}

/* The command line of a launcher; returns the number of words. */
static int launcher_words(const bench_peer *peer, const bench_sweep *sweep, char *ranks,
                          char *board, char **out)
{
    int n = 0, open_mpi = !strcmp(peer->family, "openmpi");
    out[n++] = (char *)peer->launcher;
    if (open_mpi) {
        out[n++] = "--oversubscribe";
        out[n++] = "--bind-to";
        out[n++] = "none"; /* the program binds itself, as all contenders do */
    }
    if (open_mpi && bench_crowded(sweep->options)) {
        out[n++] = "--mca";
        out[n++] = "mpi_yield_when_idle";
        out[n++] = "1";
    }
    if (*peer->way) {
        out[n++] = "--mca";
        out[n++] = "coll_sm_priority";
        out[n++] = "100";
    }
    out[n++] = "-n";
    out[n++] = ranks;
    out[n++] = (char *)peer->program;
    out[n++] = board;
    out[n] = NULL;
    return n;
}

int bench_peer_run(const bench_peer *peer, bench_sweep *sweep)
{
    static const char *const env[] = {
        "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
        "PRTE_ALLOW_RUN_AS_ROOT=1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1",
        "UCX_LOG_LEVEL=error",      NULL};
    const meter_board *b = sweep->board;
    char board[64], ranks[16], log[4300], *argv[24];
    int64_t nominal_ms = (int64_t)b->rows * b->repeats * sweep->options->budget_ms;
    int64_t timeout_ms = 60000 + 20 * nominal_ms;
    snprintf(board, sizeof board, "/proc/%d/fd/%d", (int)getpid(), sweep->board_fd);
    snprintf(ranks, sizeof ranks, "%d", b->ranks);
    snprintf(log, sizeof log, "%s.%s", peer->program, plan_op_name(sweep->op));
    launcher_words(peer, sweep, ranks, board, argv);
    int status = run_quietly(argv, 1, log, timeout_ms, env);
    if (status)
        fprintf(stderr, "weft bench: %s, %s: %s after %u of %d sizes%s%s (see %s)\n", peer->name,
                plan_op_name(sweep->op),
                status == WEFT_LAUNCH_TIMED_OUT ? "took too long" : "failed", b->done, b->rows,
                *b->problem ? ": " : "", b->problem, log);
    return status != 0;
}
