/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: base/share/fdpass.c, base/share/segment.c */
/* The descriptor server: owners that stop, queues that are full, callers by the thousand, other
 * users. */
#include "base/share/fdpass.h"

#include "base/os/os.h"
#include "harness.h"

#include <weft/weft.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    BACKLOG = 1024,
    NOBODY = 65534,
    LATE_MS =
        10000 /* the promise is 50, which test_fabric_stop checks; here a wait that ends is enough */
};

static const weft_i_key key = {{7, 9}};

/* What a caller sends; the layout of fdpass.c. */
typedef struct request {
    uint32_t magic, reserved;
    weft_i_key key;
} request;

static int64_t now_ms(void)
{
    return WEFT_OS->clock_ns() / 1000000;
}

/* Connects to a server, without waiting; -1 and errno if that cannot be done at once. */
static int call(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "%s", name);
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, length)) {
        int why = errno;
        close(fd);
        errno = why;
        return -1;
    }
    return fd;
}

/* How many more callers a server that takes nobody in has room for. */
static int room_left(const char *name)
{
    int room = 0;
    for (int fd; (fd = call(name)) >= 0; room++)
        close(fd); /* its place stays taken until it is accepted */
    CHECK_INT(errno, EAGAIN);
    return room;
}

/* A process with a server that it does not serve, because it is stopped. */
static pid_t stopped_owner(char name[64])
{
    int ends[2], status;
    CHECK(!pipe(ends));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        weft_i_fdpass *fdpass;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (weft_i_fdpass_open(WEFT_I_BETWEEN_PROCESSES, &fdpass) == WEFT_OK) {
            memset(name, 0, 64);
            memcpy(name, weft_i_fdpass_name(fdpass), strlen(weft_i_fdpass_name(fdpass)));
            if (write(ends[1], name, 64) == 64)
                raise(SIGSTOP);
        }
        _exit(1);
    }
    CHECK(read(ends[0], name, 64) == 64);
    CHECK(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
    close(ends[0]);
    close(ends[1]);
    return child;
}

static void end(pid_t child)
{
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

static weft_status fetch_from(const char *name, int64_t limit_ms, weft_status (*lost)(void *arg),
                              void *arg, int64_t *took)
{
    weft_i_fdpass *own;
    weft_i_segment *segment = NULL;
    CHECK_OK(weft_i_fdpass_open(WEFT_I_BETWEEN_PROCESSES, &own));
    weft_i_fdpass_order order = {.own = own,
                                 .peer = name,
                                 .key = key,
                                 .bytes = 4096,
                                 .deadline = weft_i_os_deadline(limit_ms),
                                 .lost = lost,
                                 .arg = arg};
    int64_t began = now_ms();
    weft_status status = weft_i_fdpass_fetch(&order, &segment);
    *took = now_ms() - began;
    weft_i_segment_drop(segment);
    weft_i_fdpass_drop(own);
    return status;
}

TEST(test_fdpass_stopped)
{
    char name[64];
    int64_t took;
    pid_t owner = stopped_owner(name);
    CHECK_STATUS(fetch_from(name, 300, NULL, NULL, &took), WEFT_ERR_TIMEOUT);
    CHECK(took >= 299 && took <= 300 + LATE_MS);
    /* However long it lasted, the fetch took one place in the owner's queue. */
    int room = room_left(name);
    CHECK(room >= BACKLOG - 1 && room <= BACKLOG);
    /* And the full queue does not hold the next one up. */
    CHECK_STATUS(fetch_from(name, 200, NULL, NULL, &took), WEFT_ERR_TIMEOUT);
    CHECK(took >= 199 && took <= 200 + LATE_MS);
    end(owner);
}

static weft_status lost_soon(void *arg)
{
    return now_ms() < *(int64_t *)arg ? WEFT_OK : WEFT_ERR_REVOKED;
}

/* A death or a revocation is seen while a stopped owner does not answer. */
TEST(test_fdpass_lost)
{
    char name[64];
    pid_t owner = stopped_owner(name);
    for (int full = 0; full < 2; full++) {
        int64_t took, when = now_ms() + 60;
        CHECK_STATUS(fetch_from(name, 20000, lost_soon, &when, &took), WEFT_ERR_REVOKED);
        CHECK(now_ms() >= when && now_ms() <= when + LATE_MS);
        room_left(name);
    }
    end(owner);
}

/* A queue that was full and empties is found empty. */
TEST(test_fdpass_resumes)
{
    char name[64];
    int64_t took;
    weft_i_fdpass *fdpass;
    weft_i_segment *segment;
    CHECK_OK(weft_i_fdpass_open(WEFT_I_BETWEEN_PROCESSES, &fdpass));
    CHECK_OK(weft_i_segment_new(4096, WEFT_I_BETWEEN_PROCESSES, "a test", &segment));
    CHECK_OK(weft_i_fdpass_publish(fdpass, key, segment, WEFT_OK));
    snprintf(name, sizeof name, "%s", weft_i_fdpass_name(fdpass));
    room_left(name);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) { /* asks while the queue is full, and is answered later */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        weft_status status =
            setjmp(harness_out) ? WEFT_ERR_STATE : fetch_from(name, 10000, NULL, NULL, &took);
        _exit(status == WEFT_OK ? 0 : 1);
    }
    int status = 0, stop = WEFT_OS->eventfd(0), turns = 0;
    CHECK(!usleep(20000)); /* long enough to meet the full queue; the result is the same if not */
    while (waitpid(child, &status, WNOHANG) == 0 && turns++ < 10000)
        weft_i_fdpass_serve(fdpass, stop, 1);
    close(stop);
    weft_i_segment_drop(segment);
    weft_i_fdpass_drop(fdpass);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* ---- descriptors that nobody maps ---- */

static int released;

static void count_release(weft_i_segment *segment)
{
    released += segment->owner == &released;
}

/* What the child sees of an offer that is no memory file: 0 if it is right. */
static int fetch_descriptor(const char *name)
{
    weft_i_fdpass *own;
    int64_t took;
    int fd = -1;
    char text[6] = "";
    if (fetch_from(name, 10000, NULL, NULL, &took) != WEFT_ERR_PROTOCOL)
        return 1; /* it is not sealed: mapped it must not be */
    if (weft_i_fdpass_open(WEFT_I_BETWEEN_PROCESSES, &own) != WEFT_OK)
        return 2;
    weft_i_fdpass_order order = {
        .own = own, .peer = name, .key = key, .bytes = 5000, .deadline = weft_i_os_deadline(10000)};
    if (weft_i_fdpass_fetch_fd(&order, &fd) != WEFT_ERR_PROTOCOL || fd >= 0)
        return 3; /* the size must be right */
    order.bytes = 4096;
    if (weft_i_fdpass_fetch_fd(&order, &fd) != WEFT_OK || fd < 0)
        return 4;
    if (pread(fd, text, 5, 0) != 5 || strcmp(text, "hello") || close(fd))
        return 5;
    order.key.word[0]++;
    order.deadline = weft_i_os_deadline(50);
    if (weft_i_fdpass_fetch_fd(&order, &fd) != WEFT_ERR_TIMEOUT)
        return 6;
    weft_i_fdpass_drop(own);
    return 0;
}

/* A device's memory travels as a descriptor; who made the segment gives its memory back. */
TEST(test_fdpass_descriptor)
{
    char name[64];
    weft_i_fdpass *fdpass;
    weft_i_segment *segment;
    int file = memfd_create("plain", 0), status = 0, stop = WEFT_OS->eventfd(0), turns = 0;
    CHECK(file >= 0 && write(file, "hello", 5) == 5);
    CHECK_OK(weft_i_fdpass_open(WEFT_I_BETWEEN_PROCESSES, &fdpass));
    CHECK_OK(weft_i_segment_wrap(NULL, 4096, file, count_release, &released, &segment));
    CHECK_OK(weft_i_fdpass_publish(fdpass, key, segment, WEFT_OK));
    snprintf(name, sizeof name, "%s", weft_i_fdpass_name(fdpass));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(setjmp(harness_out) ? 99 : fetch_descriptor(name));
    }
    while (waitpid(child, &status, WNOHANG) == 0 && turns++ < 20000)
        weft_i_fdpass_serve(fdpass, stop, 1);
    close(stop);
    CHECK_INT(WEXITSTATUS(status), 0);
    weft_i_segment_drop(segment);
    CHECK_INT(released, 0); /* the server holds it */
    weft_i_fdpass_drop(fdpass);
    CHECK_INT(released, 1);
    CHECK(fcntl(file, F_GETFD) < 0); /* closed with it */
}

TEST(test_fdpass_descriptor_between_threads)
{
    weft_i_fdpass *fdpass;
    int fd = -1;
    CHECK_OK(weft_i_fdpass_open(WEFT_I_BETWEEN_THREADS, &fdpass));
    weft_i_fdpass_order order = {.own = fdpass, .key = key, .bytes = 1, .deadline = 0};
    CHECK_STATUS(weft_i_fdpass_fetch_fd(&order, &fd), WEFT_ERR_UNSUPPORTED);
    CHECK_INT(fd, -1);
    weft_i_fdpass_drop(fdpass);
    weft_clear_error();
}

/* ---- storms ---- */

static weft_i_os storm_table;
static int storm_calls;

static int endless_accept(int fd, bool blocking)
{
    (void)fd;
    (void)blocking;
    if (++storm_calls > 100000)
        return -1;
    return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

/* One step of the server ends though callers never do. */
TEST(test_fdpass_storm_is_bounded)
{
    weft_i_fdpass *fdpass;
    CHECK_OK(weft_i_fdpass_open(WEFT_I_BETWEEN_PROCESSES, &fdpass));
    int stop = WEFT_OS->eventfd(0), caller = call(weft_i_fdpass_name(fdpass));
    CHECK(caller >= 0);
    storm_table = weft_i_os_linux;
    storm_table.accept = endless_accept;
    storm_calls = 0;
    weft_i_os_now = &storm_table;
    weft_i_fdpass_serve(fdpass, stop, 0);
    weft_i_os_now = &weft_i_os_linux;
    close(caller);
    close(stop);
    weft_i_fdpass_drop(fdpass);
    CHECK(storm_calls > 0 && storm_calls <= 256);
}

/* ---- other users ---- */

/* 0: nothing came but the end of the connection; 1: an answer; 2: an answer with a descriptor. */
static int ask_as_stranger(const char *name)
{
    request wanted = {.magic = 0x74736f70, .key = key};
    char bytes[64];
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    struct iovec room = {bytes, sizeof bytes};
    struct msghdr message = {.msg_iov = &room,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    int fd = call(name);
    if (fd < 0 || send(fd, &wanted, sizeof wanted, MSG_NOSIGNAL) != (ssize_t)sizeof wanted)
        return 0; /* refused at once */
    struct pollfd look = {.fd = fd, .events = POLLIN};
    if (poll(&look, 1, 5000) != 1)
        return 3;
    ssize_t got = recvmsg(fd, &message, 0);
    return got <= 0 ? 0 : CMSG_FIRSTHDR(&message) ? 2 : 1;
}

/* Fetches as a rank does, which tries again while the queue is full; as ask_as_stranger. */
static int ask_as_rank(const char *name)
{
    int64_t took;
    return setjmp(harness_out) == 0 && fetch_from(name, 20000, NULL, NULL, &took) == WEFT_OK ? 2
                                                                                             : 0;
}

/* The exit code of `ask` in a process of that user (0: ours), while the server is served. */
static int ask_as(const char *name, weft_i_fdpass *fdpass, unsigned user,
                  int (*ask)(const char *name))
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (user && (setgid(user) || setuid(user)))
            _exit(9);
        _exit(ask(name));
    }
    int status = 0, stop = WEFT_OS->eventfd(0);
    int64_t until = now_ms() + 30000;
    pid_t ended = 0;
    while ((ended = waitpid(child, &status, WNOHANG)) == 0 && now_ms() < until)
        weft_i_fdpass_serve(fdpass, stop, 1);
    close(stop);
    if (!ended)
        end(child);
    CHECK(ended == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Memory goes to our own user, and to nobody else, not even an answer. */
TEST(test_fdpass_other_user)
{
    weft_i_fdpass *fdpass;
    weft_i_segment *segment;
    if (geteuid() != 0)
        SKIP("only root can act as another user");
    CHECK_OK(weft_i_fdpass_open(WEFT_I_BETWEEN_PROCESSES, &fdpass));
    CHECK_OK(weft_i_segment_new(4096, WEFT_I_BETWEEN_PROCESSES, "a test", &segment));
    CHECK_OK(weft_i_fdpass_publish(fdpass, key, segment, WEFT_OK));
    int ours = ask_as(weft_i_fdpass_name(fdpass), fdpass, 0, ask_as_stranger);
    int theirs = ask_as(weft_i_fdpass_name(fdpass), fdpass, NOBODY, ask_as_stranger);
    weft_i_segment_drop(segment);
    weft_i_fdpass_drop(fdpass);
    CHECK_INT(ours, 2);
    CHECK_INT(theirs, 0);
}

/* Another user's processes connect as fast as they can: ours is served all the same. */
TEST(test_fdpass_other_users_storm)
{
    enum { STORMERS = 2 };
    char name[64];
    weft_i_fdpass *fdpass;
    weft_i_segment *segment;
    pid_t stormers[STORMERS];
    if (geteuid() != 0)
        SKIP("only root can act as another user");
    CHECK_OK(weft_i_fdpass_open(WEFT_I_BETWEEN_PROCESSES, &fdpass));
    CHECK_OK(weft_i_segment_new(4096, WEFT_I_BETWEEN_PROCESSES, "a test", &segment));
    CHECK_OK(weft_i_fdpass_publish(fdpass, key, segment, WEFT_OK));
    snprintf(name, sizeof name, "%s", weft_i_fdpass_name(fdpass));
    for (int i = 0; i < STORMERS; i++)
        if ((stormers[i] = fork()) == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (setgid(NOBODY) || setuid(NOBODY))
                _exit(9);
            for (;;) {
                int fd = call(name);
                if (fd >= 0)
                    close(fd);
            }
        }
    int answered = 0;
    for (int i = 0; i < 3; i++)
        answered += ask_as(name, fdpass, 0, ask_as_rank) == 2;
    for (int i = 0; i < STORMERS; i++)
        end(stormers[i]);
    weft_i_segment_drop(segment);
    weft_i_fdpass_drop(fdpass);
    CHECK_INT(answered, 3);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
