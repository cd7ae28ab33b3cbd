/* SPDX-License-Identifier: Apache-2.0 */
/* `weft doctor`: the libraries that weft loads when something needs them, and what they run on. */
#include "doctor.h"

#include <dirent.h>
#include <string.h>
#include <unistd.h>

void doctor_look_at_products(finding *out)
{
    weft_matmul_info info;
    if (weft_matmul_describe(&info) < 0) {
        doctor_say(out, BROKEN, "%s", weft_last_error());
    } else if (!*info.library) {
        doctor_say(out, SLOW, "no BLAS: plain loops");
        doctor_advise(out, "apt-get install libopenblas0-pthread");
    } else {
        doctor_say(out, info.slow ? SLOW : FINE, "%s, kernels for %s, %.0f GFLOP/s of a thread",
                   info.library, *info.core ? info.core : "an unknown processor",
                   info.product_rate / 1e9);
        if (info.slow)
            doctor_advise(
                out,
                "The vector units do %.0f. Install libopenblas0-pthread, or name a newer core "
                "in OPENBLAS_CORETYPE (SkylakeX, Haswell, NEOVERSEN1).",
                info.vector_rate / 1e9);
    }
}

void doctor_look_at_compiler(finding *out)
{
    weft_compiler_info info;
    if (weft_compiler_describe(&info) < 0) {
        doctor_say(out, BROKEN, "%s", weft_last_error());
    } else if (!*info.program) {
        doctor_say(out, SLOW, "none: %s", info.reason);
        doctor_advise(out,
                      "Compiled functions are interpreted. apt-get install gcc libc6-dev, or set "
                      "WEFT_CC.");
    } else if (!*info.folder) {
        doctor_say(out, SLOW, "%s, but no folder for what it makes: %s", info.program, info.reason);
        doctor_advise(
            out, "Each program compiles anew. Set WEFT_CACHE_DIR to a folder that only you can "
                 "write to.");
    } else {
        doctor_say(out, FINE, "%s, cache in %s", info.program, info.folder);
    }
}

/* ---- GPUs ---- */

static int backend(const char *name, weft_backend_info *out)
{
    for (int i = 0; i < weft_backend_count() && weft_backend_describe(i, out) == WEFT_OK; i++)
        if (!strcmp(out->name, name))
            return 1;
    return 0;
}

/* How many display controllers of NVIDIA the bus has. */
static int count_cards(void)
{
    static const char bus[] = "/sys/bus/pci/devices";
    int count = 0;
    DIR *folder = opendir(bus);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        char path[512], vendor[16] = "", class[16] = "";
        snprintf(path, sizeof path, "%s/%s/vendor", bus, entry->d_name);
        doctor_line_of(path, vendor, sizeof vendor);
        snprintf(path, sizeof path, "%s/%s/class", bus, entry->d_name);
        doctor_line_of(path, class, sizeof class);
        count += !strcmp(vendor, "0x10de") && !strncmp(class, "0x03", 4);
    }
    if (folder)
        closedir(folder);
    return count;
}

void doctor_look_at_gpu(finding *out)
{
    weft_backend_info cuda;
    int cards = count_cards(), driver = access("/proc/driver/nvidia/version", R_OK) == 0;
    if (!backend("cuda", &cuda)) {
        doctor_say(out, FINE, "this build has no CUDA");
    } else if (cuda.usable) {
        doctor_say(out, FINE, "%s", cuda.reason);
    } else if (!cards && !driver) {
        doctor_say(out, FINE, "none of NVIDIA is here");
    } else if (!driver) {
        doctor_say(out, NOTE, "%d of NVIDIA, but the kernel has no driver for it", cards);
        doctor_advise(out, "Tensors stay on the processor. apt-get install nvidia-driver (of "
                           "Debian's non-free), and start the machine anew; on a host of "
                           "containers that is done on the host.");
    } else {
        doctor_say(out, NOTE, "the kernel has a driver, but %s", cuda.reason);
        doctor_advise(out,
                      "In a container: docker run --gpus all, with the NVIDIA Container "
                      "Toolkit on the host. Else apt-get install libcuda1, of the version in "
                      "/proc/driver/nvidia/version; nvidia-smi tells whether the GPU answers.");
    }
}

void doctor_look_at_nccl(finding *out)
{
    weft_backend_info nccl, cuda;
    if (!backend("nccl", &nccl) || !backend("cuda", &cuda)) {
        doctor_say(out, FINE, "this build has no CUDA");
    } else if (nccl.usable) {
        doctor_say(out, FINE, "%s", nccl.reason);
    } else if (!cuda.usable) {
        doctor_say(out, FINE, "not needed: no GPU can be used");
    } else {
        doctor_say(out, NOTE, "%s", nccl.reason);
        doctor_advise(out, "Groups of GPUs that span hosts go through host memory without it. "
                           "apt-get install libnccl2 (of NVIDIA's repository), or pip install "
                           "nvidia-nccl-cu13 and name its libnccl.so.2 in WEFT_NCCL_LIBRARY.");
    }
}

/* ---- between hosts ---- */

void doctor_look_at_ucx(finding *out)
{
    weft_backend_info ucx;
    if (!backend("ucx", &ucx)) {
        doctor_say(out, NOTE, "this build has no UCX");
    } else if (ucx.usable) {
        doctor_say(out, FINE, "%s", ucx.reason);
    } else {
        doctor_say(out, NOTE, "%s", ucx.reason);
        doctor_advise(out, "Only jobs on several hosts need it: their collectives are refused "
                           "without. apt-get install libucx0 on every host, 1.13 or later, or name "
                           "libucp.so.0 in WEFT_UCX_LIBRARY; and WEFT_UCX must not be off.");
    }
}
