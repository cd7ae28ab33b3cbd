/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the thread of a save does: this rank's file, and with the others the checkpoint.  All that it calls
 * is in the checkpoint's own group, so that training does not meet it.
 */
#include "base/os/os.h"
#include "base/report/status.h"
#include "parallel/accord.h"
#include "train/checkpoint.h"
#include "train/sum.h"
#include "weft/object.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { NOTE = WEFT_I_ITEM_NAME + 16, TEXT = WEFT_I_PORTION_TEXT + 32, PIECE = 4 << 20 };

/* What a file of a rank has beside the tensors. */
typedef struct notes {
    weft_safetensors_note *note;
    char (*key)[NOTE], (*text)[TEXT];
    int count;
} notes;

static void clear_notes(notes *n)
{
    WEFT_OS->free(n->note);
    WEFT_OS->free(n->key);
    WEFT_OS->free(n->text);
}

static void put_sum(const weft_checkpoint *c, notes *n, int i, uint64_t value)
{
    char sum[WEFT_I_SUM_TEXT];
    snprintf(n->text[i], TEXT, "%s sum %s", c->copied.place[c->copied.layout.tensor[i].source],
             weft_i_sum_text(value, sum));
}

/* Where each part lies in the whole; what its bytes add up to is not known yet. */
static weft_status make_notes(const weft_checkpoint *c, notes *n)
{
    const weft_i_copied *copied = &c->copied;
    size_t count = (size_t)copied->layout.count + 1;
    n->note = WEFT_OS->alloc(count * sizeof *n->note);
    n->key = WEFT_OS->alloc(count * sizeof *n->key);
    n->text = WEFT_OS->alloc(count * sizeof *n->text);
    if (!n->note || !n->key || !n->text)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %zu checksums", count);
    for (int i = 0; i < copied->layout.count; i++) {
        snprintf(n->key[i], NOTE, "weft.part:%s", copied->layout.tensor[i].name);
        put_sum(c, n, i, 0);
    }
    n->count = copied->layout.count + 1;
    snprintf(n->key[n->count - 1], NOTE, "weft.generator");
    snprintf(n->text[n->count - 1], TEXT, "%llu %llu", (unsigned long long)copied->generator.seed,
             (unsigned long long)copied->generator.counter);
    for (int i = 0; i < n->count; i++)
        n->note[i] = (weft_safetensors_note){n->key[i], n->text[i]};
    return WEFT_OK;
}

/* ---- this rank's file ---- */

/* Piece by piece: while the disk writes one, the next is added up. */
static weft_status write_tensor(int fd, const char *path, const char *bytes, size_t count, off_t at,
                                uint64_t *value)
{
    weft_i_sum sum;
    weft_i_sum_begin(&sum);
    for (size_t done = 0, piece; done < count; done += piece) {
        piece = count - done < PIECE ? count - done : PIECE;
        weft_i_sum_add(&sum, bytes + done, piece);
        WEFT_TRY(weft_i_disk_write(fd, path, bytes + done, piece));
        if (piece == PIECE)
            weft_i_disk_start(fd, at + (off_t)done, piece);
    }
    *value = weft_i_sum_end(&sum);
    return WEFT_OK;
}

static weft_status write_header(const weft_checkpoint *c, const notes *n, int fd, const char *path,
                                weft_i_index_file *out)
{
    size_t bytes = 0;
    char *header = weft_i_header_write(c->copied.layout.tensor, c->copied.layout.count, n->note,
                                       n->count, &bytes);
    weft_status status =
        header ? weft_i_disk_write_at(fd, path, header, bytes, 0) : weft_last_status();
    *out = (weft_i_index_file){bytes + c->copied.used, header ? weft_i_sum_of(header, bytes) : 0};
    WEFT_OS->free(header);
    return status;
}

/* The sums stand in front of what they add up: the header is written twice, with as many bytes. */
static weft_status write_file(const weft_checkpoint *c, notes *n, int fd, const char *path,
                              weft_i_index_file *out)
{
    WEFT_TRY(write_header(c, n, fd, path, out));
    uint64_t bytes = out->bytes, value = 0;
    off_t start = (off_t)(bytes - c->copied.used);
    if (WEFT_OS->lseek(fd, start, SEEK_SET) < 0)
        return weft_i_fail_errno(errno, "writing %s", path);
    for (int i = 0; i < c->copied.layout.count; i++) {
        const weft_i_header_tensor *t = &c->copied.layout.tensor[i];
        WEFT_TRY(write_tensor(fd, path, c->copied.bytes + t->begin, (size_t)(t->end - t->begin),
                              start + (off_t)t->begin, &value));
        put_sum(c, n, i, value);
    }
    WEFT_TRY(write_header(c, n, fd, path, out));
    return out->bytes == bytes ? WEFT_OK
                               : weft_i_fail(WEFT_ERR_INTERNAL, "%s: a header of two sizes", path);
}

/* What the index says of the file goes to `out`. */
static weft_status write_part(const weft_checkpoint *c, weft_i_index_file *out)
{
    char folder[WEFT_I_DISK_PATH], path[WEFT_I_DISK_PATH], name[64];
    notes n = {0};
    int fd = -1;
    WEFT_TRY(weft_i_folder_writing(c, folder));
    WEFT_TRY(weft_i_disk_path(
        path, folder, weft_i_index_file_name(weft_rank(c->group), weft_size(c->group), name)));
    weft_status status = make_notes(c, &n);
    if (status >= 0)
        status = weft_i_disk_create(path, &fd);
    if (status >= 0)
        status = write_file(c, &n, fd, path, out);
    status = weft_i_disk_close(fd, path, status);
    clear_notes(&n);
    return status;
}

/* All ranks tell the first what their files are. */
static weft_status gather(weft_checkpoint *c, const weft_i_index_file *mine)
{
    WEFT_TRY(weft_i_index_set_files(&c->index, weft_size(c->group)));
    WEFT_TRY(weft_scope_open());
    weft_status status = WEFT_OK;
    weft_blobs *blobs = weft_gather_object((weft_bytes){mine, sizeof *mine}, 0, c->group);
    if (!blobs)
        status = weft_last_status();
    for (int r = 0; r < weft_blobs_count(blobs) && status >= 0; r++) {
        weft_bytes bytes = weft_blobs_get(blobs, r);
        if (bytes.length == sizeof *mine)
            memcpy(&c->index.file[r], bytes.data, sizeof *mine);
        else
            status = weft_i_fail(WEFT_ERR_PROTOCOL,
                                 "rank %d described its file in %zu bytes, not in %zu", r,
                                 bytes.length, sizeof *mine);
    }
    weft_scope_close();
    return status;
}

weft_status weft_i_checkpoint_write(weft_checkpoint *c)
{
    char what[64];
    weft_i_index_file mine = {0};
    bool first = weft_rank(c->group) == 0;
    snprintf(what, sizeof what, "the save of step %lld", (long long)c->step);
    weft_status status = weft_i_accord(c->group, what, write_part(c, &mine), NULL);
    if (status >= 0)
        status = gather(c, &mine);
    if (status >= 0 && first)
        status = weft_i_folder_commit(c);
    /* The others may go on once the checkpoint has its name. */
    if (status >= 0 || weft_status_scope(status) <= WEFT_SCOPE_OP)
        status = weft_i_accord(c->group, what, status, NULL);
    if (first)
        weft_i_folder_end(c);
    return status;
}
