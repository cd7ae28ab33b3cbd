/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a storage may be used, and by what.  Memory of the CPU is used by the host, which waits for what is under
 * way.  Memory of other devices is used by streams, which are ordered:
 *
 *     the stream that wrote last        `stream`: reads and writes there need nothing
 *     another that has read since       `reader`: reads there need nothing
 *     any other                         is ordered behind `stream`, and to write behind `reader`
 *
 * A third reader is ordered behind the second, so that two fields are enough.  `stream` changes
 * only with a write, which no other use may go beside; `reader` under the lock.
 */
#include "tensor/object/storage.h"

#include "base/os/place.h"
#include "base/report/status.h"

static void set(weft_stream **at, weft_stream *stream)
{
    weft_stream *old = *at;
    *at = weft_i_object_hold(stream);
    weft_i_object_drop(old);
}

static weft_status read_by(weft_storage *storage, weft_stream *stream)
{
    if (stream == storage->reader)
        return WEFT_OK;
    weft_status status = weft_i_stream_after(stream, storage->stream, false);
    if (status >= 0 && storage->reader)
        status = weft_i_stream_after(stream, storage->reader, false);
    if (status >= 0)
        set(&storage->reader, stream);
    return status;
}

static weft_status written_by(weft_storage *storage, weft_stream *stream)
{
    WEFT_TRY(weft_i_stream_after(stream, storage->stream, false));
    if (storage->reader)
        WEFT_TRY(weft_i_stream_after(stream, storage->reader, false));
    set(&storage->reader, NULL);
    if (storage->stream != stream)
        set(&storage->stream, stream);
    return WEFT_OK;
}

weft_status weft_i_storage_order(weft_storage *storage, bool write, weft_stream *stream)
{
    pthread_mutex_lock(&storage->claims_lock);
    weft_status status = write ? written_by(storage, stream) : read_by(storage, stream);
    pthread_mutex_unlock(&storage->claims_lock);
    return status;
}

WEFT_I_HOT weft_status weft_i_storage_touch(weft_storage *storage, bool write)
{
    if (!storage->ordered)
        return WEFT_OK;
    weft_stream *stream = weft_i_stream_current(storage->device);
    return stream ? weft_i_storage_touch_on(storage, write, stream) : weft_last_status();
}

weft_status weft_i_storage_settle_claims(weft_storage *storage, bool write)
{
    if (!storage->ordered)
        return weft_i_claim_settle(storage, write, false);
    weft_stream *stream = weft_i_stream_current(storage->device);
    if (!stream)
        return weft_last_status();
    WEFT_TRY(weft_i_claim_order(storage, &write, stream));
    return weft_i_storage_touch_on(storage, write,
                                   stream); /* the claims are off: the stream stands for them */
}

weft_status weft_i_storage_settle(weft_storage *storage, bool write)
{
    WEFT_TRY(weft_i_storage_unclaimed(storage, write));
    return weft_i_storage_touch(storage, write);
}

weft_status weft_i_storage_adopt(weft_storage *storage)
{
    const weft_i_device *table = weft_i_device_find(storage->device);
    if (!table || !table->stream_new)
        return WEFT_OK;
    weft_stream *stream = weft_i_stream_current(storage->device);
    if (!stream)
        return weft_last_status();
    set(&storage->stream, stream);
    storage->ordered = true;
    return WEFT_OK;
}

void weft_i_storage_leave(weft_storage *storage)
{
    weft_i_errors before;
    if (!storage->reader)
        return;
    weft_i_errors_save(&before); /* a device that has failed fails here too; who goes cannot care */
    weft_i_stream_after(storage->stream, storage->reader, false);
    weft_i_errors_restore(&before);
    set(&storage->reader, NULL);
}
