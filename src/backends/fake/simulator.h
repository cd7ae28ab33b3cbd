/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A deterministic simulator.  Ranks are threads of weft_spawn, and the library is the real one, but
 * time and turns are the simulator's: of all threads exactly one runs, and at every point (a call
 * of the system that waits, a lock, and wherever weft_i_sim_point is called) a generator of random
 * numbers decides who goes on.  Time is virtual: it passes by little while somebody runs, and jumps
 * to the next deadline when all wait.  A rank may be delayed, or die, at any point.  The same plan
 * gives the same run, whatever else the machine does.
 *
 *     weft_i_sim_begin(&plan);  weft_spawn(...);  weft_i_sim_end(&result);
 *
 * One simulation at a time in a process.  Locks must be the simulator's too: see weft_i_sim_lock.
 */
#ifndef WEFT_BACKENDS_FAKE_SIMULATOR_H
#define WEFT_BACKENDS_FAKE_SIMULATOR_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WEFT_I_SIM_RANKS = 8 };

/* What happens to one rank: at its point number `at`, counted from 1; 0: nothing does. */
typedef struct weft_i_sim_fault {
    uint64_t delay_at;
    int64_t delay_ns;
    uint64_t death_at;
    uint64_t shortage_at; /* its allocation of this number, from 1, fails */
} weft_i_sim_fault;

typedef struct weft_i_sim_plan {
    uint64_t seed;
    uint32_t every;     /* points between two turns, on average; 1: a turn at every point */
    int64_t horizon_ns; /* a run that is not over by then hangs */
    uint64_t points;    /* the same, for a run in which no time passes */
    weft_i_sim_fault fault[WEFT_I_SIM_RANKS];
    /* A rank is dead: makes its peers see that.  Called between two turns, some time after its last
     * step. */
    void (*died)(int rank);
} weft_i_sim_plan;

typedef struct weft_i_sim_result {
    uint64_t hash;   /* of all turns: who, when */
    uint64_t points; /* passed */
    uint64_t turns;
    int64_t now_ns;
    uint32_t deaths;   /* a bit for each rank that died */
    size_t left_bytes; /* memory that nobody gave back; not counted after a death or a hang */
    bool hangs;
    char state[2000]; /* of all threads when it hung */
} weft_i_sim_result;

/* The calling thread, which is not a rank, becomes the first simulated thread.  Threads it makes
 * are ranks 0, 1 ...; threads they make belong to their rank. */
void weft_i_sim_begin(const weft_i_sim_plan *plan);

/* Waits for all threads and takes back what the dead still held. */
void weft_i_sim_end(weft_i_sim_result *out);

/* A point; nothing for threads that are not simulated. */
void weft_i_sim_point(void);

/* How often this rank has passed a point; the virtual time; a number that grows with every use. */
uint64_t weft_i_sim_steps(void);
int64_t weft_i_sim_now(void);
uint64_t weft_i_sim_order(void);

/*
 * Locks for simulated threads, which must not wait where the simulator does not see it.  Programs
 * are linked so that pthread_mutex_lock and _unlock come here (ld --wrap); `real` is the original.
 */
int weft_i_sim_lock(pthread_mutex_t *mutex, int (*real)(pthread_mutex_t *));
int weft_i_sim_unlock(pthread_mutex_t *mutex, int (*real)(pthread_mutex_t *));

#endif
