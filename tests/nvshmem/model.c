/* SPDX-License-Identifier: Apache-2.0 */
/* The stand-in for NVSHMEM's host library; see model.h. */
#include "model.h"

#include "cuda/model_parts.h"
#include "cuda/twin_pause.h"

#include "backends/nvshmem/library.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PES = 16, BLOCKS = 64, HEAP = 64 << 20, HEADER = 1 << 16 };

nvshmem_wishes nvshmem_model;

/* What all ranks share, at the start of the file. */
typedef struct header {
    atomic_uint arrived;
    atomic_ullong sizes[PES];
} header;

static header *shared;
static char *heaps[PES]; /* of all ranks, as this one has mapped them */
static int me, ranks;
static int own_file = -1; /* of who made the id, until all have it */
static struct {
    size_t at, bytes;
} blocks[BLOCKS]; /* that live, by place: the same on all ranks */
static int block_count;

static const char *const names[] = {
#define FN(result_, name_, parameters_) #name_,
#include "backends/nvshmem/library.def"
#undef FN
};
enum { NAMES = sizeof names / sizeof *names };
static atomic_int calls[NAMES];

/* Counts the call; one that is to hang does. */
static void enter(const char *name)
{
    for (int i = 0; i < NAMES; i++)
        if (!strcmp(names[i], name))
            calls[i]++;
    while (nvshmem_model.hang && !strcmp(nvshmem_model.hang, name))
        pause();
}

int nvshmem_calls(const char *name)
{
    for (int i = 0; i < NAMES; i++)
        if (!strcmp(names[i], name))
            return calls[i];
    return -1;
}

/* All ranks meet, without a limit, as in the library. */
static void meet(void)
{
    unsigned turn = atomic_fetch_add(&shared->arrived, 1) / (unsigned)ranks;
    while (atomic_load(&shared->arrived) < (turn + 1) * (unsigned)ranks)
        usleep(100);
}

static void stub_nvshmemx_vendor_get_version_info(int *major, int *minor, int *patch)
{
    enter("nvshmemx_vendor_get_version_info");
    *major = nvshmem_model.major ? nvshmem_model.major : 3;
    *minor = nvshmem_model.minor ? nvshmem_model.minor : 8;
    *patch = 0;
}

static int stub_nvshmemx_get_uniqueid(weft_i_nvshmem_id *id)
{
    enter("nvshmemx_get_uniqueid");
    int fd = memfd_create("nvshmem-model", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, HEADER + (off_t)PES * HEAP) < 0)
        return 1;
    own_file = fd;
    snprintf(id->bytes, sizeof id->bytes, "/proc/%d/fd/%d", (int)getpid(), fd);
    return 0;
}

static int stub_nvshmemx_set_attr_uniqueid_args(int rank, int count, const weft_i_nvshmem_id *id,
                                                weft_i_nvshmem_attr *attr)
{
    enter("nvshmemx_set_attr_uniqueid_args");
    if (attr->version != (1 << 16) + 144 || id->version != (1 << 16) + 128)
        return 2;
    attr->args.id.id = (weft_i_nvshmem_id *)(uintptr_t)id;
    attr->args.id.rank = rank;
    attr->args.id.ranks = count;
    return 0;
}

/* At one stride, or each by itself, in turned order and with gaps. */
static int map_heaps(int fd)
{
    size_t page = 1 << 16;
    char *all = mmap(NULL, (size_t)ranks * 2 * HEAP, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED)
        return 1;
    for (int pe = 0; pe < ranks; pe++) {
        size_t at = nvshmem_model.scattered
                        ? (size_t)(ranks - 1 - pe) * 2 * HEAP + (size_t)(pe * pe) * page
                        : (size_t)pe * HEAP;
        heaps[pe] = mmap(all + at, HEAP, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
                         HEADER + (off_t)pe * HEAP);
        if (heaps[pe] == MAP_FAILED)
            return 1;
    }
    return 0;
}

static int stub_nvshmemx_hostlib_init_attr(unsigned flags, weft_i_nvshmem_attr *attr)
{
    enter("nvshmemx_hostlib_init_attr");
    if (nvshmem_model.no_start)
        return nvshmem_model.no_start;
    if (flags != 8 || !attr->args.id.id || shared)
        return 3;
    int fd = open(attr->args.id.id->bytes, O_RDWR | O_CLOEXEC);
    me = attr->args.id.rank;
    ranks = attr->args.id.ranks;
    if (fd < 0 || ranks > PES || map_heaps(fd))
        return 4;
    shared = mmap(NULL, HEADER, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    meet();
    if (own_file >= 0)
        close(own_file);
    own_file = -1;
    return 0;
}

static int stub_nvshmem_my_pe(void)
{
    enter("nvshmem_my_pe");
    return me;
}

static int stub_nvshmem_n_pes(void)
{
    enter("nvshmem_n_pes");
    return ranks;
}

/* The first gap that is large enough. */
static void *place(size_t bytes)
{
    size_t at = 0;
    int i = 0;
    while (i < block_count && at + bytes > blocks[i].at) {
        at = blocks[i].at + blocks[i].bytes;
        i++;
    }
    if (at + bytes > HEAP || block_count == BLOCKS || nvshmem_model.full)
        return NULL;
    memmove(&blocks[i + 1], &blocks[i], (size_t)(block_count - i) * sizeof *blocks);
    blocks[i].at = at;
    blocks[i].bytes = bytes;
    block_count++;
    return heaps[me] + at;
}

static void *stub_nvshmem_malloc(size_t bytes)
{
    enter("nvshmem_malloc");
    bytes = (bytes + 511) / 512 * 512;
    shared->sizes[me] = bytes;
    meet();
    for (int pe = 0; pe < ranks; pe++)
        if (shared->sizes[pe] != bytes)
            abort(); /* the library's heaps would differ from now on */
    void *made = place(bytes);
    if (made)
        memset(made, 0xa5, bytes);
    meet();
    return made;
}

static void stub_nvshmem_free(void *memory)
{
    enter("nvshmem_free");
    size_t at = (size_t)((char *)memory - heaps[me]);
    int i = 0;
    while (i < block_count && blocks[i].at != at)
        i++;
    if (i == block_count)
        abort(); /* not its own, or twice */
    shared->sizes[me] = at;
    meet();
    for (int pe = 0; pe < ranks; pe++)
        if (shared->sizes[pe] != at)
            abort(); /* ranks free different blocks */
    memset(memory, 0xdd, blocks[i].bytes);
    memmove(&blocks[i], &blocks[i + 1], (size_t)(--block_count - i) * sizeof *blocks);
    meet();
}

static void *stub_nvshmem_ptr(const void *memory, int pe)
{
    enter("nvshmem_ptr");
    if (pe < 0 || pe >= ranks || (pe != me && nvshmem_model.no_pointers))
        return NULL;
    return heaps[pe] + ((const char *)memory - heaps[me]);
}

/* ---- on streams ---- */

typedef struct order {
    void *to;
    const void *from;
    size_t bytes;
    uint64_t *word;
    uint64_t value;
} order;

static void run_order(void *parameter)
{
    const order *o = parameter;
    if (o->bytes)
        memcpy(o->to, o->from, o->bytes);
    if (o->word)
        __atomic_fetch_add(o->word, o->value, __ATOMIC_SEQ_CST);
}

static void run_wait(void *parameter)
{
    const order *o = parameter;
    while (__atomic_load_n(o->word, __ATOMIC_SEQ_CST) < o->value)
        twin_pause();
}

static void *theirs(const void *memory, int pe)
{
    return heaps[pe] + ((const char *)memory - heaps[me]);
}

static void give(void *stream, void (*run)(void *), order what)
{
    order *copy = malloc(sizeof *copy);
    *copy = what;
    if (model_call(stream, run, copy, sizeof *copy))
        abort(); /* a stream that does not live */
}

static void stub_nvshmemx_putmem_on_stream(void *to, const void *from, size_t bytes, int pe,
                                           void *stream)
{
    enter("nvshmemx_putmem_on_stream");
    give(stream, run_order, (order){theirs(to, pe), from, bytes, NULL, 0});
}

static void stub_nvshmemx_getmem_on_stream(void *to, const void *from, size_t bytes, int pe,
                                           void *stream)
{
    enter("nvshmemx_getmem_on_stream");
    give(stream, run_order, (order){to, theirs(from, pe), bytes, NULL, 0});
}

static void stub_nvshmemx_putmem_signal_on_stream(void *to, const void *from, size_t bytes,
                                                  uint64_t *word, uint64_t value, int op, int pe,
                                                  void *stream)
{
    enter("nvshmemx_putmem_signal_on_stream");
    if (op != WEFT_I_NVSHMEM_SIGNAL_ADD)
        abort();
    give(stream, run_order, (order){theirs(to, pe), from, bytes, theirs(word, pe), value});
}

static void stub_nvshmemx_signal_op_on_stream(uint64_t *word, uint64_t value, int op, int pe,
                                              void *stream)
{
    enter("nvshmemx_signal_op_on_stream");
    if (op != WEFT_I_NVSHMEM_SIGNAL_ADD)
        abort();
    give(stream, run_order, (order){NULL, NULL, 0, theirs(word, pe), value});
}

static void stub_nvshmemx_signal_wait_until_on_stream(uint64_t *word, int compare, uint64_t value,
                                                      void *stream)
{
    enter("nvshmemx_signal_wait_until_on_stream");
    if (compare != WEFT_I_NVSHMEM_GE)
        abort();
    give(stream, run_wait, (order){NULL, NULL, 0, word, value});
}

/* ---- finding it ---- */

static weft_i_os table;
static const weft_i_os *before;
static char library;

static void *find_library(const char *name)
{
    if (!strncmp(name, "libnvshmem", 10))
        return nvshmem_model.no_library ? NULL : &library;
    return before->dlopen(name);
}

static void *find_symbol(void *handle, const char *name)
{
    void *found = NULL;
    if (handle != &library)
        return before->dlsym(handle, name);
    if (nvshmem_model.lacks && !strcmp(nvshmem_model.lacks, name))
        return NULL;
#define FN(result_, name_, parameters_)                \
    if (!strcmp(#name_, name)) {                       \
        result_(*function) parameters_ = stub_##name_; \
        memcpy(&found, &function, sizeof found);       \
    }
#include "backends/nvshmem/library.def"
#undef FN
    return found;
}

static void *alloc(size_t bytes)
{
    if (nvshmem_model.no_alloc > 0 && --nvshmem_model.no_alloc == 0)
        return NULL;
    return before->alloc(bytes);
}

void nvshmem_install(void)
{
    before = WEFT_OS;
    table = *before;
    table.dlopen = find_library;
    table.dlsym = find_symbol;
    table.alloc = alloc;
    weft_i_os_now = &table;
}
