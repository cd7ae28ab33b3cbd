/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: backends/ucx/transport.c, backends/ucx/peers.c, backends/ucx/moves.c, backends/ucx/far.c */
/* The table of src/transport on UCX: ranks are processes, over TCP on the loopback interface.  The same
 * acts as test_transport runs on the double, and what strangers do at the door. */
#include "base/report/os_look.h"
#include "table_acts.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

/* The processes load UCX; this one asks in a child whether they can. */
static void on_ucx(int size, void (*act)(member *), int fallen)
{
    static char reason[192];
    static int usable = -1;
    if (usable < 0) {
        char *told = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        CHECK(told != MAP_FAILED);
        pid_t child = fork();
        if (!child)
            _exit(weft_i_ucx_transport.probe(told, sizeof reason) > 0 ? 0 : 1);
        int status = 1;
        CHECK(waitpid(child, &status, 0) == child);
        usable = status == 0;
        snprintf(reason, sizeof reason, "%s", told);
        munmap(told, 4096);
    }
    if (!usable)
        SKIP("%s", reason);
    crowd_run(&weft_i_ucx_transport, size, act, 1, fallen);
}

TEST(test_transport_ucx_messages)
{
    on_ucx(2, act_messages, 0);
}

TEST(test_transport_ucx_messages_of_four)
{
    on_ucx(4, act_messages, 0);
}

TEST(test_transport_ucx_streams)
{
    on_ucx(2, act_streams, 0);
}

TEST(test_transport_ucx_streams_of_four)
{
    on_ucx(4, act_streams, 0);
}

TEST(test_transport_ucx_many_streams)
{
    on_ucx(2, act_many_streams, 0);
}

TEST(test_transport_ucx_wrong_streams)
{
    on_ucx(2, act_wrong_streams, 0);
}

TEST(test_transport_ucx_put_get)
{
    on_ucx(2, act_put_get, 0);
    on_ucx(3, act_put_get, 0);
}

TEST(test_transport_ucx_refusals)
{
    on_ucx(2, act_refusals, 0);
}

TEST(test_transport_ucx_drop)
{
    on_ucx(2, act_drop, 0);
}

TEST(test_transport_ucx_again)
{
    on_ucx(2, act_again, 0);
}

TEST(test_transport_ucx_killed)
{
    on_ucx(2, act_lost, 1);
    on_ucx(3, act_lost, 1);
}

TEST(test_transport_ucx_two_threads)
{
    on_ucx(2, act_two_threads, 0);
}

/* The port at which this process listens; 0: none. */
static int port_of_listener(void)
{
    for (int fd = 3; fd < 200; fd++) {
        int listens = 0;
        struct sockaddr_in at;
        socklen_t length = sizeof listens, room = sizeof at;
        if (!getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) && listens &&
            !getsockname(fd, (struct sockaddr *)&at, &room) && at.sin_family == AF_INET)
            return ntohs(at.sin_port);
    }
    return 0;
}

/* Random bytes, zeros, ones, or nothing; half of them stay. */
static void knock(int port, unsigned which)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    unsigned char bytes[2000];
    unsigned dice = which * 2654435761u + 1;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to)) {
        close(fd);
        return;
    }
    for (size_t i = 0; i < sizeof bytes; i++) {
        dice = dice * 1664525 + 1013904223;
        bytes[i] = which % 4 == 1 ? 0 : which % 4 == 2 ? 255 : (unsigned char)(dice >> 24);
    }
    if (which % 4 != 3)
        send(fd, bytes, 1 + dice % sizeof bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (which % 2)
        close(fd);
}

static void act_strangers(member *me)
{
    stream_all(me, 1, 1000);
    WANT_GOOD(me);
    me->page->number[me->rank] = port_of_listener();
    crowd_meet(me);
    WANT_GOOD(me);
    WANT(me, me->page->number[0] > 0);
    if (me->rank == 1)
        for (unsigned i = 0; i < 300; i++) {
            knock(me->page->number[0], i);
            crowd_step(me);
        }
    crowd_meet(me);
    WANT_GOOD(me);
    stream_all(me, 2, 500000);
    WANT_GOOD(me);
    WANT(me, !me->bad && !me->faults[1 - me->rank]);
    crowd_meet(me);
}

TEST(test_transport_ucx_strangers)
{
    on_ucx(2, act_strangers, 0);
}

/* A sleeper at the door is woken by a message. */
static void act_door(member *me)
{
    int other = 1 - me->rank;
    op done;
    stream_all(me, 1, 10);
    WANT_GOOD(me);
    crowd_meet(me);
    WANT_GOOD(me);
    int before = me->letters, woken = 0;
    if (me->rank == 1) {
        atomic_store(&me->page->go[0], 1);
        UNTIL(me, atomic_load(&me->page->go[0]) == 2);
        weft_i_head head = crowd_head(me, other, WEFT_I_HEAD_SIGNAL);
        AWAIT(me, &done, me->table->send(me->wire, other, &head, NULL, 0, &done.sent));
    } else {
        struct pollfd look = {.fd = me->table->door(me->wire), .events = POLLIN};
        WANT(me, look.fd >= 0);
        for (int i = 0; i < 1000 && me->letters == before; i++) {
            while (me->table->progress(me->wire))
                ;
            bool armed = me->table->arm(me->wire);
            atomic_store(&me->page->go[0], 2);
            if (armed && me->letters == before)
                woken += poll(&look, 1, 20000) == 1;
        }
        WANT(me, woken > 0 && me->letters == before + 1);
    }
    crowd_meet(me);
}

TEST(test_transport_ucx_door)
{
    on_ucx(2, act_door, 0);
}

/* A stopped peer is no fault, and what was begun with it does not end.  By force it does, at once. */
static void act_stopped(member *me)
{
    enum { BYTES = 8 << 20, SENDS = 4 };
    static unsigned char from[BYTES];
    op out[SENDS], put;
    void *mapped, *far;
    me->page->key_bytes[me->rank] = sizeof me->page->key[0];
    me->page->number[me->rank] = getpid();
    WANT(me, me->table->map(me->wire, from, BYTES, me->page->key[me->rank],
                            &me->page->key_bytes[me->rank], &mapped) == WEFT_OK);
    stream_all(me, 1, 1000);
    crowd_meet(me);
    WANT_GOOD(me);
    if (me->rank == 1) {
        raise(SIGSTOP);
        me->table->drop(me->wire, 0); /* what had come by then is nobody's business */
    } else {
        int status;
        WANT(me, me->table->reach(me->wire, 1, me->page->key[1], me->page->key_bytes[1], &far) ==
                     WEFT_OK);
        do
            status = kill(me->page->number[1], 0);
        while (!status && weft_i_os_process_state(me->page->number[1]) != 'T');
        for (int i = 0; i < SENDS; i++)
            BEGIN(me, &out[i],
                  me->table->stream(me->wire, 1, 10u + (unsigned)i, from, BYTES, &out[i].sent));
        BEGIN(me, &put, me->table->put(me->wire, far, 0, from, BYTES, &put.sent));
        for (int i = 0; i < 60; i++)
            crowd_step(me);
        WANT(me, !out[SENDS - 1].over && !me->faults[1]);
        int64_t begun = WEFT_OS->clock_ns();
        me->table->drop(me->wire, 1);
        for (int i = 0; i < SENDS; i++)
            WANT(me, out[i].over);
        WANT(me, put.over && out[SENDS - 1].status < 0);
        WANT(me, WEFT_OS->clock_ns() - begun < INT64_C(30000000000));
        me->table->leave(me->wire, far);
        kill(me->page->number[1], SIGCONT);
    }
    crowd_meet(me);
    me->table->unmap(me->wire, mapped);
}

TEST(test_transport_ucx_stopped)
{
    on_ucx(2, act_stopped, 0);
}

static struct in_addr interface_address;

/* An interface that leads out of this machine; false: there is none. */
static bool find_interface(char *name, size_t bytes)
{
    struct ifaddrs *list = NULL;
    bool found = false;
    if (getifaddrs(&list))
        return false;
    for (struct ifaddrs *at = list; at && !found; at = at->ifa_next) {
        found = at->ifa_addr && at->ifa_addr->sa_family == AF_INET && at->ifa_flags & IFF_UP &&
                !(at->ifa_flags & IFF_LOOPBACK);
        if (found) {
            interface_address = ((struct sockaddr_in *)(void *)at->ifa_addr)->sin_addr;
            snprintf(name, bytes, "%s", at->ifa_name);
        }
    }
    freeifaddrs(list);
    return found;
}

/* An address where nobody answers (192.0.2.1 is for documents): no call waits for it. */
static void act_nowhere(member *me)
{
    static const unsigned char nowhere[] = {192, 0, 2, 1};
    unsigned char *address = me->page->address[1 - me->rank], data[100] = {0};
    size_t bytes = me->page->address_bytes[1 - me->rank], found = 0;
    unsigned char changed[WEFT_I_TRANSPORT_ADDRESS_BYTES];
    op done = {.sent.done = op_done};
    memcpy(changed, address, bytes);
    for (size_t i = 0; i + 4 <= bytes; i++)
        if (!memcmp(changed + i, &interface_address, 4)) {
            memcpy(changed + i, nowhere, 4);
            found++;
        }
    WANT(me, found > 0);
    int64_t begun = WEFT_OS->clock_ns();
    me->table->drop(me->wire, 1 - me->rank);
    WANT(me, me->table->connect(me->wire, 1 - me->rank, changed, bytes) == WEFT_OK);
    weft_i_head head = crowd_head(me, 1 - me->rank, WEFT_I_HEAD_NOTE);
    weft_status status =
        me->table->send(me->wire, 1 - me->rank, &head, data, sizeof data, &done.sent);
    for (int i = 0; i < 50; i++)
        crowd_step(me);
    me->table->drop(me->wire, 1 - me->rank);
    WANT(me, done.over == (status == WEFT_IN_PROGRESS) && (status < 0 || done.status < 0));
    WANT(me, WEFT_OS->clock_ns() - begun < INT64_C(20000000000));
    crowd_meet(me);
}

TEST(test_transport_ucx_nowhere)
{
    char name[64];
    if (!find_interface(name, sizeof name))
        SKIP("no network interface but the loopback one");
    setenv("UCX_NET_DEVICES", name, 1);
    on_ucx(2, act_nowhere, 0);
    unsetenv("UCX_NET_DEVICES");
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
