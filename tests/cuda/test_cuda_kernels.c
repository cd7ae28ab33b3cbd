/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: backends/cuda/cuda.c, backends/cuda/device/image.c, backends/cuda/device/nvrtc.c */
/* The kernels as they travel in the library: nvcc made code of them, NVRTC can do so from the text.
 */
#include "harness.h"

#include "backends/cuda/device/device.h"
#include "base/os/os.h"

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

/* Whether its code is quick is not asked here: nvcc optimises the same kernels for the library.  An
 * older NVRTC does not know the option.  It reads the text of all kernels too, but of those that
 * differ in dtype and ranks alone it makes code for one or two. */
static weft_status compile_quickly(int image, void **code)
{
    weft_i_cuda_compile_option = "--Ofast-compile=max";
    weft_status status = weft_i_cuda_compile(image, 9, 0, code);
    if (status == WEFT_OK || !strstr(weft_last_error(), "Ofast-compile"))
        return status;
    weft_i_cuda_compile_option = "-DWEFT_K_FEW";
    return weft_i_cuda_compile(image, 9, 0, code);
}

/* NVRTC needs no GPU. */
TEST(test_cuda_nvrtc)
{
    void *code = NULL;
    need_nvrtc();
    for (int i = 0; i < WEFT_I_CUDA_IMAGES; i++) {
        CHECK_OK(compile_quickly(i, &code));
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
