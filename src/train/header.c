/* SPDX-License-Identifier: Apache-2.0 */
/* How headers of safetensors files are read; see header.h. */
#include "train/header.h"

#include "base/os/os.h"
#include "base/report/status.h"
#include "tensor/object/tensor.h"
#include "train/json_reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const dtype_names[] = {
    [WEFT_F64] = "F64",        [WEFT_F32] = "F32",        [WEFT_F16] = "F16",  [WEFT_BF16] = "BF16",
    [WEFT_F8E4M3] = "F8_E4M3", [WEFT_F8E5M2] = "F8_E5M2", [WEFT_I8] = "I8",    [WEFT_I16] = "I16",
    [WEFT_I32] = "I32",        [WEFT_I64] = "I64",        [WEFT_U8] = "U8",    [WEFT_U16] = "U16",
    [WEFT_U32] = "U32",        [WEFT_U64] = "U64",        [WEFT_BOOL] = "BOOL"};
_Static_assert(sizeof dtype_names / sizeof *dtype_names == WEFT_DTYPE_COUNT, "a name for each");

const char *weft_i_header_dtype_name(weft_dtype dtype)
{
    return dtype_names[dtype];
}

/* ---- keeping ---- */

/* Room for another element of a list. */
static void *grown(void *list, int count, int *room, size_t size)
{
    if (count < *room)
        return list;
    int more = *room ? 2 * *room : 64;
    void *out = WEFT_OS->resize(list, (size_t)more * size);
    if (!out)
        return weft_i_null(WEFT_ERR_NO_MEMORY, "no memory for a list of %d tensors", more);
    *room = more;
    return out;
}

/* The next string, a key with its colon or a value, in the pool.  What is read is never longer than
 * it was, so that a pool as long as the text has room for all. */
static const char *keep_text(weft_i_header *h, weft_i_json_reader *r, bool key)
{
    char *out = h->pool + h->used;
    size_t length = 0;
    if (key)
        weft_i_read_key(r, out, h->room - h->used, &length);
    else
        weft_i_read_text(r, out, h->room - h->used, &length);
    if (r->error)
        return NULL;
    h->used += length + 1;
    return out;
}

/* ---- reading ---- */

static weft_status read_notes(weft_i_header *h, weft_i_json_reader *r)
{
    weft_i_read_open(r, '{');
    while (weft_i_read_next(r)) {
        weft_safetensors_note *list = grown(h->note, h->notes, &h->notes_room, sizeof *list);
        if (!list)
            return weft_last_status();
        h->note = list;
        list[h->notes].key = keep_text(h, r, true);
        list[h->notes].value = keep_text(h, r, false);
        if (!r->error)
            h->notes++;
    }
    return WEFT_OK;
}

static weft_status read_dtype(weft_i_json_reader *r, weft_dtype *out, const char *name)
{
    char text[16];
    weft_i_read_text(r, text, sizeof text, NULL);
    for (int i = 0; !r->error && i < WEFT_DTYPE_COUNT; i++)
        if (!strcmp(text, dtype_names[i])) {
            *out = (weft_dtype)i;
            return WEFT_OK;
        }
    return r->error ? WEFT_OK
                    : weft_i_fail(WEFT_ERR_UNSUPPORTED,
                                  "\"%.100s\" has the dtype \"%s\", which weft does not have", name,
                                  text);
}

static weft_status read_shape(weft_i_json_reader *r, weft_shape *out, const char *name)
{
    weft_i_read_open(r, '[');
    for (out->ndim = 0; weft_i_read_next(r); out->ndim++) {
        uint64_t size;
        weft_i_read_whole(r, &size);
        if (out->ndim == WEFT_MAX_DIMS)
            return weft_i_fail(WEFT_ERR_UNSUPPORTED, "\"%.100s\" has more than %d dimensions", name,
                               WEFT_MAX_DIMS);
        out->dim[out->ndim] = (int64_t)size;
    }
    return WEFT_OK;
}

static void read_offsets(weft_i_json_reader *r, weft_i_header_tensor *t)
{
    uint64_t *place[] = {&t->begin, &t->end};
    int count = 0;
    weft_i_read_open(r, '[');
    for (; weft_i_read_next(r); count++)
        if (count < 2)
            weft_i_read_whole(r, place[count]);
        else
            weft_i_read_refuse(r, "data_offsets has more than two numbers");
    if (count != 2)
        weft_i_read_refuse(r, "data_offsets has not two numbers");
}

enum { HAS_DTYPE = 1, HAS_SHAPE = 2, HAS_OFFSETS = 4, HAS_ALL = 7 };

/* One member of a tensor's object. */
static weft_status read_member(weft_i_json_reader *r, weft_i_header_tensor *t, unsigned *has)
{
    char key[32];
    weft_i_read_key(r, key, sizeof key, NULL);
    unsigned what = !strcmp(key, "dtype")          ? HAS_DTYPE
                    : !strcmp(key, "shape")        ? HAS_SHAPE
                    : !strcmp(key, "data_offsets") ? HAS_OFFSETS
                                                   : 0;
    if (*has & what)
        weft_i_read_refuse(r, "a tensor has a member twice");
    if (r->error)
        return WEFT_OK;
    *has |= what;
    if (what == HAS_DTYPE)
        return read_dtype(r, &t->dtype, t->name);
    if (what == HAS_SHAPE)
        return read_shape(r, &t->shape, t->name);
    if (what == HAS_OFFSETS)
        read_offsets(r, t);
    else
        weft_i_read_skip(r);
    return WEFT_OK;
}

/* Shape and bytes of a tensor agree. */
static weft_status check_tensor(const weft_i_header_tensor *t)
{
    uint64_t bytes = weft_dtype_size(t->dtype);
    bool empty = false;
    for (int i = 0; i < t->shape.ndim; i++)
        empty |= !t->shape.dim[i];
    for (int i = 0; i < t->shape.ndim && !empty; i++)
        if (__builtin_mul_overflow(bytes, (uint64_t)t->shape.dim[i], &bytes))
            return weft_i_fail(WEFT_ERR_INVALID_ARG,
                               "\"%.100s\" has more elements than can be counted", t->name);
    if (empty)
        bytes = 0;
    if (t->begin > t->end || t->end - t->begin != bytes)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "\"%.100s\" has %llu bytes by its shape, and lies from %llu to %llu",
                           t->name, (unsigned long long)bytes, (unsigned long long)t->begin,
                           (unsigned long long)t->end);
    return weft_i_shape_check("safetensors", t->dtype, t->shape, NULL);
}

static weft_status read_tensor(weft_i_header *h, weft_i_json_reader *r, const char *name)
{
    weft_i_header_tensor *list = grown(h->tensor, h->count, &h->tensors_room, sizeof *list);
    unsigned has = 0;
    if (!list)
        return weft_last_status();
    h->tensor = list;
    weft_i_header_tensor *t = &list[h->count];
    *t = (weft_i_header_tensor){.name = name};
    weft_i_read_open(r, '{');
    while (weft_i_read_next(r))
        WEFT_TRY(read_member(r, t, &has));
    if (r->error)
        return WEFT_OK;
    if (has != HAS_ALL)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "\"%.100s\" has no %s", name,
                           !(has & HAS_DTYPE)   ? "dtype"
                           : !(has & HAS_SHAPE) ? "shape"
                                                : "data_offsets");
    WEFT_TRY(check_tensor(t));
    h->count++;
    return WEFT_OK;
}

static weft_status read_all(weft_i_header *h, weft_i_json_reader *r)
{
    weft_i_read_open(r, '{');
    while (weft_i_read_next(r)) {
        const char *name = keep_text(h, r, true);
        if (!name)
            break;
        WEFT_TRY(strcmp(name, "__metadata__") ? read_tensor(h, r, name) : read_notes(h, r));
    }
    if (!weft_i_read_end(r))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "its header is no JSON of tensors: %s (byte %zu of it)", r->error,
                           r->at);
    return WEFT_OK;
}

/* ---- order ---- */

static int by_place(const void *a, const void *b)
{
    const weft_i_header_tensor *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->end != y->end ? x->end < y->end ? -1 : 1 : strcmp(x->name, y->name);
}

/* No tensor lies in another, and no byte in none. */
static weft_status check_places(const weft_i_header *h, uint64_t data_bytes)
{
    uint64_t at = 0;
    for (int i = 0; i < h->count; i++) {
        const weft_i_header_tensor *t = &h->tensor[i];
        if (t->begin != at)
            return weft_i_fail(WEFT_ERR_INVALID_ARG, "\"%.100s\" begins at byte %llu, %s byte %llu",
                               t->name, (unsigned long long)t->begin,
                               t->begin < at ? "inside the one before it, which ends at"
                                             : "behind a gap that begins at",
                               (unsigned long long)at);
        at = t->end;
    }
    if (at == data_bytes)
        return WEFT_OK;
    return weft_i_fail(WEFT_ERR_INVALID_ARG,
                       "its tensors have %llu bytes, and it has %llu for them%s",
                       (unsigned long long)at, (unsigned long long)data_bytes,
                       at > data_bytes ? ": it was cut" : "");
}

static int by_name(const void *a, const void *b)
{
    const weft_i_header_name *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static int by_key(const void *a, const void *b)
{
    const weft_safetensors_note *x = a, *y = b;
    return strcmp(x->key, y->key);
}

/* For the search by name; no name and no key comes twice. */
static weft_status sort_names(weft_i_header *h)
{
    size_t count = (size_t)h->count, notes = (size_t)h->notes;
    if (!(h->by_name = WEFT_OS->alloc((count + 1) * sizeof *h->by_name)))
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %zu names", count);
    for (int i = 0; i < h->count; i++)
        h->by_name[i] = (weft_i_header_name){h->tensor[i].name, i};
    qsort(h->by_name, count, sizeof *h->by_name, by_name);
    for (size_t i = 1; i < count; i++)
        if (!strcmp(h->by_name[i - 1].name, h->by_name[i].name))
            return weft_i_fail(WEFT_ERR_INVALID_ARG, "\"%.100s\" is in it twice",
                               h->by_name[i].name);
    if (notes)
        qsort(h->note, notes, sizeof *h->note, by_key);
    for (size_t i = 1; i < notes; i++)
        if (!strcmp(h->note[i - 1].key, h->note[i].key))
            return weft_i_fail(WEFT_ERR_INVALID_ARG, "its metadata have \"%.100s\" twice",
                               h->note[i].key);
    return WEFT_OK;
}

const weft_i_header_tensor *weft_i_header_find(const weft_i_header *h, const char *name)
{
    weft_i_header_name key = {name, 0};
    const weft_i_header_name *found =
        h->count ? bsearch(&key, h->by_name, (size_t)h->count, sizeof key, by_name) : NULL;
    return found ? &h->tensor[found->number] : NULL;
}

const char *weft_i_header_note_of(const weft_i_header *h, const char *key)
{
    weft_safetensors_note wanted = {key, NULL};
    const weft_safetensors_note *found =
        h->notes ? bsearch(&wanted, h->note, (size_t)h->notes, sizeof wanted, by_key) : NULL;
    return found ? found->value : NULL;
}

void weft_i_header_clear(weft_i_header *h)
{
    WEFT_OS->free(h->pool);
    WEFT_OS->free(h->tensor);
    WEFT_OS->free(h->by_name);
    WEFT_OS->free(h->note);
    *h = (weft_i_header){0};
}

weft_status weft_i_header_read(weft_i_header *h, const void *bytes, size_t count,
                               uint64_t file_bytes)
{
    uint64_t length;
    *h = (weft_i_header){0};
    if (count < sizeof length || file_bytes < count)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "it has %llu bytes, too few for a safetensors file",
                           (unsigned long long)file_bytes);
    memcpy(&length, bytes, sizeof length);
    if (length < 2 || length > WEFT_I_HEADER_MOST || length > count - sizeof length)
        return weft_i_fail(
            WEFT_ERR_INVALID_ARG,
            "its header would have %llu bytes, and it has %llu in all: it was cut, or "
            "is no safetensors file",
            (unsigned long long)length, (unsigned long long)file_bytes);
    const char *text = (const char *)bytes + sizeof length;
    if (text[0] != '{')
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "its header does not begin with {: it is no safetensors file");
    h->room = (size_t)length + 1;
    h->data = sizeof length + length;
    if (!(h->pool = WEFT_OS->alloc(h->room)))
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for a header of %zu bytes", h->room);
    weft_i_json_reader r = weft_i_json_reader_of(text, (size_t)length);
    WEFT_TRY(read_all(h, &r));
    if (h->count)
        qsort(h->tensor, (size_t)h->count, sizeof *h->tensor, by_place);
    WEFT_TRY(check_places(h, file_bytes - h->data));
    return sort_names(h);
}
