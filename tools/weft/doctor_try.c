/* SPDX-License-Identifier: Apache-2.0 */
/* `weft doctor`: what can be tried is tried. */
#include "doctor.h"

#include <ifaddrs.h>
#include <net/if.h>

enum { ROUNDS = 200, TRIAL_MS = 20000 };

/* One of two ranks: shares a page with the other, signals, and sums. */
static int rank_of_trial(int number, void *argument)
{
    (void)argument;
    weft_group *world = weft_init(NULL);
    weft_symm *mem =
        weft_symm_rendezvous(weft_symm_empty(WEFT_I32, WEFT_CPU, WEFT_SHAPE(1024)), world);
    int32_t *mine = weft_symm_buffer_ptr(mem, number), *theirs = weft_symm_buffer_ptr(mem, !number);
    int right = mine && theirs;
    for (int i = 0; right && i < ROUNDS; i++) {
        mine[0] = i;
        right = weft_symm_barrier(mem, 0, TRIAL_MS) == WEFT_OK && theirs[0] == i &&
                weft_symm_barrier(mem, 1, TRIAL_MS) == WEFT_OK;
    }
    int32_t sum = number + 1;
    right = right && weft_all_reduce_ptr(&sum, &sum, 1, WEFT_I32, WEFT_SUM, world) == WEFT_OK &&
            sum == 3;
    int status = weft_finish(world);
    return status ? status : !right;
}

void doctor_try_ranks(finding *out)
{
    weft_launch_end end;
    weft_launch_opts opts = WEFT_LAUNCH_OPTS_INIT;
    opts.ranks = 2;
    opts.body = rank_of_trial;
    opts.timeout_ms = 3 * TRIAL_MS;
    opts.end = &end;
    int status = weft_launch(&opts);
    if (status == 0) {
        doctor_say(out, FINE,
                   "two processes met, shared memory, signalled %d times and agreed on a sum",
                   2 * ROUNDS);
    } else {
        doctor_say(out, BROKEN, "two processes could not share memory: %s",
                   status < 0 ? weft_last_error() : "what they said stands above");
        doctor_advise(
            out, "Nothing else will work before this does. WEFT_DEBUG=INFO weft doctor says more; "
                 "in a container, look for a seccomp profile without memfd_create.");
    }
}

static int loopback_is_up(void)
{
    struct ifaddrs *list = NULL;
    int up = 0;
    if (getifaddrs(&list))
        return 1; /* the trial tells */
    for (struct ifaddrs *i = list; i; i = i->ifa_next)
        up |= (i->ifa_flags & IFF_LOOPBACK) && (i->ifa_flags & IFF_UP);
    freeifaddrs(list);
    return up;
}

/* A store on the loopback interface, as jobs on several hosts meet, with a secret of its own. */
void doctor_try_store(finding *out)
{
    if (!loopback_is_up()) { /* connections would wait for minutes */
        doctor_say(out, NOTE, "the loopback interface is down");
        doctor_advise(out, "Jobs on several hosts need it, and programs that open stores of their "
                           "own. As root: ip link set lo up");
        return;
    }
    static const char token[] = "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0";
    weft_store *server = weft_store_tcp_serve("127.0.0.1", 0, token);
    int port = weft_store_port(server);
    weft_store *client = weft_store_tcp_connect("127.0.0.1", port, token, 5000);
    if (client && weft_store_set(client, "doctor", "here", 4) == WEFT_OK) {
        doctor_say(out, FINE, "a store answers over the loopback interface");
    } else {
        doctor_say(out, NOTE, "a store over TCP: %s", weft_last_error());
        doctor_advise(
            out,
            "Only jobs on several hosts need it, and programs that open stores of their own. "
            "It takes OpenSSL's libcrypto (apt-get install libssl3) and a loopback interface.");
    }
    weft_clear_error();
    weft_release(client);
    weft_release(server);
}
