/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVSHMEM's host library, loaded at run time.  Its types and constants are declared here, so that
 * weft builds without its headers, which are C++.  Structures carry their size, which the library
 * checks.
 */
#ifndef WEFT_NVSHMEM_LIBRARY_H
#define WEFT_NVSHMEM_LIBRARY_H

#include "base/report/status.h"

#include <stddef.h>
#include <stdint.h>

/* A structure's version: which it is, and its size. */
#define WEFT_I_NVSHMEM_VERSION(number_, type_) (((number_) << 16) + (int)sizeof(type_))

enum {
    WEFT_I_NVSHMEM_MAJOR = 3,
    WEFT_I_NVSHMEM_WITH_ID = 1 << 3,
    WEFT_I_NVSHMEM_SIGNAL_ADD = 10,
    WEFT_I_NVSHMEM_GE = 5
};

typedef struct weft_i_nvshmem_id {
    int version;
    char bytes[124];
} weft_i_nvshmem_id;

typedef struct weft_i_nvshmem_id_args {
    int version;
    weft_i_nvshmem_id *id;
    int rank, ranks;
} weft_i_nvshmem_id_args;

typedef struct weft_i_nvshmem_args {
    int version;
    weft_i_nvshmem_id_args id;
    char rest[96];
} weft_i_nvshmem_args;

typedef struct weft_i_nvshmem_attr {
    int version;
    void *communicator;
    weft_i_nvshmem_args args;
} weft_i_nvshmem_attr;

_Static_assert(sizeof(weft_i_nvshmem_id) == 128 && sizeof(weft_i_nvshmem_id_args) == 24 &&
                   sizeof(weft_i_nvshmem_args) == 128 && sizeof(weft_i_nvshmem_attr) == 144,
               "as the library has them");

typedef struct weft_i_nvshmem {
#define FN(result_, name_, parameters_) result_(*name_) parameters_;
#include "library.def"
#undef FN
    int major, minor, patch;
} weft_i_nvshmem;

/* Loads it, once.  WEFT_ERR_UNSUPPORTED with the reason: it is not there, lacks a function, or is of
 * another major version. */
weft_status weft_i_nvshmem_load(const weft_i_nvshmem **out);

/* After it was loaded. */
const weft_i_nvshmem *weft_i_nvshmem_functions(void);

/* As if it had never been loaded.  For tests. */
void weft_i_nvshmem_unload(void);

#endif
