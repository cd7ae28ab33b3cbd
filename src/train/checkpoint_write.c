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

#include <stdio.h>
#include <string.h>

enum { NOTE = WEFT_I_ITEM_NAME + 16, TEXT = WEFT_I_PORTION_TEXT + 32 };

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

/* Where each part lies in the whole, and what its bytes add up to. */
static weft_status make_notes(const weft_checkpoint *c, notes *n)
{
    const weft_i_copied *copied = &c->copied;
    size_t count = (size_t)copied->layout.count + 1;
    char sum[WEFT_I_SUM_TEXT];
    n->note = WEFT_OS->alloc(count * sizeof *n->note);
    n->key = WEFT_OS->alloc(count * sizeof *n->key);
    n->text = WEFT_OS->alloc(count * sizeof *n->text);
    if (!n->note || !n->key || !n->text)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %zu checksums", count);
    for (int i = 0; i < copied->layout.count; i++) {
        const weft_i_header_tensor *t = &copied->layout.tensor[i];
        uint64_t value = weft_i_sum_of(copied->bytes + t->begin, (size_t)(t->end - t->begin));
        snprintf(n->key[i], NOTE, "weft.part:%s", t->name);
        snprintf(n->text[i], TEXT, "%s sum %s", copied->place[t->source],
                 weft_i_sum_text(value, sum));
    }
    n->count = copied->layout.count + 1;
    snprintf(n->key[n->count - 1], NOTE, "weft.generator");
    snprintf(n->text[n->count - 1], TEXT, "%llu %llu", (unsigned long long)copied->generator.seed,
             (unsigned long long)copied->generator.counter);
    for (int i = 0; i < n->count; i++)
        n->note[i] = (weft_safetensors_note){n->key[i], n->text[i]};
    return WEFT_OK;
}

static weft_status write_file(const weft_checkpoint *c, const char *path, const char *header,
                              size_t bytes)
{
    int fd = -1;
    WEFT_TRY(weft_i_disk_create(path, &fd));
    weft_status status = weft_i_disk_write(fd, path, header, bytes);
    if (status >= 0)
        status = weft_i_disk_write(fd, path, c->copied.bytes, c->copied.used);
    return weft_i_disk_close(fd, path, status);
}

/* This rank's file; what the index says of it. */
static weft_status write_part(const weft_checkpoint *c, weft_i_index_file *out)
{
    char folder[WEFT_I_DISK_PATH], path[WEFT_I_DISK_PATH], name[64];
    notes n = {0};
    size_t bytes = 0;
    WEFT_TRY(weft_i_folder_writing(c, folder));
    WEFT_TRY(weft_i_disk_path(
        path, folder, weft_i_index_file_name(weft_rank(c->group), weft_size(c->group), name)));
    weft_status status = make_notes(c, &n);
    char *header = status < 0 ? NULL
                              : weft_i_header_write(c->copied.layout.tensor, c->copied.layout.count,
                                                    n.note, n.count, &bytes);
    if (status >= 0)
        status = header ? write_file(c, path, header, bytes) : weft_last_status();
    if (status >= 0)
        *out = (weft_i_index_file){bytes + c->copied.used, weft_i_sum_of(header, bytes)};
    WEFT_OS->free(header);
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
            status = weft_i_fail(WEFT_ERR_PROTOCOL, "rank %d told of something else", r);
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
