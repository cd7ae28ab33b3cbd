/* SPDX-License-Identifier: Apache-2.0 */
/* Writing tensors to a file of their own, one after the other. */
#include "base/os/os.h"
#include "base/report/status.h"
#include "tensor/object/eye.h"
#include "tensor/object/tensor.h"
#include "train/disk.h"
#include "train/header.h"
#include "train/layout.h"
#include "weft/grad.h"
#include "weft/op.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char WHAT[] = "weft_safetensors_save";

/* Elements one after the other on the host. */
static weft_status write_tensor(int fd, const char *path, weft_tensor *x)
{
    WEFT_TRY(weft_scope_open());
    weft_status status = WEFT_OK;
    WEFT_NO_GRAD
    {
        weft_tensor *flat = weft_contiguous(weft_to(x, weft_tensor_dtype(x), WEFT_CPU));
        const void *data = flat ? weft_tensor_data(flat) : NULL;
        size_t bytes = flat ? weft_tensor_bytes(flat) : 0;
        status = !flat || (!data && bytes) ? weft_last_status()
                                           : weft_i_disk_write(fd, path, data, bytes);
    }
    weft_scope_close();
    return status;
}

static weft_status write_all(const char *path, const weft_i_file_layout *layout,
                             weft_tensor *const *tensors, const weft_safetensors_note *notes,
                             int note_count)
{
    size_t bytes;
    int fd = -1;
    char *header = weft_i_header_write(layout->tensor, layout->count, notes, note_count, &bytes);
    if (!header)
        return weft_last_status();
    weft_status status = weft_i_disk_create(path, &fd);
    if (status >= 0)
        status = weft_i_disk_write(fd, path, header, bytes);
    for (int i = 0; i < layout->count && status >= 0; i++)
        status = write_tensor(fd, path, tensors[layout->tensor[i].source]);
    WEFT_OS->free(header);
    return weft_i_disk_close(fd, path, status);
}

/* Under another name first, so that the file is whole or is not there. */
static weft_status write_beside(const char *path, const weft_i_file_layout *layout,
                                weft_tensor *const *tensors, const weft_safetensors_note *notes,
                                int note_count)
{
    char beside[WEFT_I_DISK_PATH];
    int n = snprintf(beside, sizeof beside, "%s.writing-%d", path, weft_i_os_thread());
    if (n < 0 || n >= (int)sizeof beside)
        return weft_i_fail(WEFT_ERR_LIMIT, "the path %.100s... is too long", path);
    weft_status status = write_all(beside, layout, tensors, notes, note_count);
    if (status >= 0)
        status = weft_i_disk_rename(beside, path);
    if (status < 0)
        WEFT_OS->unlink(beside);
    return status;
}

static weft_status check_one(const weft_named *named)
{
    if (!memchr(named->name, 0, sizeof named->name))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "a name does not end");
    if (!named->tensor)
        return weft_i_missing("\"%s\" is NULL", named->name);
    WEFT_TRY(weft_i_tensor_check_live("the given", named->tensor));
    if (weft_i_tensor_device(named->tensor) == WEFT_META)
        return weft_i_fail(WEFT_ERR_TYPE, "\"%s\" is on meta: it has no elements", named->name);
    WEFT_TRY(weft_i_header_check_text("the name", named->name));
    return weft_i_tensor_check_fits("the given", named->tensor);
}

static weft_status check_all(const weft_named *tensors, int count,
                             const weft_safetensors_note *notes, int note_count)
{
    for (int i = 0; i < count; i++)
        WEFT_TRY(check_one(&tensors[i]));
    for (int i = 0; i < note_count; i++) {
        if (!notes[i].key || !notes[i].value)
            return weft_i_fail(WEFT_ERR_INVALID_ARG, "text %d of the metadata is NULL", i);
        WEFT_TRY(weft_i_header_check_text("the key", notes[i].key));
        WEFT_TRY(weft_i_header_check_text("the text", notes[i].value));
    }
    return WEFT_OK;
}

static weft_status save(const char *path, const weft_named *tensors, int count,
                        const weft_safetensors_note *notes, int note_count)
{
    weft_i_file_layout layout = {0};
    WEFT_TRY(check_all(tensors, count, notes, note_count));
    WEFT_TRY(weft_i_disk_check_place(path));
    weft_tensor **list = WEFT_OS->alloc(((size_t)count + 1) * sizeof *list);
    weft_status status =
        list ? WEFT_OK : weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %d tensors", count);
    for (int i = 0; i < count && status >= 0; i++) {
        list[i] = tensors[i].tensor;
        status = weft_i_file_layout_add(&layout, tensors[i].name, list[i]);
    }
    if (status >= 0) {
        weft_i_file_layout_settle(&layout);
        status = write_beside(path, &layout, list, notes, note_count);
    }
    weft_i_file_layout_clear(&layout);
    WEFT_OS->free(list);
    return status;
}

weft_status weft_safetensors_save(const char *path, const weft_named *tensors, int count,
                                  const weft_safetensors_note *notes, int note_count)
{
    WEFT_TRY(weft_i_not_captured(WHAT));
    if (!path || !*path || count < 0 || (count && !tensors) || note_count < 0 ||
        (note_count && !notes))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: no path, or no list", WHAT);
    weft_status status = save(path, tensors, count, notes, note_count);
    return status < 0 ? weft_i_explain(status, "%s", WHAT) : WEFT_OK;
}
