/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A simulated operating system.  Processes, sockets, descriptors, shared memory, signals, exit and
 * the clock are the simulator's; the library is the real one and reaches them through its table of
 * system calls.  A process is a few threads with descriptors, an environment and global variables
 * of the library of its own; who goes on, how long bytes travel, how many of them a call takes and
 * who is stopped or killed where is decided by the seed.
 *
 *     sim_os_begin(&plan);
 *     int server = sim_os_start(&(sim_program){.main = serve, ...});
 *     sim_os_join();                      waits until all processes have ended
 *     sim_os_end(&result);
 */
#ifndef WEFT_TESTS_SIMULATOR_OS_H
#define WEFT_TESTS_SIMULATOR_OS_H

#include "simulator/turns.h"

#include <sys/types.h>

enum { SIM_ENV = 24 };

typedef struct sim_program {
    int (*main)(void *arg); /* its result is the exit code */
    void *arg;
    int host, user;           /* hosts have Unix sockets of their own; user 0 is the library's */
    const char *env[SIM_ENV]; /* "NAME=value", up to a NULL */
    int descriptors;          /* how many it may have; 0: 1,000 */
    bool deaf;                /* SIGTERM and SIGINT do not end it */
} sim_program;

typedef struct sim_os_plan {
    weft_i_sim_plan turns; /* `system` is filled in */
    int somaxconn;         /* cuts every backlog; 0: 4,096 */
    size_t buffer;         /* bytes a stream holds between two processes; 0: 200,000 */
    int64_t latency_ns;    /* at most, between hosts; within one a hundredth */
    bool tears;            /* calls on streams take and give some of the bytes only */
    bool resets;           /* now and then a connection between hosts breaks */
    /* What the launcher starts: the program behind a name, or NULL. */
    const sim_program *(*find)(const char *name);
} sim_os_plan;

void sim_os_begin(const sim_os_plan *plan);
int sim_os_start(const sim_program *program); /* the number of the process, from 0 */
void sim_os_join(void);
void sim_os_end(weft_i_sim_result *out);

/* The number of the calling process, and what the kernel calls it. */
int sim_os_self(void);
pid_t sim_os_pid(int process);

/* As kill(2) from outside: SIGKILL, SIGSTOP, SIGCONT, SIGTERM ... */
void sim_os_signal(int process, int signal);

/* How a process ended, as waitpid tells it; -1: it has not.  When it had gone, virtual ns. */
int sim_os_status(int process);

/* What the calling process holds: descriptors besides 0 to 2, bytes, mappings. */
typedef struct sim_os_holding {
    int descriptors;
    size_t bytes;
    const char *example; /* of what such a descriptor is */
} sim_os_holding;
sim_os_holding sim_os_holding_of(int process);

/* What all processes wrote to descriptors 1 and 2, cut. */
const char *sim_os_console(void);

/* Tells every system call on standard error. */
extern bool sim_trace;

/* Which known bug is planted (plants.cmake), 0: none.  Chosen before a run. */
extern int sim_plant;

#endif
