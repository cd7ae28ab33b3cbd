/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checks of `weft doctor`: each looks at one thing of this machine, or tries it, and writes what it
 * has found, and what to do about it.
 */
#ifndef WEFT_TOOLS_DOCTOR_H
#define WEFT_TOOLS_DOCTOR_H

#include <weft/weft.h>

#include <stdio.h>

typedef enum verdict { FINE, NOTE, SLOW, BROKEN } verdict;
enum { VERDICTS = BROKEN + 1 };

/* "ok", "note", "slow", "BROKEN". */
extern const char *const doctor_words[VERDICTS];

/* What a check has found: a sentence, and what to do about it, which may be empty. */
typedef struct finding {
    verdict verdict;
    char text[640], advice[640];
} finding;

void doctor_say(finding *out, verdict how, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void doctor_advise(finding *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

typedef struct check {
    const char *name;
    void (*look)(finding *out);
} check;

/* All of this machine, in the order in which they are shown; the last one has no name. */
extern const check doctor_checks[];

/* doctor_try.c */
void doctor_try_ranks(finding *out);
void doctor_try_store(finding *out);

/* doctor_system.c */
void doctor_look_at_cores(finding *out);
void doctor_look_at_clock(finding *out);
void doctor_look_at_memory(finding *out);
void doctor_look_at_shm(finding *out);
void doctor_look_at_huge_pages(finding *out);
void doctor_look_at_copies(finding *out);
void doctor_look_at_descriptors(finding *out);
void doctor_look_at_locked_memory(finding *out);

/* doctor_group.c: limits of the control groups that this process is in, which a container has. */
void doctor_look_at_quota(finding *out);
void doctor_look_at_limit(finding *out);

/* doctor_library.c */
void doctor_look_at_products(finding *out);
void doctor_look_at_compiler(finding *out);
void doctor_look_at_gpu(finding *out);
void doctor_look_at_nccl(finding *out);
void doctor_look_at_ucx(finding *out);

/* The fact of this name; false if the system does not tell. */
int doctor_fact(const char *name, weft_machine_fact *out);
/* The first line of a file of the kernel; false if there is none. */
int doctor_line_of(const char *path, char *out, int bytes);

/*
 * Several hosts.  doctor_answer (doctor_answer.c) is what `weft doctor --hosts` runs on each, through
 * the remote shell: it tells on standard output what it finds, and does what standard input asks.
 */
int doctor_answer(void);

typedef struct doctor_ask {
    const char *hosts, *rsh, *weft;
    int as_json;
} doctor_ask;

int doctor_hosts(const doctor_ask *ask);

/* One finding, as a line for people; `host` may be NULL. */
void doctor_print(const char *host, const char *name, const finding *found);

#endif
