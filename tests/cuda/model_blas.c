/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for libcublasLt.so: the functions of backends/cuda/tensor/blas.def over the software driver's
 * streams.  It checks its caller (handles that live, sizes of attributes, what products of floats
 * of 8 bits demand) and multiplies with plain loops, sums in f64.
 */
#include "model_parts.h"

#include "backends/cuda/tensor/blas.h"
#include "kernels/number/convert.h"

#include <stdlib.h>
#include <string.h>

enum { INVALID = 7, NOT_SUPPORTED = 15 };
enum { HANDLE = 0x11, DESC, LAYOUT, PREFERENCE };
enum { ALGORITHM = 0xa190, TILE_144X128 = 184, TILE_128X128 = 20, TILE_256X128 = 24 };

typedef struct object {
    int kind;
    int compute, scale_type, turned[2], mode[2]; /* of descriptors */
    const float *scale[2];
    int type; /* of layouts */
    int64_t rows, columns, ld, step;
    int32_t batches;
} object;

static int make(void **out, object what)
{
    object *made = malloc(sizeof *made);
    *made = what;
    *out = made;
    model_born();
    return 0;
}

static int drop(void *which, int kind)
{
    object *o = which;
    if (!o || o->kind != kind)
        return INVALID;
    o->kind = 0;
    free(o);
    model_gone();
    return 0;
}

static int blas_cublasLtCreate(void **handle)
{
    return model.no_blas_handle ? 1 : make(handle, (object){.kind = HANDLE});
}

static int blas_cublasLtDestroy(void *handle)
{
    return drop(handle, HANDLE);
}

static int blas_cublasLtMatmulDescCreate(void **desc, int compute, int scale_type)
{
    return make(desc, (object){.kind = DESC, .compute = compute, .scale_type = scale_type});
}

static int blas_cublasLtMatmulDescDestroy(void *desc)
{
    return drop(desc, DESC);
}

static int blas_cublasLtMatmulDescSetAttribute(void *desc, int attribute, const void *value,
                                               size_t bytes)
{
    object *o = desc;
    int pointer = attribute == WEFT_I_CUBLASLT_MATMUL_DESC_A_SCALE_POINTER ||
                  attribute == WEFT_I_CUBLASLT_MATMUL_DESC_B_SCALE_POINTER;
    if (!o || o->kind != DESC || bytes != (pointer ? sizeof(void *) : sizeof(int32_t)))
        return INVALID;
    switch (attribute) {
    case WEFT_I_CUBLASLT_MATMUL_DESC_TRANSA:
    case WEFT_I_CUBLASLT_MATMUL_DESC_TRANSB:
        memcpy(&o->turned[attribute - WEFT_I_CUBLASLT_MATMUL_DESC_TRANSA], value, bytes);
        return 0;
    case WEFT_I_CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
    case WEFT_I_CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
        memcpy(&o->scale[attribute - WEFT_I_CUBLASLT_MATMUL_DESC_A_SCALE_POINTER], value, bytes);
        return 0;
    case WEFT_I_CUBLASLT_MATMUL_DESC_A_SCALE_MODE:
    case WEFT_I_CUBLASLT_MATMUL_DESC_B_SCALE_MODE:
        memcpy(&o->mode[attribute - WEFT_I_CUBLASLT_MATMUL_DESC_A_SCALE_MODE], value, bytes);
        return 0;
    default:
        return INVALID;
    }
}

static int blas_cublasLtMatrixLayoutCreate(void **layout, int type, uint64_t rows, uint64_t columns,
                                           int64_t ld)
{
    return ld < (int64_t)rows ? INVALID
                              : make(layout, (object){.kind = LAYOUT,
                                                      .type = type,
                                                      .rows = (int64_t)rows,
                                                      .columns = (int64_t)columns,
                                                      .ld = ld,
                                                      .batches = 1});
}

static int blas_cublasLtMatrixLayoutDestroy(void *layout)
{
    return drop(layout, LAYOUT);
}

static int blas_cublasLtMatrixLayoutSetAttribute(void *layout, int attribute, const void *value,
                                                 size_t bytes)
{
    object *o = layout;
    if (!o || o->kind != LAYOUT)
        return INVALID;
    if (attribute == WEFT_I_CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT && bytes == sizeof o->batches)
        return memcpy(&o->batches, value, bytes), 0;
    if (attribute == WEFT_I_CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET && bytes == sizeof o->step)
        return memcpy(&o->step, value, bytes), 0;
    return INVALID;
}

static int blas_cublasLtMatmulPreferenceCreate(void **preference)
{
    return make(preference, (object){.kind = PREFERENCE});
}

static int blas_cublasLtMatmulPreferenceDestroy(void *preference)
{
    return drop(preference, PREFERENCE);
}

static int blas_cublasLtMatmulPreferenceSetAttribute(void *preference, int attribute,
                                                     const void *value, size_t bytes)
{
    size_t wanted = attribute == WEFT_I_CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES ? 8 : 4;
    return !preference || !value || bytes != wanted ? INVALID : 0;
}

static int is_f8(int type)
{
    return type == WEFT_I_CUDA_R_8F_E4M3 || type == WEFT_I_CUDA_R_8F_E5M2;
}

/* The rules of the library's documentation, as far as weft meets them. */
static int refuse(const object *desc, const object *a, const object *b, const object *d)
{
    int64_t k = desc->turned[0] ? a->rows : a->columns;
    int wide = d->type == WEFT_I_CUDA_R_64F;
    if (desc->kind != DESC || a->kind != LAYOUT || b->kind != LAYOUT || d->kind != LAYOUT ||
        (desc->turned[1] ? b->columns : b->rows) != k ||
        (desc->turned[0] ? a->columns : a->rows) != d->rows ||
        (desc->turned[1] ? b->rows : b->columns) != d->columns ||
        desc->compute != (wide ? WEFT_I_CUBLAS_COMPUTE_64F : WEFT_I_CUBLAS_COMPUTE_32F))
        return INVALID;
    if (!is_f8(a->type))
        return a->type != b->type || desc->scale[0] || desc->scale[1] ? NOT_SUPPORTED : 0;
    int both_e5m2 = a->type == WEFT_I_CUDA_R_8F_E5M2 && b->type == a->type;
    return both_e5m2 || !desc->turned[0] || desc->turned[1] || k % 16 || d->rows % 16 ||
                   d->columns % 16 || desc->mode[0] != desc->mode[1]
               ? NOT_SUPPORTED
               : 0;
}

static int blas_cublasLtMatmulAlgoGetHeuristic(void *handle, void *desc, void *a, void *b, void *c,
                                               void *d, void *preference, int wanted,
                                               weft_i_cublas_heuristic *out, int *found)
{
    int result = !handle || !preference || wanted < 1 || c != d ? INVALID : refuse(desc, a, b, d);
    *found = result ? 0 : wanted < 3 ? wanted : 3;
    for (int i = 0; i == 0 || i < *found; i++) {
        out[i].state = result;
        out[i].workspaceSize = 4096;
        out[i].algo.data[0] = ALGORITHM;
        out[i].algo.data[1] = i == 0 ? TILE_144X128 : i == 1 ? TILE_128X128 : TILE_256X128;
    }
    return result == NOT_SUPPORTED ? NOT_SUPPORTED : result;
}

static int blas_cublasLtMatmulAlgoConfigGetAttribute(const weft_i_cublas_algo *algo, int attribute,
                                                     void *out, size_t bytes, size_t *written)
{
    uint32_t tile = (uint32_t)algo->data[1];
    if (algo->data[0] != ALGORITHM || attribute != WEFT_I_CUBLASLT_ALGO_CONFIG_TILE_ID ||
        bytes != sizeof tile)
        return INVALID;
    memcpy(out, &tile, sizeof tile);
    *written = sizeof tile;
    return 0;
}

typedef struct product {
    object desc, a, b, d;
    const char *from_a, *from_b, *from_c; /* c NULL: not added */
    double factor;
    char *to;
} product;

static weft_dtype dtype_of(int type)
{
    switch (type) {
    case WEFT_I_CUDA_R_64F:
        return WEFT_F64;
    case WEFT_I_CUDA_R_16F:
        return WEFT_F16;
    case WEFT_I_CUDA_R_16BF:
        return WEFT_BF16;
    case WEFT_I_CUDA_R_8F_E4M3:
        return WEFT_F8E4M3;
    case WEFT_I_CUDA_R_8F_E5M2:
        return WEFT_F8E5M2;
    default:
        return WEFT_F32;
    }
}

/* One matrix of a batch as numbers without gaps, column by column. */
static double *unpack(const object *x, const char *data, int64_t batch)
{
    weft_dtype dtype = dtype_of(x->type);
    size_t size = weft_dtype_size(dtype);
    double *out = malloc((size_t)(x->rows * x->columns) * sizeof *out + 1);
    for (int64_t column = 0; column < x->columns; column++)
        weft_i_convert(WEFT_F64, out + column * x->rows, dtype,
                       data + (size_t)(batch * x->step + column * x->ld) * size, (size_t)x->rows);
    return out;
}

static double scale(const product *p, int which, int64_t i)
{
    const float *at = p->desc.scale[which];
    return !at ? 1 : at[p->desc.mode[which] ? i : 0];
}

/* Of numbers that nobody else knows: sanitizers need not watch each of them. */
__attribute__((no_sanitize("thread"), no_sanitize("address"),
               no_sanitize("undefined"))) static double
dot(const double *a, int64_t step_a, const double *b, int64_t step_b, int64_t count)
{
    double sum = 0;
    for (int64_t k = 0; k < count; k++)
        sum += a[k * step_a] * b[k * step_b];
    return sum;
}

static void multiply_one(const product *p, int64_t batch, const double *a, const double *b)
{
    weft_dtype dtype = dtype_of(p->d.type);
    size_t size = weft_dtype_size(dtype);
    int turn_a = p->desc.turned[0], turn_b = p->desc.turned[1];
    int64_t inner = turn_a ? p->a.rows : p->a.columns;
    for (int64_t j = 0; j < p->d.columns; j++)
        for (int64_t i = 0; i < p->d.rows; i++) {
            double sum = dot(a + (turn_a ? i * p->a.rows : i), turn_a ? 1 : p->a.rows,
                             b + (turn_b ? j : j * p->b.rows), turn_b ? p->b.rows : 1, inner) *
                         scale(p, 0, i) * scale(p, 1, j);
            size_t at = (size_t)(batch * p->d.step + j * p->d.ld + i) * size;
            double added = 0;
            if (p->from_c)
                weft_i_convert(WEFT_F64, &added, dtype, p->from_c + at, 1);
            sum = p->factor * (sum + added);
            weft_i_convert(dtype, p->to + at, WEFT_F64, &sum, 1);
        }
}

static void multiply(void *parameter)
{
    const product *p = parameter;
    for (int64_t batch = 0; batch < p->d.batches; batch++) {
        double *a = unpack(&p->a, p->from_a, batch), *b = unpack(&p->b, p->from_b, batch);
        multiply_one(p, batch, a, b);
        free(a);
        free(b);
    }
}

static int blas_cublasLtMatmul(void *handle, void *desc, const void *alpha, const void *a,
                               void *a_layout, const void *b, void *b_layout, const void *beta,
                               const void *c, void *c_layout, void *d, void *d_layout,
                               const weft_i_cublas_algo *algo, void *workspace,
                               size_t workspace_bytes, weft_i_cu_stream stream)
{
    int result = refuse(desc, a_layout, b_layout, d_layout);
    int wide = ((object *)desc)->scale_type == WEFT_I_CUDA_R_64F;
    double factor = wide ? *(const double *)alpha : *(const float *)alpha;
    double share = wide ? *(const double *)beta : *(const float *)beta;
    /* The library's first choice, or the first of powers of two; always that where c is added. */
    int tile = (int)algo->data[1];
    int right = tile == TILE_128X128 || (share == 0 && tile == TILE_144X128);
    int known = share == 0 ? factor == 1 && c == d : share == factor;
    if (result || !handle || !known || c_layout != d_layout || !workspace ||
        workspace_bytes < 4096 || algo->data[0] != ALGORITHM || !right)
        return result ? result : INVALID;
    product *p = malloc(sizeof *p);
    *p = (product){*(object *)desc,
                   *(object *)a_layout,
                   *(object *)b_layout,
                   *(object *)d_layout,
                   a,
                   b,
                   share != 0 ? c : NULL,
                   factor,
                   d};
    return model_call(stream, multiply, p, sizeof *p);
}

void *model_blas_symbol(const char *name)
{
    static const struct {
        const char *name;
        void *function;
    } all[] = {
#define FN(name_, parameters_) {#name_, (void *)(uintptr_t)blas_##name_},
#include "backends/cuda/tensor/blas.def"
#undef FN
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i].name, name))
            return all[i].function;
    return NULL;
}
