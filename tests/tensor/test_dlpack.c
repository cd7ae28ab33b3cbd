/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: tensor/object/dlpack.c */
/*
 * DLPack against the ABI itself: offsets of the structs, descriptions made by hand, and NumPy as
 * the other side (a Python program that loads the shared library).
 */
#include "harness.h"

#include "tensor/object/tensor.h"
#include "weft/dlpack.h"
#include "weft/op.h"
#include "weft/view.h"

#include <stddef.h>
#include <sys/wait.h>

/* The documented layout on 64-bit machines. */
_Static_assert(offsetof(weft_dlpack_tensor, device_type) == 8 &&
                   offsetof(weft_dlpack_tensor, device_id) == 12,
               "device");
_Static_assert(offsetof(weft_dlpack_tensor, ndim) == 16 && offsetof(weft_dlpack_tensor, code) == 20,
               "ndim, dtype");
_Static_assert(offsetof(weft_dlpack_tensor, bits) == 21 &&
                   offsetof(weft_dlpack_tensor, lanes) == 22,
               "dtype");
_Static_assert(offsetof(weft_dlpack_tensor, shape) == 24 &&
                   offsetof(weft_dlpack_tensor, strides) == 32,
               "shape");
_Static_assert(offsetof(weft_dlpack_tensor, byte_offset) == 40 && sizeof(weft_dlpack_tensor) == 48,
               "byte_offset");
_Static_assert(offsetof(weft_dlpack, context) == 48 && offsetof(weft_dlpack, deleter) == 56,
               "managed");
_Static_assert(offsetof(weft_dlpack_versioned, context) == 8 &&
                   offsetof(weft_dlpack_versioned, deleter) == 16,
               "versioned");
_Static_assert(offsetof(weft_dlpack_versioned, flags) == 24 &&
                   offsetof(weft_dlpack_versioned, tensor) == 32,
               "versioned");

static int deleted;

static void delete_plain(weft_dlpack *self)
{
    deleted += self->context == &deleted;
}

static void delete_versioned(weft_dlpack_versioned *self)
{
    deleted += self->context == &deleted;
}

static weft_dlpack describe(void *data, int ndim, int64_t *shape, int64_t *strides)
{
    return (weft_dlpack){
        {data, WEFT_DLPACK_CPU, 0, ndim, 2, 32, 1, shape, strides, 0}, &deleted, delete_plain};
}

TEST(test_dlpack_export)
{
    CHECK_OK(weft_scope_open());
    weft_tensor *x = weft_slice(
        weft_transpose(weft_view(weft_arange(WEFT_F32, WEFT_CPU, 0, 12, 1), WEFT_SHAPE(3, 4)), 0,
                       1),
        0, 1, 4, 2);
    weft_dlpack *d = weft_dlpack_export(x);
    CHECK(d);
    CHECK(d->tensor.data == weft_tensor_data(x) && d->tensor.byte_offset == 0);
    CHECK(d->tensor.device_type == 1 && d->tensor.ndim == 2 && d->tensor.code == 2 &&
          d->tensor.bits == 32 && d->tensor.lanes == 1);
    CHECK(d->tensor.shape[0] == 2 && d->tensor.shape[1] == 3 && d->tensor.strides[0] == 2 &&
          d->tensor.strides[1] == 4);
    CHECK_OK(weft_scope_close()); /* the tensors go, the memory stays */
    CHECK(((float *)d->tensor.data)[0] == 1 && ((float *)d->tensor.data)[2 + 4] == 7);
    d->deleter(d);
}

TEST(test_dlpack_round_trip_every_dtype)
{
    static const int codes[WEFT_DTYPE_COUNT][2] = {
        [WEFT_F64] = {2, 64},  [WEFT_F32] = {2, 32},    [WEFT_F16] = {2, 16},
        [WEFT_BF16] = {4, 16}, [WEFT_F8E4M3] = {10, 8}, [WEFT_F8E5M2] = {12, 8},
        [WEFT_I8] = {0, 8},    [WEFT_I16] = {0, 16},    [WEFT_I32] = {0, 32},
        [WEFT_I64] = {0, 64},  [WEFT_U8] = {1, 8},      [WEFT_U16] = {1, 16},
        [WEFT_U32] = {1, 32},  [WEFT_U64] = {1, 64},    [WEFT_BOOL] = {6, 8}};
    for (int dtype = 0; dtype < WEFT_DTYPE_COUNT; dtype++) {
        weft_tensor *x = weft_ones((weft_dtype)dtype, WEFT_CPU, WEFT_SHAPE(2, 3));
        weft_dlpack *d = weft_dlpack_export(x);
        weft_dlpack_versioned *v = weft_dlpack_export_versioned(x);
        CHECK(d->tensor.code == codes[dtype][0] && d->tensor.bits == codes[dtype][1]);
        CHECK(v->major == 1 && v->flags == 0 && v->tensor.code == codes[dtype][0]);
        weft_tensor *y = weft_dlpack_import(d), *z = weft_dlpack_import_versioned(v);
        CHECK(weft_equal(x, y) && weft_equal(x, z) && weft_tensor_data(y) == weft_tensor_data(x));
        CHECK_OK(weft_fill(y, 0));
        CHECK(weft_item(x, 5) == 0 && weft_item(z, 0) == 0);
    }
}

/* What others have the address of stays where it is until they have given it back. */
TEST(test_dlpack_export_pins_the_memory)
{
    weft_scope_open();
    for (int small = 0; small < 2; small++) {
        weft_tensor *x = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(small ? 4 : 4096), 3);
        weft_storage *storage = weft_tensor_storage(x);
        size_t bytes = weft_storage_bytes(storage);
        weft_dlpack *first = weft_dlpack_export(x);
        weft_dlpack_versioned *second = weft_dlpack_export_versioned(x);
        CHECK_STATUS(weft_storage_resize(storage, 0), WEFT_ERR_STATE);
        CHECK_CONTAINS(weft_last_error(),
                       "exported by DLPack, and 2 exports of it are still in use");
        CHECK_STATUS(weft_storage_resize(storage, 2 * bytes), WEFT_ERR_STATE);
        CHECK_OK(weft_storage_resize(storage, bytes)); /* nothing moves */
        CHECK(first->tensor.data == weft_tensor_data(x) && ((float *)first->tensor.data)[3] == 3);
        first->deleter(first);
        CHECK_STATUS(weft_storage_resize(storage, 0), WEFT_ERR_STATE);
        CHECK_CONTAINS(weft_last_error(), "1 export of it is still in use");
        weft_tensor *alias = weft_dlpack_import_versioned(second);
        CHECK_STATUS(weft_storage_resize(storage, 0), WEFT_ERR_STATE);
        weft_release(alias); /* calls the deleter */
        CHECK_OK(weft_storage_resize(storage, 0));
        CHECK_INT(weft_storage_bytes(storage), 0);
    }
    weft_clear_error();
    weft_scope_close();
}

TEST(test_dlpack_import_calls_the_deleter_once)
{
    float memory[6] = {0, 1, 2, 3, 4, 5};
    int64_t shape[] = {2, 3};
    weft_dlpack d = describe(memory, 2, shape, NULL);
    deleted = 0;
    CHECK_OK(weft_scope_open());
    weft_tensor *x = weft_dlpack_import(&d), *kept = weft_keep(weft_select(x, 0, 1));
    CHECK(weft_tensor_is_contiguous(x) && weft_item(x, 4) == 4);
    CHECK_STATUS(weft_resize_storage(x, 0), WEFT_ERR_STATE);
    CHECK_OK(weft_scope_close());
    CHECK_INT(deleted, 0);
    weft_release(kept);
    CHECK_INT(deleted, 1);
    d.deleter = NULL; /* allowed */
    weft_release(weft_dlpack_import(&d));
    weft_clear_error();
}

TEST(test_dlpack_import_layouts)
{
    float memory[24];
    for (int i = 0; i < 24; i++)
        memory[i] = (float)i;
    int64_t shape[] = {2, 1, 3},
            strides[] = {12, -99, 2}; /* the stride of a single element means nothing */
    weft_dlpack d = describe(memory, 3, shape, strides);
    d.tensor.byte_offset = 8;
    weft_tensor *x = weft_dlpack_import(&d);
    CHECK(x && weft_item(x, 0) == 2 && weft_item(x, 2) == 6 && weft_item(x, 5) == 18);
    weft_dlpack scalar = describe(memory + 5, 0, NULL, NULL);
    CHECK(weft_item(weft_dlpack_import(&scalar), 0) == 5);
    int64_t none[] = {3, 0, 2};
    weft_dlpack empty = describe(NULL, 3, none, NULL);
    weft_tensor *e = weft_dlpack_import(&empty);
    CHECK(e && weft_tensor_numel(e) == 0);
    weft_dlpack *out = weft_dlpack_export(e);
    CHECK(out && out->tensor.shape[2] == 2);
    out->deleter(out);
    int64_t zero_stride[] = {0, 0, 1};
    weft_dlpack expanded = describe(memory, 3, shape, zero_stride);
    weft_tensor *w = weft_dlpack_import(&expanded);
    CHECK(w && weft_item(w, 3) == 0 && weft_item(w, 4) == 1);
    CHECK_STATUS(weft_fill(w, 1), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
}

TEST(test_dlpack_import_refuses)
{
    float memory[8];
    int64_t shape[] = {2, 3}, negative[] = {3, -1}, huge[] = {INT64_MAX, 4}, below[] = {2, -3};
    deleted = 0;
    weft_dlpack d = describe(memory, 2, shape, negative);
    CHECK(!weft_dlpack_import(&d));
    CHECK_CONTAINS(weft_last_error(), "dlpack import: ");
    d = describe(memory, 2, huge, NULL);
    CHECK(!weft_dlpack_import(&d));
    d = describe(memory, 2, below, NULL);
    CHECK(!weft_dlpack_import(&d));
    d = describe((char *)memory + 1, 2, shape, NULL);
    CHECK(!weft_dlpack_import(&d));
    CHECK_CONTAINS(weft_last_error(), "aligned");
    d = describe(NULL, 2, shape, NULL);
    CHECK(!weft_dlpack_import(&d));
    d = describe(memory, 9, shape, NULL);
    CHECK(!weft_dlpack_import(&d));
    d = describe(memory, 2, shape, NULL);
    d.tensor.device_type = WEFT_DLPACK_CUDA;
    d.tensor.device_id = 999; /* there may be a GPU */
    CHECK(!weft_dlpack_import(&d));
    CHECK(weft_last_status() == WEFT_ERR_UNSUPPORTED || weft_last_status() == WEFT_ERR_NOT_FOUND);
    for (int id = -1; id <= 0x10000; id += 0x10001) {
        char text[64];
        snprintf(text, sizeof text, "dlpack import: CUDA device %d", id);
        d.tensor.device_id = id;
        CHECK(!weft_dlpack_import(&d) && !strcmp(weft_last_error(), text));
    }
    d.tensor.device_id = 0;
    d.tensor.device_type = 10; /* of another maker */
    CHECK(!weft_dlpack_import(&d) && weft_last_status() == WEFT_ERR_UNSUPPORTED);
    CHECK_CONTAINS(weft_last_error(), "from device type 10; weft knows the CPU (1) and CUDA (2)");
    d.tensor.device_type = WEFT_DLPACK_CPU;
    d.tensor.lanes = 4;
    CHECK(!weft_dlpack_import(&d));
    CHECK_INT(weft_last_status(), WEFT_ERR_TYPE);
    d.tensor.lanes = 1;
    d.tensor.code = 5; /* complex */
    CHECK(!weft_dlpack_import(&d) && !weft_dlpack_import(NULL));
    CHECK(!weft_dlpack_export(NULL) &&
          !weft_dlpack_export(weft_zeros(WEFT_F32, WEFT_META, WEFT_SHAPE(2))));
    weft_tensor *freed = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2));
    CHECK_OK(weft_resize_storage(freed, 0));
    CHECK(!weft_dlpack_export(freed));
    CHECK_INT(deleted, 0); /* what is refused stays the caller's */
    weft_clear_error();
}

TEST(test_dlpack_read_only_and_versions)
{
    float memory[4] = {1, 2, 3, 4};
    int64_t shape[] = {4};
    weft_dlpack_versioned d = {1,
                               7,
                               &deleted,
                               delete_versioned,
                               WEFT_DLPACK_READ_ONLY | WEFT_DLPACK_COPIED,
                               {memory, WEFT_DLPACK_CPU, 0, 1, 2, 32, 1, shape, NULL, 0}};
    weft_tensor *x = weft_dlpack_import_versioned(&d);
    CHECK(x && weft_item(weft_sum(x, NULL, 0, false), 0) == 10);
    CHECK_STATUS(weft_fill(x, 0), WEFT_ERR_STATE);
    CHECK_CONTAINS(weft_last_error(), "read-only");
    CHECK_STATUS(weft_add_into(x, x, x), WEFT_ERR_STATE);
    CHECK_STATUS(weft_copy(weft_slice(x, 0, 0, 2, 1), weft_slice(x, 0, 2, 4, 1)), WEFT_ERR_STATE);
    CHECK(memory[0] == 1 && weft_tensor_version(x) == 0);
    CHECK(weft_fill(weft_clone(x), 0) >= 0);
    CHECK(!weft_dlpack_export(x)); /* the first form cannot say it */
    weft_dlpack_versioned *out = weft_dlpack_export_versioned(x);
    CHECK(out && out->flags == WEFT_DLPACK_READ_ONLY);
    out->deleter(out);
    d.major = 2;
    CHECK(!weft_dlpack_import_versioned(&d));
    CHECK_INT(weft_last_status(), WEFT_ERR_UNSUPPORTED);
    weft_clear_error();
}

#if defined(WEFT_SHARED) && defined(WEFT_DLPACK_SCRIPT)
/* The exit status of the Python side, and the last line it printed. */
static int run_python(const char *python, char last[512])
{
    char command[2048], line[512];
    snprintf(command, sizeof command, "%s '%s' '%s' 2>&1", python, WEFT_DLPACK_SCRIPT, WEFT_SHARED);
    FILE *pipe = popen(command, "r");
    CHECK(pipe);
    while (fgets(line, sizeof line, pipe))
        snprintf(last, 512, "%.*s", (int)strcspn(line, "\n"), line);
    int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
#endif

/* tests/dlpack/dlpack_numpy.py exits with 77 and a reason if NumPy is missing; Debian's Python may
 * have it then. */
TEST(test_dlpack_numpy)
{
#if defined(WEFT_SHARED) && defined(WEFT_DLPACK_SCRIPT)
    char last[512] = "";
    if (access(WEFT_SHARED, R_OK))
        SKIP("the shared library is not built");
    int status = run_python("python3", last);
    if (status == 77 || status == 127)
        status = run_python("/usr/bin/python3", last);
    if (status == 77 || status == 127)
        SKIP("%s", last);
    if (status)
        FAIL("dlpack_numpy.py exits with %d: %s", status, last);
#else
    SKIP("this build has no shared library that Python can load");
#endif
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
