/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: kernels/blas/blas.c, kernels/blas/blas_speed.c, kernels/blas/core.c,
 * kernels/blas/peak.c */
/*
 * Which core OpenBLAS is told to take, how it is told, and the check behind it.  A library is loaded
 * once in a process, so each case has a process of its own, and this one multiplies nothing.
 */
#include "harness.h"
#include "harness_cache.h"

#include "base/report/log.h"
#include "kernels/blas/blas.h"
#include "kernels/blas/blas_speed.h"
#include "kernels/blas/core.h"
#include "kernels/blas/peak.h"

#include <weft/weft.h>

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- which core ---- */

enum { FMA = 1 << 12, OSXSAVE = 1 << 27, AVX = 1 << 28 };
enum { AVX2 = 1 << 5, F = 1 << 16, DQ = 1 << 17, CD = 1 << 28, BW = 1 << 30 };
static const uint32_t VL = 1u << 31;
enum { NO_STATE = 0x3, YMM = 0x7, ZMM = 0xe7, TILES = 0x602e7 };

/* Feature words of a few years: Sandy Bridge, Haswell, Knights Landing, Skylake's Xeon. */
enum { OF_2011 = OSXSAVE | AVX, OF_2013 = OF_2011 | FMA };

typedef struct pretended {
    const char *vendor;
    uint32_t signature; /* eax of leaf 1 */
    uint32_t leaf1, leaf7;
    uint64_t saved;
    const char *newest; /* expected */
    bool listed;
} pretended;

static weft_i_core core_of(const pretended *p)
{
    weft_i_core_x86 cpu = {.saved = p->saved};
    memcpy(&cpu.leaf0[WEFT_I_CORE_EBX], p->vendor, 4);
    memcpy(&cpu.leaf0[WEFT_I_CORE_EDX], p->vendor + 4, 4);
    memcpy(&cpu.leaf0[WEFT_I_CORE_ECX], p->vendor + 8, 4);
    cpu.leaf1[WEFT_I_CORE_EAX] = p->signature;
    cpu.leaf1[WEFT_I_CORE_ECX] = p->leaf1;
    cpu.leaf7[WEFT_I_CORE_EBX] = p->leaf7;
    return weft_i_core_of_x86(&cpu);
}

static void check_core(weft_i_core core, const char *newest, bool listed, int line)
{
    const char *name = core.newest ? core.newest : "none", *right = newest ? newest : "none";
    if (strcmp(name, right) != 0 || core.listed != listed)
        FAIL("processor %d: %s, %s; not %s, %s", line, name, core.listed ? "listed" : "unknown",
             right, listed ? "listed" : "unknown");
}

static const char intel[] = "GenuineIntel", amd[] = "AuthenticAMD", hygon[] = "HygonGenuine";

TEST(test_blas_core_x86)
{
    const uint32_t all = AVX2 | F | DQ | CD | BW | VL;
    const pretended cases[] = {
        {intel, 0xc06f2, OF_2013, all, TILES, "SkylakeX", false}, /* 207, Emerald Rapids */
        {intel, 0xa06d1, OF_2013, all, TILES, "SkylakeX", false}, /* 173, Granite Rapids */
        {intel, 0x806f8, OF_2013, all, TILES, "SkylakeX", true},  /* 143, Sapphire Rapids */
        {intel, 0xa0671, OF_2013, all, ZMM, "SkylakeX", true},    /* 167, Rocket Lake */
        {intel, 0x50654, OF_2013, all, ZMM, "SkylakeX", true},    /* 85, Skylake's Xeon */
        {intel, 0xc06f2, OF_2013, all, YMM, "Haswell", false},    /* the system saves no ZMM */
        {intel, 0xc06f2, OF_2013, all, NO_STATE, NULL, false},    /* and no YMM */
        {intel, 0xc06f2, OF_2013 & ~OSXSAVE, all, TILES, NULL, false},
        {intel, 0xc06f2, OF_2013, all & ~VL, TILES, "Haswell", false},
        {intel, 0xc06f2, OF_2013, all & ~(uint32_t)BW, TILES, "Haswell", false},
        {intel, 0xc06f2, OF_2013, all & ~(uint32_t)DQ, TILES, "Haswell", false},
        {intel, 0xc06f2, OF_2011, all, TILES, "Sandybridge", false},     /* no FMA */
        {intel, 0xb06e0, OF_2013, AVX2, YMM, "Haswell", false},          /* 190, of the N series */
        {intel, 0xb0671, OF_2013, AVX2, YMM, "Haswell", false},          /* 183, Raptor Lake */
        {intel, 0x90672, OF_2013, AVX2, YMM, "Haswell", true},           /* 151, Alder Lake */
        {intel, 0x80650, OF_2013, AVX2 | F | CD, ZMM, "Haswell", false}, /* 133, Knights Mill */
        {intel, 0x206a7, OF_2011, 0, YMM, "Sandybridge", true},
        {intel, 0x106a5, 0, 0, 0, NULL, false},                      /* Nehalem: nothing to tell */
        {intel, 0x00400f01, OF_2013, all, TILES, "SkylakeX", false}, /* family 19 */
        {intel, 0x00300f10, OF_2013, AVX2, YMM, "Haswell", false},   /* family 18 */
        {amd, 0x00b40f40, OF_2013, all, ZMM, "SkylakeX", false},     /* family 26, Zen 5 */
        {amd, 0x00b40f40, OF_2013, AVX2, YMM, "Zen", false},
        {amd, 0x00a10f11, OF_2013, all, ZMM, "SkylakeX", true},  /* family 25, Zen 4 */
        {amd, 0x00830f10, OF_2013, AVX2, YMM, "Zen", true},      /* family 23, Zen 2 */
        {amd, 0x00600f12, OF_2011, 0, YMM, "Sandybridge", true}, /* family 21, Bulldozer */
        {hygon, 0x00900f11, OF_2013, AVX2, YMM, "Zen", true},
        {"  Shanghai  ", 0x00070750, OF_2013, AVX2, YMM, "Haswell", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_core(core_of(&cases[i]), cases[i].newest, cases[i].listed, (int)i);
}

TEST(test_blas_core_arm)
{
    enum { ATOMICS = 1 << 8, DOT = 1 << 20, SVE = 1 << 22, NEW = ATOMICS | DOT };
    const struct {
        uint64_t features;
        uint32_t model;
        const char *newest;
        bool listed;
    } cases[] = {
        {NEW, 0x413fd0c1, "neoversen1", true},       /* Neoverse N1 */
        {NEW | SVE, 0x411fd401, "neoversev1", true}, /* V1 */
        {NEW, 0x411fd401, "neoversen1", false},      /* V1 whose SVE is hidden */
        {NEW | SVE, 0x410fd490, "neoversen2", true}, /* N2 */
        {NEW, 0x410fd490, "neoversen1", false},
        {NEW | SVE, 0x410fd4f0, "neoversev1", false}, /* V2: Grace, Graviton4 */
        {NEW | SVE, 0x410fd840, "neoversev1", false}, /* V3 */
        {NEW | SVE, 0x410fd8e0, "neoversen2", false}, /* N3 */
        {NEW | SVE, 0x410fd810, NULL, false},         /* Cortex-A720 */
        {NEW | SVE, 0x461f0010, NULL, false},         /* A64FX: vectors of 512 bits */
        {NEW, 0xc00fac30, "neoversen1", false},       /* Ampere's own */
        {NEW, 0x610f0220, "neoversen1", false},       /* Apple's */
        {0, 0x410fd083, NULL, true},                  /* Cortex-A72 */
        {NEW, 0, NULL, false},                        /* the system shows no model */
        {NEW | SVE, 0, NULL, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_i_core_arm cpu = {cases[i].features, cases[i].model};
        check_core(weft_i_core_of_arm(&cpu), cases[i].newest, cases[i].listed, (int)i);
    }
}

/* What was read here is what the compiler's own functions see. */
TEST(test_blas_core_here)
{
    weft_i_core core = weft_i_core_here();
#if defined(__x86_64__)
    __builtin_cpu_init();
    bool large = __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("fma");
    CHECK_INT(core.newest && !strcmp(core.newest, "SkylakeX"), large);
    CHECK_INT(core.newest != NULL, __builtin_cpu_supports("avx") != 0);
#else
    CHECK(!core.newest || strlen(core.newest) < 32);
#endif
}

/* ---- processes ---- */

typedef struct scene {
    const char *library; /* WEFT_BLAS; NULL: the machine's OpenBLAS */
    const char *user;    /* OPENBLAS_CORETYPE */
    weft_i_core core;    /* of the pretended processor */
    bool loaded_before;  /* by the program itself */
    bool learns;
} scene;

static void set(const char *name, const char *value)
{
    if (value)
        setenv(name, value, 1);
    else
        unsetenv(name);
}

/* The child's side: what weft says of the library, after the log. */
static void describe(const scene *s)
{
    weft_matmul_info info;
    weft_i_core core = s->core;
    set("WEFT_BLAS", s->library);
    set("OPENBLAS_CORETYPE", s->user);
    set("WEFT_LEARN", s->learns ? "1" : "0");
    setenv("WEFT_DEBUG", "WARN", 1);
    atomic_store(&weft_i_log_level, 0); /* to be read again */
    atomic_store(&weft_i_core_pretended, &core);
    if (s->loaded_before && !dlopen(s->library, RTLD_NOW | RTLD_LOCAL))
        dprintf(1, "%s\n", dlerror());
    weft_status status = weft_matmul_describe(&info);
    const char *left = getenv("OPENBLAS_CORETYPE");
    if (!status)
        status = weft_last_status(); /* what went well leaves no error behind */
    dprintf(1, "status %d library %s core [%s] %s variable %s rates %g %g\n", status, info.library,
            info.core, info.slow ? "slow" : "fast", left ? left : "none", info.product_rate,
            info.vector_rate);
}

static char told[4096];

/* Runs the scene in a process of its own; what it said. */
static const char *play(const scene *s)
{
    int ends[2], status;
    CHECK_INT(pipe(ends), 0);
    fflush(NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        dup2(ends[1], 1);
        dup2(ends[1], 2);
        describe(s);
        _exit(0);
    }
    close(ends[1]);
    size_t used = 0;
    for (ssize_t got; (got = read(ends[0], told + used, sizeof told - 1 - used)) > 0;)
        used += (size_t)got;
    told[used] = 0;
    close(ends[0]);
    CHECK_INT(waitpid(child, &status, 0), child);
    CHECK_INT(status, 0);
    CHECK_CONTAINS(told, "status 0 ");
    return told;
}

static void need_model(void)
{
    if (access(MODEL_OPENBLAS, R_OK))
        SKIP("the stand-in of OpenBLAS is not built");
}

/* A processor that the library does not know: it is told, and the variable is gone again. */
TEST(test_blas_is_told)
{
    need_model();
    scene s = {.library = MODEL_OPENBLAS, .core = {"SkylakeX", false}};
    CHECK_CONTAINS(play(&s), "core [SkylakeX, told by weft] fast variable none");
    CHECK(!strstr(told, "WARN"));
    s.core = (weft_i_core){"neoversev1", false};
    CHECK_CONTAINS(play(&s), "core [neoversev1, told by weft] fast variable none");
}

/* What the user says wins, over the list too, and stays. */
TEST(test_blas_user_wins)
{
    need_model();
    scene s = {.library = MODEL_OPENBLAS, .user = "haswell", .core = {"SkylakeX", false}};
    CHECK_CONTAINS(play(&s), "core [Haswell, by OPENBLAS_CORETYPE] fast variable haswell");
    s.user = "Prescott";
    CHECK_CONTAINS(play(&s), "core [Prescott, by OPENBLAS_CORETYPE] slow variable Prescott");
    CHECK_CONTAINS(told, "OPENBLAS_CORETYPE=Prescott is set: unset it");
    s.user = "Pentium";
    CHECK_CONTAINS(play(&s), "core [Prescott, in spite of OPENBLAS_CORETYPE] slow");
}

/* A processor of the library's list, or one without anything better: it is left alone, and where
 * that is slow the log says so, once, with what helps. */
TEST(test_blas_own_choice)
{
    need_model();
    scene s = {.library = MODEL_OPENBLAS, .core = {"SkylakeX", true}};
    CHECK_CONTAINS(play(&s), "core [Prescott, its own choice] slow variable none");
    const char *warning = strstr(told, "WARN: matrix products by " MODEL_OPENBLAS " are slow: ");
    CHECK(warning && !strstr(warning + 1, "WARN"));
    CHECK_CONTAINS(told, "(kernels: Prescott, its own choice); start the program with "
                         "OPENBLAS_CORETYPE=SkylakeX, or install a newer OpenBLAS");
    s.core = (weft_i_core){NULL, false};
    CHECK_CONTAINS(play(&s), "core [Prescott, its own choice] slow variable none");
    CHECK_CONTAINS(told, "a newer OpenBLAS may know this processor");
}

/* The program has loaded it: too late to tell, which is not hidden. */
TEST(test_blas_loaded_before)
{
    need_model();
    scene s = {.library = MODEL_OPENBLAS, .core = {"SkylakeX", false}, .loaded_before = true};
    CHECK_CONTAINS(play(&s), "core [Prescott, its own choice] slow variable none");
    CHECK_CONTAINS(told, "start the program with OPENBLAS_CORETYPE=SkylakeX");
}

/* A name that the library does not know. */
TEST(test_blas_unknown_core)
{
    need_model();
    scene s = {.library = MODEL_OPENBLAS, .core = {"Meteor", false}};
    CHECK_CONTAINS(play(&s), "core [Prescott, its own choice] slow variable none");
}

/* The OpenBLAS of this machine, on a processor of which it is told that nobody knows it. */
TEST(test_blas_real_library)
{
    scene s = {.core = weft_i_core_here()};
    const char *newest = s.core.newest;
    if (!strstr(play(&s), "library libopenblas") || strstr(told, "core []"))
        SKIP("no OpenBLAS that names its core");
#if defined(__x86_64__)
    if (!newest || !strcmp(newest, "Sandybridge"))
        SKIP("a processor without AVX2");
    char right[100];
    s.core.listed = false;
    snprintf(right, sizeof right, "core [%s, told by weft]", newest);
    CHECK_CONTAINS(play(&s), right);
    s.user = "Prescott";
    double product, vector;
    const char *rates = strstr(play(&s), " rates ");
    CHECK_CONTAINS(told, "core [Prescott, by OPENBLAS_CORETYPE]");
    CHECK(rates && sscanf(rates, " rates %lf %lf", &product, &vector) == 2);
    if (4 * product < vector) { /* else the vectors of this processor are not so much wider */
        CHECK_CONTAINS(told, "slow variable Prescott");
        CHECK_CONTAINS(told, "WARN: matrix products by libopenblas.so.0 are slow: ");
    }
    s.user = "Haswell";
    CHECK_CONTAINS(play(&s), "core [Haswell, by OPENBLAS_CORETYPE]");
#endif
}

/* ---- the check ---- */

TEST(test_blas_speed_verdict)
{
    CHECK(weft_i_blas_speed_is_low(&(weft_i_blas_speed){33e9, 100e9}));
    CHECK(!weft_i_blas_speed_is_low(&(weft_i_blas_speed){34e9, 100e9}));
    CHECK(!weft_i_blas_speed_is_low(&(weft_i_blas_speed){200e9, 100e9}));
}

/* The loop did what it says, by any vectors: halving and adding two comes to four; Arm counts. */
TEST(test_blas_peak)
{
    float sum = 0;
    int64_t operations = weft_i_peak_run(1000, &sum);
    if (!operations)
        SKIP("no loop for this architecture");
#if defined(__aarch64__)
    CHECK_NEAR(sum, 12 * 1000 + 78, 1e-3);
#else
    CHECK_NEAR(sum, 48, 1e-3);
#endif
    CHECK(operations % 24000 == 0 && operations >= 4 * 24000);
}

static char kept[1400];
static void keep_path(const char *path)
{
    snprintf(kept, sizeof kept, "%s", path);
}

static void rewrite(const char *from, const char *to)
{
    char text[4096];
    FILE *file = fopen(kept, "rb");
    CHECK(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    char *at = strstr(text, from);
    CHECK(at);
    file = fopen(kept, "wb");
    CHECK(file);
    fprintf(file, "%.*s%s", (int)(at - text), text, to);
    fclose(file);
}

/* Measured once: the next process believes the file, whatever it says; but not a damaged one, nor
 * one of another machine. */
TEST(test_blas_speed_is_kept)
{
    need_model();
    scene s = {.library = MODEL_OPENBLAS, .core = {"SkylakeX", false}, .learns = true};
    harness_cache_each(harness_cache_remove);
    CHECK_CONTAINS(play(&s), "fast");
    CHECK_INT(harness_cache_each(keep_path), 1);
    CHECK_CONTAINS(kept, "/blas-");
    rewrite("rates", "rates 10.5 100\n");
    CHECK_CONTAINS(play(&s), "slow");
    CHECK_CONTAINS(told, "are slow: 10 GFLOP/s, where the vector units of this processor do 100");
    static const char *const wrong[] = {"rates 10.5\n",    "rates -1 100\n", "rates 10 nan\n",
                                        "rates 1e300 1\n", "rates 0 0\n",    ""};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        rewrite("rates", wrong[i]);
        CHECK_CONTAINS(play(&s), "fast");
    }
    rewrite("machine", "machine another\nrates 10 100\n");
    CHECK_CONTAINS(play(&s), "fast");
    CHECK_INT(harness_cache_each(NULL), 1); /* no part is left */
}

/* Another core of the same library has its own. */
TEST(test_blas_speed_by_core)
{
    need_model();
    scene s = {.library = MODEL_OPENBLAS, .core = {"SkylakeX", false}, .learns = true};
    harness_cache_each(harness_cache_remove);
    CHECK_CONTAINS(play(&s), "fast");
    s.user = "Prescott";
    CHECK_CONTAINS(play(&s), "slow");
    CHECK_INT(harness_cache_each(NULL), 2);
    s.user = NULL;
    CHECK_CONTAINS(play(&s), "fast");
}

/* Nothing is kept where WEFT_LEARN or the folder forbids it, and that is no error. */
TEST(test_blas_speed_without_folder)
{
    need_model();
    scene s = {.library = MODEL_OPENBLAS, .core = {"SkylakeX", false}};
    harness_cache_each(harness_cache_remove);
    CHECK_CONTAINS(play(&s), "fast");
    CHECK_INT(harness_cache_each(NULL), 0);
    s.learns = true;
    static const char *const folders[] = {"/proc/no-such-folder", "/dev/null/weft", "relative"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        setenv("WEFT_CACHE_DIR", folders[i], 1);
        CHECK_CONTAINS(play(&s), "fast");
        CHECK(!strstr(told, "WARN"));
    }
    setenv("WEFT_CACHE_DIR", harness_cache, 1);
}

int main(int argc, char **argv)
{
    return harness_cache_main(argc, argv);
}
