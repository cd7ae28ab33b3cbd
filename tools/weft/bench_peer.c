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

static const bench_peer all_peers[BENCH_PEERS] = {
    {.key = "ompi", .family = "openmpi", .library = "Open MPI", .way = "", .crowded = 1},
    /* It spins without giving way; what it takes when ranks share cores is the scheduler's. */
    {.key = "ompi sm", .family = "openmpi", .library = "Open MPI", .way = " coll/sm"},
    {.key = "mpich", .family = "mpich", .library = "MPICH", .way = ""}, /* the same */
    {.key = "impi", .family = "impi", .library = "Intel MPI", .way = "", .crowded = 1},
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

/* Compiles the program with the wrapper of an MPI; `object`: only up to there. */
static int compile(char *compiler, const char *to, int object, const char *log)
{
    enum { ROOM = BENCH_TREE_PATH + 32 };
    bench_tree tree;
    char headers[ROOM], root[ROOM], source[ROOM];
    if (bench_tree_find(&tree) < 0)
        return -1;
    snprintf(root, sizeof root, "-I%s", tree.root);
    snprintf(headers, sizeof headers, "-I%s", tree.headers);
    snprintf(source, sizeof source, "%s/bench/peers/mpi.c", tree.root);
    char *argv[] = {compiler, "-O2",      "-D_GNU_SOURCE", headers, root,
                    "-o",     (char *)to, source,          "-lm",   object ? "-c" : "-lpthread",
                    NULL};
    return run_quietly(argv, 1, log, 120000, NULL);
}

/* A library without a wrapper, which takes the ABI of MPICH: that one's header, and this library. */
static int link_with(const bench_peer *peer, const bench_peer *mpich, const char *log)
{
    enum { ROOM = BENCH_INSTALL_PATH + 64 };
    char object[sizeof peer->program + 2], rpath[ROOM];
    snprintf(object, sizeof object, "%s.o", peer->program);
    snprintf(rpath, sizeof rpath, "-Wl,-rpath,%.*s",
             (int)(strrchr(peer->install.library, '/') - peer->install.library),
             peer->install.library);
    char *argv[] = {"cc",   "-o",        (char *)peer->program,
                    object, rpath,       (char *)peer->install.library,
                    "-lm",  "-lpthread", NULL};
    int status = compile((char *)mpich->install.compiler, object, 1, log);
    return status ? status : run_quietly(argv, 1, log, 120000, NULL);
}

static void build(bench_peer *peer, const bench_peer *mpich, const char *folder)
{
    char log[4200];
    snprintf(peer->program, sizeof peer->program, "%.4000s/%s", folder, peer->family);
    snprintf(log, sizeof log, "%s/%s.build", folder, peer->family);
    if (!*peer->install.compiler && *mpich->missing) {
        snprintf(peer->missing, sizeof peer->missing,
                 "it has no mpi.h of its own, and MPICH, whose header it takes, is not there");
        return;
    }
    bench_progress("building %s", peer->name);
    int status = *peer->install.compiler ? compile(peer->install.compiler, peer->program, 0, log)
                                         : link_with(peer, mpich, log);
    if (status < 0)
        snprintf(peer->missing, sizeof peer->missing, "its source is not installed with weft");
    else if (status)
        snprintf(peer->missing, sizeof peer->missing, "could not be built, see %.80s", log);
}

static void find(bench_peer *peer, const char *const *folders)
{
    snprintf(peer->name, sizeof peer->name, "%s%s", peer->library, peer->way);
    if (bench_install_find(peer->family, folders, &peer->install))
        snprintf(peer->name, sizeof peer->name, "%s %s%s", peer->library, peer->install.version,
                 peer->way);
    else
        snprintf(peer->missing, sizeof peer->missing,
                 "not installed (scripts/setup peers installs it)");
}

int bench_peer_find_all(bench_peer peers[BENCH_PEERS], const char *from)
{
    char folder[4096], installed[4200];
    if (from && access(from, R_OK | X_OK) < 0) {
        fprintf(stderr, "weft bench: --peers-from: %s: %s\n", from, strerror(errno));
        return -1;
    }
    if (own_folder(folder, sizeof folder) < 0)
        return -1;
    snprintf(installed, sizeof installed, "%s/installed", folder);
    const char *const folders[] = {from ? from : installed, from ? installed : NULL, NULL};
    const bench_peer *mpich = NULL;
    memcpy(peers, all_peers, sizeof all_peers);
    for (int i = 0; i < BENCH_PEERS; i++) {
        bench_peer *peer = &peers[i];
        find(peer, folders);
        mpich = strcmp(peer->family, "mpich") ? mpich : peer;
        if (i && !strcmp(peers[i - 1].family, peer->family)) {
            snprintf(peer->program, sizeof peer->program, "%s", peers[i - 1].program);
            snprintf(peer->missing, sizeof peer->missing, "%s", peers[i - 1].missing);
        } else if (!*peer->missing) {
            build(peer, mpich, folder);
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
    out[n++] = (char *)peer->install.launcher;
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

int bench_peer_run(bench_peer *peer, bench_sweep *sweep)
{
    static const char *const env[] = {"OMPI_ALLOW_RUN_AS_ROOT=1",
                                      "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                                      "PRTE_ALLOW_RUN_AS_ROOT=1",
                                      "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                                      "UCX_LOG_LEVEL=error",
                                      "I_MPI_PIN=off", /* the program binds itself */
                                      NULL};
    const meter_board *b = sweep->board;
    char board[64], ranks[16], log[4300], *argv[24];
    int64_t nominal_ms = (int64_t)b->rows * b->repeats * sweep->options->budget_ms;
    int64_t timeout_ms = 60000 + 20 * nominal_ms;
    snprintf(board, sizeof board, "/proc/%d/fd/%d", (int)getpid(), sweep->board_fd);
    snprintf(ranks, sizeof ranks, "%d", b->ranks);
    snprintf(log, sizeof log, "%s.%s", peer->program, plan_op_name(sweep->op));
    launcher_words(peer, sweep, ranks, board, argv);
    int status = run_quietly(argv, 1, log, timeout_ms, env);
    if (*b->library)
        snprintf(peer->ran, sizeof peer->ran, "%.*s", (int)sizeof b->library - 1, b->library);
    if (status)
        fprintf(stderr, "weft bench: %s, %s: %s after %u of %d sizes%s%s (see %s)\n", peer->name,
                plan_op_name(sweep->op),
                status == WEFT_LAUNCH_TIMED_OUT ? "took too long" : "failed", b->done, b->rows,
                *b->problem ? ": " : "", b->problem, log);
    return status != 0;
}
