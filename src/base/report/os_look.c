/* SPDX-License-Identifier: Apache-2.0 */
/* Looks at processes, links and names; see os_look.h. */
#include "base/report/os_look.h"

#include "base/os/os.h"
#include "base/report/env.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

/* Reads a small file whole; returns its length, or -1. */
static ssize_t slurp(const char *path, char *out, size_t bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t n = read(fd, out, bytes - 1);
    close(fd);
    if (n >= 0)
        out[n] = 0;
    return n;
}

char weft_i_os_process_state(int process)
{
    char path[48], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", process);
    if (slurp(path, text, sizeof text) <= 0)
        return 0;
    /* The name in parentheses may hold anything: the state follows the last one. */
    const char *close_paren = strrchr(text, ')');
    return close_paren && close_paren[1] == ' ' ? close_paren[2] : 0;
}

int weft_i_os_process_user(int process)
{
    char path[48];
    struct stat folder;
    snprintf(path, sizeof path, "/proc/%d", process);
    return stat(path, &folder) ? -1 : (int)folder.st_uid;
}

void weft_i_os_process_program(int process, char *out, size_t bytes)
{
    char path[48], text[4096];
    snprintf(path, sizeof path, "/proc/%d/cmdline", process);
    if (slurp(path, text, sizeof text) < 0)
        text[0] = 0;
    const char *slash = strrchr(text, '/');
    snprintf(out, bytes, "%s", slash ? slash + 1 : text);
}

bool weft_i_os_read_link(const char *path, char *out, size_t bytes)
{
    ssize_t n = readlink(path, out, bytes - 1);
    out[n > 0 ? n : 0] = 0;
    return n > 0;
}

bool weft_i_os_each_number(const char *folder, bool (*each)(void *arg, int number), void *arg)
{
    DIR *list = opendir(folder);
    bool more = list != NULL;
    for (struct dirent *entry; more && (entry = readdir(list));)
        if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9')
            more = each(arg, atoi(entry->d_name));
    if (list)
        closedir(list);
    return list != NULL;
}

bool weft_i_os_each_name(const char *folder, bool (*each)(void *arg, const char *name), void *arg)
{
    DIR *list = opendir(folder);
    bool more = list != NULL;
    for (struct dirent *entry; more && (entry = readdir(list));)
        if (entry->d_name[0] != '.')
            more = each(arg, entry->d_name);
    if (list)
        closedir(list);
    return list != NULL;
}

static bool is_link_local(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return false;
    return IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
}

bool weft_i_os_each_address(bool (*each)(void *arg, const char *interface, const char *address,
                                         bool loopback),
                            void *arg)
{
    struct ifaddrs *list = NULL;
    if (getifaddrs(&list))
        return false;
    bool more = true;
    for (struct ifaddrs *at = list; at && more; at = at->ifa_next) {
        char text[64];
        if (!at->ifa_addr || !(at->ifa_flags & IFF_UP) ||
            (at->ifa_addr->sa_family != AF_INET && at->ifa_addr->sa_family != AF_INET6) ||
            is_link_local(at->ifa_addr))
            continue;
        socklen_t length = at->ifa_addr->sa_family == AF_INET ? sizeof(struct sockaddr_in)
                                                              : sizeof(struct sockaddr_in6);
        if (!getnameinfo(at->ifa_addr, length, text, sizeof text, NULL, 0, NI_NUMERICHOST))
            more = each(arg, at->ifa_name, text, at->ifa_flags & IFF_LOOPBACK);
    }
    freeifaddrs(list);
    return true;
}

bool weft_i_os_folder(char *out, size_t bytes)
{
    return getcwd(out, bytes) != NULL;
}

bool weft_i_os_enter_folder(const char *path)
{
    return chdir(path) == 0;
}

void weft_i_os_host_name(char *out, size_t bytes)
{
    struct utsname host;
    snprintf(out, bytes, "%s", uname(&host) ? "unknown" : host.nodename);
}

void weft_i_os_host_id(char out[65])
{
    const char *forced = weft_i_env_text(WEFT_I_ENV_HOST_ID);
    if (*forced) {
        snprintf(out, 65, "%.64s", forced);
        return;
    }
    /* The boot id tells machines apart; the network namespace tells containers apart whose abstract
     * sockets differ. */
    char boot[40] = "";
    if (slurp("/proc/sys/kernel/random/boot_id", boot, sizeof boot) < 36) {
        struct utsname host;
        snprintf(boot, sizeof boot, "%.36s", uname(&host) ? "unknown" : host.nodename);
    }
    boot[strcspn(boot, "\n")] = 0;
    struct stat network;
    unsigned long long space =
        stat("/proc/self/ns/net", &network) ? 0 : (unsigned long long)network.st_ino;
    snprintf(out, 65, "%.36s-%llx", boot, space);
}
