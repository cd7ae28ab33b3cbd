/* SPDX-License-Identifier: Apache-2.0 */
/* Files of tensors, alone and by an index of several. */
#include "train/safetensors.h"

#include "base/os/os.h"
#include "base/report/status.h"
#include "train/disk.h"
#include "train/json_reader.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILES_MOST = 100000 };

/* Where a tensor is. */
typedef struct spot {
    int file;
    const weft_i_header_tensor *tensor;
} spot;

struct weft_safetensors {
    weft_i_object head;
    weft_i_tensor_file *file;
    int files, room;
    spot *spot; /* in the order in which they lie in the files */
    spot *by_name;
    int count;
};

static void destroy(weft_i_object *object)
{
    weft_safetensors *s = (weft_safetensors *)object;
    for (int i = 0; i < s->files; i++)
        weft_i_tensor_file_clear(&s->file[i]);
    WEFT_OS->free(s->file);
    WEFT_OS->free(s->spot);
    WEFT_OS->free(s->by_name);
    weft_i_object_free(object);
}

static weft_status add_file(weft_safetensors *s, const char *path)
{
    if (s->files == s->room) {
        int room = s->room ? 2 * s->room : 4;
        weft_i_tensor_file *more = WEFT_OS->resize(s->file, (size_t)room * sizeof *more);
        if (!more)
            return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %d files", room);
        s->file = more;
        s->room = room;
    }
    return weft_i_tensor_file_open(&s->file[s->files++], path);
}

/* ---- an index ---- */

/* A line of an index: which file has a tensor. */
typedef struct line {
    const char *name, *file;
    int number; /* of the file */
} line;

typedef struct index_text {
    char *pool; /* as long as the text, so that all strings of it have room */
    size_t used, pool_room;
    line *line;
    int count, room;
} index_text;

static int by_name_then_file(const void *a, const void *b)
{
    const line *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : strcmp(x->file, y->file);
}

static weft_status add_line(index_text *t, const char *name, const char *file)
{
    if (t->count == t->room) {
        int room = t->room ? 2 * t->room : 256;
        line *more = WEFT_OS->resize(t->line, (size_t)room * sizeof *more);
        if (!more)
            return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for an index of %d tensors", room);
        t->line = more;
        t->room = room;
    }
    /* A file of the same folder, by its bare name. */
    if (!*file || strchr(file, '/') || !strcmp(file, ".") || !strcmp(file, ".."))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "\"%.100s\" would be in \"%.100s\", which is no file of this folder",
                           name, file);
    t->line[t->count++] = (line){name, file, -1};
    return WEFT_OK;
}

static const char *keep(index_text *t, weft_i_json_reader *r, bool key)
{
    char *out = t->pool + t->used;
    size_t length;
    if (key)
        weft_i_read_key(r, out, t->pool_room - t->used, &length);
    else
        weft_i_read_text(r, out, t->pool_room - t->used, &length);
    t->used += length + 1;
    return r->error ? NULL : out;
}

static weft_status read_map(index_text *t, weft_i_json_reader *r)
{
    weft_i_read_open(r, '{');
    while (weft_i_read_next(r)) {
        const char *name = keep(t, r, true), *file = keep(t, r, false);
        if (file)
            WEFT_TRY(add_line(t, name, file));
    }
    return WEFT_OK;
}

static weft_status read_members(index_text *t, weft_i_json_reader *r)
{
    bool found = false;
    weft_i_read_open(r, '{');
    while (weft_i_read_next(r)) {
        const char *key = keep(t, r, true);
        bool map = key && !strcmp(key, "weight_map") && !found;
        found |= map;
        if (map)
            WEFT_TRY(read_map(t, r));
        else
            weft_i_read_skip(r);
    }
    if (!weft_i_read_end(r))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "it is no JSON of an index: %s (byte %zu of it)",
                           r->error, r->at);
    return found ? WEFT_OK : weft_i_fail(WEFT_ERR_INVALID_ARG, "it has no \"weight_map\"");
}

static weft_status read_index(index_text *t, const weft_i_file_map *map)
{
    size_t length = map->count < WEFT_I_HEADER_MOST ? map->count : WEFT_I_HEADER_MOST;
    weft_i_json_reader r = weft_i_json_reader_of(map->bytes, map->bytes ? length : 0);
    t->pool_room = length + 2;
    if (!(t->pool = WEFT_OS->alloc(t->pool_room)))
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for an index of %zu bytes", length);
    return read_members(t, &r);
}

static int number_of(const weft_safetensors *s, const char *path)
{
    for (int i = s->files - 1; i >= 0; i--)
        if (!strcmp(s->file[i].map->path, path))
            return i;
    return -1;
}

/* Opens the files of the index, each once, and sees that they have what it says. */
static weft_status open_lines(weft_safetensors *s, index_text *t, const char *folder)
{
    if (t->count)
        qsort(t->line, (size_t)t->count, sizeof *t->line, by_name_then_file);
    for (int i = 0; i < t->count; i++) {
        char path[WEFT_I_DISK_PATH];
        line *l = &t->line[i];
        if (i && !strcmp(l->name, l[-1].name))
            return weft_i_fail(WEFT_ERR_INVALID_ARG, "\"%.100s\" is in it twice", l->name);
        WEFT_TRY(weft_i_disk_path(path, folder, l->file));
        if ((l->number = number_of(s, path)) < 0) {
            if (s->files == FILES_MOST)
                return weft_i_fail(WEFT_ERR_LIMIT, "it has more than %d files", FILES_MOST);
            l->number = s->files;
            WEFT_TRY(add_file(s, path));
        }
        if (!weft_i_header_find(&s->file[l->number].header, l->name))
            return weft_i_fail(WEFT_ERR_INVALID_ARG, "\"%.100s\" is not in %s", l->name, path);
    }
    return WEFT_OK;
}

static weft_status open_index(weft_safetensors *s, const char *path, index_text *t)
{
    char folder[WEFT_I_DISK_PATH] = ".";
    const char *slash = strrchr(path, '/');
    weft_i_file_map *map = weft_i_file_map_open(path);
    if (!map)
        return weft_last_status();
    if (slash)
        snprintf(folder, sizeof folder, "%.*s", slash == path ? 1 : (int)(slash - path), path);
    weft_status status = read_index(t, map);
    if (status >= 0)
        status = open_lines(s, t, folder);
    weft_i_object_drop(map);
    return status < 0 ? weft_i_explain(status, "%s", path) : WEFT_OK;
}

/* ---- opening ---- */

static int by_spot(const void *a, const void *b)
{
    return strcmp(((const spot *)a)->tensor->name, ((const spot *)b)->tensor->name);
}

/* Whether the index, if there is one, has the tensor in this file. */
static bool is_listed(const index_text *t, const char *name, int file)
{
    int low = 0, high = t->count;
    while (low < high) {
        int middle = low + (high - low) / 2, order = strcmp(name, t->line[middle].name);
        if (!order)
            return t->line[middle].number == file;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return false;
}

static weft_status list_spots(weft_safetensors *s, const index_text *t, bool indexed)
{
    size_t all = 1;
    for (int i = 0; i < s->files; i++)
        all += (size_t)s->file[i].header.count;
    s->spot = WEFT_OS->alloc(all * sizeof *s->spot);
    s->by_name = WEFT_OS->alloc(all * sizeof *s->spot);
    if (!s->spot || !s->by_name)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %zu tensors", all);
    for (int i = 0; i < s->files; i++)
        for (int k = 0; k < s->file[i].header.count; k++) {
            const weft_i_header_tensor *tensor = &s->file[i].header.tensor[k];
            if (!indexed || is_listed(t, tensor->name, i))
                s->spot[s->count++] = (spot){i, tensor};
        }
    memcpy(s->by_name, s->spot, (size_t)s->count * sizeof *s->spot);
    qsort(s->by_name, (size_t)s->count, sizeof *s->spot, by_spot);
    return WEFT_OK;
}

static bool ends_in(const char *path, const char *end)
{
    size_t a = strlen(path), b = strlen(end);
    return a >= b && !strcmp(path + a - b, end);
}

static bool is_there(const char *path, bool folder)
{
    struct stat about;
    int fd = WEFT_OS->open(path, O_RDONLY | O_NONBLOCK, 0);
    bool fine = fd >= 0 && !WEFT_OS->fstat(fd, &about) && S_ISDIR(about.st_mode) == folder;
    if (fd >= 0)
        WEFT_OS->close(fd);
    return fine;
}

/* What a folder stands for. */
static weft_status find_in(const char *folder, char out[WEFT_I_DISK_PATH])
{
    WEFT_TRY(weft_i_disk_path(out, folder, "model.safetensors"));
    if (is_there(out, false))
        return WEFT_OK;
    WEFT_TRY(weft_i_disk_path(out, folder, "model.safetensors.index.json"));
    return is_there(out, false) ? WEFT_OK
                                : weft_i_fail(WEFT_ERR_NOT_FOUND,
                                              "the folder %s has no model.safetensors and no "
                                              "model.safetensors.index.json",
                                              folder);
}

static weft_status open_all(weft_safetensors *s, const char *path)
{
    char inside[WEFT_I_DISK_PATH];
    index_text text = {0};
    if (is_there(path, true)) {
        WEFT_TRY(find_in(path, inside));
        path = inside;
    }
    bool indexed = ends_in(path, ".json");
    weft_status status = indexed ? open_index(s, path, &text) : add_file(s, path);
    if (status >= 0)
        status = list_spots(s, &text, indexed);
    WEFT_OS->free(text.pool);
    WEFT_OS->free(text.line);
    return status;
}

weft_safetensors *weft_safetensors_open(const char *path)
{
    if (!path || !*path)
        return weft_i_null(WEFT_ERR_INVALID_ARG, "weft_safetensors_open: no path");
    weft_safetensors *s = weft_i_object_new(WEFT_I_SAFETENSORS, sizeof *s, destroy);
    if (!s)
        return NULL;
    weft_status status = open_all(s, path);
    if (status >= 0)
        return s;
    weft_i_explain(status, "weft_safetensors_open");
    weft_release(s);
    return NULL;
}

/* ---- asking ---- */

static weft_status check(const char *what, const weft_safetensors *s)
{
    if (!s)
        return weft_i_missing("%s: the file is NULL", what);
    return s->head.kind == WEFT_I_SAFETENSORS
               ? WEFT_OK
               : weft_i_fail(WEFT_ERR_TYPE,
                             "%s: this is no file of tensors, or one that was released", what);
}

int weft_safetensors_count(const weft_safetensors *file)
{
    return file && check("weft_safetensors_count", file) >= 0 ? file->count : 0;
}

weft_status weft_safetensors_about(const weft_safetensors *file, int index,
                                   weft_safetensors_entry *out)
{
    WEFT_TRY(check("weft_safetensors_about", file));
    if (index < 0 || index >= file->count || !out)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_safetensors_about: tensor %d of %d", index,
                           file->count);
    const weft_i_header_tensor *t = file->spot[index].tensor;
    *out = (weft_safetensors_entry){t->name, t->dtype, t->shape};
    return WEFT_OK;
}

static const spot *find(const weft_safetensors *file, const char *name)
{
    weft_i_header_tensor wanted = {.name = name};
    spot key = {0, &wanted};
    return file->count ? bsearch(&key, file->by_name, (size_t)file->count, sizeof key, by_spot)
                       : NULL;
}

bool weft_safetensors_has(const weft_safetensors *file, const char *name)
{
    return file && name && check("weft_safetensors_has", file) >= 0 && find(file, name);
}

weft_tensor *weft_safetensors_get(const weft_safetensors *file, const char *name)
{
    if (check("weft_safetensors_get", file) < 0)
        return NULL;
    const spot *at = name ? find(file, name) : NULL;
    if (!at)
        return weft_i_null(
            WEFT_ERR_NOT_FOUND,
            "weft_safetensors_get: the file has no \"%.100s\"; it has %d tensors%s%.100s%s",
            name ? name : "", file->count, file->count ? ", the first is \"" : "",
            file->count ? file->spot[0].tensor->name : "", file->count ? "\"" : "");
    return weft_i_tensor_file_get(&file->file[at->file], at->tensor);
}

const char *weft_safetensors_metadata(const weft_safetensors *file, const char *key)
{
    if (!key || check("weft_safetensors_metadata", file) < 0)
        return NULL;
    for (int i = 0; i < file->files; i++) {
        const char *value = weft_i_header_note_of(&file->file[i].header, key);
        if (value)
            return value;
    }
    return NULL;
}
