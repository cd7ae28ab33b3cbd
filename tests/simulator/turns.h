/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns and time of the simulator.  Ranks are threads of weft_spawn, and the library is the real
 * one, but time and turns are the simulator's: of all threads exactly one runs, and at every point
 * (a call of the system that waits, a lock, and wherever weft_i_sim_point is called) a generator of
 * random numbers decides who goes on.  Time is virtual: it passes by little while somebody runs,
 * and jumps to the next deadline when all wait.  A rank may be delayed, or die, at any point.  The
 * same plan gives the same run, whatever else the machine does.
 *
 *     weft_i_sim_begin(&plan);  weft_spawn(...);  weft_i_sim_end(&result);
 *
 * One simulation at a time in a process.  Locks must be the simulator's too: see weft_i_sim_lock.
 */
#ifndef WEFT_TESTS_SIMULATOR_TURNS_H
#define WEFT_TESTS_SIMULATOR_TURNS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct weft_i_os;

enum { WEFT_I_SIM_RANKS = 32, WEFT_I_SIM_THREADS = 96 };

/* What happens to one rank: at its point number `at`, counted from 1; 0: nothing does. */
typedef struct weft_i_sim_fault {
    uint64_t delay_at;
    int64_t delay_ns;
    uint64_t death_at;
    uint64_t shortage_at; /* its allocation of this number, from 1, fails */
} weft_i_sim_fault;

/*
 * A simulated system under the ranks, which then are processes: see simulator/os.h.  Called by
 * whoever has the turn.
 */
typedef struct weft_i_sim_system {
    void (*fill)(struct weft_i_os *table); /* puts its own entries into the table */
    void (*enter)(int rank);               /* a thread of this process goes on */
    int64_t (*next)(void);                 /* when something happens by itself, or WEFT_I_NEVER */
    void (*pass)(void);                    /* time has passed */
    void (*over)(int thread);              /* a thread is over, or will not run any more */
    void (*gone)(int rank);                /* all of the process is: its files close */
} weft_i_sim_system;

typedef struct weft_i_sim_plan {
    uint64_t seed;
    const weft_i_sim_system *system; /* NULL: ranks are threads of one process */
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
    char state[2000];    /* of all threads when it hung */
    char complaint[600]; /* empty, or the first one */
} weft_i_sim_result;

/* The calling thread, which is not a rank, becomes the first simulated thread.  Threads it makes
 * are ranks 0, 1 ...; threads they make belong to their rank. */
void weft_i_sim_begin(const weft_i_sim_plan *plan);

/* Waits for all threads and takes back what the dead still held. */
void weft_i_sim_end(weft_i_sim_result *out);

/* A point; nothing for threads that are not simulated. */
void weft_i_sim_point(void);

/* Why a run cannot be trusted or has failed: the first one counts.  Kept in the result. */
void weft_i_sim_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

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

/* ---- for a simulated system ---- */

/* The rank, and the number, of the thread that has the turn; -1: the first one, or none. */
int weft_i_sim_rank(void);
int weft_i_sim_thread(void);
int weft_i_sim_rank_of(int thread);

uint64_t weft_i_sim_below(uint64_t bound); /* a random number; 0 if the bound is */
void weft_i_sim_note(uint64_t event);      /* makes it part of the run's hash */
void weft_i_sim_spend(int64_t most_ns);    /* a little time passes, at most that */

/* Waits until `ready` says so, whoever has the turn; false if the deadline came first. */
bool weft_i_sim_wait(bool (*ready)(void *arg), void *arg, int64_t deadline);

/* A new process with one thread.  Its number, or -1. */
int weft_i_sim_start(void *(*body)(void *), void *argument);

/* Ends a process, perhaps our own: then it does not return.  Holds it until a moment. */
void weft_i_sim_kill(int rank);
void weft_i_sim_hold(int rank, int64_t until);
bool weft_i_sim_is_dead(int rank);
bool weft_i_sim_is_held(int rank);

/* The run is being cleared away: nothing counts any more. */
bool weft_i_sim_is_ending(void);

#endif
