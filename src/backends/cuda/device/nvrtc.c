/* SPDX-License-Identifier: Apache-2.0 */
/* NVRTC as it is loaded and called; see nvrtc.h. */
#include "nvrtc.h"

#include "base/os/os.h"
#include "device.h"

#include <stdio.h>
#include <string.h>

enum { OLDEST = 12 }; /* its C++17 and __grid_constant__ are as the kernels need them */

/* As much as is needed of it; its functions return 0 for success. */
typedef struct nvrtc {
    int (*version)(int *major, int *minor);
    int (*create)(void **program, const char *source, const char *name, int count,
                  const char *const *headers, const char *const *include_names);
    int (*destroy)(void **program);
    int (*compile)(void *program, int count, const char *const *options);
    int (*log_size)(void *program, size_t *out);
    int (*log)(void *program, char *out);
    int (*code_size)(void *program, size_t *out);
    int (*code)(void *program, char *out);
    /* NULL before 12.8: asked now and then; 1 stops the compilation. */
    int (*flow)(void *program, int (*ask)(void *user, void *unused), void *user);
} nvrtc;

static weft_status find_all(void *library, nvrtc *out)
{
    const struct {
        const char *name;
        void *to;
        bool optional;
    } wanted[] = {{"nvrtcVersion", &out->version, false},
                  {"nvrtcCreateProgram", &out->create, false},
                  {"nvrtcDestroyProgram", &out->destroy, false},
                  {"nvrtcCompileProgram", &out->compile, false},
                  {"nvrtcGetProgramLogSize", &out->log_size, false},
                  {"nvrtcGetProgramLog", &out->log, false},
                  {"nvrtcGetCUBINSize", &out->code_size, false},
                  {"nvrtcGetCUBIN", &out->code, false},
                  {"nvrtcSetFlowCallback", &out->flow, true}};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        void *found = WEFT_OS->dlsym(library, wanted[i].name);
        if (!found && !wanted[i].optional)
            return weft_i_fail(WEFT_ERR_UNSUPPORTED, "libnvrtc.so has no %s", wanted[i].name);
        memcpy(wanted[i].to, &found, sizeof found);
    }
    return WEFT_OK;
}

static weft_status load(nvrtc *out)
{
    static const char *const libraries[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
    void *library = NULL;
    int major = 0, minor = 0;
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries && !library; i++)
        library = WEFT_OS->dlopen(libraries[i]);
    if (!library)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                           "there is no libnvrtc.so (it comes with the CUDA toolkit)");
    WEFT_TRY(find_all(library, out));
    if (out->version(&major, &minor) != 0 || major < OLDEST)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED, "NVRTC %d.%d is too old; %d.0 is the oldest",
                           major, minor, OLDEST);
    return WEFT_OK;
}

weft_status weft_i_nvrtc_version(int *major, int *minor)
{
    nvrtc rtc;
    WEFT_TRY(load(&rtc));
    rtc.version(major, minor);
    return WEFT_OK;
}

static weft_status fetch_code(const nvrtc *rtc, void *program, const weft_i_nvrtc_job *job,
                              void **out, size_t *bytes)
{
    if (rtc->code_size(program, bytes) != 0 || *bytes == 0)
        return weft_i_fail(WEFT_ERR_INTERNAL, "NVRTC compiled %s to nothing", job->what);
    char *code = WEFT_OS->alloc(*bytes);
    if (!code)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %zu bytes of compiled kernels",
                           *bytes);
    if (rtc->code(program, code) != 0) {
        WEFT_OS->free(code);
        return weft_i_fail(WEFT_ERR_INTERNAL, "NVRTC does not hand its code over");
    }
    *out = code;
    return WEFT_OK;
}

static weft_status tell_log(const nvrtc *rtc, void *program, const weft_i_nvrtc_job *job,
                            int result)
{
    size_t bytes = 0;
    if (weft_i_os_ms_until(job->deadline) == 0)
        return weft_i_fail(WEFT_ERR_TIMEOUT, "NVRTC did not end in time (WEFT_CC_TIMEOUT)");
    char *log = rtc->log_size(program, &bytes) == 0 && bytes ? WEFT_OS->alloc(bytes + 1) : NULL;
    if (log)
        rtc->log(program, log);
    weft_i_fail(WEFT_ERR_INTERNAL, "NVRTC does not compile %s (%d): %.1500s", job->what, result,
                log ? log : "it gives no reason");
    WEFT_OS->free(log);
    return WEFT_ERR_INTERNAL;
}

static int is_late(void *job, void *unused)
{
    (void)unused;
    return weft_i_os_ms_until(((const weft_i_nvrtc_job *)job)->deadline) == 0;
}

weft_status weft_i_nvrtc_compile(const weft_i_nvrtc_job *job, void **out, size_t *bytes)
{
    nvrtc rtc;
    void *program = NULL;
    char arch[40];
    const char *const *texts, *const *names;
    *out = NULL;
    WEFT_TRY(load(&rtc));
    snprintf(arch, sizeof arch, "--gpu-architecture=sm_%d%d", job->major, job->minor);
    const char *options[] = {arch, "--fmad=false", "--std=c++17", "--device-int128",
                             weft_i_cuda_compile_option};
    int count = 4 + (weft_i_cuda_compile_option != NULL), texts_count;
    texts_count = weft_i_cuda_headers(&texts, &names);
    int result = rtc.create(&program, job->source, job->title, texts_count, texts, names);
    if (result != 0)
        return weft_i_fail(WEFT_ERR_INTERNAL, "NVRTC takes no program (%d)", result);
    if (rtc.flow && job->deadline != WEFT_I_NEVER)
        rtc.flow(program, is_late, (void *)(uintptr_t)job);
    result = rtc.compile(program, count, options);
    weft_status status =
        result ? tell_log(&rtc, program, job, result) : fetch_code(&rtc, program, job, out, bytes);
    rtc.destroy(&program);
    return status;
}
