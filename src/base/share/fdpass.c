/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptor server.  The table of publishes is guarded by a mutex; the socket side is touched only
 * by the serving thread. Callers are strangers until the kernel says they are our user; each gets
 * one request of fixed size and a short time.
 */
#include "base/share/fdpass.h"

#include "base/machine/nofork.h"
#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/status.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <sys/un.h>

enum {
    CALLERS = 64,                     /* at once; the oldest is dropped for a newer one */
    PATIENCE_NS = 1000 * 1000 * 1000, /* for a caller to send its request */
    ADMISSIONS = 64, /* strangers or not: so many at a time, then those inside have their turn */
    REFUSALS = 3,    /* nobody listens at the server: its owner has gone, `lost` may not know yet */
    DOOR_MS = 4,     /* at a full queue, between two looks at the owner and the clock */
    ASKS = 4,        /* requests for what is not published yet, before the asker sleeps a little */
    MAGIC = 0x74736f70
};

typedef struct publish {
    weft_i_key key;
    weft_i_segment *segment; /* NULL: could not be made */
    weft_status failure;
} publish;

typedef struct caller {
    int fd;
    int64_t since;
} caller;

typedef struct request {
    uint32_t magic, reserved;
    weft_i_key key;
} request;

typedef struct reply {
    uint32_t magic;
    int32_t status; /* WEFT_OK with a descriptor, WEFT_IN_PROGRESS: not published yet, or why it
                       never will be */
    uint64_t bytes;
} reply;

struct weft_i_fdpass {
    atomic_int references; /* relaxed up, acq_rel down */
    weft_i_sharing sharing;
    char name[64];
    pthread_mutex_t lock; /* guards the publishes */
    publish *publishes;
    size_t count, room;
    int listener;
    int spare; /* given up for a moment to take a caller in when there are no descriptors left */
    caller callers[CALLERS];
    int calling;
    unsigned generation; /* a forked child must not close the parent's numbers */
};

static socklen_t address_of(const char *name, struct sockaddr_un *address)
{
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    /* A leading zero byte: the abstract namespace. */
    snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "%s", name);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
}

static weft_status listen_on(weft_i_fdpass *fdpass)
{
    weft_i_key random;
    WEFT_TRY(weft_i_key_new(&random));
    snprintf(fdpass->name, sizeof fdpass->name, "weft-%016llx%016llx",
             (unsigned long long)random.word[0], (unsigned long long)random.word[1]);
    struct sockaddr_un address;
    socklen_t length = address_of(fdpass->name, &address);
    fdpass->listener = WEFT_OS->socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);
    if (fdpass->listener < 0)
        return weft_i_fail_errno(errno, "cannot open a socket for passing memory between ranks");
    weft_status status =
        weft_i_nofork_add(fdpass->listener); /* a child's copy would hide our death */
    if (status < 0) {
        WEFT_OS->close(fdpass->listener);
        fdpass->listener = -1;
        return status;
    }
    if (WEFT_OS->bind(fdpass->listener, (struct sockaddr *)&address, length) ||
        WEFT_OS->listen(fdpass->listener, 1024))
        return weft_i_fail_errno(errno, "cannot listen on the abstract socket %s", fdpass->name);
    fdpass->spare = WEFT_OS->eventfd(0);
    return fdpass->spare < 0
               ? weft_i_fail_errno(errno, "cannot set a descriptor aside for passing memory")
               : WEFT_OK;
}

static void destroy(weft_i_fdpass *fdpass)
{
    bool ours = fdpass->generation == weft_i_os_generation();
    for (int i = 0; ours && i < fdpass->calling; i++)
        WEFT_OS->close(fdpass->callers[i].fd);
    if (ours && fdpass->listener >= 0)
        weft_i_nofork_close(fdpass->listener);
    if (fdpass->spare >= 0)
        WEFT_OS->close(fdpass->spare);
    for (size_t i = 0; i < fdpass->count; i++)
        weft_i_segment_drop(fdpass->publishes[i].segment);
    WEFT_OS->free(fdpass->publishes);
    pthread_mutex_destroy(&fdpass->lock);
    WEFT_OS->free(fdpass);
}

weft_status weft_i_fdpass_open(weft_i_sharing sharing, weft_i_fdpass **out)
{
    weft_i_fdpass *fdpass = WEFT_OS->alloc(sizeof *fdpass);
    if (!fdpass)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for a descriptor server");
    atomic_init(&fdpass->references, 1);
    fdpass->sharing = sharing;
    fdpass->listener = fdpass->spare = -1;
    fdpass->generation = weft_i_os_generation();
    pthread_mutex_init(&fdpass->lock, NULL);
    weft_status status = sharing == WEFT_I_BETWEEN_PROCESSES ? listen_on(fdpass) : WEFT_OK;
    if (status < 0) {
        destroy(fdpass);
        return status;
    }
    *out = fdpass;
    return WEFT_OK;
}

weft_i_fdpass *weft_i_fdpass_hold(weft_i_fdpass *fdpass)
{
    WEFT_ASSERT(atomic_load_explicit(&fdpass->references, memory_order_relaxed) > 0);
    atomic_fetch_add_explicit(&fdpass->references, 1, memory_order_relaxed);
    return fdpass;
}

void weft_i_fdpass_drop(weft_i_fdpass *fdpass)
{
    if (fdpass && atomic_fetch_sub_explicit(&fdpass->references, 1, memory_order_acq_rel) == 1)
        destroy(fdpass);
}

const char *weft_i_fdpass_name(const weft_i_fdpass *fdpass)
{
    return fdpass->name;
}

static publish *find(weft_i_fdpass *fdpass, weft_i_key key)
{
    for (size_t i = 0; i < fdpass->count; i++)
        if (weft_i_key_equal(fdpass->publishes[i].key, key))
            return &fdpass->publishes[i];
    return NULL;
}

/* Room for this publish and one more: a rank that could publish its block can publish the pads as
 * well, or tell why not. */
static bool make_room(weft_i_fdpass *fdpass)
{
    if (fdpass->count + 1 < fdpass->room)
        return true;
    size_t room = fdpass->room ? 2 * fdpass->room : 16;
    publish *wider = WEFT_OS->resize(fdpass->publishes, room * sizeof *wider);
    if (!wider)
        return fdpass->count < fdpass->room;
    fdpass->publishes = wider;
    fdpass->room = room;
    return true;
}

weft_status weft_i_fdpass_publish(weft_i_fdpass *fdpass, weft_i_key key, weft_i_segment *segment,
                                  weft_status failure)
{
    WEFT_ASSERT(segment || failure < 0);
    weft_status status = WEFT_OK;
    pthread_mutex_lock(&fdpass->lock);
    if (!find(fdpass, key)) {
        if (make_room(fdpass))
            fdpass->publishes[fdpass->count++] =
                (publish){key, segment ? weft_i_segment_hold(segment) : NULL, failure};
        else
            status = WEFT_ERR_NO_MEMORY;
    }
    pthread_mutex_unlock(&fdpass->lock);
    return status < 0 ? weft_i_fail(status, "no memory to publish a segment to the peers")
                      : WEFT_OK;
}

void weft_i_fdpass_withdraw(weft_i_fdpass *fdpass, weft_i_key key)
{
    weft_i_segment *segment = NULL;
    if (fdpass->generation != weft_i_os_generation())
        return; /* a forked child: the serving thread, which is not here, may have held the lock */
    pthread_mutex_lock(&fdpass->lock);
    publish *gone = find(fdpass, key);
    if (gone) {
        segment = gone->segment;
        *gone = fdpass->publishes[--fdpass->count];
    }
    pthread_mutex_unlock(&fdpass->lock);
    weft_i_segment_drop(segment); /* outside the lock: unmapping may take long */
}

/* The publish under `key`, held for the caller; WEFT_IN_PROGRESS if there is none yet. */
static weft_status look_up(weft_i_fdpass *fdpass, weft_i_key key, weft_i_segment **out)
{
    weft_status status = WEFT_IN_PROGRESS;
    *out = NULL;
    pthread_mutex_lock(&fdpass->lock);
    const publish *found = find(fdpass, key);
    if (found) {
        status = found->segment ? WEFT_OK : found->failure;
        *out = found->segment ? weft_i_segment_hold(found->segment) : NULL;
    }
    pthread_mutex_unlock(&fdpass->lock);
    return status;
}

/* ---- serving ---- */

static void send_reply(int fd, const reply *answer, int descriptor)
{
    struct iovec bytes = {.iov_base = (void *)(uintptr_t)answer, .iov_len = sizeof *answer};
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
    struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1};
    if (descriptor >= 0) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(head), &descriptor, sizeof(int));
    }
    WEFT_OS->sendmsg(fd, &message, MSG_DONTWAIT); /* a caller that is gone needs no answer */
}

/* Answers one caller; false when the request has not come yet. */
static bool answer(weft_i_fdpass *fdpass, int fd)
{
    request wanted;
    struct iovec bytes = {.iov_base = &wanted, .iov_len = sizeof wanted};
    struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1};
    ssize_t got = WEFT_OS->recvmsg(fd, &message, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return false;
    if (got != (ssize_t)sizeof wanted || wanted.magic != MAGIC)
        return true;
    weft_i_segment *segment;
    reply back = {.magic = MAGIC, .status = look_up(fdpass, wanted.key, &segment)};
    if (segment)
        back.bytes = segment->bytes;
    send_reply(fd, &back, segment ? segment->fd : -1);
    weft_i_segment_drop(segment);
    return true;
}

static void dismiss(weft_i_fdpass *fdpass, int index)
{
    WEFT_ASSERT(index >= 0 && index < fdpass->calling);
    WEFT_OS->close(fdpass->callers[index].fd);
    fdpass->calling--;
    memmove(&fdpass->callers[index], &fdpass->callers[index + 1],
            (size_t)(fdpass->calling - index) * sizeof(caller));
}

/* Takes one caller in, if need be by the spare descriptor; -1 if nobody waits at the door. */
static int open_door(weft_i_fdpass *fdpass)
{
    int fd = WEFT_OS->accept(fdpass->listener, false);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE) && fdpass->spare >= 0) {
        WEFT_OS->close(fdpass->spare);
        fdpass->spare = -1;
        fd = WEFT_OS->accept(fdpass->listener, false);
    }
    return fd;
}

/* Bounded: a storm of callers, of whatever user, must not keep those inside from their answers nor
 * the heart of this rank from beating. */
static void admit(weft_i_fdpass *fdpass, int64_t now)
{
    for (int i = 0; i < ADMISSIONS; i++) {
        int fd = open_door(fdpass);
        if (fd < 0)
            return;
        /* Most have sent their request by now, and go without taking a place. */
        if (!weft_i_os_same_user(fd) || answer(fdpass, fd)) {
            WEFT_OS->close(fd);
            continue;
        }
        if (fdpass->calling == CALLERS)
            dismiss(fdpass, 0);
        WEFT_ASSERT(fdpass->calling < CALLERS);
        fdpass->callers[fdpass->calling++] = (caller){fd, now};
    }
}

void weft_i_fdpass_serve(weft_i_fdpass *fdpass, int stop, int timeout_ms)
{
    /* A program may close what is not its own.  Poll would not wait for such a number. */
    struct pollfd fds[CALLERS + 2] = {
        {.fd = weft_i_os_is_open(stop) ? stop : -1, .events = POLLIN},
        {.fd = weft_i_os_is_open(fdpass->listener) ? fdpass->listener : -1, .events = POLLIN}};
    if (fdpass->spare < 0 && fdpass->listener >= 0)
        fdpass->spare = WEFT_OS->eventfd(0);
    /* Without a spare one nobody can be taken in: do not listen to those who wait at the door. */
    if (fdpass->spare < 0)
        fds[1].fd = -1;
    for (int i = 0; i < fdpass->calling; i++)
        fds[i + 2] = (struct pollfd){.fd = fdpass->callers[i].fd, .events = POLLIN};
    if (WEFT_OS->poll(fds, (nfds_t)fdpass->calling + 2, timeout_ms) <= 0 || fds[0].revents)
        return;
    int64_t now = WEFT_OS->clock_ns();
    for (int i = fdpass->calling - 1; i >= 0; i--) {
        bool done = fds[i + 2].revents & POLLNVAL ||
                    (fds[i + 2].revents && answer(fdpass, fdpass->callers[i].fd));
        if (done || now - fdpass->callers[i].since > PATIENCE_NS)
            dismiss(fdpass, i);
    }
    if (fds[1].revents)
        admit(fdpass, now);
}

/* ---- fetching ---- */

typedef struct fetching {
    const weft_i_fdpass_order *order;
    weft_status status; /* WEFT_IN_PROGRESS until it is decided */
    int fd;             /* the request under way, -1: none */
    int asks;           /* requests left before the next look at the owner and the clock */
    int refused;        /* times in a row that nobody listened at the owner's server */
    weft_i_segment *segment;
    int *descriptor; /* not NULL: gets it, and nothing is mapped */
} fetching;

static int received_descriptor(struct msghdr *message)
{
    int fd = -1;
    for (struct cmsghdr *head = CMSG_FIRSTHDR(message); head; head = CMSG_NXTHDR(message, head))
        if (head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS &&
            head->cmsg_len == CMSG_LEN(sizeof fd))
            memcpy(&fd, CMSG_DATA(head), sizeof fd);
    return fd;
}

static void hang_up(fetching *fetch)
{
    if (fetch->fd >= 0)
        WEFT_OS->close(fetch->fd);
    fetch->fd = -1;
}

static bool send_request(int fd, weft_i_key key)
{
    request wanted = {.magic = MAGIC, .key = key};
    struct iovec bytes = {.iov_base = &wanted, .iov_len = sizeof wanted};
    struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1};
    return WEFT_OS->sendmsg(fd, &message, MSG_DONTWAIT) == (ssize_t)sizeof wanted;
}

/*
 * A socket whose connect waits a moment for room in the owner's queue, no longer: the kernel lets
 * those who wait in one after the other, so that a storm of strangers cannot keep a peer out.
 */
static int open_socket(void)
{
    const struct timeval moment = {.tv_usec = DOOR_MS * 1000};
    int fd = WEFT_OS->socket(AF_UNIX, SOCK_SEQPACKET, 0);
    if (fd < 0 || !WEFT_OS->setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &moment, sizeof moment))
        return fd;
    int error = errno;
    WEFT_OS->close(fd);
    errno = error;
    return -1;
}

/*
 * Puts the request on the owner's table.  A stopped owner takes nobody in; when its queue is full
 * (EAGAIN) the next round of the wait tries again.  One request stays there until it is answered,
 * so that a fetch takes one place in that queue, however long it lasts.
 */
static weft_status call_server(fetching *fetch)
{
    WEFT_ASSERT(fetch->fd < 0 && fetch->asks > 0);
    struct sockaddr_un address;
    socklen_t length = address_of(fetch->order->peer, &address);
    fetch->asks--;
    fetch->fd = open_socket();
    if (fetch->fd < 0)
        return weft_i_fail_errno(errno, "cannot open a socket to fetch a peer's memory");
    if (WEFT_OS->connect(fetch->fd, (struct sockaddr *)&address, length)) {
        bool gone = errno == ECONNREFUSED;
        fetch->asks = gone ? fetch->asks : 0; /* first a look at the owner and the clock */
        hang_up(fetch);
        return gone ? WEFT_ERR_PEER_DEAD : WEFT_IN_PROGRESS;
    }
    fetch->refused = 0;
    /* The server may close under us: its owner is on its way out, `lost` will tell. */
    if (!weft_i_os_same_user(fetch->fd) || !send_request(fetch->fd, fetch->order->key))
        hang_up(fetch);
    return WEFT_IN_PROGRESS;
}

/* Reads the reply if it is there; WEFT_IN_PROGRESS if not, or if the server sent us away. */
static weft_status read_reply(fetching *fetch, reply *back, int *descriptor)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec bytes = {.iov_base = back, .iov_len = sizeof *back};
    struct msghdr message = {.msg_iov = &bytes,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    ssize_t got = WEFT_OS->recvmsg(fetch->fd, &message, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return WEFT_IN_PROGRESS;
    hang_up(fetch);
    if (got != (ssize_t)sizeof *back || back->magic != MAGIC)
        return WEFT_IN_PROGRESS;
    *descriptor = received_descriptor(&message);
    return WEFT_OK;
}

bool weft_i_fdpass_is_open(const char *name)
{
    struct sockaddr_un address;
    socklen_t length = address_of(name, &address);
    int fd = WEFT_OS->socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return true;
    bool open =
        WEFT_OS->connect(fd, (struct sockaddr *)&address, length) == 0 || errno != ECONNREFUSED;
    WEFT_OS->close(fd);
    return open;
}

static weft_status fail_unmade(weft_status why)
{
    return weft_i_fail(why, "a peer could not make the memory to fetch (%s)", weft_strerror(why));
}

static weft_status accept_reply(const fetching *fetch, const reply *back, int descriptor,
                                weft_i_segment **out)
{
    const weft_i_fdpass_order *order = fetch->order;
    if (back->status == WEFT_OK && descriptor < 0)
        return weft_i_fail(
            WEFT_ERR_LIMIT,
            "a peer's memory arrived without its descriptor: this process has no free "
            "descriptors (RLIMIT_NOFILE)");
    weft_status status = (weft_status)back->status;
    if (status == WEFT_OK && back->bytes != order->bytes)
        status =
            weft_i_fail(WEFT_ERR_PROTOCOL, "a peer publishes %llu bytes where %zu were expected",
                        (unsigned long long)back->bytes, order->bytes);
    else if (status == WEFT_OK && !fetch->descriptor)
        status = weft_i_segment_map(descriptor, order->bytes, order->key, out);
    else if (status < 0)
        fail_unmade(status);
    if (status == WEFT_OK && fetch->descriptor)
        *fetch->descriptor = descriptor;
    else if (status == WEFT_OK && order->keep)
        (*out)->fd = descriptor;
    else if (descriptor >= 0)
        WEFT_OS->close(descriptor);
    return status;
}

/* `lost` knows more about the owner than a refused connection does. */
static weft_status owner_gone(const weft_i_fdpass_order *order)
{
    weft_status status = order->lost ? order->lost(order->arg) : WEFT_OK;
    return status < 0
               ? status
               : weft_i_fail(WEFT_ERR_PEER_DEAD,
                             "the rank that owns the memory to fetch has gone (its server %s "
                             "is closed)",
                             order->peer);
}

/* Asks the server once, or looks whether it has answered. */
static weft_status fetch_between_processes(fetching *fetch)
{
    const weft_i_fdpass_order *order = fetch->order;
    reply back;
    int descriptor = -1;
    weft_status status = WEFT_IN_PROGRESS;
    if (fetch->fd < 0 && fetch->asks > 0)
        status = call_server(fetch);
    if (status == WEFT_ERR_PEER_DEAD)
        return ++fetch->refused < REFUSALS ? WEFT_IN_PROGRESS : owner_gone(order);
    if (status == WEFT_IN_PROGRESS && fetch->fd >= 0)
        status = read_reply(fetch, &back, &descriptor);
    return status == WEFT_OK ? accept_reply(fetch, &back, descriptor, &fetch->segment) : status;
}

static bool fetch_once(void *arg)
{
    fetching *fetch = arg;
    const weft_i_fdpass_order *order = fetch->order;
    if (fetch->status != WEFT_IN_PROGRESS)
        return true;
    if (order->own->sharing == WEFT_I_BETWEEN_PROCESSES) {
        fetch->status = fetch_between_processes(fetch);
    } else {
        fetch->status = look_up(order->own, order->key, &fetch->segment);
        if (fetch->status < 0)
            fail_unmade(fetch->status);
    }
    return fetch->status != WEFT_IN_PROGRESS;
}

static weft_status still_hoping(void *arg)
{
    fetching *fetch = arg;
    const weft_i_fdpass_order *order = fetch->order;
    fetch->asks = ASKS;
    return order->lost ? order->lost(order->arg) : WEFT_OK;
}

static weft_status fetch_all(fetching *fetch)
{
    weft_i_wait wait = {.ready = fetch_once,
                        .lost = still_hoping,
                        .arg = fetch,
                        .door = &fetch->fd,
                        .deadline = fetch->order->deadline,
                        .mode = WEFT_I_WAIT_SLEEP};
    weft_status status = weft_i_wait_for(&wait);
    hang_up(fetch);
    return status == WEFT_OK ? fetch->status : status;
}

weft_status weft_i_fdpass_fetch(const weft_i_fdpass_order *order, weft_i_segment **out)
{
    fetching fetch = {.order = order, .status = WEFT_IN_PROGRESS, .fd = -1, .asks = ASKS};
    weft_status status = fetch_all(&fetch);
    if (status == WEFT_OK)
        *out = fetch.segment;
    return status;
}

weft_status weft_i_fdpass_fetch_fd(const weft_i_fdpass_order *order, int *out)
{
    fetching fetch = {
        .order = order, .status = WEFT_IN_PROGRESS, .fd = -1, .asks = ASKS, .descriptor = out};
    if (order->own->sharing != WEFT_I_BETWEEN_PROCESSES)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                           "between threads no descriptor is sent: the segment is fetched itself");
    return fetch_all(&fetch);
}
