/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: tools/weft/bench_fused.c */
/*
 * `weft bench fused --device cuda` on the software driver: what it measures, refuses and prints.
 * Figures mean nothing there; that every row comes, and that results are compared, does.
 */
#include "cuda/model.h"
#include "harness.h"

#include "../tools/weft/command.h"

#include <weft/weft.h>

#include <unistd.h>

enum { WORDS = 20, TEXT = 1 << 16 };

/* Runs `weft bench` with these words; what it printed goes to `text`. */
static int bench(const char *const *words, char *text)
{
    char *argv[WORDS] = {(char *)(uintptr_t) "bench"};
    int argc = 1, kept[2];
    FILE *file = tmpfile();
    CHECK(file != NULL);
    for (; *words; words++)
        argv[argc++] = (char *)(uintptr_t)*words;
    fflush(stdout);
    for (int i = 0; i < 2; i++) {
        kept[i] = dup(1 + i);
        dup2(fileno(file), 1 + i);
    }
    int status = weft_command_bench.run(argc, argv);
    fflush(stdout);
    for (int i = 0; i < 2; i++) {
        dup2(kept[i], 1 + i);
        close(kept[i]);
    }
    rewind(file);
    text[fread(text, 1, TEXT - 1, file)] = 0;
    fclose(file);
    return status;
}

#define BENCH(text_, ...) bench((const char *const[]){__VA_ARGS__, NULL}, text_)

static int count_of(const char *text, const char *word)
{
    int count = 0;
    for (const char *at = text; (at = strstr(at, word)); at++)
        count++;
    return count;
}

static char text[TEXT];

/* Processes: the three forms, each with nine rows. */
TEST(test_cuda_bench_fused)
{
    CHECK_INT(BENCH(text, "fused", "--device", "cuda", "--shape", "32x16x16", "--repeats", "1",
                    "--iters", "1"),
              0);
    CHECK_CONTAINS(text, "32 x 16 x 16 bf16, 2 ranks as processes, cuda:0");
    CHECK_CONTAINS(text, "f8e4m3, scales of rows");
    CHECK_INT(count_of(text, "  gather   "), 3 * 5);
    CHECK_INT(count_of(text, "  scatter  "), 3 * 4);
    CHECK(!strstr(text, "wrong") && !strstr(text, "nan") && !strstr(text, " inf"));
}

TEST(test_cuda_bench_fused_refused)
{
    CHECK_INT(BENCH(text, "fused", "--device", "cuda", "--shape", "63x32x48"), 1);
    CHECK_CONTAINS(text, "2 ranks do not divide 63 rows");
    CHECK_INT(BENCH(text, "fused", "--device", "cuda", "--shape", "64x32"), 2);
    CHECK_CONTAINS(text, "--shape cannot take \"64x32\"");
    CHECK_INT(BENCH(text, "op", "--device", "cuda"), 2);
    CHECK_CONTAINS(text, "not \"op\"");
}

/* The last: what comes after it cannot fork and use the device. */
TEST(test_cuda_bench_fused_threads)
{
    CHECK_INT(BENCH(text, "fused", "--device", "cuda", "--shape", "32x16x16", "--dtype", "bf16",
                    "--backend", "threads", "-n", "4", "--json", "--repeats", "1", "--iters", "1"),
              0);
    CHECK_INT(count_of(text, "\"ranks\":4"), 9);
    CHECK_CONTAINS(text, "\"name\":\"scatter 32x16x16 bf16, pair\"");
}

int main(int argc, char **argv)
{
    model_install();
    setenv("WEFT_DEBUG", "NONE", 0);
    return harness_main(argc, argv);
}
