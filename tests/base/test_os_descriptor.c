/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: base/os/os_descriptor.c, store/socket.c */
/*
 * Descriptor 0 is one like all others: a program may have closed its standard input, and then the
 * next thing that is opened gets this number.  Here the n-th descriptor that the library asks for is
 * number 0, for every n; everything works, and nothing is left open.
 */
#include "harness.h"

#include "base/os/os.h"
#include "store_kinds.h"

#include <weft/weft.h>

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

static weft_i_os table;
static atomic_int left; /* relaxed: counts calls, orders nothing */

/* Moves the n-th descriptor to number 0, which was taken until then. */
static int number(int fd)
{
    if (fd < 0 || atomic_fetch_sub_explicit(&left, 1, memory_order_relaxed) != 1)
        return fd;
    int flags = fcntl(fd, F_GETFD), zero = dup2(fd, 0);
    if (zero == 0)
        fcntl(0, F_SETFD, flags);
    close(fd);
    return zero;
}

static int zero_open(const char *path, int flags, mode_t mode)
{
    return number(weft_i_os_linux.open(path, flags, mode));
}

static int zero_socket(int domain, int type, int protocol)
{
    return number(weft_i_os_linux.socket(domain, type, protocol));
}

static int zero_accept(int fd, bool blocking)
{
    return number(weft_i_os_linux.accept(fd, blocking));
}

static int zero_eventfd(unsigned start)
{
    return number(weft_i_os_linux.eventfd(start));
}

static int zero_epoll(void)
{
    return number(weft_i_os_linux.epoll_create());
}

static int zero_memfd(const char *name, unsigned flags)
{
    return number(weft_i_os_linux.memfd_create(name, flags));
}

static void arm(int n)
{
    table = weft_i_os_linux;
    table.open = zero_open;
    table.socket = zero_socket;
    table.accept = zero_accept;
    table.eventfd = zero_eventfd;
    table.epoll_create = zero_epoll;
    table.memfd_create = zero_memfd;
    atomic_store_explicit(&left, n, memory_order_relaxed);
    CHECK_INT(open("/dev/null", O_RDONLY | O_CLOEXEC), 0);
    weft_i_os_now = &table;
}

/* Whether there were so many. */
static bool disarm(void)
{
    bool had = atomic_load_explicit(&left, memory_order_relaxed) <= 0;
    weft_i_os_now = &weft_i_os_linux;
    if (!had)
        close(0);
    return had;
}

static int open_descriptors(void)
{
    int count = 0;
    for (int fd = 0; fd < 256; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* ---- what is done ---- */

static void talk(weft_store *s)
{
    CHECK_OK(weft_store_set(s, "k", "v", 1));
    weft_store_value value = {0};
    CHECK_OK(weft_store_get(s, "k", 1000, &value));
    CHECK(value.bytes == 1);
    weft_store_value_clear(&value);
}

static void unix_store(void)
{
    weft_store *s = weft_store_unix_serve(fresh_name());
    if (!s)
        FAIL("%s", weft_last_error());
    weft_store *b = weft_store_clone(s);
    CHECK(b);
    talk(s);
    talk(b);
}

static void tcp_store(void)
{
    weft_store *s = weft_store_tcp_serve(NULL, 0, TOKEN);
    if (!s && weft_last_status() == WEFT_ERR_UNSUPPORTED)
        return;
    if (!s)
        FAIL("%s", weft_last_error());
    weft_store *b = weft_store_tcp_connect(NULL, weft_store_port(s), TOKEN, 5000);
    CHECK(b);
    talk(b);
}

static void file_store(void)
{
    char path[] = "/tmp/weft-test-zero-XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    close(fd);
    unlink(path);
    weft_store *s = weft_store_file(path, 1);
    if (!s)
        FAIL("%s", weft_last_error());
    talk(s);
    talk(weft_store_clone(s));
    unlink(path);
}

static void alone(void)
{
    weft_group *world = weft_init(NULL);
    if (!world)
        FAIL("%s", weft_last_error());
    weft_tensor *x = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(64));
    weft_symm *mem = weft_symm_rendezvous(x, world);
    CHECK(x && mem);
    int fd = -1;
    CHECK_OK(weft_group_event_fd(world, &fd));
    CHECK(fd >= 0);
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    CHECK_INT(weft_finish(world), 0);
}

static const struct {
    const char *name;
    void (*act)(void);
    int least; /* descriptors that it asks for */
} acts[] = {{"a store on a Unix socket", unix_store, 5},
            {"a store over TCP", tcp_store, 0},
            {"a store in a file", file_store, 2},
            {"a rank alone", alone, 3}};

static int walk(size_t i)
{
    for (int n = 1; n < 40; n++) {
        int before = open_descriptors();
        CHECK_OK(weft_scope_open());
        arm(n);
        acts[i].act();
        CHECK_OK(weft_scope_close());
        bool had = disarm();
        int after = open_descriptors();
        if (after != before)
            FAIL("%s, descriptor %d: %d are open, not %d", acts[i].name, n, after, before);
        if (fcntl(0, F_GETFD) >= 0)
            FAIL("%s, descriptor %d: number 0 is open", acts[i].name, n);
        if (!had)
            return n - 1;
    }
    FAIL("%s never ends", acts[i].name);
    return 0;
}

TEST(test_descriptor_zero)
{
    int kept = dup(0);
    unsetenv("WEFT_JOB_FD");
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++) {
        close(0);
        int had = walk(i);
        if (had < acts[i].least)
            FAIL("%s: only %d descriptors were asked for", acts[i].name, had);
    }
    dup2(kept, 0);
    close(kept);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
