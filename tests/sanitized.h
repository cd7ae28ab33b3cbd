/* SPDX-License-Identifier: Apache-2.0 */
/* Which sanitizer sees this program: gcc says it by a macro, clang by a feature. */
#ifndef WEFT_TESTS_SANITIZED_H
#define WEFT_TESTS_SANITIZED_H

#if defined __has_feature
#if __has_feature(address_sanitizer)
#define SANITIZED_ADDRESS 1
#endif
#if __has_feature(thread_sanitizer)
#define SANITIZED_THREAD 1
#endif
#endif
#if !defined SANITIZED_ADDRESS && defined __SANITIZE_ADDRESS__
#define SANITIZED_ADDRESS 1
#elif !defined SANITIZED_ADDRESS
#define SANITIZED_ADDRESS 0
#endif
#if !defined SANITIZED_THREAD && defined __SANITIZE_THREAD__
#define SANITIZED_THREAD 1
#elif !defined SANITIZED_THREAD
#define SANITIZED_THREAD 0
#endif

#endif
