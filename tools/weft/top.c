/* SPDX-License-Identifier: Apache-2.0 */
/* `weft top`: what the ranks of a running job do, again and again; the keys, and the terminal. */
#include "top.h"

#include "command.h"
#include "on_hosts.h"

#include <ctype.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

enum { JOBS = 64, PAGES_MAX = 100000, HOST_PATIENCE_S = 20 };

typedef struct settings {
    const char *which, *page, *hosts;
    on_hosts_ask ask;
    const char *order;
    long interval_ms, times;
    top_view view;
    int quit, drawn;
} settings;

/* Whoever ends the command by a signal gets the terminal back; written by the handler alone. */
static struct termios before;
static int terminal_changed;

static void restore(void)
{
    if (terminal_changed)
        tcsetattr(STDIN_FILENO, TCSANOW, &before);
    terminal_changed = 0;
}

static void end_by_signal(int number)
{
    static const char shown[] = "\033[?25h\033[?1049l";
    restore();
    if (write(STDOUT_FILENO, shown, sizeof shown - 1) < 0)
        _exit(1);
    signal(number, SIG_DFL);
    raise(number);
}

/* Keys come one by one and are not shown; the screen is another one, which goes at the end. */
static int open_terminal(settings *s)
{
    struct termios raw;
    if (!isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO) || tcgetattr(STDIN_FILENO, &before) < 0)
        return 0;
    raw = before;
    raw.c_lflag &= (tcflag_t) ~(ICANON | ECHO);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    terminal_changed = 1;
    signal(SIGINT, end_by_signal);
    signal(SIGTERM, end_by_signal);
    if (tcsetattr(STDIN_FILENO, TCSANOW, &raw) < 0)
        return terminal_changed = 0;
    fputs("\033[?1049h\033[?25l\033[2J", stdout);
    return s->view.escapes = 1;
}

static void close_terminal(settings *s)
{
    if (!s->view.escapes)
        return;
    fputs("\033[?25h\033[?1049l", stdout);
    fflush(stdout);
    restore();
}

static void measure(top_view *view)
{
    struct winsize size;
    view->rows = 24;
    view->columns = 80;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 6 && size.ws_col > 20) {
        view->rows = size.ws_row;
        view->columns = size.ws_col;
    }
}

static void press(settings *s, int key)
{
    top_view *view = &s->view;
    switch (tolower(key)) {
    case 'q':
        s->quit = 1;
        break;
    case 's':
        view->order = (top_order)((view->order + 1) % TOP_ORDERS);
        break;
    case 'j':
        view->selected++;
        break;
    case 'k':
        view->selected -= view->selected > 0;
        break;
    case '\r':
    case '\n':
    case '1':
        view->alone = !view->alone;
        break;
    default:
        return;
    }
    s->drawn = 0;
}

/* Sleeps, or takes a key; 0 ends the interval early, because what is shown has to change. */
static int pause_for(void *argument, int64_t ms)
{
    settings *s = argument;
    struct pollfd keys = {.fd = STDIN_FILENO, .events = POLLIN};
    char key;
    if (!s->view.escapes)
        return usleep((useconds_t)ms * 1000), 1;
    if (poll(&keys, 1, (int)ms) > 0) {
        ssize_t got = read(STDIN_FILENO, &key, 1);
        if (got == 1)
            press(s, key);
        else if (got == 0)
            s->quit = 1; /* the terminal is gone */
    }
    return !s->quit && s->drawn;
}

/* ---- which job ---- */

/* The process of the job that is meant: of a process or a program; without a word, of the only one. */
static int find(const char *which)
{
    static weft_job *jobs[JOBS];
    weft_job_info info;
    char *end = NULL;
    long process = which ? strtol(which, &end, 10) : 0;
    if (which && *which && !*end)
        return process > 0 && process < 1L << 30 ? (int)process : -1;
    int found = weft_job_list(jobs, JOBS), count = 0;
    for (int i = 0; i < found && i < JOBS; i++)
        if (weft_job_describe(jobs[i], &info) == WEFT_OK &&
            (!which || !strcmp(which, info.program)) && ++count)
            process = info.process;
    if (count == 1)
        return (int)process;
    if (count)
        fprintf(stderr, "weft top: %d jobs%s%s run here; name one by a process (weft info --job)\n",
                count, which ? " of " : "", which ? which : "");
    else if (which)
        fprintf(stderr, "weft top: no job of this user runs a program \"%s\" on this machine\n",
                which);
    else
        fprintf(stderr, "weft top: no job of this user runs on this machine\n");
    return -1;
}

/* ---- the loops ---- */

static int job_is_over(const settings *s, long shown)
{
    if (shown && weft_last_status() == WEFT_ERR_NOT_FOUND) {
        printf("the job is over\n");
        return fflush(stdout) != 0;
    }
    fprintf(stderr, "weft top: %s\n", weft_last_error());
    return s->quit ? 0 : 1;
}

/* Draws until a key, the number of times or the job ends it. */
static int show(settings *s, int process)
{
    top_job job;
    long shown = 0;
    int over = 0;
    open_terminal(s);
    while (!s->quit && !over && (!s->times || shown < s->times)) {
        /* A key was pressed: a short look, for what it asked for. */
        int64_t interval = s->drawn || !shown ? s->interval_ms : 0;
        if (!shown && s->view.escapes)
            interval = 200; /* the first one comes soon */
        s->drawn = 1;
        if (top_watch(&job, process, interval, pause_for, s)) {
            measure(&s->view);
            if (s->view.selected >= job.info.ranks)
                s->view.selected = job.info.ranks - 1;
            top_draw(stdout, &job, &s->view);
            fflush(stdout);
            shown++;
        } else {
            over = 1;
        }
        top_free(&job);
    }
    close_terminal(s);
    return over ? job_is_over(s, shown) : ferror(stdout) != 0;
}

/* A page of as many intervals as were asked for, or as the job lives. */
static int record(settings *s, int process)
{
    long wanted = s->times ? s->times : 10;
    int count = 0, failed = 1;
    top_job *jobs = calloc((size_t)wanted, sizeof *jobs);
    while (jobs && count < wanted && top_watch(&jobs[count], process, s->interval_ms, pause_for, s))
        count++;
    if (!count)
        fprintf(stderr, "weft top: %s\n", jobs ? weft_last_error() : "no memory");
    else
        failed = top_page(s->page, jobs, count);
    for (int i = 0; jobs && i <= count && i < wanted; i++)
        top_free(&jobs[i]);
    free(jobs);
    return failed;
}

/* ---- the words ---- */

static int set_page(void *into, const char *text, long number)
{
    (void)number;
    ((settings *)into)->page = text;
    return *text != 0;
}

static int set_interval(void *into, const char *text, long number)
{
    (void)text;
    ((settings *)into)->interval_ms = number;
    return 1;
}

static int set_times(void *into, const char *text, long number)
{
    (void)text;
    ((settings *)into)->times = number;
    return 1;
}

static int set_hosts(void *into, const char *text, long number)
{
    (void)number;
    ((settings *)into)->hosts = text;
    return *text != 0;
}

static int set_rsh(void *into, const char *text, long number)
{
    (void)number;
    ((settings *)into)->ask.rsh = text;
    return *text != 0;
}

static int set_weft(void *into, const char *text, long number)
{
    (void)number;
    ((settings *)into)->ask.weft = text;
    return *text != 0;
}

static int set_order(void *into, const char *text, long number)
{
    static const char *const words[TOP_ORDERS] = {"rank",  "wait",  "bytes",
                                                  "calls", "share", "memory"};
    (void)number;
    for (int i = 0; i < TOP_ORDERS; i++)
        if (!strcmp(text, words[i])) {
            ((settings *)into)->view.order = (top_order)i;
            ((settings *)into)->order = words[i];
            return 1;
        }
    return 0;
}

static const command_option options[] = {
    {'s', "sort", "ORDER", 0, 0, "rank|wait|bytes|calls|share|memory", "which rank comes first", 0,
     set_order},
    {'i', "interval", "MS", 50, 60000, NULL, "how long each of them is looked at (1000)", 0,
     set_interval},
    {'n', "times", "N", 1, PAGES_MAX, NULL,
     "end after so many; without a terminal 1, with --html 10", 0, set_times},
    {0, "html", "FILE", 0, 0, "the name of a file", "write a page about so many intervals", 0,
     set_page},
    {'H', "hosts", "LIST", 0, 0, "names of hosts, a,b,c", "the tables of these hosts", 0,
     set_hosts},
    {0, "rsh", "COMMAND", 0, 0, "a command", "what runs a command on a host (ssh)", 0, set_rsh},
    {0, "weft", "PATH", 0, 0, "a path", "the command there (weft)", 0, set_weft},
    {0},
};

/* Each interval the command runs itself on the hosts. */
static int show_hosts(settings *s, const char *which)
{
    char command[64];
    int escapes = isatty(STDOUT_FILENO);
    snprintf(command, sizeof command, "top -n 1 -i %ld -s %s", s->interval_ms, s->order);
    s->ask.words = command;
    s->ask.which = which;
    s->ask.limit_s = HOST_PATIENCE_S + s->interval_ms / 1000;
    return on_hosts(s->hosts, &s->ask, s->times || escapes ? s->times : 1, escapes);
}

static int run(int argc, char **argv)
{
    settings s = {.interval_ms = 1000, .order = "rank", .ask = {.rsh = "ssh", .weft = "weft"}};
    char **words = calloc((size_t)argc + 1, sizeof *words);
    int status = words ? command_read(&weft_command_top, argc, argv, &s, words, NULL) : 1;
    if (status == COMMAND_GOES_ON && words[0] && words[1])
        status = command_wrong(&weft_command_top, "one job at a time");
    if (status == COMMAND_GOES_ON && s.hosts && s.page)
        status = command_wrong(&weft_command_top, "--html is for one host");
    if (status == COMMAND_GOES_ON && s.hosts) {
        status = show_hosts(&s, words[0]);
    }
    if (status == COMMAND_GOES_ON) {
        int process = find(words[0]);
        if (!s.page && !s.times && !isatty(STDOUT_FILENO))
            s.times = 1;
        status = process < 0 ? 1 : s.page ? record(&s, process) : show(&s, process);
    }
    free(words);
    return status;
}

const subcommand weft_command_top = {
    .name = "top",
    .text = "shows what the ranks of a running job do, once a second",
    .usage = "[options] [PROCESS | PROGRAM]",
    .about =
        "For each rank on this host: what it does, for whom it waits and how long, calls and bytes "
        "a "
        "second, the share of its time in communication, and memory. The job is that of a process "
        "(the launcher or a rank) or program, or the only one. Looking does not disturb it, and "
        "works when it hangs.\n"
        "\n"
        "Keys: s sorts by something else, j and k choose a rank, Enter shows that rank alone with "
        "what those do for whom it waits, q ends.",
    .options = options,
    .after =
        "Ranks on other hosts: --hosts a,b runs it there by ssh, for the program of that name, and "
        "shows the tables one below the other; or ssh -t HOST weft top.",
    .exits = "0, also when the job ends; 1 if there is no such job.",
    .run = run,
};
