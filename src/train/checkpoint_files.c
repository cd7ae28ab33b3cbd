/* SPDX-License-Identifier: Apache-2.0 */
/* Opening the files of a checkpoint; see checkpoint_files.h. */
#include "train/checkpoint_files.h"

#include "base/os/os.h"
#include "base/report/status.h"
#include "train/disk.h"
#include "train/sum.h"

#include <stdio.h>
#include <string.h>

void weft_i_stored_clear(weft_i_stored *stored)
{
    for (int i = 0; i < stored->files; i++)
        weft_i_tensor_file_clear(&stored->file[i]);
    WEFT_OS->free(stored->file);
    WEFT_OS->free(stored->part);
    weft_i_index_clear(&stored->index);
    *stored = (weft_i_stored){0};
}

/* ---- files ---- */

static weft_status open_file(weft_i_stored *s, const char *folder, int i)
{
    char path[WEFT_I_DISK_PATH], name[64];
    const weft_i_index_file *said = &s->index.file[i];
    weft_i_tensor_file *file = &s->file[i];
    WEFT_TRY(weft_i_disk_path(path, folder, weft_i_index_file_name(i, s->index.files, name)));
    s->files = i + 1;
    WEFT_TRY(weft_i_tensor_file_open(file, path));
    if (file->map->count != said->bytes)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "%s has %zu bytes, and had %llu when it was written", path,
                           file->map->count, (unsigned long long)said->bytes);
    if (weft_i_sum_of(file->map->bytes, (size_t)file->header.data) != said->sum)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "the header of %s has another checksum than when it was written", path);
    return WEFT_OK;
}

static weft_status open_files(weft_i_stored *s, const char *folder)
{
    WEFT_TRY(weft_i_index_read(&s->index, folder));
    s->file = WEFT_OS->alloc((size_t)s->index.files * sizeof *s->file);
    if (!s->file)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %d files", s->index.files);
    for (int i = 0; i < s->index.files; i++)
        WEFT_TRY(open_file(s, folder, i));
    return WEFT_OK;
}

/* ---- parts ---- */

/* What the notes of a file say of a tensor: its place, and behind it the checksum. */
static weft_status read_part(const weft_i_stored *s, int file, int item, weft_i_portion *out,
                             const char **end)
{
    const weft_i_header *h = &s->file[file].header;
    const weft_i_header_tensor *t = &h->tensor[item];
    char key[256 + 16];
    *out = (weft_i_portion){
        .name = t->name, .dtype = t->dtype, .shape = t->shape, .owner = file, .item = item};
    int n = snprintf(key, sizeof key, "weft.part:%s", t->name);
    const char *text = n > 0 && n < (int)sizeof key ? weft_i_header_note_of(h, key) : NULL;
    if (!text || !weft_i_portion_read(out, text, end))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s does not say where \"%.100s\" lies",
                           s->file[file].map->path, t->name);
    return weft_i_portion_check(out);
}

static weft_status list_parts(weft_i_stored *s)
{
    size_t all = 1;
    for (int i = 0; i < s->files; i++)
        all += (size_t)s->file[i].header.count;
    if (!(s->part = WEFT_OS->alloc(all * sizeof *s->part)))
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %zu parts", all);
    for (int i = 0; i < s->files; i++)
        for (int k = 0; k < s->file[i].header.count; k++) {
            const char *end;
            WEFT_TRY(read_part(s, i, k, &s->part[s->parts], &end));
            s->parts++;
        }
    weft_i_portion_sort(s->part, s->parts);
    for (int at = 0; at < s->parts;) {
        int n = weft_i_portion_group(s->part + at, s->parts - at);
        WEFT_TRY(weft_i_portion_check_whole(s->part + at, n));
        at += n;
    }
    return WEFT_OK;
}

weft_status weft_i_stored_open(weft_i_stored *s, const char *folder)
{
    *s = (weft_i_stored){0};
    WEFT_TRY(open_files(s, folder));
    weft_status status = list_parts(s);
    return status < 0 ? weft_i_explain(status, "%s", folder) : WEFT_OK;
}

/* ---- checksums ---- */

static weft_status check_part(const weft_i_stored *s, int file, int item)
{
    static const char word[] = " sum ";
    const weft_i_tensor_file *f = &s->file[file];
    const weft_i_header_tensor *t = &f->header.tensor[item];
    weft_i_portion part;
    const char *end;
    uint64_t said, is;
    WEFT_TRY(read_part(s, file, item, &part, &end));
    size_t length = sizeof word - 1;
    if (strncmp(end, word, length) || strlen(end) != length + 16 ||
        !weft_i_index_read_sum(end + length, &said))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s has no checksum of \"%.100s\"", f->map->path,
                           t->name);
    WEFT_TRY(weft_i_file_map_sum(f->map, (size_t)(f->header.data + t->begin),
                                 (size_t)(t->end - t->begin), &is));
    if (said == is)
        return WEFT_OK;
    return weft_i_fail(
        WEFT_ERR_INVALID_ARG,
        "%s: the bytes of \"%.100s\" have another checksum than when they were written",
        f->map->path, t->name);
}

/* Each part is some rank's, and each rank has about as many bytes. */
weft_status weft_i_stored_check(const weft_i_stored *s, int rank, int ranks)
{
    uint64_t all = 1, before = 0;
    for (int i = 0; i < s->files; i++)
        all += s->file[i].map->count;
    for (int i = 0; i < s->files; i++)
        for (int k = 0; k < s->file[i].header.count; k++) {
            const weft_i_header_tensor *t = &s->file[i].header.tensor[k];
            uint64_t whose = (uint64_t)((double)before / (double)all * ranks);
            before += t->end - t->begin;
            if ((int)whose == rank)
                WEFT_TRY(check_part(s, i, k));
        }
    return WEFT_OK;
}

/* ---- asking ---- */

int weft_i_stored_find(const weft_i_stored *s, const char *name, const weft_i_portion **out)
{
    int low = 0, high = s->parts;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (strcmp(s->part[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *out = s->part + low;
    return low < s->parts && !strcmp(s->part[low].name, name)
               ? weft_i_portion_group(s->part + low, s->parts - low)
               : 0;
}

weft_tensor *weft_i_stored_get(const weft_i_stored *s, const weft_i_portion *part)
{
    const weft_i_tensor_file *file = &s->file[part->owner];
    return weft_i_tensor_file_get(file, &file->header.tensor[part->item]);
}
