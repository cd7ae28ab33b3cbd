/* SPDX-License-Identifier: Apache-2.0 */
/* One file of tensors: mapped, its header read. */
#include "base/os/os.h"
#include "tensor/object/tensor.h"
#include "train/safetensors.h"
#include "weft/op.h"

#include <string.h>

weft_status weft_i_tensor_file_open(weft_i_tensor_file *file, const char *path)
{
    *file = (weft_i_tensor_file){0};
    if (!(file->map = weft_i_file_map_open(path)))
        return weft_last_status();
    weft_status status =
        weft_i_header_read(&file->header, file->map->bytes, file->map->count, file->map->count);
    return status < 0 ? weft_i_explain(status, "%s", path) : WEFT_OK;
}

void weft_i_tensor_file_clear(weft_i_tensor_file *file)
{
    weft_i_header_clear(&file->header);
    weft_i_object_drop(file->map);
    file->map = NULL;
}

static void release(void *map)
{
    weft_i_object_drop(map);
}

/* A view of the mapping, whose bytes nobody writes to: `read_only` sees to that. */
static weft_tensor *view(weft_i_file_map *map, const char *at, const weft_i_header_tensor *t)
{
    weft_tensor *x = weft_tensor_wrap(t->dtype, WEFT_CPU, t->shape, (void *)(uintptr_t)at, release,
                                      weft_i_object_hold(map));
    if (x)
        x->storage->read_only = true;
    else
        weft_i_object_drop(map);
    return x;
}

/* Of a file that another program has written without care for alignment. */
static weft_tensor *copy(const char *at, const weft_i_header_tensor *t)
{
    return weft_tensor_from(t->dtype, t->shape, at);
}

weft_tensor *weft_i_tensor_file_get(const weft_i_tensor_file *file, const weft_i_header_tensor *t)
{
    const char *at = file->map->bytes + file->header.data + t->begin;
    if (t->begin == t->end)
        return weft_empty(t->dtype, WEFT_CPU, t->shape);
    if ((uintptr_t)at % weft_dtype_size(t->dtype))
        return copy(at, t);
    return view(file->map, at, t);
}
