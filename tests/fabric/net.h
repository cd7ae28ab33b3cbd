/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two hosts on one machine: two network namespaces, joined by a virtual cable, inside a user namespace, so
 * that any user may make them.  Nothing of it is seen outside, and all of it goes with its processes.
 *
 *     net_run(sizes, body, arg, reason)    body(host, index, rank, size, arg) in a process of its own each
 */
#ifndef WEFT_TESTS_NET_H
#define WEFT_TESTS_NET_H

#include "crew.h"

#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/mount.h>

enum { NET_HOSTS = 2, NET_LIMIT_S = 120 };

typedef int net_body(int host, int index, int rank, int size, void *arg);

__attribute__((format(printf, 1, 2))) static int net_do(const char *format, ...)
{
    char command[400];
    va_list list;
    va_start(list, format);
    vsnprintf(command, sizeof command, format, list);
    va_end(list);
    return system(command);
}

static int net_write(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    ssize_t count = fd < 0 ? -1 : write(fd, text, strlen(text));
    if (fd >= 0)
        close(fd);
    return count == (ssize_t)strlen(text) ? 0 : -1;
}

/* This process is root in a namespace of its own, with a network of its own; 0, or why not. */
static const char *net_enter(void)
{
    char text[64];
    int user = (int)geteuid(), group = (int)getegid();
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET))
        return "the kernel refuses user namespaces";
    net_write("/proc/self/setgroups", "deny");
    snprintf(text, sizeof text, "0 %d 1", user);
    if (net_write("/proc/self/uid_map", text))
        return "no map of users";
    snprintf(text, sizeof text, "0 %d 1", group);
    if (net_write("/proc/self/gid_map", text))
        return "no map of groups";
    return net_do("ip link set lo up >/dev/null 2>&1") ? "ip does not work there" : NULL;
}

/* A network of its own, and what /sys shows of it: UCX looks there. */
static int net_part(void)
{
    return unshare(CLONE_NEWNET | CLONE_NEWNS) ||
           mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
           mount("sysfs", "/sys", "sysfs", 0, NULL);
}

/* What a host does once its end of the cable is there: brings it up, and starts its ranks. */
static int net_host(int host, const int *sizes, net_body *body, void *arg)
{
    int first = host ? sizes[0] : 0, size = sizes[0] + sizes[1], worst = 0;
    if (net_do("ip link set lo up && ip addr add 10.77.0.%d/24 dev cable%d && ip link set cable%d "
               "up",
               host + 1, host, host))
        return 3;
    for (int index = 0; index < sizes[host]; index++)
        if (!fork()) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            _exit(body(host, index, first + index, size, arg));
        }
    for (int status; wait(&status) > 0;)
        if (WIFEXITED(status) && WEXITSTATUS(status) > worst)
            worst = WEXITSTATUS(status);
    return worst;
}

/* In a process of its own, which is the parent of both hosts. */
static int net_stage(const int *sizes, net_body *body, void *arg, char *reason, size_t bytes)
{
    pid_t hosts[NET_HOSTS];
    int ready[2], go[NET_HOSTS][2], worst = 0;
    char byte = 0;
    const char *why = net_enter();
    if (!why &&
        (net_do("ip link add cable0 type veth peer name cable1 >/dev/null 2>&1") || pipe(ready)))
        why = "no virtual cables here (veth)";
    if (why) {
        snprintf(reason, bytes, "%s", why);
        return 2;
    }
    for (int host = 0; host < NET_HOSTS; host++) {
        if (pipe(go[host]))
            return 3;
        hosts[host] = fork();
        if (!hosts[host]) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            byte = net_part() ? 'n' : 'y';
            if (write(ready[1], &byte, 1) != 1 || read(go[host][0], &byte, 1) != 1)
                _exit(3);
            _exit(net_host(host, sizes, body, arg));
        }
        if (read(ready[0], &byte, 1) != 1 || byte != 'y') {
            snprintf(reason, bytes, "no sysfs for a network of one's own here");
            return 2;
        }
        if (net_do("ip link set cable%d netns %d", host, (int)hosts[host]))
            return 3;
    }
    for (int host = 0; host < NET_HOSTS; host++)
        if (write(go[host][1], "x", 1) != 1)
            return 3;
    for (int host = 0, status; host < NET_HOSTS; host++) {
        waitpid(hosts[host], &status, 0);
        int code = WIFEXITED(status) ? WEXITSTATUS(status) : 4;
        worst = code > worst ? code : worst;
    }
    return worst;
}

/* Runs the ranks of two hosts; the test is skipped where such hosts cannot be made. */
static void net_run(const char *what, const int *sizes, net_body *body, void *arg)
{
    int status = 0;
    char *reason;
    if (!crew)
        crew = mmap(NULL, sizeof *crew, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(crew != MAP_FAILED);
    memset(crew, 0, sizeof *crew);
    reason = crew->note;
    pid_t stage = fork();
    if (!stage) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(net_stage(sizes, body, arg, reason, sizeof crew->note));
    }
    for (int i = 0; !waitpid(stage, &status, WNOHANG); i++) {
        crew_rest(10);
        if (i == NET_LIMIT_S * 100)
            kill(stage, SIGKILL);
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 2)
        SKIP("%s", reason);
    for (int rank = 0; rank < sizes[0] + sizes[1]; rank++)
        if (crew->rank[rank].complaint[0])
            printf("# rank %d: %s\n", rank, crew->rank[rank].complaint);
    for (int rank = 0; rank < sizes[0] + sizes[1]; rank++)
        if (crew->rank[rank].complaint[0])
            FAIL("%s: rank %d: %s", what, rank, crew->rank[rank].complaint);
    for (int rank = 0; rank < sizes[0] + sizes[1]; rank++)
        if (!crew->rank[rank].done)
            FAIL("%s: rank %d did not come back (status %d)", what, rank, status);
}

#endif
