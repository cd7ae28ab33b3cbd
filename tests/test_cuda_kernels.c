/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels as they travel in the library: nvcc made code of them, NVRTC can do so from the text.
 */
#include "harness.h"

#include "backends/cuda/device.h"
#include "base/os.h"

TEST(test_cuda_embedded)
{
#ifdef WEFT_NVCC_FOUND
    for (int i = 0; i < WEFT_I_CUDA_IMAGES; i++) {
        const unsigned char *code = weft_i_cuda_embedded(i);
        CHECK(code != NULL);
        CHECK_INT(code[0] | code[1] << 8 | code[2] << 16 | (long long)code[3] << 24, 0xba55ed50);
    }
#else
    CHECK(weft_i_cuda_embedded(0) == NULL);
    SKIP("weft was built without nvcc");
#endif
}

#ifndef WEFT_NVRTC_LIBRARY
#define WEFT_NVRTC_LIBRARY "libnvrtc.so"
#endif

/* A toolkit's libraries are often not where libraries are looked for. */
static void *find_library(const char *name)
{
    void *found = weft_i_os_linux.dlopen(name);
    return !found && !strncmp(name, "libnvrtc", 8) ? weft_i_os_linux.dlopen(WEFT_NVRTC_LIBRARY)
                                                   : found;
}

static void need_nvrtc(void)
{
    static weft_i_os table;
    table = weft_i_os_linux;
    table.dlopen = find_library;
    weft_i_os_now = &table;
    if (!table.dlopen("libnvrtc.so"))
        SKIP("there is no libnvrtc.so");
}

static void *find_nothing(const char *name)
{
    (void)name;
    return NULL;
}

/* A device older than all that nvcc made code for gets what NVRTC makes, not code that it cannot
 * load. */
TEST(test_cuda_older_device)
{
    static weft_i_os table;
    const weft_i_cuda_device newer = {.major = 9}, older = {.major = 7, .minor = 5};
    const void *code = NULL;
    void *release = NULL;
    table = weft_i_os_linux;
    table.dlopen = find_nothing;
    weft_i_os_now = &table;
    if (weft_i_cuda_embedded(0)) {
        CHECK_OK(weft_i_cuda_image(&newer, 0, &code, &release));
        CHECK(code == weft_i_cuda_embedded(0) && release == NULL);
    }
    CHECK(weft_i_cuda_image(&older, 0, &code, &release) < 0);
    CHECK(release == NULL);
    CHECK_CONTAINS(weft_last_error(), "libnvrtc.so");
}

/* NVRTC needs no GPU.  Of kernels that differ in dtype and ranks alone it makes code for one or two:
 * it reads the text of all, and nvcc compiles all of them for the library. */
TEST(test_cuda_nvrtc)
{
    void *code = NULL;
    need_nvrtc();
    weft_i_cuda_compile_option = "-DWEFT_K_FEW";
    for (int i = 0; i < WEFT_I_CUDA_IMAGES; i++) {
        CHECK_OK(weft_i_cuda_compile(i, 9, 0, &code));
        CHECK(!memcmp(code, "\177ELF", 4));
        WEFT_OS->free(code);
    }
}

TEST(test_cuda_nvrtc_refuses)
{
    void *code = NULL;
    need_nvrtc();
    CHECK_STATUS(weft_i_cuda_compile(0, 1, 1, &code), WEFT_ERR_INTERNAL); /* no such device */
    CHECK(code == NULL);
    CHECK_CONTAINS(weft_last_error(), "NVRTC");
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
