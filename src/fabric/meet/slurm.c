/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the notation of Slurm.  See slurm.h. */
#include "fabric/meet/slurm.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static bool put(char **at, const char *end, const char *from, size_t count)
{
    if ((size_t)(end - *at) <= count)
        return false;
    memcpy(*at, from, count);
    *at += count;
    return true;
}

bool weft_i_slurm_first_host(const char *list, char *out, size_t bytes)
{
    char *at = out, *end = out + bytes;
    while (list && *list && *list != ',') {
        size_t length = strcspn(list, "[,");
        if (!put(&at, end, list, length))
            return false;
        list += length;
        if (*list != '[')
            continue;
        size_t inside = strcspn(++list, "]"), first = strcspn(list, "-,]");
        /* Of each bracket the first number, with its zeros. */
        if (list[inside] != ']' || !first || !put(&at, end, list, first))
            return false;
        list += inside + 1;
    }
    if (bytes)
        *at = 0;
    return at > out;
}

/* A whole number from 1 on at the beginning of a text; 0: there is none. */
static long read_number(const char **text)
{
    char *end = NULL;
    errno = 0;
    long value = **text >= '0' && **text <= '9' ? strtol(*text, &end, 10) : 0;
    if (!end || errno || value > INT32_MAX)
        return 0;
    *text = end;
    return value;
}

int weft_i_slurm_tasks(const char *text, int node)
{
    for (long left = node; text && *text && node >= 0;) {
        long tasks = read_number(&text), times = 1;
        if (!strncmp(text, "(x", 2)) {
            text += 2;
            times = read_number(&text);
            text += *text == ')';
        }
        if (!tasks || !times || (*text && *text != ','))
            return -1;
        if (left < times)
            return (int)tasks;
        left -= times;
        text += *text == ',';
    }
    return -1;
}

int weft_i_slurm_port(const char *job, const char *step)
{
    enum { FIRST = 15000, PORTS = 15000 };
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (int part = 0; part < 2; part++)
        for (const char *at = part ? step : job; *at; at++)
            hash = (hash ^ (uint8_t)*at) * 16777619u;
    return FIRST + (int)(hash % PORTS);
}
