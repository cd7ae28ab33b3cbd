/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A page that nobody may touch: who does stops in the middle of a copy, until the test lets it go
 * on.  And time that stands still for the others until somebody stands there.  Ranks are processes.
 */
#ifndef WEFT_TESTS_WIRE_H
#define WEFT_TESTS_WIRE_H

#include "harness_ranks.h"

#include "base/os/os.h"

#include <stdint.h>
#include <sys/mman.h>

static char *wire;
static size_t wire_page;
static void (*wire_then)(void);

__attribute__((unused)) static void wire_trip(int number, siginfo_t *info, void *machine)
{
    (void)machine;
    uintptr_t at = (uintptr_t)info->si_addr, page = (uintptr_t)wire;
    if (at < page || at >= page + wire_page)
        _exit(128 + number);
    wire_then();
    mprotect(wire, wire_page, PROT_READ | PROT_WRITE);
}

/* Over the page with byte `at`; whoever touches it calls `then`. */
__attribute__((unused)) static void wire_stretch(char *data, size_t at, void (*then)(void))
{
    struct sigaction action = {.sa_sigaction = wire_trip, .sa_flags = SA_SIGINFO};
    wire_page = (size_t)sysconf(_SC_PAGESIZE);
    wire = data + at / wire_page * wire_page;
    wire_then = then;
    CHECK((uintptr_t)wire % wire_page == 0);
    sigaction(SIGSEGV, &action, NULL);
    CHECK(!mprotect(wire, wire_page, PROT_NONE));
}

__attribute__((unused)) static void wire_cut(void)
{
    signal(SIGSEGV, SIG_DFL);
    CHECK(!mprotect(wire, wire_page, PROT_READ | PROT_WRITE));
}

static weft_i_os frozen_table;
static int frozen_for, frozen_marks;
static _Atomic int64_t frozen_at, thawed_at; /* this rank may have other threads */

/* Time stands still until the awaited rank has made its marks, for 20 s at most. */
__attribute__((unused)) static int64_t frozen_clock(void)
{
    int64_t now = weft_i_os_linux.clock_ns();
    if (!thawed_at &&
        (harness_marks_of(frozen_for) >= frozen_marks || now - frozen_at > 20000000000))
        thawed_at = now;
    return thawed_at ? frozen_at + (now - thawed_at) : frozen_at;
}

__attribute__((unused)) static void wire_freeze(int rank, int marks)
{
    frozen_for = rank;
    frozen_marks = marks;
    frozen_table = weft_i_os_linux;
    frozen_table.clock_ns = frozen_clock;
    thawed_at = 0;
    frozen_at = weft_i_os_linux.clock_ns();
    weft_i_os_now = &frozen_table;
}

#endif
