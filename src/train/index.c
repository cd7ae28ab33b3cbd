/* SPDX-License-Identifier: Apache-2.0 */
/* The index of a checkpoint; see index.h. */
#include "train/index.h"

#include "base/os/os.h"
#include "base/report/status.h"
#include "train/disk.h"
#include "train/file_map.h"
#include "train/header.h"
#include "train/sum.h"

#include <stdio.h>
#include <string.h>

static const char FORMAT[] = "weft checkpoint 1";

const char *weft_i_index_file_name(int i, int files, char out[64])
{
    snprintf(out, 64, "part-%05d-of-%05d.safetensors", i + 1, files);
    return out;
}

void weft_i_index_clear(weft_i_index *index)
{
    for (int i = 0; i < index->values; i++)
        WEFT_OS->free(index->value[i].data);
    WEFT_OS->free(index->value);
    WEFT_OS->free(index->file);
    *index = (weft_i_index){0};
}

weft_status weft_i_index_add_value(weft_i_index *index, const char *name, const void *data,
                                   size_t bytes)
{
    weft_i_index_value *more =
        WEFT_OS->resize(index->value, ((size_t)index->values + 1) * sizeof *more);
    uint8_t *copy = more ? WEFT_OS->alloc(bytes + 1) : NULL;
    if (more)
        index->value = more;
    if (!copy)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for the value \"%s\"", name);
    if (bytes)
        memcpy(copy, data, bytes);
    weft_i_index_value *value = &index->value[index->values++];
    *value = (weft_i_index_value){.data = copy, .bytes = bytes};
    snprintf(value->name, sizeof value->name, "%s", name);
    return WEFT_OK;
}

weft_status weft_i_index_set_files(weft_i_index *index, int files)
{
    WEFT_OS->free(index->file);
    index->files = 0;
    index->file = WEFT_OS->alloc((size_t)files * sizeof *index->file);
    if (!index->file)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for a list of %d files", files);
    index->files = files;
    return WEFT_OK;
}

/* ---- its lines ---- */

/* Keys and values of the index, in memory of their own. */
typedef struct lines {
    weft_safetensors_note *note;
    int count, room;
} lines;

static void clear_lines(lines *l)
{
    for (int i = 0; i < l->count; i++)
        WEFT_OS->free((void *)(uintptr_t)l->note[i].key);
    WEFT_OS->free(l->note);
}

/* A line with room for a value of `bytes` with its end; where to write that, or NULL. */
static char *add_line(lines *l, const char *key, size_t bytes)
{
    size_t length = strlen(key) + 1;
    char *text = l->count < l->room ? WEFT_OS->alloc(length + bytes) : NULL;
    if (!text)
        return weft_i_null(WEFT_ERR_NO_MEMORY, "no memory for an index");
    memcpy(text, key, length);
    l->note[l->count++] = (weft_safetensors_note){text, text + length};
    return text + length;
}

static weft_status add_text(lines *l, const char *key, const char *value)
{
    size_t bytes = strlen(value) + 1;
    char *at = add_line(l, key, bytes);
    if (!at)
        return weft_last_status();
    memcpy(at, value, bytes);
    return WEFT_OK;
}

static weft_status add_file(lines *l, const weft_i_index *index, int i)
{
    char key[32], name[64], text[160], sum[WEFT_I_SUM_TEXT];
    snprintf(key, sizeof key, "file.%d", i + 1);
    snprintf(text, sizeof text, "%s %llu %s", weft_i_index_file_name(i, index->files, name),
             (unsigned long long)index->file[i].bytes, weft_i_sum_text(index->file[i].sum, sum));
    return add_text(l, key, text);
}

static weft_status add_value(lines *l, const weft_i_index_value *value)
{
    char key[WEFT_I_INDEX_NAME + 8];
    snprintf(key, sizeof key, "value.%s", value->name);
    char *at = add_line(l, key, 2 * value->bytes + 1);
    if (!at)
        return weft_last_status();
    for (size_t i = 0; i < value->bytes; i++)
        snprintf(at + 2 * i, 3, "%02x", value->data[i]);
    return WEFT_OK;
}

static weft_status add_all(lines *l, const weft_i_index *index)
{
    char number[24];
    WEFT_TRY(add_text(l, "format", FORMAT));
    snprintf(number, sizeof number, "%lld", (long long)index->step);
    WEFT_TRY(add_text(l, "step", number));
    snprintf(number, sizeof number, "%llu", (unsigned long long)index->serial);
    WEFT_TRY(add_text(l, "serial", number));
    snprintf(number, sizeof number, "%d", index->files);
    WEFT_TRY(add_text(l, "files", number));
    for (int i = 0; i < index->files; i++)
        WEFT_TRY(add_file(l, index, i));
    for (int i = 0; i < index->values; i++)
        WEFT_TRY(add_value(l, &index->value[i]));
    return WEFT_OK;
}

/* Of all lines but its own, whatever their order. */
static uint64_t sum_of(const weft_safetensors_note *note, int count)
{
    uint64_t all = 0;
    for (int i = 0; i < count; i++) {
        weft_i_sum one;
        if (!strcmp(note[i].key, "sum"))
            continue;
        weft_i_sum_begin(&one);
        weft_i_sum_add(&one, note[i].key, strlen(note[i].key) + 1);
        weft_i_sum_add(&one, note[i].value, strlen(note[i].value) + 1);
        all += weft_i_sum_end(&one);
    }
    return all;
}

/* ---- writing ---- */

static weft_status write_text(const char *folder, const char *text, size_t bytes)
{
    char path[WEFT_I_DISK_PATH];
    int fd = -1;
    WEFT_TRY(weft_i_disk_path(path, folder, "index.json"));
    WEFT_TRY(weft_i_disk_create(path, &fd));
    return weft_i_disk_close(fd, path, weft_i_disk_write(fd, path, text, bytes));
}

weft_status weft_i_index_write(const weft_i_index *index, const char *folder)
{
    lines l = {.room = 5 + index->files + index->values};
    char sum[WEFT_I_SUM_TEXT];
    size_t bytes = 0;
    if (!(l.note = WEFT_OS->alloc((size_t)l.room * sizeof *l.note)))
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for an index of %d lines", l.room);
    weft_status status = add_all(&l, index);
    if (status >= 0)
        status = add_text(&l, "sum", weft_i_sum_text(sum_of(l.note, l.count), sum));
    char *text = status < 0 ? NULL : weft_i_header_write(NULL, 0, l.note, l.count, &bytes);
    while (text && text[bytes - 1] == ' ') /* padding, for tensors behind it */
        bytes--;
    if (status >= 0)
        status = text ? write_text(folder, text + sizeof(uint64_t), bytes - sizeof(uint64_t))
                      : weft_last_status();
    WEFT_OS->free(text);
    clear_lines(&l);
    return status;
}

/* ---- reading ---- */

static weft_status damaged(const char *what)
{
    return weft_i_fail(WEFT_ERR_INVALID_ARG, "its index is damaged: %s", what);
}

/* A number in a line of its own, or up to a blank; false if it is none. */
static bool read_number(const char **text, uint64_t *out)
{
    uint64_t value = 0;
    if (!*text || **text < '0' || **text > '9')
        return false;
    for (; **text >= '0' && **text <= '9'; (*text)++)
        if (__builtin_mul_overflow(value, (uint64_t)10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(**text - '0'), &value) || value > INT64_MAX)
            return false;
    *out = value;
    return true;
}

static bool number_of(const weft_i_header *h, const char *key, uint64_t *out)
{
    const char *text = weft_i_header_note_of(h, key);
    return read_number(&text, out) && !*text;
}

static int digit_of(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool weft_i_index_read_sum(const char *text, uint64_t *out)
{
    *out = 0;
    for (int i = 0; i < 16; i++) {
        int digit = digit_of(text[i]);
        if (digit < 0)
            return false;
        *out = *out << 4 | (unsigned)digit;
    }
    return true;
}

static weft_status read_file(weft_i_index *index, const weft_i_header *h, int i)
{
    char key[32], name[64];
    snprintf(key, sizeof key, "file.%d", i + 1);
    const char *text = weft_i_header_note_of(h, key);
    size_t length = strlen(weft_i_index_file_name(i, index->files, name));
    if (!text || strncmp(text, name, length) || text[length] != ' ')
        return damaged("a file has another name");
    text += length + 1;
    if (!read_number(&text, &index->file[i].bytes) || *text++ != ' ' ||
        !weft_i_index_read_sum(text, &index->file[i].sum) || text[16])
        return damaged("a file without bytes or checksum");
    return WEFT_OK;
}

static weft_status read_value(weft_i_index *index, const char *name, const char *text)
{
    size_t digits = strlen(text);
    uint8_t *data = WEFT_OS->alloc(digits / 2 + 1);
    if (!data)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for a value");
    bool fine = digits % 2 == 0 && strlen(name) < WEFT_I_INDEX_NAME;
    for (size_t i = 0; fine && i < digits / 2; i++) {
        int high = digit_of(text[2 * i]), low = digit_of(text[2 * i + 1]);
        fine = high >= 0 && low >= 0;
        data[i] = (uint8_t)(fine ? high << 4 | low : 0);
    }
    weft_status status = fine ? weft_i_index_add_value(index, name, data, digits / 2)
                              : damaged("a value that is none");
    WEFT_OS->free(data);
    return status;
}

static weft_status read_lines(weft_i_index *index, const weft_i_header *h)
{
    uint64_t step, files, sum;
    const char *format = weft_i_header_note_of(h, "format"), *own = weft_i_header_note_of(h, "sum");
    if (!format || strncmp(format, FORMAT, sizeof FORMAT - 2))
        return damaged("it is of no checkpoint of weft");
    if (strcmp(format, FORMAT))
        return weft_i_fail(WEFT_ERR_UNSUPPORTED, "it is a \"%.40s\", of a newer weft", format);
    if (!own || strlen(own) != 16 || !weft_i_index_read_sum(own, &sum) ||
        sum != sum_of(h->note, h->notes))
        return damaged("its checksum is another");
    if (!number_of(h, "step", &step) || !number_of(h, "serial", &index->serial) ||
        !number_of(h, "files", &files) || files < 1 || files > WEFT_I_FILES_MOST)
        return damaged("it has no step, or no files");
    index->step = (int64_t)step;
    WEFT_TRY(weft_i_index_set_files(index, (int)files));
    for (int i = 0; i < index->files; i++)
        WEFT_TRY(read_file(index, h, i));
    for (int i = 0; i < h->notes; i++)
        if (!strncmp(h->note[i].key, "value.", 6))
            WEFT_TRY(read_value(index, h->note[i].key + 6, h->note[i].value));
    return WEFT_OK;
}

/* The text with its length before it, as the reader of headers wants it. */
static weft_status read_text(weft_i_index *index, const char *text, size_t count)
{
    uint64_t length = count;
    weft_i_header header = {0};
    char *copy = count <= WEFT_I_HEADER_MOST ? WEFT_OS->alloc(count + sizeof length) : NULL;
    if (!copy)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for an index of %zu bytes", count);
    memcpy(copy, &length, sizeof length);
    if (count)
        memcpy(copy + sizeof length, text, count);
    weft_status status =
        weft_i_header_read(&header, copy, count + sizeof length, count + sizeof length);
    if (status >= 0)
        status = read_lines(index, &header);
    weft_i_header_clear(&header);
    WEFT_OS->free(copy);
    return status;
}

weft_status weft_i_index_read(weft_i_index *index, const char *folder)
{
    char path[WEFT_I_DISK_PATH];
    *index = (weft_i_index){0};
    WEFT_TRY(weft_i_disk_path(path, folder, "index.json"));
    weft_i_file_map *map = weft_i_file_map_open(path);
    if (!map)
        return weft_last_status();
    weft_status status = read_text(index, map->bytes, map->count);
    weft_i_object_drop(map);
    return status < 0 ? weft_i_explain(status, "%s", path) : WEFT_OK;
}
