/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `weft doctor --hosts` runs on each host.  It tells what it is and what its checks found, a line
 * each, with tabs between the fields, then "ready"; and answers lines until its input ends:
 *
 *     clock                          its wall clock, in nanoseconds
 *     reach WORD PORT ADDRESS...     "reached ADDRESS MICROSECONDS", or "unreached" and why
 *
 * WORD is what the doctor of the other host says to everyone that connects: another machine that has
 * the same address, as those of bridges do, says something else or nothing.
 */
#include "doctor.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <net/if.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { LINE = 8192, WORD = 17, PATIENCE_MS = 3000 };

static int64_t now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- being reached ---- */

typedef struct door {
    int fd, port;
    char word[WORD];
} door;

/* A port of the kernel's choice, of all addresses, for IPv4 and where there is one for IPv6. */
static int open_door(door *d)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};
    struct sockaddr_in four = {.sin_family = AF_INET};
    struct sockaddr_storage at = {0};
    socklen_t length = sizeof at;
    int off = 0;
    uint64_t random;
    d->fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (d->fd < 0 || setsockopt(d->fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) ||
        bind(d->fd, (struct sockaddr *)&six, sizeof six)) {
        if (d->fd >= 0)
            close(d->fd);
        d->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (d->fd < 0 || bind(d->fd, (struct sockaddr *)&four, sizeof four))
            return 0;
    }
    if (listen(d->fd, 64) || getsockname(d->fd, (struct sockaddr *)&at, &length) ||
        getrandom(&random, sizeof random, 0) != sizeof random)
        return 0;
    d->port = ntohs(at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port
                                             : ((struct sockaddr_in *)&at)->sin_port);
    snprintf(d->word, sizeof d->word, "%016" PRIx64, random);
    return 1;
}

/* Says the word to whoever comes, until the process ends. */
static void *keep_door(void *argument)
{
    const door *d = argument;
    for (;;) {
        int fd = accept4(d->fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0 && errno != EINTR && errno != ECONNABORTED)
            return NULL;
        if (fd >= 0) {
            (void)!write(fd, d->word, WORD - 1);
            close(fd);
        }
    }
}

/* Tells the addresses that others may reach, and returns how many.  Those of the loopback interface
 * come where there is nothing else: others reach it if this host is only pretended. */
static int tell_addresses(int loopback)
{
    int told = 0;
    struct ifaddrs *list = NULL;
    char text[NI_MAXHOST];
    if (getifaddrs(&list))
        return 0;
    for (struct ifaddrs *i = list; i; i = i->ifa_next) {
        if (!i->ifa_addr || !(i->ifa_flags & IFF_UP) ||
            !(i->ifa_flags & IFF_LOOPBACK) == !!loopback)
            continue;
        int six = i->ifa_addr->sa_family == AF_INET6;
        socklen_t length = six ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
        if ((six || i->ifa_addr->sa_family == AF_INET) &&
            !(six && IN6_IS_ADDR_LINKLOCAL(&((struct sockaddr_in6 *)i->ifa_addr)->sin6_addr)) &&
            !getnameinfo(i->ifa_addr, length, text, sizeof text, NULL, 0, NI_NUMERICHOST))
            told += printf(" %s", text) > 0;
    }
    freeifaddrs(list);
    return told;
}

/* ---- reaching others ---- */

/* Waits for a descriptor; 0, or an error number. */
static int await(int fd, short what)
{
    struct pollfd one = {fd, what, 0};
    int ready = poll(&one, 1, PATIENCE_MS), error = 0;
    socklen_t length = sizeof error;
    if (ready <= 0)
        return ready ? errno : ETIMEDOUT;
    return what == POLLOUT && !getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) ? error : 0;
}

/* Connects and hears the word; NULL, or why not. */
static const char *hear_word(const char *address, const char *port, const char *word)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
                             .ai_socktype = SOCK_STREAM};
    struct addrinfo *to = NULL;
    char said[WORD] = "";
    if (getaddrinfo(address, port, &hints, &to))
        return "no address";
    int fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), error = 0;
    if (fd < 0 || (connect(fd, to->ai_addr, to->ai_addrlen) && errno != EINPROGRESS))
        error = errno;
    freeaddrinfo(to);
    if (!error)
        error = await(fd, POLLOUT);
    if (!error)
        error = await(fd, POLLIN);
    ssize_t length = error ? 0 : read(fd, said, WORD - 1);
    if (fd >= 0)
        close(fd);
    if (error == ETIMEDOUT)
        return "timed out";
    if (error)
        return strerror(error);
    return length == WORD - 1 && !strcmp(said, word) ? NULL : "another machine answers there";
}

/* "reach WORD PORT ADDRESS...": the first address at which the other host answers. */
static void reach(char *line)
{
    char reasons[LINE] = "", *rest = NULL;
    const char *word = strtok_r(line, " ", &rest), *port = strtok_r(NULL, " ", &rest);
    size_t used = 0;
    for (const char *address; port && (address = strtok_r(NULL, " ", &rest));) {
        int64_t begun = now(CLOCK_MONOTONIC);
        const char *why = hear_word(address, port, word);
        if (!why) {
            printf("reached %s %" PRId64 "\n", address, (now(CLOCK_MONOTONIC) - begun) / 1000);
            return;
        }
        if (used < sizeof reasons)
            used += (size_t)snprintf(reasons + used, sizeof reasons - used, "%s%s: %s",
                                     used ? ", " : "", address, why);
    }
    printf("unreached %s\n", used ? reasons : "it has no address");
}

/* ---- telling ---- */

static void tell_findings(void)
{
    for (const check *c = doctor_checks; c->name; c++) {
        finding found = {0};
        c->look(&found);
        printf("finding\t%d\t%s\t%s\t%s\n", (int)found.verdict, c->name, found.text, found.advice);
    }
}

static void tell(const door *d)
{
    char ports[64] = "";
    doctor_line_of("/proc/sys/net/ipv4/ip_local_port_range", ports, sizeof ports);
    ports[strcspn(ports, "\t")] = ports[strcspn(ports, "\t")] ? '-' : 0;
    printf("version\t%s\nports\t%s\nat\t%s %d", weft_version(), ports, d->word, d->port);
    if (!tell_addresses(0))
        tell_addresses(1);
    printf("\n");
    tell_findings();
    printf("ready\n");
}

static void answer(FILE *in)
{
    char line[LINE];
    while (fgets(line, sizeof line, in)) {
        line[strcspn(line, "\n")] = 0;
        if (!strcmp(line, "clock"))
            printf("clock %" PRId64 "\n", now(CLOCK_REALTIME));
        else if (!strncmp(line, "reach ", 6))
            reach(line + 6);
        fflush(stdout);
    }
}

int doctor_answer(void)
{
    /* Ranks of the trial must not read what is meant for this process. */
    int input = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3), none = open("/dev/null", O_RDONLY);
    FILE *in = input >= 0 ? fdopen(input, "r") : NULL;
    door d = {.fd = -1};
    pthread_t keeper;
    if (!in || none < 0 || dup2(none, STDIN_FILENO) < 0 || !open_door(&d) ||
        pthread_create(&keeper, NULL, keep_door, &d)) {
        fprintf(stderr, "weft doctor: no port to listen at: %s\n", strerror(errno));
        return 1;
    }
    close(none);
    signal(SIGPIPE, SIG_IGN); /* of those that connect and go away */
    tell(&d);
    fflush(stdout);
    answer(in);
    return 0;
}
