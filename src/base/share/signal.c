/* SPDX-License-Identifier: Apache-2.0 */
/* Meeting on a point: see signal.h for the protocol and why giving up is safe. */
#include "base/share/signal.h"

#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/status.h"

/* What a pass word says, beside the epoch it speaks of. */
enum { LOOKING = 1, BARRED, PASSED, MISMATCHED };

typedef struct looking {
    const weft_i_point *point;
    weft_i_meeting *meeting;
    char *words;         /* of this meeting: that of rank 0 */
    int next;            /* how many were seen, counted round from our own rank */
    int different;       /* of those, one that called something else; -1 */
    int lost;            /* the rank that will not come */
    weft_status verdict; /* what was seen that ends the wait; WEFT_OK: nothing */
} looking;

typedef enum sight { ABSENT, THERE, ANEW, DIFFERENT } sight;

static looking looking_at(const weft_i_point *point, weft_i_meeting *meeting)
{
    WEFT_ASSERT(point->me >= 0 && point->me < point->size);
    return (looking){.point = point,
                     .meeting = meeting,
                     .words = (char *)weft_i_point_turn(point, 0, meeting->epoch),
                     .different = -1};
}

/* Beside the step: how many meetings before this one the rank went on from without knowing of all.
 */
enum { UNKNOWN = 8, STEP_MASK = UNKNOWN - 1 };

/* The pass word of a rank that looks no more. */
static uint64_t pass_word(const weft_i_meeting *meeting, uint32_t step)
{
    WEFT_ASSERT(step > LOOKING && step <= MISMATCHED);
    return meeting->pass + (step - LOOKING);
}

static bool is_step(uint64_t pass, uint32_t epoch, uint32_t step)
{
    return (uint32_t)(pass >> 32) == epoch && ((uint32_t)pass & STEP_MASK) == step;
}

/* Did the rank with this pass word go on from `epoch`, or does it know that all were there? Whoever
 * is in a later one did, but for those before it that it knows nothing of. */
static bool went_on(uint64_t pass, uint32_t epoch)
{
    uint32_t known = (uint32_t)(pass >> 32) - 1 - ((uint32_t)pass / UNKNOWN);
    return (int32_t)(known - epoch) >= 0 || is_step(pass, epoch, PASSED);
}

bool weft_i_signal_has_gone_on(uint64_t pass, uint32_t epoch)
{
    return pass && went_on(pass, epoch);
}

static sight see(const weft_i_meeting *meeting, uint64_t word)
{
    uint32_t digest = weft_i_arrival_digest(word);
    if (!weft_i_arrived(word, meeting->epoch))
        return ABSENT;
    if (weft_i_arrival_epoch(word) != meeting->epoch || digest == meeting->digest)
        return THERE;
    if ((digest ^ meeting->digest) & 1)
        return meeting->digest & 1 ? ANEW : ABSENT;
    return DIFFERENT;
}

static uint64_t word_of(const looking *look, int rank)
{
    /* Pairs with the release in arrive. */
    char *word = look->words + (size_t)rank * look->point->stride;
    return atomic_load_explicit((_Atomic uint64_t *)(void *)word, memory_order_acquire);
}

/* Everybody starts to look behind itself, so that not all read the same line at once. */
static int rank_at(const weft_i_point *point, int turn)
{
    WEFT_ASSERT(turn >= 0 && turn < point->size);
    int rank = point->me + turn;
    return rank < point->size ? rank : rank - point->size;
}

static bool is_awaited(const weft_i_point *point, int rank)
{
    return !point->whom || rank == point->whom - 1;
}

/*
 * Pairs with the barrier in give_up: whoever gives up sees this, or we see that its arrival is gone.
 * That barrier stands in for a fence here, which only has to hold the compiler.
 */
static void say_looking(const weft_i_point *point, const weft_i_meeting *meeting)
{
    WEFT_ASSERT(((uint32_t)meeting->pass & STEP_MASK) == LOOKING);
    atomic_store_explicit(weft_i_point_pass(point, point->me), meeting->pass, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
}

/* Starts from the first rank. */
static void look_anew(looking *look)
{
    look->next = 0;
    look->different = -1;
    say_looking(look->point, look->meeting);
}

/* All are here: goes on, or finds the mismatch; false if somebody took its arrival back meanwhile.
 */
static bool decide(looking *look)
{
    WEFT_ASSERT(look->verdict == WEFT_OK);
    const weft_i_point *point = look->point;
    if (point->size == 1)
        return true; /* nobody can bar a rank that is alone */
    uint64_t expected = look->meeting->pass;
    uint64_t desired = expected + ((look->different < 0 ? PASSED : MISMATCHED) - LOOKING);
    /* Pairs with the exchange in weft_i_signal_bar: whoever finds it there has seen all that we have seen. */
    if (!atomic_compare_exchange_strong_explicit(weft_i_point_pass(point, point->me), &expected,
                                                 desired, memory_order_acq_rel,
                                                 memory_order_acquire)) {
        look_anew(look); /* acquire: and sees that the arrival is gone */
        return false;
    }
    if (look->different >= 0) {
        look->verdict = WEFT_ERR_MISMATCH;
        look->meeting->culprit = look->different;
    }
    return true;
}

/* Are all here, and is it decided?  Also true if something was seen that ends the wait. */
static bool all_here(void *arg)
{
    looking *look = arg;
    if (look->verdict < 0)
        return true;
    int whom = look->point->whom;
    for (; look->next < (whom ? 1 : look->point->size); look->next++) {
        int rank = whom ? whom - 1 : rank_at(look->point, look->next);
        sight seen = see(look->meeting, word_of(look, rank));
        if (seen == DIFFERENT)
            look->different = rank;
        if (seen == ABSENT || seen == ANEW) {
            look->meeting->culprit = rank;
            look->verdict = seen == ANEW ? WEFT_ERR_CANCELLED : WEFT_OK;
            return look->verdict < 0;
        }
    }
    return decide(look);
}

/* Can it still happen?  Looks at everybody: the one who ends it may come behind the one we wait
 * for, or have been seen here, and then have given up and died. */
static weft_status nobody_lost(void *arg)
{
    looking *look = arg;
    const weft_i_point *point = look->point;
    for (int rank = 0; rank < point->size && point->lost; rank++) {
        if (!is_awaited(point, rank) || see(look->meeting, word_of(look, rank)) != ABSENT)
            continue;
        weft_status status = point->lost(point->arg, (uint64_t)rank);
        /* One who only gives may have come and left since we looked. */
        if (status < 0 && see(look->meeting, word_of(look, rank)) == ABSENT) {
            look->lost = rank;
            return status;
        }
    }
    return WEFT_OK;
}

/* Whom the sleeper waits for before all others: it looks at them in order. */
static uint32_t awaited_first(void *arg)
{
    const looking *look = arg;
    const weft_i_point *point = look->point;
    if (point->whom)
        return WEFT_I_WAIT_RANK + (uint32_t)point->whom - 1;
    return look->next < point->size ? WEFT_I_WAIT_RANK + (uint32_t)rank_at(point, look->next)
                                    : (uint32_t)WEFT_I_WAIT_ANYBODY;
}

/* Pairs with the fence in set_bell.  Ranks that spin sleep only after a long wait: not worth a
 * fence. */
static void fence_for_bells(const weft_i_point *point)
{
    if (point->mode != WEFT_I_WAIT_SPIN)
        atomic_thread_fence(memory_order_seq_cst);
}

void weft_i_signal_ring(const weft_i_point *point)
{
    fence_for_bells(point);
    for (int rank = 0; rank < point->size; rank++)
        if (rank != point->me)
            weft_i_wait_ring(weft_i_point_bell(point, rank));
}

static void arrive(const weft_i_point *point, uint32_t epoch, uint32_t digest)
{
    /* Pairs with the acquire in word_of. */
    atomic_store_explicit(weft_i_point_turn(point, point->me, epoch),
                          (uint64_t)epoch << 32 | digest, memory_order_release);
    fence_for_bells(point);
    for (int rank = 0; rank < point->size; rank++)
        if (rank != point->me)
            weft_i_wait_ring_by(weft_i_point_bell(point, rank), point->me);
}

/* With turns, one that gave up the call that is asked for may have tried another one since, in which
 * not everybody waits for everybody, and gone on from that. */
static bool called_else(const weft_i_point *point, uint32_t epoch, uint32_t digest, int rank)
{
    /* Relaxed: the acquire of its pass word brought it. */
    uint64_t word =
        atomic_load_explicit(weft_i_point_turn(point, rank, epoch), memory_order_relaxed);
    return point->turn_stride && weft_i_arrival_epoch(word) == epoch &&
           weft_i_arrival_digest(word) != digest;
}

weft_status weft_i_signal_bar(const weft_i_point *point, uint32_t epoch, uint32_t digest, int but,
                              int *who)
{
    WEFT_ASSERT(but < point->size);
    weft_status found = WEFT_IN_PROGRESS;
    for (int rank = 0; rank < point->size; rank++) {
        if (rank == but || (point->far && point->far->away[rank]))
            continue;
        /* Acquire: pairs with the exchange in decide. */
        uint64_t pass = atomic_load_explicit(weft_i_point_pass(point, rank), memory_order_acquire);
        bool barred = false;
        /* Pairs with the exchange in decide: one of the two changes LOOKING. */
        while (is_step(pass, epoch, LOOKING) && !barred)
            barred = atomic_compare_exchange_weak_explicit(
                weft_i_point_pass(point, rank), &pass, pass + (BARRED - LOOKING),
                memory_order_acq_rel, memory_order_acquire);
        if (barred)
            continue;
        if (went_on(pass, epoch) && !called_else(point, epoch, digest, rank))
            found = WEFT_OK;
        else if (is_step(pass, epoch, MISMATCHED))
            found = WEFT_ERR_MISMATCH;
        if (found != WEFT_IN_PROGRESS && *who < 0)
            *who = rank;
    }
    return found;
}

/* The same on all hosts. */
static weft_status find_out(const looking *look)
{
    const weft_i_point *point = look->point;
    weft_status found = weft_i_signal_bar(point, look->meeting->epoch, look->meeting->digest,
                                          point->me, &look->meeting->culprit);
    return found == WEFT_IN_PROGRESS && point->far ? point->far->bar(point, look->meeting) : found;
}

/* Takes the arrival back, or finds that the meeting is decided after all. */
static weft_status give_up(looking *look, weft_status why)
{
    WEFT_ASSERT(why < 0 && why != WEFT_ERR_MISMATCH);
    const weft_i_point *point = look->point;
    weft_i_meeting *meeting = look->meeting;
    if (point->giving_up)
        point->giving_up(point->arg);
    /* Relaxed: should we die here, it tells that we have not gone on. */
    atomic_store_explicit(weft_i_point_pass(point, point->me), pass_word(meeting, BARRED),
                          memory_order_relaxed);
    /* Pairs with the acquire in word_of, as the arrival that it restores. */
    atomic_store_explicit(weft_i_point_turn(point, point->me, meeting->epoch), meeting->before,
                          memory_order_release);
    weft_i_os_barrier_everywhere();
    weft_status found = find_out(look);
    if (found == WEFT_IN_PROGRESS)
        return why;
    /* Pairs with the exchange in weft_i_signal_bar. */
    atomic_store_explicit(weft_i_point_pass(point, point->me),
                          pass_word(meeting, found == WEFT_OK ? PASSED : MISMATCHED),
                          memory_order_release);
    arrive(point, meeting->epoch, meeting->digest);
    if (point->far)
        point->far->told(point, meeting);
    return found;
}

static weft_status wait_for_all(looking *look, int64_t deadline_ms)
{
    const weft_i_point *point = look->point;
    weft_i_wait wait = {.ready = all_here,
                        .lost = nobody_lost,
                        .arg = look,
                        .bell = weft_i_point_bell(point, point->me),
                        .wheel = point->far ? point->far->wheel : NULL,
                        .deadline = weft_i_os_deadline(deadline_ms),
                        .began = &look->meeting->began,
                        .awaits = awaited_first,
                        .peers = point->whom ? 1 : point->size,
                        .mode = point->mode};
    if (point->far && point->far->alone)
        wait.bell = NULL;
    weft_status status = weft_i_wait_for(&wait);
    if (look->verdict == WEFT_ERR_CANCELLED)
        status = nobody_lost(look); /* who gave up may have done so for one that is lost */
    if (look->verdict < 0 && status == WEFT_OK)
        return look->verdict;
    if (status < 0 && status != WEFT_ERR_TIMEOUT)
        look->meeting->culprit = look->lost;
    return status;
}

/* Whom the mismatch was with, for a rank that calls again: our word still says what we called. */
static weft_status mismatch_again(const weft_i_point *point, weft_i_meeting *meeting)
{
    looking look = looking_at(point, meeting);
    uint64_t mine = atomic_load_explicit(weft_i_point_turn(point, point->me, meeting->epoch),
                                         memory_order_relaxed);
    meeting->digest = weft_i_arrival_digest(mine);
    for (int rank = 0; rank < point->size; rank++)
        if (see(meeting, word_of(&look, rank)) == DIFFERENT || meeting->culprit < 0)
            meeting->culprit = rank;
    return WEFT_ERR_MISMATCH;
}

static bool others_are_here(const looking *look)
{
    for (int rank = 0; rank < look->point->size; rank++)
        if (rank != look->point->me && is_awaited(look->point, rank) &&
            see(look->meeting, word_of(look, rank)) != THERE)
            return false;
    return true;
}

weft_status weft_i_signal_come(const weft_i_point *point, uint32_t digest, weft_i_meeting *meeting)
{
    WEFT_ASSERT(point->whom >= 0 && point->whom <= point->size);
    /* Our own words: only the pass word may be changed by others, and not now. */
    uint64_t last = atomic_load_explicit(weft_i_point_word(point, point->me), memory_order_relaxed);
    uint64_t pass = atomic_load_explicit(weft_i_point_pass(point, point->me), memory_order_relaxed);
    uint32_t epoch = (point->turn_stride ? point->epoch : weft_i_arrival_epoch(last)) + 1;
    uint32_t unknown = point->turn_stride ? point->epoch - point->settled : 0;
    digest = (digest & ~1u) | point->later; /* odd for later meetings: see signal.h */
    /* Not the rest: a wait fills it, and most meetings end without one. */
    meeting->epoch = epoch;
    meeting->digest = digest;
    meeting->culprit = -1;
    meeting->before =
        atomic_load_explicit(weft_i_point_turn(point, point->me, epoch), memory_order_relaxed);
    meeting->pass = (uint64_t)epoch << 32 | unknown * UNKNOWN | LOOKING;
    if (((uint32_t)pass & STEP_MASK) == MISMATCHED) {
        meeting->epoch = (uint32_t)(pass >> 32);
        return mismatch_again(point, meeting);
    }
    say_looking(point, meeting);
    arrive(point, epoch, digest);
    return WEFT_OK;
}

weft_status weft_i_signal_look(const weft_i_point *point, weft_i_meeting *meeting)
{
    looking look = looking_at(point, meeting);
    /* Most meetings end in this first bout, without a pause (40 ns on some cores) and before the
     * clock is read. */
    int looks = point->mode == WEFT_I_WAIT_SPIN ? 512 : point->looks ? point->looks : 1;
    for (int i = 0; i < looks; i++)
        if (all_here(&look))
            return look.verdict != WEFT_ERR_CANCELLED ? look.verdict : WEFT_IN_PROGRESS;
    return WEFT_IN_PROGRESS;
}

weft_status weft_i_signal_await(const weft_i_point *point, int64_t timeout_ms,
                                weft_i_meeting *meeting)
{
    looking look = looking_at(point, meeting);
    meeting->began = 0;
    weft_status status = wait_for_all(&look, timeout_ms);
    if (status < 0 && status != WEFT_ERR_MISMATCH)
        status = give_up(&look, status);
    /* The last one came just as we gave up: nobody is missing now, so look once more. */
    if (status == WEFT_ERR_TIMEOUT && others_are_here(&look)) {
        look_anew(&look);
        arrive(point, meeting->epoch, meeting->digest);
        if (point->far)
            point->far->told(point, meeting);
        status = wait_for_all(&look, 0);
        if (status < 0 && status != WEFT_ERR_MISMATCH)
            status = give_up(&look, status);
    }
    return status;
}

weft_status weft_i_signal_meet(const weft_i_point *point, uint32_t digest, int64_t timeout_ms,
                               weft_i_meeting *meeting)
{
    WEFT_TRY(weft_i_signal_come(point, digest, meeting));
    weft_status status = weft_i_signal_look(point, meeting);
    return status == WEFT_IN_PROGRESS ? weft_i_signal_await(point, timeout_ms, meeting) : status;
}

void weft_i_signal_arrive(const weft_i_point *point, uint32_t digest)
{
    arrive(point, point->epoch + 1, (digest & ~1u) | point->later);
}

bool weft_i_signal_is_settled(const weft_i_point *point, uint32_t epoch)
{
    weft_i_meeting meeting = {.epoch = epoch, .culprit = -1};
    looking look = looking_at(point, &meeting);
    for (int turn = 1; turn < point->size; turn++)
        if (!weft_i_arrived(word_of(&look, rank_at(point, turn)), epoch))
            return false;
    return true;
}

/* Has the next rank arrived, and all that follow? */
static bool all_arrived(void *arg)
{
    looking *look = arg;
    for (; look->next < look->point->size; look->next++)
        if (!weft_i_arrived(word_of(look, rank_at(look->point, look->next)), look->meeting->epoch))
            return false;
    return true;
}

static weft_status nobody_stays_away(void *arg)
{
    looking *look = arg;
    const weft_i_point *point = look->point;
    for (int turn = look->next; turn < point->size && point->lost; turn++) {
        int rank = rank_at(point, turn);
        if (weft_i_arrived(word_of(look, rank), look->meeting->epoch))
            continue;
        look->lost = rank;
        weft_status status = point->lost(point->arg, (uint64_t)rank);
        if (status < 0 && !weft_i_arrived(word_of(look, rank), look->meeting->epoch))
            return status; /* it has not come and left since we looked */
    }
    return WEFT_OK;
}

weft_status weft_i_signal_settle(const weft_i_point *point, uint32_t epoch, int64_t timeout_ms,
                                 int *culprit)
{
    weft_i_meeting meeting = {.epoch = epoch, .culprit = -1};
    looking look = looking_at(point, &meeting);
    look.next = 1; /* we have */
    if (all_arrived(&look))
        return WEFT_OK;
    weft_i_wait wait = {.ready = all_arrived,
                        .lost = nobody_stays_away,
                        .arg = &look,
                        .bell = weft_i_point_bell(point, point->me),
                        .deadline = weft_i_os_deadline(timeout_ms),
                        .awaits = point->whom ? NULL : awaited_first,
                        .peers = point->size,
                        .mode = point->mode};
    weft_status status = weft_i_wait_for(&wait);
    *culprit = status < 0 && status != WEFT_ERR_TIMEOUT ? look.lost : -1;
    return status;
}
