/* SPDX-License-Identifier: Apache-2.0 */
/*
 * WEFT_ASSERT: what must hold if weft has no bug.  It is on in development and sanitizer builds, and
 * gone in release builds, where nothing may depend on it.  Whatever a user, a peer or the system can
 * cause is an error with a status instead, never an assertion.
 */
#ifndef WEFT_BASE_ASSERT_H
#define WEFT_BASE_ASSERT_H

#ifdef NDEBUG
/* The condition is still compiled, so that it cannot rot; it is never evaluated. */
#define WEFT_ASSERT(condition_) ((void)sizeof((condition_) ? 1 : 0))
#else
#include <assert.h>
#define WEFT_ASSERT(condition_) assert(condition_)
#endif

#endif
