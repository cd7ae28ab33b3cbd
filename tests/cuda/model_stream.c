/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The software driver: streams, events, graphs, and the memory that goes with them.  A stream is a
 * thread that takes tasks from a list; a stream that is captured puts them into a graph instead.
 */
#include "model_parts.h"
#include "twin_pause.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct event {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t recorded, done;
    int64_t when;         /* it was reached last */
    int holders;          /* the handle and tasks under way */
    struct list *capture; /* it was recorded last in a stream of this capture; else NULL */
    uint64_t ahead;       /* and there behind these of its kernels */
} event;

typedef struct task {
    enum {
        COPY,
        SET8,
        SET32,
        FREE,
        LAUNCH,
        CALL,
        RECORD,
        AWAIT,
        WRITE32,
        WRITE64,
        AWAIT64,
        END
    } kind;
    void *to;
    const void *from;
    size_t bytes;
    uint64_t value;
    event *event;
    const model_kernel *kernel;
    unsigned blocks, threads;
    void (*run)(void *parameter);
    char *parameter; /* owned */
    struct task *next;
} task;

enum { JOINED = 4, NODES = 64 };

/* A graph keeps the order in which the host gave its tasks, which suits every stream of it; and which of
 * its kernels are behind which, as masks of the first of them. */
typedef struct list {
    task *first, **last;
    struct stream *joined[JOINED]; /* other streams of the capture */
    int joins, kernels;
    uint64_t ahead[NODES], number;
} list;

typedef struct stream {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t given_more, all_done;
    list tasks;
    uint64_t given, done;
    weft_i_cu_ctx ctx;
    struct list *capture; /* not NULL: tasks go there */
    uint64_t ahead;       /* kernels of the capture that its next one is behind */
} stream;

static atomic_size_t used; /* bytes of cuMemAllocAsync */

static void append(list *to, task *t)
{
    t->next = NULL;
    *to->last = t;
    to->last = &t->next;
}

static void drop_event(event *e, int by)
{
    pthread_mutex_lock(&e->lock);
    int left = e->holders -= by;
    pthread_mutex_unlock(&e->lock);
    if (left)
        return;
    pthread_mutex_destroy(&e->lock);
    pthread_cond_destroy(&e->changed);
    free(e);
}

static void await_event(event *e, uint64_t value)
{
    pthread_mutex_lock(&e->lock);
    while (e->done < value)
        pthread_cond_wait(&e->changed, &e->lock);
    pthread_mutex_unlock(&e->lock);
    drop_event(e, 1);
}

static void reach_event(event *e, uint64_t value)
{
    pthread_mutex_lock(&e->lock);
    e->done = e->done < value ? value : e->done;
    e->when = weft_i_os_linux.clock_ns();
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
    drop_event(e, 1);
}

/* What stands in front of an allocation; those that live are in a list. */
typedef struct front {
    size_t bytes;
    int ordinal;
    struct front *next, *prev;
} front;
enum { FRONT = 256 };
static pthread_mutex_t fronts_lock = PTHREAD_MUTEX_INITIALIZER;
static front *fronts;

static void list_front(front *f)
{
    pthread_mutex_lock(&fronts_lock);
    f->prev = NULL;
    f->next = fronts;
    if (fronts)
        fronts->prev = f;
    fronts = f;
    pthread_mutex_unlock(&fronts_lock);
}

static void unlist_front(front *f)
{
    pthread_mutex_lock(&fronts_lock);
    *(f->prev ? &f->prev->next : &fronts) = f->next;
    if (f->next)
        f->next->prev = f->prev;
    pthread_mutex_unlock(&fronts_lock);
}

static void give_back(char *memory)
{
    front *of = (front *)(void *)(memory - FRONT);
    size_t bytes = of->bytes;
    unlist_front(of);
    memset(memory, 0xdd, bytes); /* whoever uses it still gets nonsense */
    atomic_fetch_sub_explicit(&used, bytes, memory_order_relaxed); /* counts only */
    free(memory - FRONT);
    model_gone();
}

/* Zeros need no memory: of a large piece of a memory file all but the beginning, where the words
 * lie at which kernels meet, is given back.  A sanitizer looks at each byte that is written. */
static void clear(char *to, size_t bytes)
{
    enum { BEGINNING = 1 << 20, LARGE = 4 << 20 };
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t hole = bytes < LARGE ? 0 : (bytes - BEGINNING) / page * page;
    if (hole && ((uintptr_t)to % page || madvise(to + BEGINNING, hole, MADV_REMOVE)))
        hole = 0;
    memset(to, 0, hole ? BEGINNING : bytes);
    if (hole)
        memset(to + BEGINNING + hole, 0, bytes - BEGINNING - hole);
}

static void pause_for(int us)
{
    if (us)
        weft_i_os_linux.sleep_ns((int64_t)us * 1000);
}

static void run_task(const task *t, model_crew *crew)
{
    switch (t->kind) {
    case COPY:
        pause_for(model.copy_pause_us);
        memmove(t->to, t->from, t->bytes);
        break;
    case SET8:
        if (t->value)
            memset(t->to, (int)t->value, t->bytes);
        else
            clear(t->to, t->bytes);
        break;
    case SET32:
        for (size_t i = 0; i < t->bytes; i++)
            ((uint32_t *)t->to)[i] = (uint32_t)t->value;
        break;
    case FREE:
        give_back(t->to);
        break;
    case LAUNCH:
        model_run(crew, t->kernel, t->parameter, t->blocks, t->threads);
        break;
    case CALL:
        pause_for(model.call_pause_us);
        t->run(t->parameter);
        break;
    case RECORD:
        reach_event(t->event, t->value);
        break;
    case AWAIT:
        await_event(t->event, t->value);
        break;
    case WRITE32:
        __atomic_store_n((uint32_t *)t->to, (uint32_t)t->value, __ATOMIC_RELEASE);
        break;
    case WRITE64:
        __atomic_store_n((uint64_t *)t->to, t->value, __ATOMIC_RELEASE);
        break;
    case AWAIT64:
        while ((int64_t)(__atomic_load_n((uint64_t *)t->to, __ATOMIC_ACQUIRE) - t->value) < 0)
            twin_pause();
        break;
    case END:
        break;
    }
}

static void free_task(task *t)
{
    free(t->parameter);
    free(t);
}

static void *serve(void *arg)
{
    stream *s = arg;
    model_crew *crew = model_crew_new();
    for (int ended = 0; !ended;) {
        pthread_mutex_lock(&s->lock);
        while (!s->tasks.first)
            pthread_cond_wait(&s->given_more, &s->lock);
        task *t = s->tasks.first;
        s->tasks.first = t->next;
        if (!t->next)
            s->tasks.last = &s->tasks.first;
        pthread_mutex_unlock(&s->lock);
        run_task(t, crew);
        ended = t->kind == END;
        free_task(t);
        pthread_mutex_lock(&s->lock);
        bool all = ++s->done == s->given;
        pthread_mutex_unlock(&s->lock);
        if (all)
            pthread_cond_broadcast(&s->all_done);
    }
    model_crew_free(crew);
    return NULL;
}

static void enqueue(weft_i_cu_stream raw, task what)
{
    stream *s = (stream *)(void *)raw;
    task *t = malloc(sizeof *t);
    *t = what;
    pthread_mutex_lock(&s->lock);
    bool captured = s->capture && t->kind != END;
    bool first = !captured && !s->tasks.first; /* the stream's thread sleeps, or will look again */
    append(captured ? s->capture : &s->tasks, t);
    if (captured && t->kind == LAUNCH && s->capture->kernels < NODES) {
        s->capture->ahead[s->capture->kernels] = s->ahead;
        s->ahead |= (uint64_t)1 << s->capture->kernels++;
    }
    s->given += !captured;
    pthread_mutex_unlock(&s->lock);
    if (first)
        pthread_cond_signal(&s->given_more);
}

weft_i_cu_result model_cuStreamCreateWithPriority(weft_i_cu_stream *out, unsigned flags,
                                                  int priority)
{
    MODEL_ENTER(cuStreamCreateWithPriority, MODEL_CURRENT);
    if (flags != WEFT_I_CU_STREAM_NON_BLOCKING || priority > 0 || priority < -5)
        return WEFT_I_CUDA_ERROR_INVALID_VALUE;
    stream *s = calloc(1, sizeof *s);
    s->tasks.last = &s->tasks.first;
    model_cuCtxGetCurrent(&s->ctx);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->given_more, NULL);
    pthread_cond_init(&s->all_done, NULL);
    if (pthread_create(&s->thread, NULL, serve, s) != 0)
        return WEFT_I_CUDA_ERROR_OPERATING_SYSTEM;
    *out = (weft_i_cu_stream)(void *)s;
    model_born();
    return 0;
}

static void free_list(list *old)
{
    while (old->first) {
        task *t = old->first;
        old->first = t->next;
        free_task(t);
    }
    free(old);
    model_gone();
}

/* A stream goes while it is captured: a joined one leaves the capture, of the other it is the end. */
static void leave_capture(stream *s)
{
    list *graph = s->capture;
    s->capture = NULL;
    for (int i = 0; i < graph->joins; i++)
        if (graph->joined[i] == s) {
            graph->joined[i] = graph->joined[--graph->joins];
            return;
        }
    while (graph->joins)
        graph->joined[--graph->joins]->capture = NULL;
    free_list(graph);
}

weft_i_cu_result model_cuStreamDestroy(weft_i_cu_stream raw)
{
    MODEL_ENTER(cuStreamDestroy, MODEL_CURRENT);
    stream *s = (stream *)(void *)raw;
    if (s->capture)
        leave_capture(s);
    enqueue(raw, (task){.kind = END});
    pthread_join(s->thread, NULL);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->given_more);
    pthread_cond_destroy(&s->all_done);
    free(s);
    model_gone();
    return 0;
}

weft_i_cu_result model_cuStreamSynchronize(weft_i_cu_stream raw)
{
    MODEL_ENTER(cuStreamSynchronize, MODEL_CURRENT);
    stream *s = (stream *)(void *)raw;
    pthread_mutex_lock(&s->lock);
    while (s->done < s->given)
        pthread_cond_wait(&s->all_done, &s->lock);
    pthread_mutex_unlock(&s->lock);
    return 0;
}

weft_i_cu_result model_cuStreamQuery(weft_i_cu_stream raw)
{
    MODEL_ENTER(cuStreamQuery, MODEL_CURRENT);
    stream *s = (stream *)(void *)raw;
    pthread_mutex_lock(&s->lock);
    int ready = s->done == s->given;
    pthread_mutex_unlock(&s->lock);
    return ready ? 0 : WEFT_I_CUDA_ERROR_NOT_READY;
}

weft_i_cu_result model_cuStreamGetCtx(weft_i_cu_stream raw, weft_i_cu_ctx *out)
{
    MODEL_ENTER(cuStreamGetCtx, MODEL_CURRENT);
    *out = ((stream *)(void *)raw)->ctx;
    return 0;
}

weft_i_cu_result model_cuStreamIsCapturing(weft_i_cu_stream raw, int *status)
{
    MODEL_ENTER(cuStreamIsCapturing, MODEL_CURRENT);
    stream *s = (stream *)(void *)raw;
    *status =
        s->capture ? WEFT_I_CU_STREAM_CAPTURE_STATUS_ACTIVE : WEFT_I_CU_STREAM_CAPTURE_STATUS_NONE;
    return 0;
}

weft_i_cu_result model_cuStreamGetCaptureInfo(weft_i_cu_stream raw, int *status,
                                              weft_i_cu_capture_id *id)
{
    MODEL_ENTER(cuStreamGetCaptureInfo, MODEL_CURRENT);
    stream *s = (stream *)(void *)raw;
    *status =
        s->capture ? WEFT_I_CU_STREAM_CAPTURE_STATUS_ACTIVE : WEFT_I_CU_STREAM_CAPTURE_STATUS_NONE;
    *id = s->capture ? s->capture->number : 0;
    return 0;
}

/* ---- graphs ---- */

static _Thread_local list last_graph; /* of a capture that this thread ended */

int model_graph_kernels(void)
{
    return last_graph.kernels;
}

int model_graph_is_behind(int kernel, int other)
{
    return (int)(last_graph.ahead[kernel] >> other & 1);
}

static atomic_uint_least64_t captures; /* relaxed: only to tell them apart */

weft_i_cu_result model_cuStreamBeginCapture(weft_i_cu_stream raw, int mode)
{
    MODEL_ENTER(cuStreamBeginCapture, MODEL_CURRENT);
    stream *s = (stream *)(void *)raw;
    if (mode < WEFT_I_CU_STREAM_CAPTURE_MODE_THREAD_LOCAL ||
        mode > WEFT_I_CU_STREAM_CAPTURE_MODE_RELAXED || s->capture)
        return WEFT_I_CUDA_ERROR_INVALID_VALUE;
    list *graph = calloc(1, sizeof *graph);
    graph->last = &graph->first;
    graph->number = 1 + atomic_fetch_add_explicit(&captures, 1, memory_order_relaxed);
    s->ahead = 0;
    pthread_mutex_lock(&s->lock);
    s->capture = graph;
    pthread_mutex_unlock(&s->lock);
    model_born();
    return 0;
}

weft_i_cu_result model_cuStreamEndCapture(weft_i_cu_stream raw, weft_i_cu_graph *out)
{
    MODEL_ENTER(cuStreamEndCapture, MODEL_CURRENT);
    stream *s = (stream *)(void *)raw;
    list *graph = s->capture;
    *out = (weft_i_cu_graph)(void *)graph;
    while (graph && graph->joins)
        graph->joined[--graph->joins]->capture = NULL;
    s->capture = NULL;
    if (graph)
        last_graph = *graph;
    return *out ? 0 : WEFT_I_CUDA_ERROR_INVALID_VALUE;
}

static task copy_of(const task *t)
{
    task copy = *t;
    if (t->parameter) {
        copy.parameter = malloc(t->bytes);
        memcpy(copy.parameter, t->parameter, t->bytes);
    }
    return copy;
}

weft_i_cu_result model_cuGraphInstantiateWithFlags(weft_i_cu_graph_exec *out, weft_i_cu_graph graph,
                                                   unsigned long long flags)
{
    MODEL_ENTER(cuGraphInstantiateWithFlags, MODEL_CURRENT);
    (void)flags;
    list *made = calloc(1, sizeof *made);
    made->last = &made->first;
    for (const task *t = ((list *)(void *)graph)->first; t; t = t->next) {
        task *copy = malloc(sizeof *copy);
        *copy = copy_of(t);
        append(made, copy);
    }
    *out = (weft_i_cu_graph_exec)(void *)made;
    model_born();
    return 0;
}

weft_i_cu_result model_cuGraphLaunch(weft_i_cu_graph_exec graph, weft_i_cu_stream raw)
{
    MODEL_ENTER(cuGraphLaunch, MODEL_CURRENT);
    for (const task *t = ((list *)(void *)graph)->first; t; t = t->next)
        enqueue(raw, copy_of(t));
    return 0;
}

weft_i_cu_result model_cuGraphDestroy(weft_i_cu_graph graph)
{
    MODEL_ENTER(cuGraphDestroy, MODEL_CURRENT);
    free_list((list *)(void *)graph);
    return 0;
}

weft_i_cu_result model_cuGraphExecDestroy(weft_i_cu_graph_exec graph)
{
    MODEL_ENTER(cuGraphExecDestroy, MODEL_CURRENT);
    free_list((list *)(void *)graph);
    return 0;
}

/* ---- events ---- */

weft_i_cu_result model_cuEventCreate(weft_i_cu_event *out, unsigned flags)
{
    MODEL_ENTER(cuEventCreate, MODEL_CURRENT);
    (void)flags;
    event *e = calloc(1, sizeof *e);
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->changed, NULL);
    e->holders = 1;
    *out = (weft_i_cu_event)(void *)e;
    model_born();
    return 0;
}

weft_i_cu_result model_cuEventDestroy(weft_i_cu_event raw)
{
    MODEL_ENTER(cuEventDestroy, MODEL_STARTED);
    drop_event((event *)(void *)raw, 1);
    model_gone();
    return 0;
}

static void hold(event *e, uint64_t *value, int record)
{
    pthread_mutex_lock(&e->lock);
    e->holders++;
    e->recorded += (uint64_t)record;
    *value = e->recorded;
    pthread_mutex_unlock(&e->lock);
}

weft_i_cu_result model_cuEventRecord(weft_i_cu_event raw, weft_i_cu_stream to)
{
    MODEL_ENTER(cuEventRecord, MODEL_CURRENT);
    uint64_t value;
    event *e = (event *)(void *)raw;
    e->ahead = ((stream *)(void *)to)->ahead;
    if ((e->capture = ((stream *)(void *)to)->capture))
        return 0;
    hold(e, &value, 1);
    enqueue(to, (task){.kind = RECORD, .event = (event *)(void *)raw, .value = value});
    return 0;
}

weft_i_cu_result model_cuStreamWaitEvent(weft_i_cu_stream to, weft_i_cu_event raw, unsigned flags)
{
    MODEL_ENTER(cuStreamWaitEvent, MODEL_CURRENT);
    uint64_t value;
    event *e = (event *)(void *)raw;
    stream *s = (stream *)(void *)to;
    (void)flags;
    if (e->capture && !s->capture &&
        e->capture->joins < JOINED) { /* the capture goes on here too */
        e->capture->joined[e->capture->joins++] = s;
        s->capture = e->capture;
        s->ahead = 0;
    }
    if (s->capture != e->capture)
        return WEFT_I_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (s->capture) {
        s->ahead |= e->ahead;
        return 0;
    }
    hold(e, &value, 0);
    enqueue(to, (task){.kind = AWAIT, .event = (event *)(void *)raw, .value = value});
    return 0;
}

weft_i_cu_result model_cuEventQuery(weft_i_cu_event raw)
{
    MODEL_ENTER(cuEventQuery, MODEL_STARTED);
    event *e = (event *)(void *)raw;
    pthread_mutex_lock(&e->lock);
    int ready = e->done == e->recorded;
    pthread_mutex_unlock(&e->lock);
    return ready ? 0 : WEFT_I_CUDA_ERROR_NOT_READY;
}

weft_i_cu_result model_cuEventSynchronize(weft_i_cu_event raw)
{
    MODEL_ENTER(cuEventSynchronize, MODEL_STARTED);
    event *e = (event *)(void *)raw;
    pthread_mutex_lock(&e->lock);
    while (e->done < e->recorded)
        pthread_cond_wait(&e->changed, &e->lock);
    pthread_mutex_unlock(&e->lock);
    return 0;
}

weft_i_cu_result model_cuEventElapsedTime(float *ms, weft_i_cu_event start, weft_i_cu_event end)
{
    MODEL_ENTER(cuEventElapsedTime, MODEL_STARTED);
    *ms = (float)(((event *)(void *)end)->when - ((event *)(void *)start)->when) / 1e6f;
    return 0;
}

/* ---- memory, copies, launches ---- */

weft_i_cu_result model_cuMemGetInfo(size_t *free_bytes, size_t *total)
{
    MODEL_ENTER(cuMemGetInfo, MODEL_CURRENT);
    *total = model.capacity ? model.capacity : (size_t)1 << 30;
    *free_bytes = *total - atomic_load_explicit(&used, memory_order_relaxed);
    return 0;
}

weft_i_cu_result model_cuMemAllocAsync(weft_i_cu_ptr *out, size_t bytes, weft_i_cu_stream raw)
{
    MODEL_ENTER(cuMemAllocAsync, MODEL_CURRENT);
    (void)raw;
    size_t capacity = model.capacity ? model.capacity : (size_t)1 << 30;
    size_t now = atomic_fetch_add_explicit(&used, bytes, memory_order_relaxed); /* counts only */
    char *memory = now + bytes > capacity
                       ? NULL
                       : aligned_alloc(FRONT, (FRONT + bytes + FRONT - 1) / FRONT * FRONT);
    if (!memory) {
        atomic_fetch_sub_explicit(&used, bytes, memory_order_relaxed);
        return WEFT_I_CUDA_ERROR_OUT_OF_MEMORY;
    }
    *(front *)(void *)memory = (front){.bytes = bytes, .ordinal = model_ordinal()};
    list_front((front *)(void *)memory);
    memset(memory + FRONT, 0xa5, bytes);
    *out = (weft_i_cu_ptr)(uintptr_t)(memory + FRONT);
    model_born();
    return 0;
}

/* The memory counts as free at once, as for the driver's own pool; it goes in the stream's order.
 */
weft_i_cu_result model_cuMemFreeAsync(weft_i_cu_ptr memory, weft_i_cu_stream raw)
{
    MODEL_ENTER(cuMemFreeAsync, MODEL_CURRENT);
    enqueue(raw, (task){.kind = FREE, .to = (void *)(uintptr_t)memory});
    model_cuStreamSynchronize(raw);
    return 0;
}

static _Atomic int pool_orders = 1;

int model_pool_orders(void)
{
    return pool_orders;
}

weft_i_cu_result model_cuMemPoolSetAttribute(weft_i_cu_pool pool, int attribute, void *value)
{
    MODEL_ENTER(cuMemPoolSetAttribute, MODEL_STARTED);
    (void)pool;
    if (attribute == WEFT_I_CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES)
        pool_orders = *(int *)value;
    else if (attribute != WEFT_I_CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        return WEFT_I_CUDA_ERROR_INVALID_VALUE;
    return 0;
}

weft_i_cu_result model_cuMemPoolTrimTo(weft_i_cu_pool pool, size_t keep)
{
    MODEL_ENTER(cuMemPoolTrimTo, MODEL_STARTED);
    (void)pool, (void)keep;
    return 0;
}

weft_i_cu_result model_cuMemHostAlloc(void **out, size_t bytes, unsigned flags)
{
    MODEL_ENTER(cuMemHostAlloc, MODEL_CURRENT);
    (void)flags;
    *out = aligned_alloc(FRONT, (bytes + FRONT - 1) / FRONT * FRONT);
    model_born();
    return *out ? 0 : WEFT_I_CUDA_ERROR_OUT_OF_MEMORY;
}

weft_i_cu_result model_cuMemFreeHost(void *memory)
{
    MODEL_ENTER(cuMemFreeHost, MODEL_STARTED);
    free(memory);
    model_gone();
    return 0;
}

weft_i_cu_result model_cuMemHostGetDevicePointer(weft_i_cu_ptr *out, void *memory, unsigned flags)
{
    MODEL_ENTER(cuMemHostGetDevicePointer, MODEL_CURRENT);
    (void)flags;
    *out = (weft_i_cu_ptr)(uintptr_t)memory;
    return 0;
}

weft_i_cu_result model_cuPointerGetAttribute(void *out, int attribute, weft_i_cu_ptr memory)
{
    MODEL_ENTER(cuPointerGetAttribute, MODEL_STARTED);
    weft_i_cu_result result = WEFT_I_CUDA_ERROR_INVALID_VALUE; /* memory the driver has not made */
    pthread_mutex_lock(&fronts_lock);
    for (const front *f = fronts; f; f = f->next) {
        weft_i_cu_ptr begin = (weft_i_cu_ptr)(uintptr_t)f + FRONT;
        if (memory < begin || memory >= begin + f->bytes)
            continue;
        *(int *)out = attribute == WEFT_I_CU_POINTER_ATTRIBUTE_MEMORY_TYPE
                          ? WEFT_I_CU_MEMORYTYPE_DEVICE
                          : f->ordinal;
        result = 0;
    }
    pthread_mutex_unlock(&fronts_lock);
    return result;
}

weft_i_cu_result model_cuMemcpyAsync(weft_i_cu_ptr to, weft_i_cu_ptr from, size_t bytes,
                                     weft_i_cu_stream raw)
{
    MODEL_ENTER(cuMemcpyAsync, MODEL_CURRENT);
    enqueue(raw, (task){.kind = COPY,
                        .to = (void *)(uintptr_t)to,
                        .from = (const void *)(uintptr_t)from,
                        .bytes = bytes});
    return 0;
}

weft_i_cu_result model_cuMemcpy2DAsync(const weft_i_cu_copy_2d *copy, weft_i_cu_stream raw)
{
    MODEL_ENTER(cuMemcpy2DAsync, MODEL_CURRENT);
    for (size_t row = 0; row < copy->Height; row++)
        enqueue(raw,
                (task){.kind = COPY,
                       .to = (void *)(uintptr_t)(copy->dstDevice + row * copy->dstPitch),
                       .from = (const void *)(uintptr_t)(copy->srcDevice + row * copy->srcPitch),
                       .bytes = copy->WidthInBytes});
    return 0;
}

weft_i_cu_result model_cuMemsetD8Async(weft_i_cu_ptr to, unsigned char value, size_t count,
                                       weft_i_cu_stream raw)
{
    MODEL_ENTER(cuMemsetD8Async, MODEL_CURRENT);
    enqueue(raw, (task){.kind = SET8, .to = (void *)(uintptr_t)to, .value = value, .bytes = count});
    return 0;
}

weft_i_cu_result model_cuMemsetD32Async(weft_i_cu_ptr to, unsigned value, size_t count,
                                        weft_i_cu_stream raw)
{
    MODEL_ENTER(cuMemsetD32Async, MODEL_CURRENT);
    enqueue(raw,
            (task){.kind = SET32, .to = (void *)(uintptr_t)to, .value = value, .bytes = count});
    return 0;
}

weft_i_cu_result model_cuStreamWriteValue32(weft_i_cu_stream raw, weft_i_cu_ptr word,
                                            uint32_t value, unsigned flags)
{
    MODEL_ENTER(cuStreamWriteValue32, MODEL_CURRENT);
    (void)flags;
    enqueue(raw, (task){.kind = WRITE32, .to = (void *)(uintptr_t)word, .value = value});
    return 0;
}

weft_i_cu_result model_cuStreamWriteValue64(weft_i_cu_stream raw, weft_i_cu_ptr word,
                                            uint64_t value, unsigned flags)
{
    MODEL_ENTER(cuStreamWriteValue64, MODEL_CURRENT);
    (void)flags;
    enqueue(raw, (task){.kind = WRITE64, .to = (void *)(uintptr_t)word, .value = value});
    return 0;
}

weft_i_cu_result model_cuStreamWaitValue64(weft_i_cu_stream raw, weft_i_cu_ptr word, uint64_t value,
                                           unsigned flags)
{
    MODEL_ENTER(cuStreamWaitValue64, MODEL_CURRENT);
    if (flags != WEFT_I_CU_STREAM_WAIT_VALUE_GEQ)
        return WEFT_I_CUDA_ERROR_INVALID_VALUE;
    enqueue(raw, (task){.kind = AWAIT64, .to = (void *)(uintptr_t)word, .value = value});
    return 0;
}

weft_i_cu_result model_cuStreamBatchMemOp(weft_i_cu_stream raw, unsigned count,
                                          weft_i_cu_mem_op *ops, unsigned flags)
{
    MODEL_ENTER(cuStreamBatchMemOp, MODEL_CURRENT);
    for (unsigned i = 0; i < count; i++) {
        int write = ops[i].operation == WEFT_I_CU_STREAM_MEM_OP_WRITE_VALUE_64;
        if (!write && ops[i].operation != WEFT_I_CU_STREAM_MEM_OP_WAIT_VALUE_64)
            return WEFT_I_CUDA_ERROR_INVALID_VALUE;
        enqueue(raw, (task){.kind = write ? WRITE64 : AWAIT64,
                            .to = (void *)(uintptr_t)ops[i].writeValue.address,
                            .value = ops[i].writeValue.value64});
    }
    return flags ? WEFT_I_CUDA_ERROR_INVALID_VALUE : 0;
}

int model_call(weft_i_cu_stream raw, void (*run)(void *parameter), void *parameter, size_t bytes)
{
    enqueue(raw, (task){.kind = CALL, .run = run, .bytes = bytes, .parameter = parameter});
    return 0;
}

weft_i_cu_result model_cuLaunchKernelEx(const weft_i_cu_launch *config, weft_i_cu_function function,
                                        void **parameters, void **extra)
{
    MODEL_ENTER(cuLaunchKernelEx, MODEL_CURRENT);
    const model_kernel *kernel = (const void *)function;
    unsigned most = (unsigned)(model.threads_most ? model.threads_most : 8);
    if (extra || !kernel || config->gridDimX == 0 || config->blockDimX == 0 ||
        config->blockDimX > most || config->blockDimX > (unsigned)kernel->threads)
        return WEFT_I_CUDA_ERROR_INVALID_VALUE;
    char *parameter = malloc(kernel->bytes);
    memcpy(parameter, parameters[0], kernel->bytes);
    enqueue(config->hStream, (task){.kind = LAUNCH,
                                    .kernel = kernel,
                                    .blocks = config->gridDimX,
                                    .threads = config->blockDimX,
                                    .bytes = kernel->bytes,
                                    .parameter = parameter});
    return 0;
}
