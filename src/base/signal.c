/* SPDX-License-Identifier: Apache-2.0 */
/* Meeting on a point: see signal.h for the protocol and why giving up is safe. */
#include "base/signal.h"

#include "base/os.h"

typedef struct looking {
    const weft_i_point *point;
    weft_i_meeting *meeting;
    int next; /* ranks before this one were seen */
    bool mismatch;
} looking;

static void note_culprit(looking *look, int rank, uint64_t word)
{
    look->meeting->culprit = rank;
    look->meeting->culprit_digest = weft_i_arrival_digest(word);
}

/* Reads the words from rank `first` on; true if all have arrived.  Acquire: pairs with the release
 * in `arrive`. */
static bool all_from(looking *look, int first)
{
    const weft_i_point *point = look->point;
    for (int rank = first; rank < point->size; rank++) {
        uint64_t word = atomic_load_explicit(weft_i_point_turn(point, rank, look->meeting->epoch),
                                             memory_order_acquire);
        if (!weft_i_arrived(word, look->meeting->epoch)) {
            look->next = rank;
            note_culprit(look, rank, word);
            return false;
        }
        if (weft_i_arrival_epoch(word) == look->meeting->epoch &&
            weft_i_arrival_digest(word) != look->meeting->digest) {
            look->mismatch = true;
            note_culprit(look, rank, word);
            return true;
        }
    }
    return true;
}

/* Once the last arrival is seen all words are read again, in case one was taken back meanwhile. */
static bool all_here(void *arg)
{
    looking *look = arg;
    if (!all_from(look, look->next) || look->mismatch)
        return look->mismatch;
    look->next = 0;
    return look->point->size == 2 || all_from(look, 0);
}

static weft_status nobody_lost(void *arg)
{
    const looking *look = arg;
    if (!look->point->lost)
        return WEFT_OK;
    for (int rank = look->next; rank < look->point->size; rank++) {
        uint64_t word = atomic_load_explicit(
            weft_i_point_turn(look->point, rank, look->meeting->epoch), memory_order_relaxed);
        if (!weft_i_arrived(word, look->meeting->epoch)) {
            weft_status status = look->point->lost(look->point->arg, (uint64_t)rank);
            if (status < 0) {
                note_culprit((looking *)arg, rank, word);
                return status;
            }
        }
    }
    return WEFT_OK;
}

void weft_i_signal_ring(const weft_i_point *point)
{
    /* Pairs with the fence of a sleeper.  Ranks that spin sleep only after a long wait: not worth a
     * fence. */
    if (point->mode != WEFT_I_WAIT_SPIN)
        atomic_thread_fence(memory_order_seq_cst);
    for (int rank = 0; rank < point->size; rank++)
        if (rank != point->me)
            weft_i_wait_ring(weft_i_point_bell(point, rank));
}

/* Takes the arrival back, or finds that the meeting has succeeded after all. */
static weft_status take_back(looking *look, uint64_t before, uint64_t after)
{
    _Atomic uint64_t *mine = weft_i_point_turn(look->point, look->point->me, look->meeting->epoch);
    atomic_store_explicit(mine, before, memory_order_relaxed);
    weft_i_os_barrier_everywhere();
    look->next = 0;
    bool others = true;
    for (int rank = 0; rank < look->point->size && others; rank++)
        if (rank != look->point->me) {
            uint64_t word = atomic_load_explicit(
                weft_i_point_turn(look->point, rank, look->meeting->epoch), memory_order_acquire);
            others = weft_i_arrived(word, look->meeting->epoch);
            if (!others)
                note_culprit(look, rank, word);
        }
    if (!others)
        return WEFT_ERR_TIMEOUT;
    atomic_store_explicit(mine, after,
                          memory_order_release); /* pairs with the acquire in all_from */
    weft_i_signal_ring(look->point);
    return WEFT_OK;
}

weft_status weft_i_signal_meet(const weft_i_point *point, uint32_t digest, int64_t timeout_ms,
                               weft_i_meeting *meeting)
{
    uint64_t last =
        atomic_load_explicit(weft_i_point_word(point, point->me),
                             memory_order_relaxed); /* our own word: nobody else writes it */
    meeting->epoch = (point->turn_stride ? point->epoch : weft_i_arrival_epoch(last)) + 1;
    _Atomic uint64_t *mine = weft_i_point_turn(point, point->me, meeting->epoch);
    uint64_t before = atomic_load_explicit(mine, memory_order_relaxed);
    meeting->digest = digest;
    meeting->culprit = -1;
    uint64_t after = (uint64_t)meeting->epoch << 32 | digest;
    atomic_store_explicit(mine, after,
                          memory_order_release); /* pairs with the acquire in all_from */
    weft_i_signal_ring(point);

    looking look = {.point = point, .meeting = meeting};
    weft_status status = WEFT_OK;
    /* Most meetings end in this first bout, without a pause (40 ns on some cores) and before the
     * clock is read. */
    int bout = point->mode == WEFT_I_WAIT_SPIN ? 512 : 1;
    while (bout > 0 && !all_here(&look))
        bout--;
    if (bout == 0) {
        weft_i_wait wait = {.ready = all_here,
                            .lost = nobody_lost,
                            .arg = &look,
                            .bell = weft_i_point_bell(point, point->me),
                            .deadline = weft_i_os_deadline(timeout_ms),
                            .mode = point->mode};
        status = weft_i_wait_for(&wait);
    }
    if (status == WEFT_ERR_TIMEOUT)
        status = take_back(&look, before, after);
    return status == WEFT_OK && look.mismatch ? WEFT_ERR_MISMATCH : status;
}
