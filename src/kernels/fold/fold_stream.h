/* SPDX-License-Identifier: Apache-2.0 */
/* Stores that go past the caches, for fold_loops.h on x86-64 with AVX2. */
#include <immintrin.h>

enum { LINE = 64 };

static void stream(void *to_, const void *from_, size_t n)
{
    char *to = to_;
    const char *from = from_;
    size_t head = (size_t) - (uintptr_t)to % LINE;
    head = head < n ? head : n;
    memcpy(to, from, head);
    size_t whole = (n - head) / LINE * LINE;
    for (size_t i = head; i < head + whole; i += LINE) {
#if defined(__AVX512F__)
        _mm512_stream_si512((void *)(to + i), _mm512_loadu_si512(from + i));
#else
        __m256i low = _mm256_loadu_si256((const void *)(from + i));
        __m256i high = _mm256_loadu_si256((const void *)(from + i + LINE / 2));
        _mm256_stream_si256((void *)(to + i), low);
        _mm256_stream_si256((void *)(to + i + LINE / 2), high);
#endif
    }
    memcpy(to + head + whole, from + head + whole, n - head - whole);
}

/* Such stores are not ordered with others, not even with a release: they must be done before
 * anybody is told. */
static void drain(void)
{
    _mm_sfence();
}
