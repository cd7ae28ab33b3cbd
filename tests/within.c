/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a program within a limit that a busy machine does not shorten:
 *
 *     within SECONDS PROGRAM [ARGUMENT...]
 *
 * Two times a second it looks at the processes of the program.  If one of them wants a core, or some
 * have come or gone, only the processor time counts that they had since the last look; if all sleep,
 * the clock does.  So a
 * program that others keep off the cores is not late, and one that hangs is, whether it spins or
 * sleeps.  In any case it ends after CLOCK_TIMES the limit by the clock.
 *
 * At its limit the program gets SIGTERM, to tell what it was doing, and GRACE_S later all of its
 * processes get SIGKILL.  The exit status is the program's, 128 + the signal that ended it, or 124
 * at the limit; standard error then says what the time went to.  The processes are those of the
 * session that this program begins: ranks have groups of their own.
 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CLOCK_TIMES = 20, GRACE_S = 15, LOOK_MS = 500, PASSED_LIMIT = 124 };

/* What one look finds. */
typedef struct look {
    double processor; /* s, with the children that were waited for */
    bool wants;       /* a thread runs, waits for a core, or for a disk */
    int processes;
    long who; /* the sum of their numbers: another one if some came or went */
} look;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The fields behind the name, which may hold anything; false if the process is gone. */
static bool read_stat(const char *path, char *text, size_t bytes, char **fields)
{
    FILE *file = fopen(path, "r");
    if (!file)
        return false;
    text[fread(text, 1, bytes - 1, file)] = 0;
    fclose(file);
    *fields = strrchr(text, ')');
    return *fields && (*fields)[1] == ' ' && (*fields += 2);
}

static bool thread_wants(const char *path)
{
    char text[512], *fields;
    return read_stat(path, text, sizeof text, &fields) && (*fields == 'R' || *fields == 'D');
}

static bool any_thread_wants(int process)
{
    char path[320];
    bool wants = false;
    snprintf(path, sizeof path, "/proc/%d/task", process);
    DIR *tasks = opendir(path);
    for (struct dirent *entry; tasks && !wants && (entry = readdir(tasks));) {
        snprintf(path, sizeof path, "/proc/%d/task/%s/stat", process, entry->d_name);
        wants = entry->d_name[0] != '.' && thread_wants(path);
    }
    if (tasks)
        closedir(tasks);
    return wants;
}

/* Adds the process to what was found, if it is one of ours; with `signal` sends it that. */
static void take_process(int process, int signal, look *found)
{
    char path[64], text[1024], *fields, state;
    int session;
    unsigned long user, kernel;
    long children_user, children_kernel;
    snprintf(path, sizeof path, "/proc/%d/stat", process);
    if (process == getpid() || !read_stat(path, text, sizeof text, &fields) ||
        sscanf(fields, "%c %*d %*d %d %*d %*d %*u %*u %*u %*u %*u %lu %lu %ld %ld", &state,
               &session, &user, &kernel, &children_user, &children_kernel) != 6 ||
        session != getpid())
        return;
    unsigned long ticks =
        user + kernel + (unsigned long)children_user + (unsigned long)children_kernel;
    found->processes += state != 'Z';
    found->who += process;
    found->processor += (double)ticks / (double)sysconf(_SC_CLK_TCK);
    found->wants = found->wants || any_thread_wants(process);
    if (signal)
        kill(process, signal);
}

static look look_at_all(int signal)
{
    look found = {0};
    DIR *processes = opendir("/proc");
    for (struct dirent *entry; processes && (entry = readdir(processes));)
        if (atoi(entry->d_name) > 0)
            take_process(atoi(entry->d_name), signal, &found);
    if (processes)
        closedir(processes);
    return found;
}

/* Waits so long for the program to end; its status in the shell's manner, -1: it goes on. */
static int wait_for(pid_t program, double seconds)
{
    static const struct timespec most = {0, LOOK_MS * 1000000};
    sigset_t ends;
    int status;
    sigemptyset(&ends);
    sigaddset(&ends, SIGCHLD); /* blocked since before the program was there */
    for (double until = now() + seconds;;) {
        if (waitpid(program, &status, WNOHANG) == program)
            return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        if (now() >= until)
            return -1;
        sigtimedwait(&ends, NULL, &most);
    }
}

static int stop(pid_t program)
{
    kill(program, SIGTERM);
    kill(program, SIGCONT); /* a stopped one would not hear of it */
    wait_for(program, GRACE_S);
    for (int i = 0; i < 1000 && look_at_all(SIGKILL).processes; i++)
        usleep(10000); /* one that forks meanwhile is met by the next look */
    return PASSED_LIMIT;
}

/* The program's exit status, or that of one that was stopped. */
static int watch(pid_t program, double limit)
{
    double began = now(), last = began, worked = 0, slept = 0;
    look before = {0};
    for (int status;;) {
        if ((status = wait_for(program, LOOK_MS * 1e-3)) >= 0)
            return status;
        look found = look_at_all(0);
        double t = now(), passed = t - last, used = found.processor - before.processor;
        if (!found.wants && found.who == before.who)
            slept += passed;
        else if (used > 0) /* less, if somebody ended whom nobody of ours waited for */
            worked += used < passed ? used : passed;
        last = t;
        before = found;
        if (worked + slept >= limit || t - began >= CLOCK_TIMES * limit) {
            fprintf(stderr,
                    "within: the limit of %g s is over: %.0f s of processor time and %.0f s of "
                    "sleep, %.0f s by the clock\n",
                    limit, worked, slept, t - began);
            return stop(program);
        }
    }
}

int main(int argc, char **argv)
{
    double limit = argc > 2 ? atof(argv[1]) : 0;
    if (limit <= 0) {
        fprintf(stderr, "usage: within SECONDS PROGRAM [ARGUMENT...]\n");
        return 2;
    }
    sigset_t ends, before;
    sigemptyset(&ends);
    sigaddset(&ends, SIGCHLD);
    sigprocmask(SIG_BLOCK, &ends, &before);
    if (setsid() < 0) {
        fprintf(stderr, "within: it leads a group already; start it by setsid -w\n");
        return 2;
    }
    pid_t program = fork();
    if (program == 0) {
        sigprocmask(SIG_SETMASK, &before, NULL);
        execvp(argv[2], argv + 2);
        fprintf(stderr, "within: %s: %s\n", argv[2], strerror(errno));
        _exit(127);
    }
    return program < 0 ? 126 : watch(program, limit);
}
