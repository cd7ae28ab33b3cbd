/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes every atomic operation, and every copy, of a source file a point of the simulator: included
 * before anything else (cc -include) by the copies of the library's sources that test_simulator is
 * made of.  A store or exchange has a point on both sides, so that others can run between it and
 * whatever follows.
 */
#ifndef WEFT_TESTS_SIMULATOR_POINTS_H
#define WEFT_TESTS_SIMULATOR_POINTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

void weft_i_sim_point(void);

/* A known bug, planted by a test: exchanges that do not compare. */
extern bool points_exchange_blindly;

/* The known bug that is planted in the copies (plants.cmake), 0: none. */
extern int sim_plant;
#define SIM_PLANTED(number_) (sim_plant == (number_))

#undef atomic_load_explicit
#undef atomic_store_explicit
#undef atomic_exchange_explicit
#undef atomic_compare_exchange_strong_explicit
#undef atomic_compare_exchange_weak_explicit
#undef atomic_fetch_add_explicit
#undef atomic_fetch_sub_explicit

#ifdef __clang__
#define POINTS_LOAD(p_, o_)            __c11_atomic_load(p_, o_)
#define POINTS_STORE(p_, v_, o_)       __c11_atomic_store(p_, v_, o_)
#define POINTS_SWAP(p_, v_, o_)        __c11_atomic_exchange(p_, v_, o_)
#define POINTS_CAS(p_, e_, v_, o_, f_) __c11_atomic_compare_exchange_strong(p_, e_, v_, o_, f_)
#define POINTS_ADD(p_, v_, o_)         __c11_atomic_fetch_add(p_, v_, o_)
#define POINTS_SUB(p_, v_, o_)         __c11_atomic_fetch_sub(p_, v_, o_)
#else
#define POINTS_VALUE(p_) __typeof__((void)0, *(p_))
#define POINTS_LOAD(p_, o_)                     \
    __extension__({                             \
        POINTS_VALUE(p_) points_loaded_;        \
        __atomic_load(p_, &points_loaded_, o_); \
        points_loaded_;                         \
    })
#define POINTS_STORE(p_, v_, o_)                 \
    __extension__({                              \
        POINTS_VALUE(p_) points_stored_ = (v_);  \
        __atomic_store(p_, &points_stored_, o_); \
    })
#define POINTS_SWAP(p_, v_, o_)                                \
    __extension__({                                            \
        POINTS_VALUE(p_) points_new_ = (v_), points_old_;      \
        __atomic_exchange(p_, &points_new_, &points_old_, o_); \
        points_old_;                                           \
    })
#define POINTS_CAS(p_, e_, v_, o_, f_)                                 \
    __extension__({                                                    \
        POINTS_VALUE(p_) points_wanted_ = (v_);                        \
        __atomic_compare_exchange(p_, e_, &points_wanted_, 0, o_, f_); \
    })
#define POINTS_ADD(p_, v_, o_) __atomic_fetch_add(p_, v_, o_)
#define POINTS_SUB(p_, v_, o_) __atomic_fetch_sub(p_, v_, o_)
#endif

#define POINTS_AROUND(result_)                \
    __extension__({                           \
        weft_i_sim_point();                   \
        __auto_type points_result_ = result_; \
        weft_i_sim_point();                   \
        points_result_;                       \
    })

#define atomic_load_explicit(p_, o_) (weft_i_sim_point(), POINTS_LOAD(p_, o_))
#define atomic_store_explicit(p_, v_, o_) \
    (weft_i_sim_point(), POINTS_STORE(p_, v_, o_), weft_i_sim_point())
#define atomic_exchange_explicit(p_, v_, o_) POINTS_AROUND(POINTS_SWAP(p_, v_, o_))
#define atomic_compare_exchange_strong_explicit(p_, e_, v_, o_, f_)              \
    POINTS_AROUND(points_exchange_blindly && sizeof *(p_) == 8                   \
                      ? (POINTS_STORE(p_, v_, memory_order_release), (bool)true) \
                      : POINTS_CAS(p_, e_, v_, o_, f_))
#define atomic_compare_exchange_weak_explicit atomic_compare_exchange_strong_explicit
#define atomic_fetch_add_explicit(p_, v_, o_) POINTS_AROUND(POINTS_ADD(p_, v_, o_))
#define atomic_fetch_sub_explicit(p_, v_, o_) POINTS_AROUND(POINTS_SUB(p_, v_, o_))

#define memcpy(to_, from_, bytes_) (weft_i_sim_point(), memcpy(to_, from_, bytes_))

#endif
