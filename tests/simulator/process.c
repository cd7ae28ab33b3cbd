/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes: birth, signals, exit and what is left for the parent.  The library's global variables
 * lie in a section of their own (see CMakeLists.txt); when another process gets the turn its copy
 * of them is put there.  Those with a first value other than zero are not among them: they are
 * settings that no process changes.
 */
#include "simulator/kernel.h"

#include "simulator/memory.h"
#include "tensor/object/scope.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum { HANDLER_NS = 400 * 1000 }; /* at most, for an exit handler */

/* ---- global variables ---- */

extern char __start_weft_zero[], __stop_weft_zero[];

static int in_place = -1;        /* whose variables they are; -1: the test's */
static char *of_test, *pristine; /* the test's; as they are in a new process */

static size_t image_bytes(void)
{
    return (size_t)(__stop_weft_zero - __start_weft_zero);
}

typedef uint64_t __attribute__((may_alias)) image_word;

/* By hand: between variables lie red zones which memcpy would not be allowed to touch.  By words: it
 * happens at every change of processes.  Both sides begin where a word may. */
__attribute__((no_sanitize("address"))) static void carry(char *to, const char *from, size_t bytes)
{
    volatile image_word *out = (volatile image_word *)to;
    const image_word *in = (const image_word *)from;
    size_t words = bytes / sizeof *out;
    for (size_t i = 0; i < words; i++)
        out[i] = in[i];
    for (size_t i = words * sizeof *out; i < bytes; i++)
        ((volatile char *)to)[i] = from[i];
}

static void save_variables(char *image)
{
    carry(image, __start_weft_zero, image_bytes());
}

static void load_variables(const char *image)
{
    carry(__start_weft_zero, image, image_bytes());
}

static char *image_of(int number)
{
    return number < 0 ? of_test : sim_kernel.processes[number].image;
}

static void process_enter(int number)
{
    if (number == in_place)
        return;
    save_variables(image_of(in_place));
    load_variables(image_of(number));
    in_place = number;
}

/* ---- birth ---- */

static void *checked(void *memory)
{
    if (!memory)
        sim_unsupported("running out of memory");
    return memory;
}

static char **copy_env(char *const *from)
{
    size_t count = 0;
    while (from[count])
        count++;
    char **made = checked(calloc(count + 1, sizeof *made));
    for (size_t i = 0; i < count; i++)
        made[i] = checked(strdup(from[i]));
    return made;
}

static void *process_body(void *arg)
{
    process *its = arg;
    sim_process_exit(its->own.main(its->own.arg));
}

static int give_birth(const sim_program *program, char *const *env, int parent)
{
    int number = sim_kernel.count;
    if (number == WEFT_I_SIM_RANKS)
        return -1;
    process *its = &sim_kernel.processes[number];
    *its = (process){.own = *program, .parent = parent, .status = -1, .kept_number = -1};
    its->room = program->descriptors ? program->descriptors : 1000;
    its->env = copy_env(env);
    its->image = checked(malloc(image_bytes()));
    memcpy(its->image, pristine, image_bytes());
    sim_kernel.count++;
    if (weft_i_sim_start(process_body, its) != number)
        sim_unsupported("a run with so many threads");
    return number;
}

int sim_os_start(const sim_program *program)
{
    int number = give_birth(program, (char *const *)program->env, -1);
    if (number < 0)
        sim_unsupported("a run with so many processes");
    process *its = &sim_kernel.processes[number];
    for (int i = 0; i < 3; i++)
        its->standard[i] = sim_object_new(i ? CONSOLE : NOTHING);
    return number;
}

static pid_t process_spawn(const weft_i_os_child *child)
{
    sim_call();
    const sim_program *program = sim_kernel.plan.find ? sim_kernel.plan.find(child->argv[0]) : NULL;
    if (!program) {
        errno = ENOENT;
        return -1;
    }
    process *parent = sim_here();
    const int given[3] = {child->in, child->out, child->err};
    object *standard[3], *kept = child->keep >= 0 ? sim_object_of(child->keep) : NULL;
    for (int i = 0; i < 3; i++)
        standard[i] = given[i] >= 0 ? sim_object_of(given[i]) : parent->standard[i];
    sim_program own = *program;
    own.host = parent->own.host;
    own.user = parent->own.user;
    int number = give_birth(&own, child->env, weft_i_sim_rank());
    if (number < 0) {
        errno = EAGAIN;
        return -1;
    }
    process *its = &sim_kernel.processes[number];
    for (int i = 0; i < 3; i++)
        its->standard[i] = standard[i] ? sim_object_hold(standard[i]) : NULL;
    its->kept = kept ? sim_object_hold(kept) : NULL;
    its->kept_number = child->keep;
    return FIRST_PID + number;
}

static pid_t no_fork(void)
{
    sim_unsupported("fork");
}

/* ---- the end ---- */

/* Other threads go on while the handlers run, as they do in exit(3). */
void sim_process_exit(int code)
{
    process *its = sim_here();
    while (its->atexits > 0) {
        void (*handler)(void) = its->atexit[--its->atexits];
        WEFT_OS->sleep_ns((int64_t)weft_i_sim_below(HANDLER_NS));
        if (handler)
            handler();
        else
            its->crypto_gone = true;
    }
    WEFT_OS->sleep_ns((int64_t)weft_i_sim_below(HANDLER_NS));
    its->status = (code & 0xff) << 8;
    weft_i_sim_kill(weft_i_sim_rank());
    abort(); /* the dead do not come back */
}

/* The kernel's last service to a thread: marks the words it held. */
static void process_thread_over(int thread)
{
    struct robust_list_head *head = sim_kernel.robust[thread];
    sim_kernel.robust[thread] = NULL;
    if (!head)
        return;
    int steps = 0;
    for (struct robust_list *node = head->list.next; node != &head->list && steps < 64;
         node = node->next, steps++) {
        _Atomic uint32_t *word = (_Atomic uint32_t *)(void *)((char *)node + head->futex_offset);
        uint32_t seen = atomic_load_explicit(word, memory_order_relaxed);
        if ((int)(seen & FUTEX_TID_MASK) != FIRST_TID + thread)
            continue;
        /* Release: pairs with the acquire of whoever looks at a life. */
        atomic_store_explicit(word, (seen & FUTEX_WAITERS) | FUTEX_OWNER_DIED,
                              memory_order_release);
        sim_futex_wake_key((void *)word, 1);
    }
}

static void process_gone(int number)
{
    process *its = &sim_kernel.processes[number];
    sim_files_close_all(number);
    if (its->status < 0)
        its->status = SIGKILL;
    its->ended = true;
    if (its->parent < 0)
        its->reaped = true;
    for (int i = 0; i < sim_kernel.count; i++) /* as PR_SET_PDEATHSIG asks for */
        if (sim_kernel.processes[i].parent == number && !sim_kernel.processes[i].ended) {
            sim_kernel.processes[i].parent = -1;
            sim_process_kill(i, SIGKILL);
        }
}

/* ---- signals ---- */

static bool ends(int signal)
{
    return signal == SIGTERM || signal == SIGINT || signal == SIGHUP || signal == SIGQUIT ||
           signal == SIGUSR1 || signal == SIGUSR2;
}

int sim_process_kill(int number, int signal)
{
    process *its = &sim_kernel.processes[number];
    uint64_t bit = UINT64_C(1) << signal;
    if (its->reaped && its->ended)
        return ESRCH;
    if (!signal || weft_i_sim_is_dead(number))
        return 0;
    if (signal == SIGSTOP || (signal == SIGTSTP && !(its->taken & bit))) {
        weft_i_sim_hold(number, WEFT_I_NEVER);
    } else if (signal == SIGCONT) {
        uint64_t held = its->held_back;
        its->held_back = 0;
        weft_i_sim_hold(number, 0);
        if (held)
            sim_process_kill(number, __builtin_ctzll(held));
    } else if (its->taken & bit) {
        its->signals |= bit;
    } else if (signal != SIGKILL && (its->own.deaf || !ends(signal))) {
        return 0;
    } else if (signal != SIGKILL && weft_i_sim_is_held(number)) {
        its->held_back |= bit;
    } else {
        its->status = signal;
        weft_i_sim_kill(number);
    }
    return 0;
}

/* A process or a group, which holds one. */
static int number_of(pid_t pid)
{
    int number = (pid < 0 ? -pid : pid) - FIRST_PID;
    return number >= 0 && number < sim_kernel.count ? number : -1;
}

static int process_kill(pid_t pid, int signal)
{
    sim_call();
    int number = number_of(pid);
    int error = number < 0 ? ESRCH : sim_process_kill(number, signal);
    errno = error;
    return error ? -1 : 0;
}

static int process_signalfd(const sigset_t *signals)
{
    sim_call();
    object *made = sim_object_new(SIGNALS);
    made->nonblocking = true;
    for (int signal = 1; signal < 64; signal++)
        if (sigismember(signals, signal) == 1)
            made->mask |= UINT64_C(1) << signal;
    sim_here()->taken |= made->mask;
    return sim_fd_new(made);
}

/* ---- waiting for children ---- */

static process *child_of(pid_t pid)
{
    int number = number_of(pid);
    process *child = number < 0 ? NULL : &sim_kernel.processes[number];
    if (child && child->parent == weft_i_sim_rank() && !child->reaped)
        return child;
    errno = ECHILD;
    return NULL;
}

static bool has_ended(void *arg)
{
    return ((const process *)arg)->ended;
}

static pid_t process_waitpid(pid_t pid, int *status, int options)
{
    sim_call();
    process *child = child_of(pid);
    if (!child)
        return -1;
    if (options & ~WNOHANG)
        sim_unsupported("waitpid with these options");
    if (!child->ended && (options & WNOHANG))
        return 0;
    weft_i_sim_wait(has_ended, child, WEFT_I_NEVER);
    child->reaped = true;
    if (status)
        *status = child->status;
    return pid;
}

static int process_wait_kept(pid_t pid, int *status)
{
    sim_call();
    const process *child = child_of(pid);
    if (!child)
        return -1;
    *status = child->status;
    return child->ended;
}

static int process_pidfd_open(pid_t pid)
{
    sim_call();
    int number = number_of(pid);
    if (number < 0 || sim_kernel.processes[number].reaped) {
        errno = ESRCH;
        return -1;
    }
    object *made = sim_object_new(PIDFD);
    made->of_process = number;
    return sim_fd_new(made);
}

static ssize_t no_read_process(pid_t pid, void *to, uint64_t from, size_t bytes)
{
    (void)pid, (void)to, (void)from, (void)bytes;
    errno = EPERM; /* as in a container: ranks then copy by themselves */
    return -1;
}

char *sim_process_getenv(const char *name)
{
    size_t length = strlen(name);
    for (char **one = sim_here()->env; *one; one++)
        if (!strncmp(*one, name, length) && (*one)[length] == '=')
            return *one + length + 1;
    /* A library that is loaded at run time would talk to the real system. */
    static char off[] = "off";
    return strcmp(name, "WEFT_UCX") ? NULL : off;
}

/* ---- the system ---- */

static void fill(weft_i_os *table)
{
    sim_files_fill(table);
    sim_net_fill(table);
    sim_poll_fill(table);
    sim_links_fill(table);
    table->fork = no_fork;
    table->kill = process_kill;
    table->waitpid = process_waitpid;
    table->wait_kept = process_wait_kept;
    table->pidfd_open = process_pidfd_open;
    table->signalfd = process_signalfd;
    table->spawn = process_spawn;
    table->read_process = no_read_process;
}

const weft_i_sim_system sim_system = {.fill = fill,
                                      .enter = process_enter,
                                      .next = sim_net_next,
                                      .pass = sim_net_pass,
                                      .over = process_thread_over,
                                      .gone = process_gone};

/* Keys of thread-local storage are few: the library makes its own before the first process. */
static void warm_up(void)
{
    if (pristine)
        return;
    weft_i_os_generation();
    if (weft_scope_open() < 0 || weft_scope_close() < 0)
        sim_unsupported("a library that does not start");
    of_test = checked(malloc(image_bytes()));
    pristine = checked(malloc(image_bytes()));
}

void sim_os_begin(const sim_os_plan *plan)
{
    warm_up();
    memset(&sim_kernel, 0, sizeof sim_kernel);
    sim_kernel.plan = *plan;
    sim_kernel.settle_at = WEFT_I_NEVER;
    weft_i_sim_plan turns = plan->turns;
    turns.system = &sim_system;
    in_place = -1;
    weft_i_sim_begin(&turns);
    save_variables(pristine);
}

static bool all_ended(void *unused)
{
    (void)unused;
    for (int i = 0; i < sim_kernel.count; i++)
        if (!sim_kernel.processes[i].ended)
            return false;
    return true;
}

void sim_os_join(void)
{
    weft_i_sim_wait(all_ended, NULL, WEFT_I_NEVER);
}

void sim_os_end(weft_i_sim_result *out)
{
    weft_i_sim_end(out);
    for (int i = 0; i < sim_kernel.count; i++) {
        for (char **one = sim_kernel.processes[i].env; *one; one++)
            free(*one);
        free(sim_kernel.processes[i].env);
        free(sim_kernel.processes[i].image);
    }
    sim_kernel.count = 0;
    sim_files_forget();
    sim_links_forget();
}

int sim_os_self(void)
{
    return weft_i_sim_rank();
}

pid_t sim_os_pid(int number)
{
    return FIRST_PID + number;
}

void sim_os_signal(int number, int signal)
{
    sim_process_kill(number, signal);
}

int sim_os_status(int number)
{
    return sim_kernel.processes[number].ended ? sim_kernel.processes[number].status : -1;
}

sim_os_holding sim_os_holding_of(int number)
{
    static const char *const kinds[] = {"socket",    "pipe",        "pipe",  "eventfd",
                                        "epoll",     "memory file", "pidfd", "signalfd",
                                        "/dev/null", "console",     "/proc"};
    sim_os_holding held = {sim_kernel.processes[number].open, weft_i_sim_memory_held(number), ""};
    for (int i = 0; i < NUMBERS && i < sim_kernel.next_number; i++)
        if (sim_kernel.numbers[i].object && sim_kernel.numbers[i].process == number)
            held.example = kinds[sim_kernel.numbers[i].object->kind];
    return held;
}

const char *sim_os_console(void)
{
    sim_kernel.console[sim_kernel.console_bytes] = 0;
    return sim_kernel.console;
}
