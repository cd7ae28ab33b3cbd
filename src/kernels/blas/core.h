/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OpenBLAS has kernels for many processors ("cores") and chooses by lists of models.  On a processor
 * that is newer than its lists it may take kernels of 2004, several times slower.  OPENBLAS_CORETYPE
 * names a core instead; here is decided whether it has to, and which.
 */
#ifndef WEFT_KERNELS_CORE_H
#define WEFT_KERNELS_CORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* What a processor says of itself: the registers of CPUID, as the instruction gives them. */
enum { WEFT_I_CORE_EAX, WEFT_I_CORE_EBX, WEFT_I_CORE_ECX, WEFT_I_CORE_EDX, WEFT_I_CORE_WORDS };
typedef struct weft_i_core_x86 {
    uint32_t leaf0[WEFT_I_CORE_WORDS], leaf1[WEFT_I_CORE_WORDS], leaf7[WEFT_I_CORE_WORDS];
    uint64_t saved; /* XCR0: the registers that the system keeps for each thread */
} weft_i_core_x86;

/* The same of Arm. */
typedef struct weft_i_core_arm {
    uint64_t features; /* AT_HWCAP */
    uint32_t model;    /* MIDR_EL1; 0 if the system does not show it */
} weft_i_core_arm;

typedef struct weft_i_core {
    const char *newest; /* that the processor can run; NULL if none beats what all of them have */
    bool listed;        /* OpenBLAS knows the model, from 0.3.21 on, and chooses well itself */
} weft_i_core;

weft_i_core weft_i_core_of_x86(const weft_i_core_x86 *cpu);
weft_i_core weft_i_core_of_arm(const weft_i_core_arm *cpu);

/* Of this processor. */
weft_i_core weft_i_core_here(void);

/* What that returns, if it is not NULL: a test pretends to run on another processor.  Set before
 * the first product. */
extern _Atomic(const weft_i_core *) weft_i_core_pretended;

#endif
