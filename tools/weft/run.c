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

enum { EXIT_NOT_STARTED = 125, EXIT_NOT_THERE = 127 };

enum { PATH_BYTES = 4096, FILE_MOST = 1 << 20 };

typedef struct reader {
    weft_launch_opts opts;
    const char **env;
    size_t env_count;
    int tee, join;
    const char *hosts_file;
    char *texts[2]; /* the hosts of the file, and where this command is: to be freed */
} reader;

static int set_ranks(void *into, const char *text, long number)
{
    (void)text;
    ((reader *)into)->opts.ranks = (int)number;
    return 1;
}

static int set_hosts(void *into, const char *text, long number)
{
    (void)number;
    ((reader *)into)->opts.hosts = text;
    return *text != 0;
}

static int set_hosts_file(void *into, const char *text, long number)
{
    (void)number;
    ((reader *)into)->hosts_file = text;
    return *text != 0;
}

static int set_rsh(void *into, const char *text, long number)
{
    (void)number;
    ((reader *)into)->opts.rsh = text;
    return *text != 0;
}

static int set_weft(void *into, const char *text, long number)
{
    (void)number;
    ((reader *)into)->opts.weft = text;
    return *text != 0;
}

static int set_join(void *into, const char *text, long number)
{
    (void)text, (void)number;
    return ((reader *)into)->join = 1;
}

static int set_restarts(void *into, const char *text, long number)
{
    (void)text;
    ((reader *)into)->opts.max_restarts = (int)number;
    return 1;
}

static int set_seconds(void *into, const char *text, long number)
{
    reader *r = into;
    char *end;
    double seconds = strtod(text, &end);
    (void)number;
    if (end == text || *end || !isfinite(seconds) || seconds <= 0 || seconds > 1e9)
        return 0;
    r->opts.timeout_ms = (int64_t)ceil(seconds * 1000);
    return 1;
}

static int set_bind(void *into, const char *text, long number)
{
    reader *r = into;
    (void)number;
    r->opts.flags &= ~(unsigned)WEFT_LAUNCH_BIND;
    if (!strcmp(text, "core"))
        r->opts.flags |= WEFT_LAUNCH_BIND;
    return !strcmp(text, "core") || !strcmp(text, "none");
}

/* "-x NAME" alone gives the ranks what it is here: those on other hosts do not inherit it. */
static int set_variable(void *into, const char *text, long number)
{
    reader *r = into;
    (void)number;
    for (char **entry = environ; *entry && !strchr(text, '='); entry++)
        if (!strncmp(*entry, text, strlen(text)) && (*entry)[strlen(text)] == '=')
            text = *entry;
    if (*text && *text != '=' && strchr(text, '='))
        r->env[r->env_count++] = text;
    return *text && *text != '=';
}

static int set_log_dir(void *into, const char *text, long number)
{
    (void)number;
    ((reader *)into)->opts.log_dir = text;
    return *text != 0;
}

static int set_tee(void *into, const char *text, long number)
{
    (void)text, (void)number;
    return ((reader *)into)->tee = 1;
}

static int set_no_prefix(void *into, const char *text, long number)
{
    (void)text, (void)number;
    ((reader *)into)->opts.flags |= WEFT_LAUNCH_NO_PREFIX;
    return 1;
}

static int set_quiet(void *into, const char *text, long number)
{
    (void)text, (void)number;
    ((reader *)into)->opts.flags |= WEFT_LAUNCH_QUIET;
    return 1;
}

static const command_option options[] = {
    {'n', "ranks", "N", 1, WEFT_LAUNCH_RANKS_MAX, NULL,
     "number of ranks, 1 to 1024 (1); mpirun spells it -np", 0, set_ranks},
    {0, "hosts", "HOST[:N],...", 0, 0, "names of hosts with commas between them",
     "run on these hosts, N ranks on each (-n); needs UCX there", 0, set_hosts},
    {0, "hosts-file", "FILE", 0, 0, "the name of a file",
     "the same from a file: HOST[:N] or HOST slots=N a line", 0, set_hosts_file},
    {0, "rsh", "TEMPLATE", 0, 0, "a command that has %h where the host goes",
     "what runs a command on host %h (ssh -x -o BatchMode=yes ... %h)", 0, set_rsh},
    {0, "weft", "PATH", 0, 0, "the path of a weft command",
     "where weft is on the hosts (where it is here)", 0, set_weft},
    {0, "join", NULL, 0, 0, NULL, "what --hosts runs on each host; not for use by hand", 0,
     set_join},
    {'x', "env", "NAME[=VALUE]", 0, 0, "NAME=VALUE, or a NAME that is set here",
     "set a variable for the ranks; may be repeated", 0, set_variable},
    {0, "bind", "none|core", 0, 0, "none|core", "bind each rank to one core, counted round (none)",
     0, set_bind},
    {0, "log-dir", "DIR", 0, 0, "the name of a folder",
     "output to DIR/rank_<r>.out and .err instead of here", 0, set_log_dir},
    {0, "tee", NULL, 0, 0, NULL, "with --log-dir: here as well", 0, set_tee},
    {0, "no-prefix", NULL, 0, 0, NULL, "lines without \"[rank] \"", 0, set_no_prefix},
    {0, "max-restarts", "N", 0, 1000000, NULL,
     "after a failure start all ranks again, at most N times, 0 to 1000000 (0)", 0, set_restarts},
    {0, "timeout", "SECONDS", 0, 0, "a positive number of seconds, such as 90 or 0.5",
     "end the job after this time (never)", 0, set_seconds},
    {'q', "quiet", NULL, 0, 0, NULL, "no report of failures", 0, set_quiet},
    {0},
};

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

static int launch(reader *r, char **program)
{
    r->opts.argv = program;
    r->opts.env = r->env;
    r->opts.flags |= WEFT_LAUNCH_SIGNALS | (r->tee ? (unsigned)WEFT_LAUNCH_TEE : 0);
    fill_standard_descriptors();
    int result = weft_launch(&r->opts);
    if (result >= 0)
        return result;
    if (weft_status_scope((weft_status)result) < WEFT_SCOPE_GROUP) /* else the log has it */
        fprintf(stderr, "weft run: %s\n", weft_last_error());
    return result == WEFT_ERR_NOT_FOUND ? EXIT_NOT_THERE : EXIT_NOT_STARTED;
}

/* A file whole, ended by 0; NULL and a message if it cannot be read. */
static char *read_file(const char *path)
{
    char *text = malloc(FILE_MOST + 1);
    FILE *file = fopen(path, "re");
    size_t n = text && file ? fread(text, 1, FILE_MOST + 1, file) : 0;
    int good = text && file && !ferror(file) && n <= FILE_MOST;
    if (good)
        text[n] = 0;
    else
        fprintf(stderr, "weft run: --hosts-file %s: %s\n", path,
                n > FILE_MOST ? "it has more than 1 MiB" : strerror(errno));
    if (file)
        fclose(file);
    if (!good)
        free(text);
    return good ? text : NULL;
}

/* Fills what `--hosts` and `--hosts-file` leave open; 0 or an exit status. */
static int find_hosts(reader *r)
{
    if (r->hosts_file && r->opts.hosts)
        return command_wrong(&weft_command_run, "either --hosts or --hosts-file");
    if (r->hosts_file) {
        r->opts.hosts = r->texts[0] = read_file(r->hosts_file);
        if (!r->opts.hosts)
            return EXIT_NOT_STARTED;
    }
    if (!r->opts.hosts && (r->opts.rsh || r->opts.weft))
        return command_wrong(&weft_command_run, "--rsh and --weft need --hosts or --hosts-file");
    if (!r->opts.hosts || r->opts.weft)
        return COMMAND_GOES_ON;
    r->texts[1] = malloc(PATH_BYTES);
    ssize_t n = r->texts[1] ? readlink("/proc/self/exe", r->texts[1], PATH_BYTES - 1) : -1;
    if (n > 0) {
        r->texts[1][n] = 0;
        r->opts.weft = r->texts[1];
    }
    return COMMAND_GOES_ON;
}

static int join(void)
{
    fill_standard_descriptors();
    int result = weft_launch_join();
    if (result >= 0)
        return result;
    fprintf(stderr, "%s\n", weft_last_error());
    return EXIT_NOT_STARTED;
}

static int read_and_launch(reader *r, int argc, char **argv, char **program)
{
    int status = command_read(&weft_command_run, argc, argv, r, program, NULL);
    if (status != COMMAND_GOES_ON)
        return status;
    if (r->join)
        return program[0]
                   ? command_wrong(&weft_command_run, "--join hears what to run on its input")
                   : join();
    if (!program[0])
        return command_wrong(&weft_command_run, "no program to run is given");
    if (r->tee && !r->opts.log_dir)
        return command_wrong(&weft_command_run, "--tee needs --log-dir");
    status = find_hosts(r);
    return status == COMMAND_GOES_ON ? launch(r, program) : status;
}

static int run(int argc, char **argv)
{
    reader r = {.opts = WEFT_LAUNCH_OPTS_INIT};
    char **program = calloc((size_t)argc + 1, sizeof *program);
    int status = EXIT_NOT_STARTED;
    r.env = calloc((size_t)argc + 1, sizeof *r.env);
    if (program && r.env)
        status = read_and_launch(&r, argc, argv, program);
    else
        fprintf(stderr, "weft run: out of memory\n");
    free(r.texts[0]);
    free(r.texts[1]);
    free(r.env);
    free(program);
    return status;
}

const subcommand weft_command_run = {
    .name = "run",
    .text = "starts the ranks of a program: weft run -n 4 ./program",
    .usage = "[options] [--] program [arguments]",
    .about = "Starts ranks of a program on this machine, or on several hosts, shows their output "
             "line by line with the "
             "rank in front, passes signals on, and on the first failure ends the rest and tells "
             "which rank failed how.",
    .options = options,
    .after = "Ranks find RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK, "
             "GROUP_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, WEFT_JOB_FD and WEFT_RESTART_COUNT in "
             "their environment.  Standard "
             "input goes to rank 0.  A second SIGINT within WEFT_KILL_GRACE (2 s) kills at once.",
    .exits = "0; that of the rank that failed first (128 + the signal, if one ended it); 124 when "
             "the time was up; 122 when a host was lost; 123 when all went well but output was "
             "lost; 2 wrong use; 125 when "
             "the job could not be started, 127 when the program is not there.",
    .ends_at_program = 1,
    .run = run,
};
