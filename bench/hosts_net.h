/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hosts on one machine, for measurements: network namespaces, each with the end of a virtual cable to a
 * bridge, inside a user namespace, so that any user may make them.  Host h has the address 10.77.0.<h + 1>,
 * the interface cable<h>, a name of its own and its share of the cores.
 */
#ifndef WEFT_BENCH_HOSTS_NET_H
#define WEFT_BENCH_HOSTS_NET_H

#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NET_HOSTS = 8 };

typedef struct net {
    int hosts;
    pid_t pid[NET_HOSTS]; /* in whose namespaces the host is */
    int go[NET_HOSTS];    /* its end when this is closed */
} net;

__attribute__((format(printf, 1, 2))) static inline int net_do(const char *format, ...)
{
    char command[400];
    va_list list;
    va_start(list, format);
    vsnprintf(command, sizeof command, format, list);
    va_end(list);
    return system(command);
}

static inline int net_write(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    return !file || fputs(text, file) < 0 || fclose(file) ? -1 : 0;
}

/* This process is root of a user namespace, with a network of its own that has a bridge; 0, or why not. */
static inline const char *net_enter(void)
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
    return net_do("ip link set lo up && ip link add bridge0 type bridge && ip link set bridge0 up")
               ? "no bridge (ip, of iproute2)"
               : NULL;
}

/* Host `host` takes its share of the cores this process may use; of a core that several share, all of it. */
static inline void net_take_cores(int host, int hosts)
{
    cpu_set_t may, mine;
    if (sched_getaffinity(0, sizeof may, &may) != 0)
        return;
    int cores = CPU_COUNT(&may), place = 0;
    CPU_ZERO(&mine);
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &may)) {
            if (cores < hosts ? place == host % cores : place * hosts / cores == host)
                CPU_SET(core, &mine);
            place++;
        }
    sched_setaffinity(0, sizeof mine, &mine);
}

/* What a host does until it is to end: it holds the namespaces. */
static inline void net_hold(int ready, int go)
{
    char byte = 'n', name[16];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    snprintf(name, sizeof name, "host%d", (int)getpid());
    if (!unshare(CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWUTS) &&
        !mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
        !mount("sysfs", "/sys", "sysfs", 0, NULL) && !sethostname(name, strlen(name)))
        byte = 'y';
    if (write(ready, &byte, 1) == 1)
        while (read(go, &byte, 1) > 0)
            continue;
    _exit(0);
}

static inline int net_add_host(net *n, int host)
{
    int ready[2], go[2];
    char byte = 'n';
    if (pipe(ready) || pipe(go))
        return -1;
    n->pid[host] = fork();
    if (n->pid[host] == 0) {
        close(go[1]);
        net_hold(ready[1], go[0]);
    }
    close(ready[1]);
    close(go[0]);
    n->go[host] = go[1];
    int got = (int)read(ready[0], &byte, 1);
    close(ready[0]);
    if (got != 1 || byte != 'y')
        return -1;
    int pid = (int)n->pid[host];
    return net_do("ip link add wire%d type veth peer name cable%d && ip link set wire%d master "
                  "bridge0 up && ip link set cable%d netns %d && nsenter -t %d -n sh -c 'ip link "
                  "set lo up && ip addr add 10.77.0.%d/24 dev cable%d && ip link set cable%d up'",
                  host, host, host, host, pid, pid, host + 1, host, host)
               ? -1
               : 0;
}

/* 0, or why there are none. */
static inline const char *net_open(net *n, int hosts)
{
    memset(n, 0, sizeof *n);
    const char *why = net_enter();
    for (int host = 0; !why && host < hosts; host++, n->hosts++)
        if (net_add_host(n, host))
            why = "no virtual cables (veth), or no sysfs for a network of one's own";
    return why;
}

static inline void net_close(net *n)
{
    for (int host = 0; host < n->hosts; host++) /* later hosts have the ends of earlier ones too */
        close(n->go[host]);
    for (int host = 0; host < n->hosts; host++)
        waitpid(n->pid[host], NULL, 0);
}

/* A process on that host; 0 in it, -1 if there is none. */
static inline pid_t net_fork(const net *n, int host)
{
    char path[64];
    pid_t child = fork();
    if (child)
        return child;
    static const char *const names[] = {"net", "uts", "mnt"};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "/proc/%d/ns/%s", (int)n->pid[host], names[i]);
        FILE *file = fopen(path, "re");
        if (!file || setns(fileno(file), 0)) {
            perror(path);
            _exit(3);
        }
        fclose(file);
    }
    net_take_cores(host, n->hosts);
    return 0;
}

#endif
