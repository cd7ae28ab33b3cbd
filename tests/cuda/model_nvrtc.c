/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVRTC for the software driver.  The library's own kernels are compiled to their text, since the
 * driver has their twins; functions of graphs are compiled by the C compiler to a shared object,
 * against the headers of the kernels and the twin of this folder, and loaded by cuModuleLoadData.
 * What the compiler made is kept where tests/run says, for the programs of all builds.
 */
#include "model_parts.h"
#include "twin.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct program {
    char *source, *code;
    size_t bytes;
    char log[400];
} program;

static char *last_source; /* of a graph */

const char *model_nvrtc_source(void)
{
    return last_source;
}

static int is_graph(const char *source)
{
    return strstr(source, "#define FUSED ") != NULL;
}

static int rtc_version(int *major, int *minor)
{
    *major = model.nvrtc_version ? model.nvrtc_version / 10 : 13;
    *minor = model.nvrtc_version % 10;
    return 0;
}

static int rtc_create(void **out, const char *source, const char *name, int count,
                      const char *const *headers, const char *const *names)
{
    (void)name, (void)headers, (void)names;
    if (count == 0 ||
        (!is_graph(source) && !strstr(source, "kernels.def") && !strstr(source, "tensor.def")))
        return 1;
    program *made = calloc(1, sizeof *made);
    made->source = strdup(source);
    if (is_graph(source)) {
        free(last_source);
        last_source = strdup(source);
    }
    *out = made;
    return 0;
}

static int rtc_destroy(void **at)
{
    program *old = *at;
    free(old->source);
    free(old->code);
    free(old);
    *at = NULL;
    return 0;
}

/* Behind the source: for each kernel the bytes of its parameter, and how a thread enters it. */
static void put_entries(FILE *out, const char *source)
{
    static const char start[] = "#define FUSED ";
    for (const char *at = source; (at = strstr(at, start)); at++) {
        const char *name = at + sizeof start - 1;
        int length = (int)strcspn(name, "\n");
        fprintf(out,
                "const unsigned long bytes_%.*s = sizeof(%.*s_addresses);\n"
                "void run_%.*s(const void *parameter, const twin_place *place)\n"
                "{\n    twin_here = *place;\n    %.*s(*(const %.*s_addresses *)parameter);\n}\n",
                length, name, length, name, length, name, length, name, length, name);
    }
}

static int compile_c(program *p, const char *folder)
{
    char command[4000];
    snprintf(command, sizeof command, "%s/fused.c", folder);
    FILE *out = fopen(command, "w");
    if (!out)
        return 1;
    fprintf(out, "%s\n#include \"kernels/number/math.c\"\n_Thread_local twin_place twin_here;\n",
            p->source);
    put_entries(out, p->source);
    fclose(out);
    snprintf(command, sizeof command,
             "cc -std=gnu11 -O1 -w -Werror=implicit-function-declaration -fPIC -shared "
             "-ffp-contract=off -fno-math-errno "
             "-fno-strict-aliasing -Wl,-z,defs -iquote %s/tests/cuda -iquote "
             "%s/src/backends/cuda/kernels "
             "-I%s/src -I%s/include -o %s/fused.so %s/fused.c -lm 2>%s/fused.log",
             WEFT_TEST_SOURCE, WEFT_TEST_SOURCE, WEFT_TEST_SOURCE, WEFT_TEST_SOURCE, folder, folder,
             folder);
    return system(command); /* NOLINT: paths of this build */
}

static char *read_whole(const char *path, size_t *bytes)
{
    struct stat about;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    if (fstat(fd, &about))
        about.st_size = 0;
    char *all = calloc(1, (size_t)about.st_size + 1);
    *bytes = read(fd, all, (size_t)about.st_size) == about.st_size ? (size_t)about.st_size : 0;
    close(fd);
    return all;
}

static char *take_file(const char *folder, const char *name, size_t *bytes)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    char *all = read_whole(path, bytes);
    unlink(path);
    return all;
}

/* ---- what is kept: a file of the source, with its final zero, and the object ---- */

static int kept_path(const char *source, char *out, size_t bytes)
{
    const char *folder = getenv("WEFT_TEST_CACHE");
    unsigned long long hash = 0xcbf29ce484222325; /* FNV-1a; the source is compared as well */
    if (!folder || !*folder)
        return 0;
    for (const char *at = source; *at; at++)
        hash = (hash ^ (unsigned char)*at) * 0x100000001b3;
    return snprintf(out, bytes, "%s/nvrtc-%016llx", folder, hash) < (int)bytes;
}

static int take_kept(program *p)
{
    char path[300];
    size_t bytes = 0, source = strlen(p->source) + 1;
    char *all = kept_path(p->source, path, sizeof path) ? read_whole(path, &bytes) : NULL;
    if (all && bytes > source && !memcmp(all, p->source, source)) {
        p->bytes = bytes - source;
        p->code = malloc(p->bytes);
        memcpy(p->code, all + source, p->bytes);
    }
    free(all);
    return p->code != NULL;
}

/* Under another name until it is whole: other programs may look for it meanwhile. */
static void keep(const program *p)
{
    char path[300], made[310];
    size_t source = strlen(p->source) + 1;
    if (!kept_path(p->source, path, sizeof path))
        return;
    snprintf(made, sizeof made, "%s-XXXXXX", path);
    int fd = mkostemp(made, O_CLOEXEC);
    if (fd < 0)
        return;
    int whole = write(fd, p->source, source) == (ssize_t)source &&
                write(fd, p->code, p->bytes) == (ssize_t)p->bytes;
    close(fd);
    if (!whole || rename(made, path))
        unlink(made);
}

static int compile_graph(program *p)
{
    char folder[] = "/tmp/weft-test-nvrtc-XXXXXX", path[64];
    size_t bytes = 0;
    if (take_kept(p))
        return 0;
    if (!mkdtemp(folder))
        return 6;
    int failed = compile_c(p, folder);
    char *words = take_file(folder, "fused.log", &bytes);
    snprintf(p->log, sizeof p->log, "%s", words ? words : "");
    free(words);
    if (!failed)
        p->code = take_file(folder, "fused.so", &p->bytes);
    if (p->code)
        keep(p);
    snprintf(path, sizeof path, "%s/fused.c", folder);
    unlink(path);
    rmdir(folder);
    return p->code ? 0 : 6;
}

static int rtc_compile(void *raw, int count, const char *const *options)
{
    program *p = raw;
    char wanted[40];
    int capability = model.capability ? model.capability : 90;
    snprintf(wanted, sizeof wanted, "--gpu-architecture=sm_%d", capability);
    if (count == 0 || strcmp(options[0], wanted) != 0)
        return 5;
    model.nvrtc_compiles += is_graph(p->source);
    if (model.nvrtc_fails && is_graph(p->source)) {
        snprintf(p->log, sizeof p->log, "fused.cu(1): error: as the test wishes");
        return model.nvrtc_fails;
    }
    if (is_graph(p->source))
        return compile_graph(p);
    p->code = strdup(p->source);
    p->bytes = strlen(p->source) + 1;
    return 0;
}

static int rtc_log_size(void *raw, size_t *out)
{
    *out = strlen(((program *)raw)->log) + 1;
    return 0;
}

static int rtc_log(void *raw, char *out)
{
    strcpy(out, ((program *)raw)->log);
    return 0;
}

static int rtc_size(void *raw, size_t *out)
{
    *out = ((program *)raw)->bytes;
    return 0;
}

static int rtc_code(void *raw, char *out)
{
    memcpy(out, ((program *)raw)->code, ((program *)raw)->bytes);
    return 0;
}

void *model_nvrtc_symbol(const char *name)
{
    static const struct {
        const char *name;
        void *function;
    } rtc[] = {{"nvrtcVersion", (void *)(uintptr_t)rtc_version},
               {"nvrtcCreateProgram", (void *)(uintptr_t)rtc_create},
               {"nvrtcDestroyProgram", (void *)(uintptr_t)rtc_destroy},
               {"nvrtcCompileProgram", (void *)(uintptr_t)rtc_compile},
               {"nvrtcGetProgramLogSize", (void *)(uintptr_t)rtc_log_size},
               {"nvrtcGetProgramLog", (void *)(uintptr_t)rtc_log},
               {"nvrtcGetCUBINSize", (void *)(uintptr_t)rtc_size},
               {"nvrtcGetCUBIN", (void *)(uintptr_t)rtc_code}};
    for (size_t i = 0; i < sizeof rtc / sizeof *rtc; i++)
        if (!strcmp(rtc[i].name, name))
            return rtc[i].function;
    return NULL;
}

/* ---- modules ---- */

/* The size of a shared object, from where its table of sections ends. */
static size_t object_bytes(const unsigned char *image)
{
    uint64_t table;
    uint16_t size, count;
    memcpy(&table, image + 40, sizeof table);
    memcpy(&size, image + 58, sizeof size);
    memcpy(&count, image + 60, sizeof count);
    return (size_t)table + (size_t)size * count;
}

struct model_module {
    void *library;
    model_kernel *kernels; /* that were asked for */
    struct model_module *next;
};

model_module *model_module_load(const void *image)
{
    char path[] = "/tmp/weft-test-module-XXXXXX";
    if (memcmp(image, "\177ELF", 4))
        return NULL;
    int fd = mkstemp(path);
    size_t bytes = object_bytes(image);
    void *library = NULL;
    if (fd >= 0 && write(fd, image, bytes) == (ssize_t)bytes)
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (fd >= 0)
        close(fd);
    unlink(path);
    if (!library)
        return NULL;
    model_module *made = calloc(1, sizeof *made);
    made->library = library;
    return made;
}

/* The library stays: a captured launch may still be told to run. */
void model_module_free(model_module *module)
{
    while (module->kernels) {
        model_kernel *old = module->kernels;
        module->kernels = old->next;
        free((char *)(uintptr_t)old->name);
        free(old);
    }
    free(module);
}

const model_kernel *model_module_find(model_module *module, const char *name)
{
    char symbol[100];
    snprintf(symbol, sizeof symbol, "bytes_%s", name);
    const unsigned long *bytes = dlsym(module->library, symbol);
    snprintf(symbol, sizeof symbol, "run_%s", name);
    void *run = dlsym(module->library, symbol);
    if (!bytes || !run)
        return NULL;
    model_kernel *made = calloc(1, sizeof *made);
    made->name = strdup(name);
    made->bytes = *bytes;
    made->threads = 512;
    memcpy(&made->enter, &run, sizeof run);
    made->next = module->kernels;
    module->kernels = made;
    return made;
}
