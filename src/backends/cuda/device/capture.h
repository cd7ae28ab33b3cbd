/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Capture: a stream's work is noted instead of run, and can then be run again and again.  What is
 * replayed uses the same addresses each time, so memory that is allocated during a capture belongs
 * to its replay and is not given to others as long as that lives.
 */
#ifndef WEFT_CUDA_CAPTURE_H
#define WEFT_CUDA_CAPTURE_H

#include "queue.h"

typedef struct weft_i_cuda_replay weft_i_cuda_replay;

weft_status weft_i_cuda_is_capturing(weft_i_cuda_stream *stream, bool *out);
/* WEFT_ERR_STATE if the stream is being captured: `what` would break the capture. */
weft_status weft_i_cuda_refuse_capture(weft_i_cuda_stream *stream, const char *what);

weft_status weft_i_cuda_capture_begin(weft_i_cuda_stream *stream);
/* `out` NULL: throws away what was noted. */
weft_status weft_i_cuda_capture_end(weft_i_cuda_stream *stream, weft_i_cuda_replay **out);
weft_status weft_i_cuda_replay_run(weft_i_cuda_replay *replay, weft_i_cuda_stream *stream);
/* Its memory goes when no tensor holds it any more. */
void weft_i_cuda_replay_drop(weft_i_cuda_replay *replay);

/* No other one of the process has its number; and the operations noted that have an order (queue.h). */
uint64_t weft_i_cuda_capture_number(const weft_i_cuda_replay *replay);
weft_i_cuda_front **weft_i_cuda_capture_noted(weft_i_cuda_replay *replay);

/* Memory for a stream that is being captured; WEFT_ERR_NOT_FOUND without a message if it is not. */
weft_status weft_i_cuda_capture_alloc(weft_i_cuda_stream *stream, size_t bytes, weft_i_cu_ptr *out);
/* Whether the memory is a replay's; then it has it back. */
bool weft_i_cuda_capture_free(weft_i_cuda_stream *stream, weft_i_cu_ptr memory);

#endif
