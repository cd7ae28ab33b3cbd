/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a fuzz target on its stored inputs and on random changes to them, the same ones every time.
 * WEFT_FUZZ_ROUNDS says how many changes per stored input (default 400); then it is told how many
 * bytes that were.  A broken promise aborts the program.
 */
#include "fuzz.h"
#include "harness.h"

#include "base/os/os.h"

#include <dirent.h>
#include <string.h>

enum { MOST = 1 << 16, INPUTS = 256 };

typedef struct input {
    size_t count;
    uint8_t *bytes;
} input;

static input inputs[INPUTS];
static size_t known;
static uint64_t state = 0x9e3779b97f4a7c15u;
static uint64_t runs, total; /* inputs, and bytes in all of them */

static uint64_t draw(uint64_t below)
{
    state ^= state << 13; /* xorshift: the same sequence on every machine */
    state ^= state >> 7;
    state ^= state << 17;
    return below ? state % below : 0;
}

static void load_corpus(void)
{
    DIR *folder = opendir(WEFT_FUZZ_CORPUS);
    for (struct dirent *entry; folder && (entry = readdir(folder)) && known < INPUTS;) {
        char path[1024];
        snprintf(path, sizeof path, "%s/%s", WEFT_FUZZ_CORPUS, entry->d_name);
        FILE *file = entry->d_name[0] == '.' ? NULL : fopen(path, "rb");
        if (!file)
            continue;
        inputs[known].bytes = malloc(MOST);
        inputs[known].count = fread(inputs[known].bytes, 1, MOST, file);
        known++;
        fclose(file);
    }
    if (folder)
        closedir(folder);
}

static size_t change(const input *from, uint8_t *out)
{
    size_t count = from->count;
    memcpy(out, from->bytes, count);
    for (uint64_t times = 1 + draw(4); times && count; times--) {
        static const uint8_t special[] = {0, 1, 0x7f, 0x80, 0xff};
        size_t at = draw(count);
        switch (draw(6)) {
        case 0:
            out[at] ^= (uint8_t)(1u << draw(8));
            break;
        case 1:
            out[at] = special[draw(sizeof special)];
            break;
        case 2:
            out[at] = (uint8_t)draw(256);
            break;
        case 3: /* shorter */
            count = at;
            break;
        case 4: /* a piece twice */
            if (count + (count - at) < MOST) {
                memmove(out + count, out + at, count - at);
                count += count - at;
            }
            break;
        default: { /* the end of another input */
            const input *other = &inputs[draw(known)];
            size_t cut = draw(other->count + 1);
            if (at + other->count - cut < MOST) {
                memcpy(out + at, other->bytes + cut, other->count - cut);
                count = at + other->count - cut;
            }
        }
        }
    }
    return count;
}

/* An exact copy, so that AddressSanitizer sees a read beyond the end. */
static void run(const uint8_t *bytes, size_t count)
{
    uint8_t *copy = malloc(count ? count : 1);
    CHECK(copy);
    memcpy(copy, bytes, count);
    LLVMFuzzerTestOneInput(copy, count);
    free(copy);
    runs++;
    total += count;
}

TEST(WEFT_FUZZ_TEST)
{
    static uint8_t changed[MOST];
    const char *text = getenv("WEFT_FUZZ_ROUNDS");
    long rounds = text ? atol(text) : 400;
    load_corpus();
    if (!known)
        FAIL("no stored inputs in %s", WEFT_FUZZ_CORPUS);
    run((const uint8_t *)"", 0);
    for (size_t i = 0; i < known; i++)
        run(inputs[i].bytes, inputs[i].count);
    for (long round = 0; round < rounds; round++)
        for (size_t i = 0; i < known; i++)
            run(changed, change(&inputs[i], changed));
    for (size_t i = 0; i < known; i++)
        free(inputs[i].bytes);
    if (text)
        printf("# %llu inputs with %llu bytes\n", (unsigned long long)runs,
               (unsigned long long)total);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
