/* SPDX-License-Identifier: Apache-2.0 */
/* Looks at processes, links and names: what os.h has besides the table, as far as it reads files.
 */
#include "base/os.h"

#include "base/env.h"

#include <dirent.h>
#include <fcntl.h>
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

static bool append(char **at, const char *end, const char *text)
{
    size_t length = strlen(text);
    if ((size_t)(end - *at) <= length)
        return false;
    memcpy(*at, text, length + 1);
    *at += length;
    return true;
}

bool weft_i_os_expand_path(const char *pattern, int rank, int process, char *out, size_t bytes)
{
    struct utsname host;
    if (uname(&host))
        host.nodename[0] = 0;
    char *at = out;
    const char *end = out + bytes;
    if (bytes)
        *out = 0;
    for (const char *p = pattern; *p; p++) {
        char piece[72] = {*p, 0};
        if (*p == '%' && p[1]) {
            p++;
            if (*p == 'h')
                snprintf(piece, sizeof piece, "%.64s", host.nodename);
            else if (*p == 'p')
                snprintf(piece, sizeof piece, "%d", process ? process : getpid());
            else if (*p == 'r')
                snprintf(piece, sizeof piece, "%d", rank);
            else if (*p != '%')
                snprintf(piece, sizeof piece, "%%%c", *p);
        }
        if (!append(&at, end, piece))
            return false;
    }
    return true;
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
