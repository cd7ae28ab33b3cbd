/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the simulated operating system share: objects behind descriptors, and the
 * processes that have them.  Touched only by the thread that has the turn. */
#ifndef WEFT_TESTS_SIMULATOR_KERNEL_H
#define WEFT_TESTS_SIMULATOR_KERNEL_H

#include "base/os/os.h"
#include "simulator/os.h"

#include <linux/futex.h>

enum {
    FIRST_NUMBER = 100, /* of a descriptor; no two of all processes are the same */
    NUMBERS = 20000,
    FIRST_PID = 5000,
    FIRST_TID = 7000,
    CALL_NS = 4000, /* at most, for a system call */
    ATEXITS = 16,
    NAMED = 128
};

typedef enum object_kind {
    SOCKET,
    PIPE_READ,
    PIPE_WRITE,
    EVENT,
    EPOLL,
    MEMORY,
    PIDFD,
    SIGNALS,
    NOTHING, /* /dev/null */
    CONSOLE,
    TEXT /* a file of /proc */
} object_kind;

/* What travels to a socket or pipe. */
typedef enum packet_kind { DATA, END, RESET } packet_kind;
typedef struct packet {
    struct packet *next;
    packet_kind kind;
    int64_t arrives;
    size_t start, bytes;
    struct object *passed; /* a descriptor, or NULL */
    unsigned char data[];
} packet;

typedef enum socket_state { FRESH, BOUND, LISTENING, CONNECTING, CONNECTED, BROKEN } socket_state;

typedef struct watch {
    struct watch *next;
    struct object *of;
    int fd;
    struct epoll_event event;
} watch;

typedef struct object {
    struct object *next, **link; /* of all */
    object_kind kind;
    int references;
    bool nonblocking;
    uint64_t number; /* in order of making */
    /* sockets and pipes */
    int domain, type, host, user, process;
    socket_state state;
    struct sockaddr_storage name; /* bound to, or connected to */
    socklen_t name_bytes;
    int port;
    struct object *peer;
    packet *first, **last;
    int64_t last_arrives; /* of what was posted last */
    size_t queued, limit;
    int peer_user;      /* as it was when they were connected */
    int error;          /* SO_ERROR */
    bool broken, ended; /* a RESET, an END was taken */
    int backlog, pending_count;
    struct object *pending, *next_pending; /* of a listener: connections nobody accepted yet */
    struct object *last_pending;
    int64_t patience; /* ns that a connect waits for room; 0: for ever (SO_SNDTIMEO) */
    bool defers;      /* a listener that does not show who has said nothing yet ... */
    int64_t settles;  /* ... before this; of CONNECTING: when it looks again */
    int64_t pause;
    uint64_t count; /* of EVENT; how much of TEXT has been read */
    const char *text;
    watch *watches; /* of EPOLL */
    int real;       /* of MEMORY */
    int of_process; /* of PIDFD */
    uint64_t mask;  /* of SIGNALS */
} object;

typedef struct process {
    sim_program own;
    char **env; /* ends with NULL */
    int parent; /* -1: started by the test */
    object *standard[3];
    int kept_number; /* the one descriptor inherited beside those */
    object *kept;
    int open, room; /* descriptors, and how many may be */
    int status;
    bool ended, reaped;
    bool crypto_loaded, crypto_gone; /* libcrypto, whose exit handlers may have run */
    uint64_t signals;                /* pending for its signalfd */
    uint64_t taken;                  /* signals that go there */
    uint64_t held_back;              /* signals that wait for SIGCONT */
    void (*atexit[ATEXITS])(void);   /* NULL: libcrypto's */
    int atexits;
    char *image; /* the library's global variables while another process has the turn */
} process;

typedef struct kernel {
    sim_os_plan plan;
    process processes[WEFT_I_SIM_RANKS];
    int count;
    object *all, *buried; /* the latter until the run is over: somebody may be waiting for one */
    object *named[NAMED]; /* sockets that are bound or listen */
    object *epolls[NAMED];
    int64_t settle_at; /* when a connection under way settles next, or a little before */
    uint64_t made;
    struct {
        object *object;
        int process;
    } numbers[NUMBERS];
    int next_number;
    int next_port;
    void *robust[WEFT_I_SIM_THREADS];
    char console[16384];
    size_t console_bytes;
} kernel;
extern kernel sim_kernel;

/* Ends the test program: the library asks for something that is not simulated. */
__attribute__((noreturn)) void sim_unsupported(const char *what);

/* ---- files.c ---- */
process *sim_here(void); /* the process that has the turn */
void sim_call_named(const char *name);
#define sim_call() sim_call_named(__func__) /* every system call begins with it */
object *sim_object_new(object_kind kind);
object *sim_object_hold(object *object);
void sim_object_drop(object *object);
object *sim_object_of(int fd);                        /* NULL and EBADF */
object *sim_object_of_kind(int fd, object_kind kind); /* also EINVAL */
int sim_fd_new(object *object); /* takes the reference; -1 and EMFILE, then it is dropped */
bool sim_fd_room(void);
void sim_list_add(object **list, object *one); /* a list of NAMED */
void sim_list_remove(object **list, const object *one);
int sim_close(int fd);
void sim_files_fill(weft_i_os *table);
void sim_files_close_all(int process);
void sim_files_forget(void);
void sim_futex_wake_key(void *address, int count);

/* ---- net.c ---- */
void sim_net_fill(weft_i_os *table);
void sim_net_pass(void);
int64_t sim_net_next(void);
void sim_net_last_closed(object *object);
unsigned sim_net_events(const object *object);
ssize_t sim_net_send(object *object, const struct msghdr *message, int flags);
ssize_t sim_net_receive(object *object, struct msghdr *message, int flags);
int sim_net_port(int fd);
bool sim_net_same_user(int fd);
int sim_user_id(int user);

/* ---- poll.c ---- */
void sim_poll_fill(weft_i_os *table);
unsigned sim_events(const object *object);
void sim_poll_closed(object *object); /* leaves all epolls */

/* ---- links.c ---- */
void sim_links_fill(weft_i_os *table);
void sim_links_forget(void);

/* ---- process.c ---- */
extern const weft_i_sim_system sim_system;
int sim_process_kill(int process, int signal);
char *sim_process_getenv(const char *name);
__attribute__((noreturn)) void sim_process_exit(int code);

#endif
