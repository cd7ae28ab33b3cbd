/* SPDX-License-Identifier: Apache-2.0 */
/* `weft run`: reads its arguments and launches the job.  docs/run.md describes it. */
#include "command.h"

#include <weft/weft.h>

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
    "usage: weft run [options] [--] program [arguments]\n"
    "\n"
    "Starts ranks of a program on this machine, shows their output line by line with the rank in\n"
    "front, passes signals on, and on the first failure ends the rest and tells which rank failed "
    "how.\n"
    "\n"
    "  -n N               number of ranks (1)\n"
    "  -x NAME[=VALUE]    set a variable for the ranks; may be repeated\n"
    "  --bind none|core   bind each rank to one core, counted round (none)\n"
    "  --log-dir DIR      output to DIR/rank_<r>.out and .err instead of here\n"
    "  --tee              with --log-dir: here as well\n"
    "  --no-prefix        lines without \"[rank] \"\n"
    "  --max-restarts N   after a failure start all ranks again, at most N times (0)\n"
    "  --timeout SECONDS  end the job after this time\n"
    "  -q                 no report of failures\n"
    "  --help             this text\n"
    "\n"
    "Ranks find RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK, MASTER_ADDR, "
    "MASTER_PORT,\n"
    "WEFT_JOB_FD and WEFT_RESTART_COUNT in their environment.  Standard input goes to rank 0.\n"
    "\n"
    "Exit status: 0; that of the rank that failed first (128 + the signal, if one ended it); 124 "
    "when\n"
    "the time was up; 123 when all went well but output was lost; 2 wrong use; 125 when the job "
    "could not be started, 127 when the program is "
    "not\n"
    "there.  A second SIGINT within WEFT_KILL_GRACE (2 s) kills at once.\n";

enum { EXIT_WRONG_USE = 2, EXIT_NOT_STARTED = 125, EXIT_NOT_THERE = 127 };

typedef struct reader {
    char **words;
    int count, at;
    weft_launch_opts opts;
    const char **env;
    size_t env_count;
    int tee;
    const char *problem; /* what is wrong with the option at hand */
} reader;

/* The value of an option: the rest of its word ("-n4", "--bind=core") or the next one. */
static const char *value_of(reader *r, const char *name)
{
    const char *word = r->words[r->at], *rest = word + strlen(name);
    if (*rest)
        return *rest == '=' && name[1] == '-' ? rest + 1 : rest;
    if (r->at + 1 >= r->count) {
        r->problem = "needs a value";
        return NULL;
    }
    return r->words[++r->at];
}

static int is_option(const reader *r, const char *name)
{
    const char *word = r->words[r->at];
    size_t length = strlen(name);
    if (strncmp(word, name, length) != 0)
        return 0;
    /* A short option may have its value right behind it, a long one only behind "=". */
    return !word[length] || word[length] == '=' || name[1] != '-';
}

static void read_number(reader *r, const char *text, int low, int high, int *out)
{
    char *end = NULL;
    errno = 0;
    long value = text ? strtol(text, &end, 10) : 0;
    if (!text)
        return;
    if (errno || end == text || *end || value < low || value > high)
        r->problem = "needs a number in its range";
    else
        *out = (int)value;
}

static void read_seconds(reader *r, const char *text)
{
    char *end = NULL;
    double seconds = text ? strtod(text, &end) : 0;
    if (!text)
        return;
    if (end == text || *end || !isfinite(seconds) || seconds <= 0 || seconds > 1e9)
        r->problem = "needs a positive number of seconds";
    else
        r->opts.timeout_ms = (int64_t)ceil(seconds * 1000);
}

static void read_bind(reader *r, const char *text)
{
    if (!text)
        return;
    if (!strcmp(text, "core"))
        r->opts.flags |= WEFT_LAUNCH_BIND;
    else if (!strcmp(text, "none"))
        r->opts.flags &= ~(unsigned)WEFT_LAUNCH_BIND;
    else
        r->problem = "takes none or core";
}

/* "-x NAME" alone is accepted for users of mpirun: the ranks inherit it anyway. */
static void read_variable(reader *r, const char *text)
{
    if (!text)
        return;
    if (!*text || *text == '=')
        r->problem = "takes NAME=VALUE";
    else if (strchr(text, '='))
        r->env[r->env_count++] = text;
}

/* Takes the option at hand; 0 if there is no such option. */
static int take_option(reader *r)
{
    if (!strcmp(r->words[r->at], "--no-prefix"))
        r->opts.flags |= WEFT_LAUNCH_NO_PREFIX;
    else if (!strcmp(r->words[r->at], "--tee"))
        r->tee = 1;
    else if (!strcmp(r->words[r->at], "-q"))
        r->opts.flags |= WEFT_LAUNCH_QUIET;
    else if (is_option(r, "--bind"))
        read_bind(r, value_of(r, "--bind"));
    else if (is_option(r, "--log-dir"))
        r->opts.log_dir = value_of(r, "--log-dir");
    else if (is_option(r, "--max-restarts"))
        read_number(r, value_of(r, "--max-restarts"), 0, 1000000, &r->opts.max_restarts);
    else if (is_option(r, "--timeout"))
        read_seconds(r, value_of(r, "--timeout"));
    else if (is_option(r, "-n"))
        read_number(r, value_of(r, "-n"), 1, WEFT_LAUNCH_RANKS_MAX, &r->opts.ranks);
    else if (is_option(r, "-x"))
        read_variable(r, value_of(r, "-x"));
    else
        return 0;
    return 1;
}

static int wrong_use(const char *word, const char *problem)
{
    fprintf(stderr, "weft run: %s %s\nTry `weft run --help`.\n", word, problem);
    return EXIT_WRONG_USE;
}

/* Reads options up to the program; 0 if all is well. */
static int read_options(reader *r)
{
    for (; r->at < r->count && r->words[r->at][0] == '-'; r->at++) {
        const char *word = r->words[r->at];
        if (!strcmp(word, "--")) {
            r->at++;
            break;
        }
        if (!take_option(r))
            return wrong_use(word, "is not an option");
        if (r->problem)
            return wrong_use(word, r->problem);
    }
    if (r->at >= r->count)
        return wrong_use("what", "shall it run?  No program is given.");
    if (r->tee && !r->opts.log_dir)
        return wrong_use("--tee", "needs --log-dir");
    return 0;
}

/* A closed standard descriptor would be given to the next pipe, and that to the ranks in its place.
 */
static void fill_standard_descriptors(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd < 3);
    if (fd >= 3)
        close(fd);
}

static int launch(reader *r)
{
    r->opts.argv = r->words + r->at;
    r->opts.env = r->env;
    r->opts.flags |= WEFT_LAUNCH_SIGNALS | (r->tee ? (unsigned)WEFT_LAUNCH_TEE : 0);
    fill_standard_descriptors();
    int result = weft_launch(&r->opts);
    if (result >= 0)
        return result;
    fprintf(stderr, "weft run: %s\n", weft_last_error());
    return result == WEFT_ERR_NOT_FOUND ? EXIT_NOT_THERE : EXIT_NOT_STARTED;
}

int weft_cmd_run(int argc, char **argv)
{
    reader r = {.words = argv, .count = argc, .at = 1, .opts = WEFT_LAUNCH_OPTS_INIT};
    if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")))
        return fputs(help, stdout) < 0;
    r.env = calloc((size_t)argc + 1, sizeof *r.env);
    if (!r.env) {
        fprintf(stderr, "weft run: out of memory\n");
        return EXIT_NOT_STARTED;
    }
    int result = read_options(&r);
    if (!result)
        result = launch(&r);
    free(r.env);
    return result;
}
