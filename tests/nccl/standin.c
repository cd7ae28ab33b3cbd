/* SPDX-License-Identifier: Apache-2.0 */
/* The stand-in: how it is found, communicators, and what their calls enqueue.  Windows:
 * standin_window.c. */
#include "standin_parts.h"
#include "standin_window.h"
#include "twin_pause.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

standin_wishes standin;
static atomic_int live, groups;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the counts */

/* ---- counts and faults ---- */

static struct {
    const char *name;
    int calls;
} counts[64];

void standin_born(int by)
{
    atomic_fetch_add(&live, by);
}

int standin_live(void)
{
    return atomic_load(&live);
}

int standin_groups(void)
{
    return atomic_load(&groups);
}

static int *count_of(const char *name)
{
    int i = 0;
    while (counts[i].name && strcmp(counts[i].name, name))
        i++;
    counts[i].name = name;
    return &counts[i].calls;
}

int standin_calls(const char *name)
{
    pthread_mutex_lock(&lock);
    int calls = *count_of(name);
    pthread_mutex_unlock(&lock);
    return calls;
}

int standin_enter(const char *name)
{
    pthread_mutex_lock(&lock);
    ++*count_of(name);
    pthread_mutex_unlock(&lock);
    const char *fail = standin.fail;
    return fail && !strcmp(fail, name) ? standin.fail_with : 0;
}

/* ---- communicators ---- */

weft_i_nccl_result standin_ncclGetVersion(int *version)
{
    STANDIN_ENTER(ncclGetVersion);
    *version = standin.version ? standin.version : 22907;
    return 0;
}

static const char *standin_error_string(weft_i_nccl_result result)
{
    static const char *const texts[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};
    return result >= 0 && result < 8 ? texts[result] : "unknown";
}

static const char *standin_last_error(weft_i_nccl_raw comm)
{
    (void)comm;
    return "";
}

weft_i_nccl_result standin_ncclGetUniqueId(weft_i_nccl_id *out)
{
    static atomic_int number;
    STANDIN_ENTER(ncclGetUniqueId);
    memset(out, 0, sizeof *out);
    snprintf(out->bytes, sizeof out->bytes, "/dev/shm/weft-standin-%d-%d", (int)getpid(),
             atomic_fetch_add(&number, 1));
    return 0;
}

static bool is_fit(const weft_i_nccl_config *config)
{
    return config->size == sizeof *config && config->magic == WEFT_I_NCCL_MAGIC &&
           config->version >= 22800 && config->blocking == 0 && config->policy == INT_MIN &&
           !config->name;
}

weft_i_nccl_result standin_ncclCommInitRankConfig(weft_i_nccl_raw *out, int ranks,
                                                  weft_i_nccl_id id, int rank,
                                                  weft_i_nccl_config *config)
{
    STANDIN_ENTER(ncclCommInitRankConfig);
    if (ranks > RANKS_MOST || rank >= ranks || !is_fit(config) || model_ordinal() < 0)
        return WEFT_I_ncclInvalidArgument;
    standin_comm *comm = calloc(1, sizeof *comm);
    comm->rank = rank;
    comm->size = ranks;
    snprintf(comm->path, sizeof comm->path, "%s", id.bytes);
    int fd = open(comm->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(shared)) != 0)
        return WEFT_I_ncclSystemError;
    comm->with = mmap(NULL, sizeof(shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (comm->with == MAP_FAILED)
        return WEFT_I_ncclSystemError;
    standin_place *mine = &comm->with->rank[rank];
    mine->device = model_ordinal();
    mine->host_id = getenv("NCCL_HOSTID") != NULL;
    if (!standin.stuck)
        atomic_store_explicit(&mine->here, 1, memory_order_release);
    standin_born(1);
    *out = (weft_i_nccl_raw)(void *)comm;
    return WEFT_I_ncclInProgress;
}

/* Have all come, and is each on a device of its own? */
static int look_for_all(standin_comm *comm)
{
    for (int rank = 0; rank < comm->size; rank++)
        if (!atomic_load_explicit(&comm->with->rank[rank].here, memory_order_acquire))
            return WEFT_I_ncclInProgress;
    unlink(comm->path);
    for (int b = 1; b < comm->size; b++)
        for (int a = 0; a < b; a++)
            if (comm->with->rank[a].device == comm->with->rank[b].device &&
                !comm->with->rank[a].host_id)
                return WEFT_I_ncclInvalidUsage;
    comm->made = true;
    return 0;
}

static void enqueue(standin_comm *comm)
{
    standin_job *job = comm->pending;
    comm->pending = NULL;
    atomic_fetch_add(&comm->jobs, 1);
    model_call(comm->stream, standin_run, job, sizeof *job + (size_t)job->count * sizeof *job->ops);
}

weft_i_nccl_result standin_ncclCommGetAsyncError(weft_i_nccl_raw raw, weft_i_nccl_result *out)
{
    standin_comm *comm = (standin_comm *)(void *)raw;
    STANDIN_ENTER(ncclCommGetAsyncError);
    *out = atomic_load(&standin.error);
    if (*out)
        return 0;
    *out = comm->made ? atomic_load(&comm->failed) : look_for_all(comm);
    if (*out == 0 && comm->window)
        *out = standin.stuck ? WEFT_I_ncclInProgress : standin_poll_window(comm);
    if (*out == 0 && comm->finalized && atomic_load(&comm->jobs))
        *out = WEFT_I_ncclInProgress;
    if (*out == 0 && comm->pending) {
        *out = WEFT_I_ncclInProgress;
        if (!standin.stuck && comm->polls-- == 0)
            enqueue(comm);
    }
    return 0;
}

weft_i_nccl_result standin_ncclCommFinalize(weft_i_nccl_raw raw)
{
    standin_comm *comm = (standin_comm *)(void *)raw;
    STANDIN_ENTER(ncclCommFinalize);
    if (!comm->made || comm->finalized)
        return WEFT_I_ncclInvalidUsage;
    comm->finalized = true;
    return WEFT_I_ncclInProgress;
}

/* Kernels that run end first. */
static void end(standin_comm *comm)
{
    while (atomic_load(&comm->jobs))
        twin_pause();
    atomic_store(&comm->with->rank[comm->rank].left, 1);
    unlink(comm->path); /* if not all came */
    standin_end_windows(comm);
    munmap(comm->with, sizeof(shared));
    free(comm->pending);
    free(comm);
    standin_born(-1);
}

weft_i_nccl_result standin_ncclCommDestroy(weft_i_nccl_raw raw)
{
    STANDIN_ENTER(ncclCommDestroy);
    while (standin.unread)
        usleep(1000);
    end((standin_comm *)(void *)raw);
    return 0;
}

weft_i_nccl_result standin_ncclCommAbort(weft_i_nccl_raw raw)
{
    standin_comm *comm = (standin_comm *)(void *)raw;
    STANDIN_ENTER(ncclCommAbort);
    atomic_store(&comm->aborted, 1);
    end(comm);
    return 0;
}

/* ---- groups and calls ---- */

static _Thread_local int depth;
static _Thread_local standin_comm *in_group;

static weft_i_nccl_result give(standin_comm *comm)
{
    if (comm->pending->count > 1)
        atomic_fetch_add(&groups, 1);
    comm->polls = 2;
    return WEFT_I_ncclInProgress;
}

weft_i_nccl_result standin_ncclGroupStart(void)
{
    STANDIN_ENTER(ncclGroupStart);
    depth++;
    return 0;
}

weft_i_nccl_result standin_ncclGroupEnd(void)
{
    STANDIN_ENTER(ncclGroupEnd);
    standin_comm *comm = in_group;
    if (--depth || !comm)
        return 0;
    in_group = NULL;
    return give(comm);
}

/* What was given before must have been polled to its end. */
static weft_i_nccl_result add(weft_i_nccl_raw raw, weft_i_cu_stream stream, standin_op op)
{
    standin_comm *comm = (standin_comm *)(void *)raw;
    if (!comm->made || comm->finalized || (comm->pending && comm != in_group) ||
        op.peer >= comm->size || model_ordinal() != comm->with->rank[comm->rank].device)
        return WEFT_I_ncclInvalidUsage;
    standin_job *job = comm->pending;
    if (!job || job->count == job->room) {
        int room = job ? 2 * job->room : 1;
        standin_job *larger = realloc(job, sizeof *job + (size_t)room * sizeof *job->ops);
        larger->count = job ? larger->count : 0;
        larger->room = room;
        larger->comm = comm;
        comm->pending = job = larger;
    }
    job->ops[job->count++] = op;
    comm->stream = stream;
    if (!depth)
        return give(comm);
    in_group = comm;
    return 0;
}

static _Thread_local double factor;

#define COLLECTIVE(name_, kind_)                                                                  \
    weft_i_nccl_result standin_##name_(const void *in, void *out, size_t count, int dtype,        \
                                       weft_i_nccl_raw comm, weft_i_cu_stream stream)             \
    {                                                                                             \
        STANDIN_ENTER(name_);                                                                     \
        return add(                                                                               \
            comm, stream,                                                                         \
            (standin_op){.kind = (kind_), .in = in, .out = out, .count = count, .dtype = dtype}); \
    }
#define ROOTED(name_, kind_)                                                                    \
    weft_i_nccl_result standin_##name_(const void *in, void *out, size_t count, int dtype,      \
                                       int root, weft_i_nccl_raw comm, weft_i_cu_stream stream) \
    {                                                                                           \
        STANDIN_ENTER(name_);                                                                   \
        return add(comm, stream,                                                                \
                   (standin_op){.kind = (kind_),                                                \
                                .in = in,                                                       \
                                .out = out,                                                     \
                                .count = count,                                                 \
                                .dtype = dtype,                                                 \
                                .peer = root});                                                 \
    }
#define REDUCING(name_, kind_)                                                                     \
    weft_i_nccl_result standin_##name_(const void *in, void *out, size_t count, int dtype, int op, \
                                       weft_i_nccl_raw comm, weft_i_cu_stream stream)              \
    {                                                                                              \
        STANDIN_ENTER(name_);                                                                      \
        return add(comm, stream,                                                                   \
                   (standin_op){.kind = (kind_),                                                   \
                                .in = in,                                                          \
                                .out = out,                                                        \
                                .count = count,                                                    \
                                .dtype = dtype,                                                    \
                                .op = op,                                                          \
                                .factor = factor});                                                \
    }
COLLECTIVE(ncclAllGather, ALL_GATHER)
COLLECTIVE(ncclAlltoAll, ALL_TO_ALL)
ROOTED(ncclBroadcast, BROADCAST)
ROOTED(ncclGather, GATHER)
ROOTED(ncclScatter, SCATTER)
REDUCING(ncclAllReduce, ALL_REDUCE)
REDUCING(ncclReduceScatter, REDUCE_SCATTER)

weft_i_nccl_result standin_ncclReduce(const void *in, void *out, size_t count, int dtype, int op,
                                      int root, weft_i_nccl_raw comm, weft_i_cu_stream stream)
{
    STANDIN_ENTER(ncclReduce);
    return add(comm, stream,
               (standin_op){.kind = REDUCE,
                            .in = in,
                            .out = out,
                            .count = count,
                            .dtype = dtype,
                            .op = op,
                            .peer = root,
                            .factor = factor});
}

weft_i_nccl_result standin_ncclSend(const void *in, size_t count, int dtype, int peer,
                                    weft_i_nccl_raw comm, weft_i_cu_stream stream)
{
    STANDIN_ENTER(ncclSend);
    return add(comm, stream,
               (standin_op){.kind = SEND, .in = in, .count = count, .dtype = dtype, .peer = peer});
}

weft_i_nccl_result standin_ncclRecv(void *out, size_t count, int dtype, int peer,
                                    weft_i_nccl_raw comm, weft_i_cu_stream stream)
{
    STANDIN_ENTER(ncclRecv);
    return add(
        comm, stream,
        (standin_op){.kind = RECV, .out = out, .count = count, .dtype = dtype, .peer = peer});
}

weft_i_nccl_result standin_ncclRedOpCreatePreMulSum(int *out, void *by, int dtype, int residence,
                                                    weft_i_nccl_raw comm)
{
    (void)comm;
    STANDIN_ENTER(ncclRedOpCreatePreMulSum);
    if (residence != WEFT_I_ncclScalarHostImmediate)
        return WEFT_I_ncclInvalidArgument;
    float small;
    memcpy(&small, by, sizeof small);
    memcpy(&factor, by, sizeof factor * (dtype == WEFT_I_ncclFloat64));
    factor = dtype == WEFT_I_ncclFloat64 ? factor : (double)small;
    *out = PREMUL;
    standin_born(1);
    return 0;
}

weft_i_nccl_result standin_ncclRedOpDestroy(int op, weft_i_nccl_raw comm)
{
    (void)comm;
    STANDIN_ENTER(ncclRedOpDestroy);
    standin_born(-1);
    return op == PREMUL ? 0 : WEFT_I_ncclInvalidArgument;
}

/* ---- as a library ---- */

static const struct {
    const char *name;
    void *function;
} symbols[] = {
#define FN(name_, parameters_)       {#name_, (void *)(uintptr_t)standin_##name_},
#define OPTIONAL(name_, parameters_) {#name_, (void *)(uintptr_t)standin_##name_},
#include "backends/nccl/library.def"
#undef FN
#undef OPTIONAL
    {"ncclGetErrorString", (void *)(uintptr_t)standin_error_string},
    {"ncclGetLastError", (void *)(uintptr_t)standin_last_error},
};

static weft_i_os table;
static const weft_i_os *before;
static char nccl_library;

static void *find_library(const char *name)
{
    if (!strcmp(name, "libnccl.so.2"))
        return standin.no_library ? NULL : &nccl_library;
    return before->dlopen(name);
}

/* The host call for peers' addresses came with 2.29.2. */
static void *find_symbol(void *library, const char *name)
{
    if (library != &nccl_library)
        return before->dlsym(library, name);
    int version = standin.version ? standin.version : 22907;
    const char *lacks = standin.lacks;
    if ((lacks && !strcmp(lacks, name)) ||
        (version < 22902 && !strcmp(name, "ncclGetLsaDevicePointer")))
        return NULL;
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++)
        if (!strcmp(symbols[i].name, name))
            return symbols[i].function;
    return NULL;
}

void standin_install(void)
{
    before = weft_i_os_now;
    table = *before;
    table.dlopen = find_library;
    table.dlsym = find_symbol;
    weft_i_os_now = &table;
}
