/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The speed of a BLAS; see blas_speed.h.  The file is text, so that people can read it:
 *
 *     weft blas 1
 *     machine Intel(R) Xeon(R) Processor, SkylakeX, weft 0.1.0
 *     library /usr/lib/libopenblas.so.0: OpenBLAS 0.3.21 DYNAMIC_ARCH SkylakeX MAX_THREADS=64
 *     rates 141.234 226.100
 *
 * The last line has GFLOP/s of the product and of the vector units.
 */
#include "kernels/blas/blas_speed.h"

#include "base/machine/cache_folder.h"
#include "base/os/file.h"
#include "base/os/os.h"
#include "base/os/os_busy.h"
#include "base/report/env.h"
#include "base/report/log.h"
#include "base/share/digest.h"
#include "kernels/blas/core.h"
#include "kernels/blas/peak.h"
#include "weft/machine.h"
#include "weft/version.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* ---- measuring ---- */

/* A product of SIZE^3 takes 0.1 ms of a fast library, 0.5 of a slow one and 10 of the reference
 * BLAS; so many turns of the loop take 0.1 ms or a little more. */
enum { SIZE = 192, TURNS = 20000, TRIES = 6, MORE_TRIES = 20, MOST_NS = 20000000 };

static void multiply(const weft_i_blas *blas, const float *a, const float *b, float *c)
{
    blas->sgemm(WEFT_I_BLAS_ROW_MAJOR, WEFT_I_BLAS_PLAIN, WEFT_I_BLAS_PLAIN, SIZE, SIZE, SIZE, 1, a,
                SIZE, b, SIZE, 0, c, SIZE);
}

static void keep_best(double *best, int64_t operations, int64_t busy_ns)
{
    double rate = busy_ns > 0 ? (double)operations * 1e9 / (double)busy_ns : 0;
    if (rate > *best)
        *best = rate;
}

/* One try of both. */
static void try_both(const weft_i_blas *blas, float *a, weft_i_blas_speed *best)
{
    float *b = a + SIZE * SIZE, *c = b + SIZE * SIZE;
    int64_t begin = weft_i_os_busy_ns();
    multiply(blas, a, b, c);
    int64_t middle = weft_i_os_busy_ns();
    int64_t operations = weft_i_peak_run(TURNS, c);
    int64_t end = weft_i_os_busy_ns();
    keep_best(&best->product, (int64_t)2 * SIZE * SIZE * SIZE, middle - begin);
    keep_best(&best->vector, operations, end - middle);
}

bool weft_i_blas_speed_measure(const weft_i_blas *blas, weft_i_blas_speed *out)
{
    enum { ELEMENTS = 3 * SIZE * SIZE };
    float *memory = WEFT_OS->alloc_aligned(64, ELEMENTS * sizeof *memory);
    *out = (weft_i_blas_speed){0};
    if (!memory)
        return false;
    for (int i = 0; i < ELEMENTS; i++)
        memory[i] = 0.5f;
    multiply(blas, memory, memory + SIZE * SIZE, memory + 2 * SIZE * SIZE); /* takes its memory */
    /* The best of a few; a library is called slow only after more of them, if that is not long. */
    int64_t end = weft_i_os_busy_ns() + MOST_NS;
    for (int i = 0; i < TRIES || (i < MORE_TRIES && weft_i_blas_speed_is_low(out)); i++) {
        try_both(blas, memory, out);
        if (weft_i_os_busy_ns() > end)
            break;
    }
    WEFT_OS->free(memory);
    return out->product > 0 && out->vector > 0;
}

bool weft_i_blas_speed_is_low(const weft_i_blas_speed *speed)
{
    return 3 * speed->product < speed->vector;
}

/* ---- keeping ---- */

enum { KEY = 700, TEXT = KEY + 100 };

/* The file of the library: two of one name may say nothing about themselves. */
static void find_file(const weft_i_blas *blas, char *path, size_t bytes)
{
    Dl_info about;
    void *address;
    memcpy(&address, &blas->sgemm, sizeof address); /* as in blas.c */
    bool found = dladdr(address, &about) && about.dli_fname;
    snprintf(path, bytes, "%s", found ? about.dli_fname : blas->name);
}

/* What the rates are true of: the lines before them. */
static void describe(const weft_i_blas *blas, char key[KEY])
{
    char model[100] = "", path[300];
    weft_machine_fact fact;
    for (int i = 0, count = weft_machine_count(); i < count && !*model; i++)
        if (weft_machine_describe(i, &fact) == WEFT_OK && !strcmp(fact.name, "model"))
            snprintf(model, sizeof model, "%.99s", fact.text);
    find_file(blas, path, sizeof path);
    const char *newest = weft_i_core_here().newest;
    snprintf(key, KEY, "weft blas 1\nmachine %s, %s, weft %s\nlibrary %s: %s\n", model,
             newest ? newest : "any core", weft_version(), path, blas->config);
}

/* The way to the file, through the folder that is opened; false if there is no folder. */
static bool open_place(const weft_i_blas *blas, weft_i_cache_folder *folder,
                       char way[WEFT_I_CACHE_FILE])
{
    char why[WEFT_I_CACHE_WHY], key[KEY], digest[WEFT_I_DIGEST_TEXT], name[32];
    uint8_t sum[WEFT_I_DIGEST_BYTES];
    weft_i_digest state;
    if (!weft_i_cache_folder_open(folder, why, sizeof why)) {
        weft_i_log(WEFT_LOG_TRACE, "the speed of products is not kept: %s", why);
        return false;
    }
    describe(blas, key);
    weft_i_digest_begin(&state);
    weft_i_digest_add(&state, key, strlen(key));
    weft_i_digest_end(&state, sum);
    weft_i_digest_text(sum, digest);
    snprintf(name, sizeof name, "blas-%.16s", digest);
    weft_i_cache_folder_way(folder, name, way);
    return true;
}

static bool read_rates(const weft_i_blas *blas, const char *path, weft_i_blas_speed *out)
{
    char key[KEY], text[TEXT];
    describe(blas, key);
    size_t length = strlen(key);
    double product, vector;
    if (!weft_i_file_read_own(path, text, sizeof text) || strncmp(text, key, length) != 0 ||
        sscanf(text + length, "rates %lf %lf", &product, &vector) != 2 ||
        !(product > 0 && vector > 0 && product < 1e9 && vector < 1e9))
        return false;
    *out = (weft_i_blas_speed){product * 1e9, vector * 1e9};
    return true;
}

/* Under a name of its own, then renamed: nobody ever reads half of it. */
static void write_rates(const weft_i_blas *blas, const char *path, const weft_i_blas_speed *speed)
{
    char key[KEY], text[TEXT], part[WEFT_I_CACHE_FILE + 32];
    describe(blas, key);
    int length = snprintf(text, sizeof text, "%srates %.3f %.3f\n", key, speed->product * 1e-9,
                          speed->vector * 1e-9);
    snprintf(part, sizeof part, "%s.%d", path, weft_i_os_process());
    if (!weft_i_file_make_own(part, text, (size_t)length) || WEFT_OS->rename(part, path))
        WEFT_OS->unlink(part);
}

bool weft_i_blas_speed_get(const weft_i_blas *blas, weft_i_blas_speed *out)
{
    char way[WEFT_I_CACHE_FILE];
    weft_i_cache_folder folder;
    bool keeps =
        weft_i_env_number_or_default(WEFT_I_ENV_LEARN) != 0 && open_place(blas, &folder, way);
    bool known = keeps && read_rates(blas, way, out);
    bool measured = !known && weft_i_blas_speed_measure(blas, out);
    if (keeps && measured)
        write_rates(blas, way, out);
    if (keeps)
        weft_i_cache_folder_close(&folder);
    return known || measured;
}
