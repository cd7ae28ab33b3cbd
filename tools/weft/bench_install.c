/* SPDX-License-Identifier: Apache-2.0 */
/* Where an MPI is installed; see bench_install.h. */
#include "bench_install.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Names by which an MPI may be installed: Debian's own, then the plain ones, which may be any. */
static const struct {
    const char *family, *launcher, *compiler, *sign;
} names[] = {
    {"openmpi", "mpirun.openmpi", "mpicc.openmpi", ""},
    {"openmpi", "mpirun", "mpicc", "Open MPI"},
    {"openmpi", "mpirun", "mpicc", "OpenRTE"},
    {"mpich", "mpirun.mpich", "mpicc.mpich", ""},
    {"mpich", "mpiexec.hydra", "mpicc", "HYDRA"},
    {"mpich", "mpirun", "mpicc", "HYDRA"},
    {"impi", "mpiexec.hydra", "mpicc", "Intel(R) MPI"},
};

/* The first lines of what a command prints; empty if it is not there. */
static void first_words(const char *command, char *out, size_t room)
{
    FILE *from = popen(command, "r");
    size_t length = from ? fread(out, 1, room - 1, from) : 0;
    out[length] = 0;
    while (from && fgetc(from) != EOF)
        ;
    if (from && pclose(from) != 0)
        out[0] = 0;
}

/* The first number with a dot in a text: its version. */
static void find_version(const char *text, char *out, size_t room)
{
    for (; *text; text++) {
        size_t digits = strspn(text, "0123456789");
        if (digits && text[digits] == '.' && text[digits + 1] >= '0' && text[digits + 1] <= '9') {
            snprintf(out, room, "%.*s", (int)strspn(text, "0123456789."), text);
            return;
        }
        text += digits ? digits - 1 : 0;
    }
    snprintf(out, room, "of unknown version");
}

/* A program of the install, with its folder unless PATH has it; 0 if it is not there. */
static int find_program(const char *folder, const char *name, char *out, size_t room)
{
    char command[BENCH_INSTALL_PATH + 128], found[8];
    snprintf(out, room, *folder ? "%s/bin/%s" : "%s%s", folder, name);
    snprintf(command, sizeof command, "command -v '%s' >/dev/null 2>&1 && echo yes", out);
    first_words(command, found, sizeof found);
    return *found != 0;
}

/* The MPI's own wrapper or, where it has none (the package impi-rt), its library. */
static int find_compiler(const char *name, bench_install *out)
{
    static const char *const libraries[] = {"lib/libmpi.so.12", "lib/release/libmpi.so.12"};
    if (find_program(out->folder, name, out->compiler, sizeof out->compiler))
        return 1;
    out->compiler[0] = 0;
    for (int i = 0; i < 2 && *out->folder; i++) {
        snprintf(out->library, sizeof out->library, "%s/%s", out->folder, libraries[i]);
        if (access(out->library, R_OK) == 0)
            return 1;
    }
    return 0;
}

/* Is it here?  A folder of "" is PATH. */
static int find_in(const char *folder, const char *family, bench_install *out)
{
    char command[BENCH_INSTALL_PATH + 128], text[512];
    if (strlen(folder) >= BENCH_INSTALL_PATH || strchr(folder, '\'')) /* which ends the quotes */
        return 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        memset(out, 0, sizeof *out);
        snprintf(out->folder, sizeof out->folder, "%s", folder);
        if (strcmp(names[i].family, family) != 0 ||
            !find_program(folder, names[i].launcher, out->launcher, sizeof out->launcher) ||
            !find_compiler(names[i].compiler, out) || (*out->library && strcmp(family, "impi")))
            continue;
        snprintf(command, sizeof command, "'%s' --version 2>&1", out->launcher);
        first_words(command, text, sizeof text);
        if (!*text || !strstr(text, names[i].sign))
            continue;
        find_version(text, out->version, sizeof out->version);
        return 1;
    }
    return 0;
}

int bench_install_find(const char *family, const char *const *folders, bench_install *out)
{
    char inner[BENCH_INSTALL_PATH + 16];
    for (; *folders; folders++) {
        snprintf(inner, sizeof inner, "%.*s/%s", BENCH_INSTALL_PATH, *folders, family);
        if (find_in(inner, family, out) || find_in(*folders, family, out))
            return 1;
    }
    return find_in("", family, out);
}
