/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plugin of qemu that counts the instructions of each thread from mark to mark (calls.c) and
 * prints for each row the least, the tenth part and the median: "count ROW LEAST TENTH MEDIAN".
 * Waits are counted as long as they last, so that between two ranks only the least tells anything:
 * a call that finds the other rank there already.
 *
 * Debian has no package with the header of this interface, so what is needed of it is declared here:
 * version 1, of qemu 4.2 to 8.
 */
#include "count.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct qemu_plugin_tb; /* instructions that run one after the other, translated together */
typedef void when_translated(uint64_t id, struct qemu_plugin_tb *tb);
typedef void when_run(unsigned thread, void *arg);
typedef void when_called(uint64_t id, unsigned thread, int64_t number, uint64_t a1, uint64_t a2,
                         uint64_t a3, uint64_t a4, uint64_t a5, uint64_t a6, uint64_t a7,
                         uint64_t a8);
void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, when_translated *then);
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *tb, when_run *then, int flags,
                                          void *arg);
void qemu_plugin_register_vcpu_syscall_cb(uint64_t id, when_called *then);
void qemu_plugin_register_atexit_cb(uint64_t id, void (*then)(uint64_t id, void *arg), void *arg);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
int qemu_plugin_install(uint64_t id, const void *machine, int argc, char **argv);
extern int qemu_plugin_version;

#define EXPORTED __attribute__((visibility("default")))
EXPORTED int qemu_plugin_version = 1;

enum { THREADS = 64, SAMPLES = 8192 };
static struct {
    _Alignas(128) uint64_t now, last; /* written by the thread alone */
} count[THREADS];
static uint32_t sample[COUNT_ROWS][SAMPLES], samples[COUNT_ROWS];

static void add(unsigned thread, void *instructions)
{
    count[thread % THREADS].now += (uintptr_t)instructions;
}

static void translated(uint64_t id, struct qemu_plugin_tb *tb)
{
    (void)id;
    qemu_plugin_register_vcpu_tb_exec_cb(tb, add, 0, (void *)(uintptr_t)qemu_plugin_tb_n_insns(tb));
}

static void called(uint64_t id, unsigned thread, int64_t number, uint64_t row, uint64_t a2,
                   uint64_t a3, uint64_t a4, uint64_t a5, uint64_t a6, uint64_t a7, uint64_t a8)
{
    (void)id, (void)a2, (void)a3, (void)a4, (void)a5, (void)a6, (void)a7, (void)a8;
    if (number != COUNT_MARK)
        return;
    uint64_t now = count[thread % THREADS].now, last = count[thread % THREADS].last;
    count[thread % THREADS].last = now;
    if (row >= COUNT_ROWS)
        return;
    /* Relaxed: it hands out places, and all are read when the threads have ended. */
    uint32_t at = __atomic_fetch_add(&samples[row], 1, __ATOMIC_RELAXED);
    if (at < SAMPLES)
        sample[row][at] = (uint32_t)(now - last);
}

static int by_size(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void print(uint64_t id, void *arg)
{
    (void)id, (void)arg;
    for (int row = 0; row < COUNT_ROWS; row++) {
        uint32_t n = samples[row] < SAMPLES ? samples[row] : SAMPLES;
        if (!n)
            continue;
        qsort(sample[row], n, sizeof sample[row][0], by_size);
        fprintf(stderr, "count %d %u %u %u\n", row, sample[row][0], sample[row][n / 10],
                sample[row][n / 2]);
    }
}

EXPORTED int qemu_plugin_install(uint64_t id, const void *machine, int argc, char **argv)
{
    (void)machine, (void)argc, (void)argv;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_vcpu_syscall_cb(id, called);
    qemu_plugin_register_atexit_cb(id, print, NULL);
    return 0;
}
