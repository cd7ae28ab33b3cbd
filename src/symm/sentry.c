/* SPDX-License-Identifier: Apache-2.0 */
/* The sentry's thread and its posts; see sentry.h. */
#include "symm/sentry.h"

#include "base/os/os.h"
#include "base/os/place.h"
#include "base/report/status.h"
#include "fabric/group/quarrel.h"

#include <stdio.h>
#include <string.h>

enum {
    MS = 1000 * 1000,
    QUICK_NS = MS / 4, /* a kernel that waits costs more than these looks */
    SLOW_NS = 50 * MS,
    RECENT_NS = 1000 * MS, /* work that was enqueued this long ago may still wait */
    LEFT_NS = 100 * MS,    /* what a rank enqueued before it left may still arrive */
    LINGER = 160           /* looks without a post before the thread ends */
};

struct weft_i_post {
    weft_i_post *next;
    weft_i_world *world;     /* held: the group may go before */
    weft_i_segment *segment; /* of the board, held; NULL: it is in the world's */
    weft_i_board *board;     /* NULL: members on several hosts */
    weft_i_post_duty duty;
    atomic_bool
        recent; /* relaxed: set by whoever enqueues, cleared by the thread; nothing hangs on it */
    bool told;
    int64_t recent_until;
    int rank, size;
    char group[WEFT_I_GROUP_NAME];
    struct member {
        int world_rank;
        int64_t lost_since; /* 0: it is not */
    } members[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the posts */
static weft_i_post *first;
static bool (*errand)(void); /* NULL: none */
static unsigned asked;       /* how often it was asked for */
static bool running;
static int idle;            /* looks since there was something to look at */
static unsigned generation; /* of forks: in a child there is no thread */
/* Rung to quicken the thread.  Release, acquire by the thread. */
static _Atomic uint32_t bell;
static atomic_bool slow; /* relaxed: `bell` is rung after it */

/* Is a member that has left missed?  Not if it has enqueued all that waits here: that ends without
 * it. */
static bool is_missed(const weft_i_post *post, int rank)
{
    const weft_i_post_duty *duty = &post->duty;
    /* Pairs with weft_i_post_show; what a member enqueued it did before it left. */
    return !duty->needs || atomic_load_explicit(&post->board->row[rank].enqueued,
                                                memory_order_acquire) < duty->needs(duty->arg);
}

const char *weft_i_post_quarrel(const weft_i_post *post)
{
    const weft_i_board *board = post->board;
    /* Relaxed: stored before `revoked`, and without it the quarrel is not over. */
    return board && atomic_load_explicit(&board->failure, memory_order_relaxed) == WEFT_ERR_MISMATCH
               ? weft_i_quarrel_on(board)
               : NULL;
}

/* Has the member gone, or the group ended? */
static weft_status fate_of(const weft_i_post *post, int rank)
{
    weft_status fate = weft_i_world_fate(post->world, post->members[rank].world_rank);
    if (fate == WEFT_ERR_PEER_DEAD || !post->board)
        return fate;
    /* Each pairs with the release of its writer. */
    if (atomic_load_explicit(&post->board->row[rank].left, memory_order_acquire))
        fate = WEFT_ERR_PEER_LEFT;
    if (fate == WEFT_ERR_PEER_LEFT && is_missed(post, rank))
        return fate;
    if (!atomic_load_explicit(&post->board->revoked, memory_order_acquire))
        return WEFT_OK;
    return weft_i_post_quarrel(post) ? WEFT_ERR_MISMATCH : WEFT_ERR_REVOKED;
}

/* Is it certain that this member, which is lost, ends what waits here?  A death is at once.  Nobody
 * else is missed before something waits for it, and what it did before may still arrive. */
static bool is_told(const weft_i_post *post, int rank, weft_status fate, bool waits, int64_t now)
{
    const weft_i_post_duty *duty = &post->duty;
    return fate == WEFT_ERR_PEER_DEAD ||
           (waits && now - post->members[rank].lost_since >= LEFT_NS &&
            (!duty->awaits || duty->awaits(duty->arg, rank)));
}

/* The member that is to be told, and why: one that is lost for good comes first. */
static weft_status find_lost(weft_i_post *post, bool waits, int64_t now, int *out)
{
    weft_status found = WEFT_OK;
    for (int rank = 0; rank < post->size && found != WEFT_ERR_PEER_DEAD; rank++) {
        struct member *member = &post->members[rank];
        weft_status fate = rank == post->rank ? WEFT_OK : fate_of(post, rank);
        if (fate == WEFT_OK)
            member->lost_since = 0;
        else if (!member->lost_since)
            member->lost_since = now;
        if (fate < 0 && (found == WEFT_OK || fate == WEFT_ERR_PEER_DEAD) &&
            is_told(post, rank, fate, waits, now)) {
            found = fate;
            *out = rank;
        }
    }
    return found;
}

static void look_at(weft_i_post *post, int64_t now)
{
    int rank = -1;
    bool waits = post->duty.is_waiting(post->duty.arg);
    if (atomic_exchange_explicit(&post->recent, false, memory_order_relaxed) || waits)
        post->recent_until = now + RECENT_NS;
    /* Pairs with weft_i_world_leave: whoever has left itself waits for nobody. */
    if (post->told || atomic_load_explicit(&post->world->finished, memory_order_acquire))
        return;
    weft_status fate = find_lost(post, waits, now, &rank);
    if (fate == WEFT_OK)
        return;
    post->told = true;
    post->duty.condemn(post->duty.arg, fate, rank);
}

/* How long to rest after a look at all posts; 0: there is nothing to look at, and it is over. */
static int64_t look(void)
{
    int64_t now = WEFT_OS->clock_ns();
    bool quick = false;
    pthread_mutex_lock(&lock);
    bool (*run)(void) = errand;
    unsigned before = asked;
    pthread_mutex_unlock(&lock);
    bool done = !run || run(); /* without the lock: it may close posts */
    pthread_mutex_lock(&lock);
    if (done && asked == before) /* nobody has asked again meanwhile */
        errand = NULL;
    for (weft_i_post *post = first; post; post = post->next) {
        look_at(post, now);
        quick |= now < post->recent_until;
    }
    idle = first || errand ? 0 : idle + 1;
    quick |= !first || errand;
    if (idle > LINGER)
        running = false;
    bool over = !running;
    pthread_mutex_unlock(&lock);
    atomic_store_explicit(&slow, !quick, memory_order_relaxed);
    return over ? 0 : quick ? QUICK_NS : SLOW_NS;
}

static void *stand(void *arg)
{
    (void)arg;
    WEFT_OS->thread_detach();
    for (;;) {
        uint32_t seen = atomic_load_explicit(&bell, memory_order_acquire); /* pairs with ring */
        int64_t rest = look();
        if (rest == 0)
            return NULL;
        WEFT_OS->futex_wait(&bell, seen, rest);
    }
}

static void ring(void)
{
    atomic_fetch_add_explicit(&bell, 1, memory_order_release); /* pairs with the load in stand */
    WEFT_OS->futex_wake(&bell, 1);
}

/* Under the lock. */
static weft_status start(void)
{
    pthread_t thread;
    if (running && generation == weft_i_os_generation())
        return WEFT_OK;
    if (generation !=
        weft_i_os_generation()) { /* the posts are a parent's, and so was the thread */
        first = NULL;
        errand = NULL;
    }
    generation = weft_i_os_generation();
    idle = 0;
    int error = WEFT_OS->thread_create(&thread, stand, NULL);
    if (error)
        return weft_i_fail_errno(error, "no thread to look out for lost ranks");
    running = true;
    return WEFT_OK;
}

weft_status weft_i_sentry_run(bool (*run)(void))
{
    pthread_mutex_lock(&lock);
    weft_status status = start();
    errand = status == WEFT_OK ? run : errand;
    asked++;
    pthread_mutex_unlock(&lock);
    if (atomic_load_explicit(&slow, memory_order_relaxed))
        ring();
    return status;
}

static weft_i_post *new_post(const weft_group *group, const weft_i_post_duty *duty)
{
    weft_i_post *post = WEFT_OS->alloc(sizeof *post + (size_t)group->size * sizeof(struct member));
    if (!post)
        return weft_i_null(WEFT_ERR_NO_MEMORY, "no memory to look out for %d ranks", group->size);
    *post = (weft_i_post){.world = weft_i_world_hold(group->world),
                          .segment = group->rest.board_segment
                                         ? weft_i_segment_hold(group->rest.board_segment)
                                         : NULL,
                          .board = group->world->fake ? NULL : group->board,
                          .duty = *duty,
                          .rank = group->rank,
                          .size = group->size};
    for (int rank = 0; rank < group->size; rank++)
        post->members[rank] = (struct member){.world_rank = group->members[rank]};
    snprintf(post->group, sizeof post->group, "%s", group->name);
    return post;
}

static void free_post(weft_i_post *post)
{
    weft_i_segment_drop(post->segment);
    weft_i_world_drop(post->world);
    WEFT_OS->free(post);
}

weft_status weft_i_post_open(const weft_i_circle *circle, const weft_i_post_duty *duty,
                             weft_i_post **out)
{
    weft_i_post *post = new_post(circle->group, duty);
    if (!post)
        return weft_last_status();
    pthread_mutex_lock(&lock);
    weft_status status = start();
    if (status == WEFT_OK) {
        post->next = first;
        first = post;
    }
    pthread_mutex_unlock(&lock);
    if (status < 0)
        free_post(post);
    else
        *out = post;
    return status;
}

void weft_i_post_close(weft_i_post *post)
{
    if (!post || generation != weft_i_os_generation())
        return; /* in a forked child the thread, which is not here, may have held the lock */
    pthread_mutex_lock(&lock);
    weft_i_post **at = &first;
    while (*at != post)
        at = &(*at)->next;
    *at = post->next;
    pthread_mutex_unlock(&lock);
    free_post(post);
}

WEFT_I_HOT void weft_i_post_note_work(weft_i_post *post)
{
    atomic_store_explicit(&post->recent, true, memory_order_relaxed);
    if (atomic_load_explicit(&slow, memory_order_relaxed)) {
        atomic_store_explicit(&slow, false, memory_order_relaxed);
        ring();
    }
}

WEFT_I_BACK void weft_i_post_show(weft_i_post *post, uint64_t enqueued)
{
    if (post->board) /* pairs with the acquire in is_missed */
        atomic_store_explicit(&post->board->row[post->rank].enqueued, enqueued,
                              memory_order_release);
}

void weft_i_post_before_leaving(void (*farewell)(const weft_i_world *world))
{
    weft_i_world_before_leaving(farewell);
}

bool weft_i_post_is_of(const weft_i_post *post, const weft_i_world *world)
{
    return post->world == world;
}

bool weft_i_post_is_beside(const weft_i_post *post, const weft_i_post *other)
{
    return post->world == other->world && !strcmp(post->group, other->group);
}

void weft_i_post_renew(weft_i_post *post)
{
    pthread_mutex_lock(&lock);
    post->told = false;
    for (int rank = 0; rank < post->size; rank++)
        post->members[rank].lost_since = 0;
    pthread_mutex_unlock(&lock);
}

void weft_i_post_text(const weft_i_post *post, char *out, size_t bytes)
{
    snprintf(out, bytes, "rank %d of %d in group \"%s\"", post->rank, post->size, post->group);
}

void weft_i_post_describe(const weft_i_post *post, int rank, char *out, size_t bytes)
{
    if (rank >= 0 && rank < post->size)
        weft_i_world_describe(post->world, post->members[rank].world_rank, out, bytes);
    else
        snprintf(out, bytes, "rank %d", rank);
}
