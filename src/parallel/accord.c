/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks tell each other before they change a module; see accord.h. */
#include "parallel/accord.h"

#include "base/os/os.h"
#include "base/report/status.h"
#include "base/share/digest.h"
#include "tensor/object/tensor.h"
#include "weft/coll.h"
#include "weft/grad.h"
#include "weft/object.h"
#include "weft/op.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MESSAGE = 512, FIRST_ROOM = 1024 };

/* What a rank sends: this, and then its deed. */
typedef struct finding {
    int32_t status;
    char message[MESSAGE]; /* terminated by its writer, and by its reader */
} finding;

/* ---- deeds ---- */

static weft_status make_room(weft_i_deed *deed, size_t more)
{
    size_t room = deed->room ? deed->room : FIRST_ROOM;
    while (room - deed->used <= more)
        room *= 2;
    if (room == deed->room)
        return WEFT_OK;
    char *text = WEFT_OS->resize(deed->text, room);
    if (!text)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for the names of parameters");
    deed->text = text;
    deed->room = room;
    return WEFT_OK;
}

weft_status weft_i_deed_add(weft_i_deed *deed, const char *format, ...)
{
    char line[MESSAGE];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line - 1, format, args);
    va_end(args);
    size_t length = n < 0 ? 0 : strlen(line);
    line[length] = '\n';
    line[length + 1] = 0;
    WEFT_TRY(make_room(deed, length + 2));
    memcpy(deed->text + deed->used, line, length + 2);
    deed->used += length + 1;
    return WEFT_OK;
}

/* The elements as bytes on the host, whatever their device and layout. */
static weft_status digest_of(weft_tensor *x, char out[WEFT_I_DIGEST_TEXT])
{
    uint8_t bytes[WEFT_I_DIGEST_BYTES];
    weft_i_digest digest;
    WEFT_TRY(weft_scope_open());
    weft_status status = WEFT_OK;
    WEFT_NO_GRAD
    {
        weft_tensor *flat = weft_contiguous(weft_to(x, weft_tensor_dtype(x), WEFT_CPU));
        const void *data = flat ? weft_tensor_data(flat) : NULL;
        if (!flat || (!data && weft_tensor_numel(flat))) {
            status = weft_last_status();
        } else {
            weft_i_digest_begin(&digest);
            weft_i_digest_add(&digest, data ? data : bytes, weft_tensor_bytes(flat));
            weft_i_digest_end(&digest, bytes);
            weft_i_digest_text(bytes, out);
        }
    }
    weft_scope_close();
    return status;
}

weft_status weft_i_deed_add_tensor(weft_i_deed *deed, const char *name, weft_tensor *x, bool values)
{
    char shape[WEFT_I_SHAPE_TEXT], digest[WEFT_I_DIGEST_TEXT] = "";
    if (values)
        WEFT_TRY(digest_of(x, digest));
    digest[16] = 0; /* enough to tell two apart */
    return weft_i_deed_add(deed, "\"%s\": %s %s%s%s", name, weft_dtype_name(weft_tensor_dtype(x)),
                           weft_i_shape_text(weft_tensor_shape(x), shape),
                           values ? " with values of digest " : "", digest);
}

void weft_i_deed_clear(weft_i_deed *deed)
{
    WEFT_OS->free(deed->text);
    *deed = (weft_i_deed){0};
}

/* ---- meeting ---- */

/* The line of each text at the first place where they differ. */
static void first_difference(const char *a, const char *b, char *line_a, char *line_b)
{
    size_t start = 0, i = 0;
    for (; a[i] && a[i] == b[i]; i++)
        if (a[i] == '\n')
            start = i + 1;
    const char *text[] = {a + start, b + start};
    char *line[] = {line_a, line_b};
    for (int k = 0; k < 2; k++) {
        size_t length = strcspn(text[k], "\n");
        snprintf(line[k], MESSAGE / 2, "%.*s", length < MESSAGE / 2 ? (int)length : MESSAGE / 2 - 1,
                 length ? text[k] : "nothing more");
    }
}

static const char *text_of(weft_bytes bytes)
{
    return bytes.length > sizeof(finding) ? (const char *)bytes.data + sizeof(finding) : "";
}

/* What rank r said; false if it is no finding. */
static bool read_finding(weft_bytes bytes, finding *out)
{
    if (bytes.length < sizeof *out || ((const char *)bytes.data)[bytes.length - 1])
        return false;
    memcpy(out, bytes.data, sizeof *out);
    out->message[MESSAGE - 1] = 0;
    return true;
}

static weft_status judge(weft_blobs *blobs, const char *what, weft_status found)
{
    finding one;
    int ranks = weft_blobs_count(blobs);
    for (int r = 0; r < ranks; r++) {
        if (!read_finding(weft_blobs_get(blobs, r), &one))
            return weft_i_fail(WEFT_ERR_PROTOCOL, "%s: rank %d said something else", what, r);
        if (one.status >= 0)
            continue;
        weft_status status =
            weft_i_status_known((weft_status)one.status) ? (weft_status)one.status : found;
        return weft_i_fail(status < 0 ? status : WEFT_ERR_PROTOCOL, "%s: rank %d: %s", what, r,
                           one.message);
    }
    for (int r = 1; r < ranks; r++) {
        const char *a = text_of(weft_blobs_get(blobs, 0)), *b = text_of(weft_blobs_get(blobs, r));
        char line_a[MESSAGE / 2], line_b[MESSAGE / 2];
        if (!strcmp(a, b))
            continue;
        first_difference(a, b, line_a, line_b);
        return weft_i_fail(WEFT_ERR_MISMATCH, "%s: the ranks differ: rank 0 has %s; rank %d has %s",
                           what, line_a, r, line_b);
    }
    return WEFT_OK;
}

weft_status weft_i_accord(weft_group *group, const char *what, weft_status found,
                          const weft_i_deed *deed)
{
    size_t text = deed && deed->text ? deed->used : 0, bytes = sizeof(finding) + text + 1;
    finding *mine = WEFT_OS->alloc(bytes);
    finding spare;
    finding *out = mine ? mine : &spare;
    *out = (finding){.status = found};
    if (!mine && found >= 0) {
        out->status = weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for what it found");
        text = 0;
    }
    if (out->status < 0)
        snprintf(out->message, MESSAGE, "%s", weft_last_error());
    if (mine && text)
        memcpy(mine + 1, deed->text, text);
    if (mine)
        ((char *)(mine + 1))[text] = 0;
    weft_status status = weft_scope_open();
    if (status >= 0) {
        weft_bytes sent = {out, mine ? bytes : sizeof spare};
        weft_blobs *blobs = weft_all_gather_object(sent, group);
        status = blobs ? judge(blobs, what, found) : weft_i_explain(weft_last_status(), "%s", what);
        weft_scope_close();
    }
    WEFT_OS->free(mine);
    return status;
}

/* ---- the state of a module ---- */

weft_named *weft_i_list_params(const char *what, const weft_module *module, bool state, int *count)
{
    *count = state ? weft_module_state(module, NULL, 0) : weft_module_params(module, NULL, 0);
    if (*count < 0)
        return NULL;
    weft_named *list = WEFT_OS->alloc((size_t)(*count ? *count : 1) * sizeof *list);
    if (!list)
        return weft_i_null(WEFT_ERR_NO_MEMORY, "%s: no memory for %d names", what, *count);
    *count =
        state ? weft_module_state(module, list, *count) : weft_module_params(module, list, *count);
    if (*count >= 0)
        return list;
    WEFT_OS->free(list);
    return NULL;
}

weft_status weft_i_deed_add_list(weft_i_deed *deed, const weft_named *list, int count, bool values)
{
    for (int i = 0; i < count; i++)
        WEFT_TRY(weft_i_deed_add_tensor(deed, list[i].name, list[i].tensor, values));
    return WEFT_OK;
}

static weft_status copy_from_first(const weft_named *list, int count, weft_group *group)
{
    for (int i = 0; i < count; i++) {
        weft_tensor *x = list[i].tensor, *flat = weft_contiguous(x);
        weft_status status = flat ? weft_broadcast_in_place(flat, 0, group) : weft_last_status();
        if (status >= 0 && !weft_tensor_is_contiguous(x))
            status = weft_copy(x, flat);
        if (status < 0)
            return weft_i_explain(status, "the values of \"%s\"", list[i].name);
    }
    return WEFT_OK;
}

weft_status weft_i_start_list(const weft_named *list, int count, weft_group *group)
{
    weft_status status = WEFT_OK;
    WEFT_TRY(weft_scope_open());
    WEFT_NO_GRAD
    {
        status = copy_from_first(list, count, group);
    }
    weft_scope_close();
    return status;
}
