/* SPDX-License-Identifier: Apache-2.0 */
/* Loads cuBLASLt, keeps plans, enqueues products. */
#include "blas.h"

#include "backends/cuda/device/capture.h"
#include "backends/cuda/device/launch.h"
#include "base/os/os.h"
#include "base/report/log.h"

#include <stdatomic.h>
#include <string.h>

enum { PLANS = 1024, WORKSPACE = 32 << 20 };

/* What makes one product another kind than the next.  Without padding: compared as bytes. */
struct key {
    int32_t type[3], turned[2], scaled[2], align[3]; /* scaled: 0 no, 1 by one, 2 by several */
    int64_t m, n, k, batches, ld[3], step[3], shared;
};

struct plan {
    struct key key;
    void *desc, *layout[3];
    weft_i_cublas_algo algo;
    size_t workspace;
    bool none; /* the library has no algorithm for it */
};

/* Of a device.  A plan is filled under the lock and published by a release store; it stays as long
 * as the device is open. */
struct weft_i_cuda_blas {
    void *handle;
    pthread_mutex_t lock;
    _Atomic(struct plan *) plans[PLANS];
};

static weft_i_cublas library;
static atomic_int loaded; /* 0: not tried, 1: there, 2: not there; release, pairs with load() */
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;

static bool find_functions(void *found)
{
    const struct {
        const char *name;
        void *to;
    } wanted[] = {
#define FN(name_, parameters_) {#name_, &library.name_},
#include "blas.def"
#undef FN
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        void *function = WEFT_OS->dlsym(found, wanted[i].name);
        if (!function)
            return false;
        memcpy(wanted[i].to, &function, sizeof function);
    }
    return true;
}

static bool load(void)
{
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"};
    int state =
        atomic_load_explicit(&loaded, memory_order_acquire); /* pairs with the store below */
    if (state)
        return state == 1;
    pthread_mutex_lock(&loading);
    if (!atomic_load_explicit(&loaded, memory_order_relaxed)) { /* under the lock */
        void *found = NULL;
        for (size_t i = 0; i < sizeof names / sizeof *names && !found; i++)
            found = WEFT_OS->dlopen(names[i]);
        bool there = found && find_functions(found);
        if (!there)
            weft_i_log(WEFT_LOG_WARN, "there is no usable libcublasLt.so (it comes with the CUDA "
                                      "toolkit): matrix products on GPUs are slow");
        atomic_store_explicit(&loaded, there ? 1 : 2, memory_order_release); /* pairs with load */
    }
    pthread_mutex_unlock(&loading);
    return atomic_load_explicit(&loaded, memory_order_acquire) == 1; /* pairs with the store */
}

static int type_of(weft_dtype dtype)
{
    switch (dtype) {
    case WEFT_F64:
        return WEFT_I_CUDA_R_64F;
    case WEFT_F16:
        return WEFT_I_CUDA_R_16F;
    case WEFT_BF16:
        return WEFT_I_CUDA_R_16BF;
    case WEFT_F8E4M3:
        return WEFT_I_CUDA_R_8F_E4M3;
    case WEFT_F8E5M2:
        return WEFT_I_CUDA_R_8F_E5M2;
    default:
        return WEFT_I_CUDA_R_32F;
    }
}

/* The largest power of two, up to 256, that divides the address. */
static int32_t alignment_of(const void *memory)
{
    uintptr_t address = (uintptr_t)memory | 256;
    return (int32_t)(address & (0 - address));
}

static struct key key_of(const weft_i_cuda_product *p)
{
    const weft_i_cuda_matrix *all[] = {&p->a, &p->b, &p->d};
    struct key key;
    memset(&key, 0, sizeof key);
    for (int i = 0; i < 3; i++) {
        key.type[i] = type_of(all[i]->dtype);
        key.align[i] = alignment_of(all[i]->data);
        key.ld[i] = all[i]->ld;
        key.step[i] = p->batches > 1 ? all[i]->step : 0;
    }
    for (int i = 0; i < 2; i++) {
        key.turned[i] = all[i]->turned;
        key.scaled[i] = !all[i]->scale ? 0 : all[i]->scales ? 2 : 1;
    }
    key.m = p->m;
    key.n = p->n;
    key.k = p->k;
    key.batches = p->batches;
    key.shared = p->shared;
    return key;
}

static size_t hash_of(const struct key *key)
{
    const unsigned char *bytes = (const unsigned char *)key;
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < sizeof *key; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3u;
    return (size_t)(hash ^ hash >> 32) % PLANS;
}

static int new_layout(int type, int64_t rows, int64_t columns, int64_t ld, int64_t batches,
                      int64_t step, void **out)
{
    int32_t count = (int32_t)batches;
    int result =
        library.cublasLtMatrixLayoutCreate(out, type, (uint64_t)rows, (uint64_t)columns, ld);
    if (!result && batches > 1)
        result = library.cublasLtMatrixLayoutSetAttribute(
            *out, WEFT_I_CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count);
    if (!result && batches > 1)
        result = library.cublasLtMatrixLayoutSetAttribute(
            *out, WEFT_I_CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, sizeof step);
    return result;
}

/* Scales are part of a descriptor, so one with scales serves one call. */
static int new_desc(const struct key *key, const float *scale_a, const float *scale_b, void **out)
{
    static const int turns[] = {WEFT_I_CUBLASLT_MATMUL_DESC_TRANSA,
                                WEFT_I_CUBLASLT_MATMUL_DESC_TRANSB};
    static const int modes[] = {WEFT_I_CUBLASLT_MATMUL_DESC_A_SCALE_MODE,
                                WEFT_I_CUBLASLT_MATMUL_DESC_B_SCALE_MODE};
    static const int pointers[] = {WEFT_I_CUBLASLT_MATMUL_DESC_A_SCALE_POINTER,
                                   WEFT_I_CUBLASLT_MATMUL_DESC_B_SCALE_POINTER};
    const float *scale[] = {scale_a, scale_b};
    bool wide = key->type[2] == WEFT_I_CUDA_R_64F;
    int result = library.cublasLtMatmulDescCreate(
        out, wide ? WEFT_I_CUBLAS_COMPUTE_64F : WEFT_I_CUBLAS_COMPUTE_32F,
        wide ? WEFT_I_CUDA_R_64F : WEFT_I_CUDA_R_32F);
    for (int i = 0; i < 2 && !result; i++) {
        int32_t turn = key->turned[i] ? WEFT_I_CUBLAS_OP_T : WEFT_I_CUBLAS_OP_N;
        int32_t mode = WEFT_I_CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
        result = library.cublasLtMatmulDescSetAttribute(*out, turns[i], &turn, sizeof turn);
        if (!result && key->scaled[i] == 2)
            result = library.cublasLtMatmulDescSetAttribute(*out, modes[i], &mode, sizeof mode);
        if (!result && key->scaled[i])
            result = library.cublasLtMatmulDescSetAttribute(*out, pointers[i], &scale[i],
                                                            sizeof scale[i]);
    }
    return result;
}

/*
 * The library's first choice is for a product that has the device to itself: it may take tiles such
 * as 144 x 128, so that the last wave of them is full, and cut them off at the edges.  Where others'
 * products fill the last wave anyway, tiles of powers of two are better, most of all if c is read.
 */
static int best_of(const struct plan *plan, const weft_i_cublas_heuristic *all, int found)
{
    for (int i = 0; i < found && plan->key.shared; i++) {
        uint32_t tile = 0;
        size_t written = 0;
        int result = library.cublasLtMatmulAlgoConfigGetAttribute(
            &all[i].algo, WEFT_I_CUBLASLT_ALGO_CONFIG_TILE_ID, &tile, sizeof tile, &written);
        if (!result && !all[i].state && tile >= WEFT_I_CUBLASLT_MATMUL_TILE_64x64 &&
            tile <= WEFT_I_CUBLASLT_MATMUL_TILE_512x64)
            return i;
    }
    return 0;
}

/* Asks for the algorithm; 0, or why there is none. */
static int choose(const struct weft_i_cuda_blas *blas, struct plan *plan)
{
    static const int aligned[] = {WEFT_I_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                                  WEFT_I_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                                  WEFT_I_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                                  WEFT_I_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    enum { CHOICES = 8 };
    weft_i_cublas_heuristic all[CHOICES];
    void *preference = NULL;
    uint64_t workspace = WORKSPACE;
    int found = 0, result = library.cublasLtMatmulPreferenceCreate(&preference);
    memset(all, 0, sizeof all);
    if (!result)
        result = library.cublasLtMatmulPreferenceSetAttribute(
            preference, WEFT_I_CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
            sizeof workspace);
    for (int i = 0; i < 4 && !result; i++) {
        uint32_t bytes = (uint32_t)plan->key.align[i < 3 ? i : 2];
        result = library.cublasLtMatmulPreferenceSetAttribute(preference, aligned[i], &bytes,
                                                              sizeof bytes);
    }
    if (!result)
        result = library.cublasLtMatmulAlgoGetHeuristic(
            blas->handle, plan->desc, plan->layout[0], plan->layout[1], plan->layout[2],
            plan->layout[2], preference, plan->key.shared ? CHOICES : 1, all, &found);
    if (preference)
        library.cublasLtMatmulPreferenceDestroy(preference);
    const weft_i_cublas_heuristic *best = &all[result ? 0 : best_of(plan, all, found)];
    plan->algo = best->algo;
    plan->workspace = best->workspaceSize;
    return result ? result : found && !best->state ? 0 : -1;
}

static void drop_plan(struct plan *plan)
{
    if (!plan)
        return;
    if (plan->desc)
        library.cublasLtMatmulDescDestroy(plan->desc);
    for (int i = 0; i < 3; i++)
        if (plan->layout[i])
            library.cublasLtMatrixLayoutDestroy(plan->layout[i]);
    WEFT_OS->free(plan);
}

/* A plan, also for what the library cannot do: that is known then.  NULL without memory. */
static struct plan *new_plan(const struct weft_i_cuda_blas *blas, const struct key *key,
                             const weft_i_cuda_product *p)
{
    struct plan *plan = WEFT_OS->alloc(sizeof *plan);
    if (!plan)
        return NULL;
    memset(plan, 0, sizeof *plan);
    plan->key = *key;
    int64_t a_rows = p->a.turned ? p->k : p->m, a_columns = p->a.turned ? p->m : p->k;
    int64_t b_rows = p->b.turned ? p->n : p->k, b_columns = p->b.turned ? p->k : p->n;
    int result = new_layout(key->type[0], a_rows, a_columns, p->a.ld, p->batches, p->a.step,
                            &plan->layout[0]);
    if (!result)
        result = new_layout(key->type[1], b_rows, b_columns, p->b.ld, p->batches, p->b.step,
                            &plan->layout[1]);
    if (!result)
        result =
            new_layout(key->type[2], p->m, p->n, p->d.ld, p->batches, p->d.step, &plan->layout[2]);
    if (!result)
        result = new_desc(key, p->a.scale, p->b.scale, &plan->desc);
    if (!result)
        result = choose(blas, plan);
    plan->none = result != 0;
    if (plan->none)
        weft_i_log(WEFT_LOG_INFO,
                   "cuBLASLt has no algorithm (%d) for %lld x %lld x %lld of types "
                   "%d, %d, %d",
                   result, (long long)p->m, (long long)p->n, (long long)p->k, key->type[0],
                   key->type[1], key->type[2]);
    return plan;
}

/* The plan of this kind; `*own` says that the caller has to drop it: the table was full. */
static struct plan *plan_for(struct weft_i_cuda_blas *blas, const weft_i_cuda_product *p, bool *own)
{
    struct key key = key_of(p);
    size_t first = hash_of(&key);
    *own = false;
    for (size_t i = 0; i < 8; i++) {
        _Atomic(struct plan *) *at = &blas->plans[(first + i) % PLANS];
        struct plan *plan =
            atomic_load_explicit(at, memory_order_acquire); /* pairs with the release below */
        if (!plan) {
            pthread_mutex_lock(&blas->lock);
            plan = atomic_load_explicit(at, memory_order_relaxed); /* under the lock */
            if (!plan && (plan = new_plan(blas, &key, p)))
                atomic_store_explicit(at, plan, memory_order_release); /* pairs with the acquire */
            pthread_mutex_unlock(&blas->lock);
        }
        if (!plan || !memcmp(&plan->key, &key, sizeof key))
            return plan;
    }
    *own = true;
    return new_plan(blas, &key, p);
}

static weft_status open_blas(weft_i_cuda_stream *stream, struct weft_i_cuda_blas **out)
{
    weft_i_cuda_device *device = stream->device;
    /* Pairs with the release below. */
    *out = atomic_load_explicit(&device->blas, memory_order_acquire);
    if (*out)
        return WEFT_OK;
    WEFT_TRY(weft_i_cuda_refuse_capture(stream, "the first matrix product of a process"));
    struct weft_i_cuda_blas *made = WEFT_OS->alloc(sizeof *made);
    if (!made)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for the plans of matrix products");
    memset(made, 0, sizeof *made);
    pthread_mutex_init(&made->lock, NULL);
    pthread_mutex_lock(&device->lock);
    *out = atomic_load_explicit(&device->blas, memory_order_relaxed); /* under the lock */
    int result = *out ? 0 : library.cublasLtCreate(&made->handle);
    if (!*out && !result) {
        *out = made;
        atomic_store_explicit(&device->blas, made, memory_order_release); /* pairs with the above */
    }
    pthread_mutex_unlock(&device->lock);
    if (*out != made) {
        pthread_mutex_destroy(&made->lock);
        WEFT_OS->free(made);
    }
    return result ? weft_i_fail(WEFT_ERR_DEVICE, "cuBLASLt does not start on cuda:%d (%d)",
                                device->ordinal, result)
                  : WEFT_OK;
}

/* Forgets what a device has; nothing of it is under way. */
static void close_device(weft_i_cuda_device *device)
{
    struct weft_i_cuda_blas *blas = atomic_load_explicit(&device->blas, memory_order_relaxed);
    if (!blas)
        return; /* relaxed is enough: nobody else uses the device any more */
    for (int i = 0; i < PLANS; i++)
        drop_plan(atomic_load_explicit(&blas->plans[i], memory_order_relaxed));
    library.cublasLtDestroy(blas->handle);
    pthread_mutex_destroy(&blas->lock);
    WEFT_OS->free(blas);
    atomic_store_explicit(&device->blas, NULL, memory_order_relaxed);
}

__attribute__((constructor)) static void register_end(void)
{
    weft_i_cuda_at_close(close_device);
}

static weft_status enqueue(weft_device device, weft_i_cuda_stream *stream,
                           const struct weft_i_cuda_blas *blas, const struct plan *plan,
                           const weft_i_cuda_product *p)
{
    double wide_alpha = p->shared ? p->factor : 1, wide_beta = p->c ? p->factor : 0;
    float alpha = (float)wide_alpha, beta = (float)wide_beta;
    bool wide = p->d.dtype == WEFT_F64, scaled = p->a.scale || p->b.scale;
    void *desc = plan->desc;
    weft_tensor *room = plan->workspace ? weft_i_cuda_room(device, plan->workspace) : NULL;
    if (plan->workspace && !room)
        return weft_last_status();
    int result = scaled ? new_desc(&plan->key, p->a.scale, p->b.scale, &desc) : 0;
    if (!result)
        result = library.cublasLtMatmul(
            blas->handle, desc, wide ? (void *)&wide_alpha : (void *)&alpha, p->a.data,
            plan->layout[0], p->b.data, plan->layout[1], wide ? (void *)&wide_beta : (void *)&beta,
            p->c ? p->c : p->d.data, plan->layout[2], p->d.data, plan->layout[2], &plan->algo,
            weft_i_cuda_data(room), plan->workspace, stream->raw);
    if (scaled && desc != plan->desc && desc)
        library.cublasLtMatmulDescDestroy(desc);
    weft_i_object_drop(room);
    return result ? weft_i_fail(WEFT_ERR_DEVICE,
                                "cuBLASLt refuses a product of %lld x %lld x %lld "
                                "(%d)",
                                (long long)p->m, (long long)p->n, (long long)p->k, result)
                  : WEFT_OK;
}

weft_status weft_i_cuda_blas_run(weft_device device, weft_i_cuda_stream *stream,
                                 const weft_i_cuda_product *product)
{
    struct weft_i_cuda_blas *blas;
    bool own = false;
    if (!load() || product->batches > INT32_MAX)
        return WEFT_ERR_UNSUPPORTED;
    WEFT_TRY(weft_i_cuda_use(stream->device));
    WEFT_TRY(open_blas(stream, &blas));
    struct plan *plan = plan_for(blas, product, &own);
    if (!plan)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for the plan of a matrix product");
    weft_status status =
        plan->none ? WEFT_ERR_UNSUPPORTED : enqueue(device, stream, blas, plan, product);
    if (own)
        drop_plan(plan);
    return status;
}
