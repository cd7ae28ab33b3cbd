/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels for the C compiler, and how the software driver runs one of them. */
#include "model.h"

#include "kernels.cu"

#include "kernels/fold/fold.h"

/* The kernels have dtypes and folds of their own, in the same order. */
#define DTYPE(name_, text_, type_, kind_) \
    _Static_assert((int)WEFT_K_##name_ == (int)WEFT_##name_, #name_ " is another dtype");
#include "weft/dtype.def"
#undef DTYPE
#define SAME_FOLD(name_) \
    _Static_assert((int)WEFT_K_##name_ == (int)WEFT_I_FOLD_##name_, #name_ " is another fold")
SAME_FOLD(SUM);
SAME_FOLD(AVG);
SAME_FOLD(PRODUCT);
SAME_FOLD(MIN);
SAME_FOLD(MAX);
SAME_FOLD(BAND);
SAME_FOLD(BOR);
SAME_FOLD(BXOR);
SAME_FOLD(PREMUL_SUM);
_Static_assert(WEFT_K_PREMUL_SUM + 1 == WEFT_I_FOLD_OPS, "a fold that kernels do not have");

#include <stdlib.h>

_Thread_local twin_place twin_here;

#define KERNEL(name_, threads_, type_, body_)           \
    static void run_##name_(const void *parameter)      \
    {                                                   \
        weft_kernel_##name_(*(const type_ *)parameter); \
    }
#include "kernels.def"
#undef KERNEL

const model_kernel model_kernels[] = {
#define KERNEL(name_, threads_, type_, body_) \
    {"weft_kernel_" #name_, sizeof(type_), threads_, run_##name_, NULL, NULL},
#include "kernels.def"
#undef KERNEL
    {NULL, 0, 0, NULL, NULL, NULL},
};

/*
 * A stream keeps the threads that ran its last kernels: to make a thread costs more than most
 * kernels, with ThreadSanitizer by far.  A worker and its stream meet at a lock of their own, so
 * that the threads of a kernel are ordered by nothing but the kernel, as if they were new.
 */
enum { KEPT = 512 }; /* threads; a kernel of more makes the rest and joins them */

typedef enum worker_state { IDLE, GIVEN, ENDING } worker_state;

typedef struct worker {
    const model_kernel *kernel;
    const void *parameter;
    twin_place place;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    worker_state state; /* under the lock */
    model_crew *crew;
} worker;

struct model_crew {
    worker *kept[KEPT];
    size_t count;
    pthread_mutex_t lock;
    pthread_cond_t over;
    size_t busy; /* of the kept, under the lock */
};

static void run_thread(const worker *w)
{
    twin_here = w->place;
    if (w->kernel->enter)
        w->kernel->enter(w->parameter, &w->place);
    else
        w->kernel->run(w->parameter);
}

static void *run_once(void *arg)
{
    run_thread(arg);
    return NULL;
}

/* The last one wakes who waits for the wave: once, not once for each. */
static void tell_over(model_crew *crew)
{
    pthread_mutex_lock(&crew->lock);
    bool last = --crew->busy == 0;
    pthread_mutex_unlock(&crew->lock);
    if (last)
        pthread_cond_signal(&crew->over);
}

static void *serve(void *arg)
{
    worker *w = arg;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (w->state == IDLE)
            pthread_cond_wait(&w->changed, &w->lock);
        if (w->state == ENDING)
            break;
        pthread_mutex_unlock(&w->lock);
        run_thread(w);
        pthread_mutex_lock(&w->lock);
        w->state = IDLE;
        tell_over(w->crew);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void start(worker *w, void *(*body)(void *))
{
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 256 << 10);
    if (pthread_create(&w->thread, &attr, body, w) != 0)
        abort(); /* the machine is out of threads: no test can go on */
    pthread_attr_destroy(&attr);
}

static worker *keep(model_crew *crew)
{
    worker *w = calloc(1, sizeof *w);
    w->crew = crew;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    start(w, serve);
    return crew->kept[crew->count++] = w;
}

static void give(worker *w, const worker *what)
{
    pthread_mutex_lock(&w->lock);
    w->kernel = what->kernel;
    w->parameter = what->parameter;
    w->place = what->place;
    w->state = GIVEN;
    pthread_mutex_unlock(&w->lock);
    pthread_cond_signal(&w->changed);
}

static void await(model_crew *crew)
{
    pthread_mutex_lock(&crew->lock);
    while (crew->busy)
        pthread_cond_wait(&crew->over, &crew->lock);
    pthread_mutex_unlock(&crew->lock);
}

model_crew *model_crew_new(void)
{
    model_crew *crew = calloc(1, sizeof(model_crew));
    pthread_mutex_init(&crew->lock, NULL);
    pthread_cond_init(&crew->over, NULL);
    return crew;
}

void model_crew_free(model_crew *crew)
{
    for (size_t i = 0; i < crew->count; i++) {
        worker *w = crew->kept[i];
        pthread_mutex_lock(&w->lock);
        w->state = ENDING;
        pthread_cond_signal(&w->changed);
        pthread_mutex_unlock(&w->lock);
        pthread_join(w->thread, NULL);
        pthread_cond_destroy(&w->changed);
        pthread_mutex_destroy(&w->lock);
        free(w);
    }
    pthread_cond_destroy(&crew->over);
    pthread_mutex_destroy(&crew->lock);
    free(crew);
}

enum { AT_ONCE = 64 };

/* Blocks that are on the device at the same time: from `first` on. */
static void run_wave(model_crew *crew, const worker *what, unsigned first, unsigned wave)
{
    unsigned threads = what->place.threads;
    size_t all = (size_t)wave * threads;
    twin_block *shared = calloc(wave, sizeof *shared);
    worker *more = calloc(all, sizeof *more);
    for (unsigned b = 0; b < wave; b++)
        pthread_barrier_init(&shared[b].barrier, NULL, threads);
    crew->busy = all < KEPT ? all : KEPT; /* nobody else looks at it yet */
    for (size_t i = 0; i < all; i++) {
        unsigned block = (unsigned)(i / threads);
        more[i] = *what;
        more[i].place.thread = (unsigned)(i % threads);
        more[i].place.block = first + block;
        more[i].place.shared = &shared[block];
        if (i < KEPT)
            give(i < crew->count ? crew->kept[i] : keep(crew), &more[i]);
        else
            start(&more[i], run_once);
    }
    await(crew);
    for (size_t i = KEPT; i < all; i++)
        pthread_join(more[i].thread, NULL);
    for (unsigned b = 0; b < wave; b++)
        pthread_barrier_destroy(&shared[b].barrier);
    free(more);
    free(shared);
}

/* Blocks that do not fit at once wait for others to end, as on a device.  Those that meet are far
 * fewer: the driver says of few that they fit. */
void model_run(model_crew *crew, const model_kernel *kernel, const void *parameter, unsigned blocks,
               unsigned threads)
{
    worker what = {.kernel = kernel, .parameter = parameter};
    what.place = (twin_place){.threads = threads, .blocks = blocks};
    for (unsigned first = 0; first < blocks; first += AT_ONCE)
        run_wave(crew, &what, first, blocks - first < AT_ONCE ? blocks - first : AT_ONCE);
}
