/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels as they travel in the library: nvcc made code of them, NVRTC can do so from the text.
 */
#include "harness.h"

#include "backends/cuda/device.h"
#include "base/os.h"

TEST(test_cuda_embedded)
{
#ifdef WEFT_NVCC_FOUND
    const unsigned char *code = weft_i_cuda_embedded();
    CHECK(code != NULL);
    CHECK_INT(code[0] | code[1] << 8 | code[2] << 16 | (long long)code[3] << 24, 0xba55ed50);
#else
    CHECK(weft_i_cuda_embedded() == NULL);
    SKIP("weft was built without nvcc");
#endif
}

/* NVRTC needs no GPU. */
static void compile_for(int major, int minor)
{
    void *code = NULL;
    if (!WEFT_OS->dlopen("libnvrtc.so.13") && !WEFT_OS->dlopen("libnvrtc.so.12") &&
        !WEFT_OS->dlopen("libnvrtc.so"))
        SKIP("there is no libnvrtc.so where libraries are looked for");
    CHECK_OK(weft_i_cuda_compile(major, minor, &code));
    CHECK(!memcmp(code, "\177ELF", 4));
    WEFT_OS->free(code);
}

TEST(test_cuda_nvrtc)
{
    compile_for(9, 0);
}

TEST(test_cuda_nvrtc_refuses)
{
    void *code = NULL;
    if (!WEFT_OS->dlopen("libnvrtc.so.13") && !WEFT_OS->dlopen("libnvrtc.so.12") &&
        !WEFT_OS->dlopen("libnvrtc.so"))
        SKIP("there is no libnvrtc.so where libraries are looked for");
    CHECK_STATUS(weft_i_cuda_compile(1, 1, &code), WEFT_ERR_INTERNAL); /* no such device */
    CHECK(code == NULL);
    CHECK_CONTAINS(weft_last_error(), "NVRTC");
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
