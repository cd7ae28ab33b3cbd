/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: graph/emit/code_cache.c, graph/emit/compiler.c, graph/emit/emit_build.c,
 * base/machine/cache_folder.c, base/share/digest.c */
/*
 * What can go wrong with compiling a graph: no compiler, one that fails or hangs, a full disk, files
 * in the cache that are not what was written, ranks that compile at once, a rank that is killed
 * meanwhile.  The results are always the same.
 */
#include "fault.h"
#include "harness.h"
#include "harness_cache.h"

#include "base/machine/cache_folder.h"
#include "base/report/os_look.h"
#include "graph/emit/code_cache.h"
#include "graph/emit/emit.h"
#include "tensor/object/tensor.h"

#include <weft/weft.h>

#include <fcntl.h>
#include <sys/wait.h>

/* Each number makes another text, which was not compiled before. */
static weft_status function(weft_tensor *const *in, int ins, weft_tensor **out, int outs,
                            void *user)
{
    (void)ins, (void)outs;
    out[0] = weft_tanh(weft_mul_scalar(weft_add_scalar(in[0], 1), *(double *)user));
    return WEFT_OK;
}

/* Runs it both ways; whether it was compiled. */
static bool check_run(double number)
{
    static char text[1 << 14];
    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    opts.backend = "c";
    opts.fullgraph = true;
    weft_compiled *compiled = weft_compile(function, &number, &opts);
    weft_tensor *x = weft_arange(WEFT_F32, WEFT_CPU, 0, 100, 1), *plain, *fast;
    CHECK_OK(function(&x, 1, &plain, 1, &number));
    CHECK_OK(weft_compiled_call(compiled, &x, 1, &fast, 1));
    CHECK(!memcmp(weft_tensor_data(plain), weft_tensor_data(fast), 400));
    weft_compiled_details(compiled, text, sizeof text);
    return strstr(text, " = fused_") != NULL;
}

static char log_path[300], script_path[300];

/* A compiler that notes each start in a file, then does `what`. */
static void use_compiler(const char *what)
{
    FILE *file = fopen(script_path, "w");
    CHECK(file != NULL);
    fprintf(file, "#!/bin/sh\necho started >>%s\n%s\n", log_path, what);
    fclose(file);
    CHECK_INT(chmod(script_path, 0700), 0);
    setenv("WEFT_CC", script_path, 1);
}

static int starts(void)
{
    char line[64];
    int count = 0;
    FILE *file = fopen(log_path, "r");
    while (file && fgets(line, sizeof line, file))
        count++;
    if (file)
        fclose(file);
    return count;
}

static void leave_compiler(void)
{
    unlink(log_path);
    unlink(script_path);
    unsetenv("WEFT_CC");
}

/* As at the beginning, whatever the test before left. */
static void begin(void)
{
    harness_cache_each(harness_cache_remove);
    snprintf(log_path, sizeof log_path, "%s.log", harness_cache);
    snprintf(script_path, sizeof script_path, "%s.sh", harness_cache);
    leave_compiler();
    unsetenv("WEFT_CC_TIMEOUT");
    setenv("WEFT_CACHE_DIR", harness_cache, 1);
    weft_i_os_now = &weft_i_os_linux;
}

/* A process of its own: rows that failed once stay rows. */
static int in_child(double number)
{
    pid_t process = fork();
    if (process == 0)
        _exit(check_run(number) ? 7 : 8);
    int status = 0;
    CHECK_INT(waitpid(process, &status, 0), process);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* ---- parents ---- */

enum { NOBODY = 65534 };
static char place[64], cache_path[300];

/* WEFT_CACHE_DIR lies two below `place`/parent, which has this mode and owner. */
static void begin_below(const char *parent, mode_t mode, int user)
{
    char path[128];
    begin();
    strcpy(place, "/tmp/weft-test-parents-XXXXXX");
    CHECK(mkdtemp(place) != NULL);
    snprintf(path, sizeof path, "%s/%s", place, parent);
    CHECK_INT(mkdir(path, 0700), 0);
    CHECK_INT(chmod(path, mode), 0);
    if (user >= 0)
        CHECK_INT(chown(path, (uid_t)user, (gid_t)-1), 0);
    snprintf(cache_path, sizeof cache_path, "%s/between/cache", path);
    setenv("WEFT_CACHE_DIR", cache_path, 1);
}

static void end_below(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", place);
    CHECK_INT(system(command), 0);
    setenv("WEFT_CACHE_DIR", harness_cache, 1);
}

/* One warning, and the code is compiled.  The first test: no other has told this process. */
TEST(test_cache_folder_that_is_refused_is_told_once)
{
    static char text[4096];
    begin_below("open", 0777, -1);
    fflush(stderr);
    pid_t process = fork();
    if (process == 0) {
        unsetenv("WEFT_DEBUG");
        if (!freopen(log_path, "w", stderr))
            _exit(9);
        _exit(check_run(30) && check_run(31) ? 7 : 8);
    }
    int status = 0;
    CHECK_INT(waitpid(process, &status, 0), process);
    CHECK(WIFEXITED(status));
    CHECK_INT(WEXITSTATUS(status), 7);
    FILE *file = fopen(log_path, "r");
    CHECK(file != NULL);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    CHECK_CONTAINS(text, "WARN");
    CHECK_CONTAINS(text, place);
    CHECK_CONTAINS(text, "chmod go-w");
    CHECK(!strstr(strstr(text, "WARN") + 1, "WARN"));
    end_below();
    leave_compiler();
}

/* NULL: it is taken, and there; otherwise a part of what is said, and nothing was made. */
static void check_parent(const char *parent, mode_t mode, int user, const char *wrong)
{
    char why[1000] = "", path[1200], named[200];
    begin_below(parent, mode, user);
    snprintf(named, sizeof named, "%s/%s ", place, parent);
    bool taken = weft_i_cache_folder_path(path, sizeof path, why, sizeof why);
    if (taken != !wrong)
        FAIL("parent of user %d with %04o: %s", user, (unsigned)mode, why);
    CHECK(access(cache_path, F_OK) == (taken ? 0 : -1));
    if (wrong) {
        CHECK_CONTAINS(why, wrong);
        CHECK_CONTAINS(why, named);
        CHECK_CONTAINS(why, cache_path);
        CHECK_CONTAINS(why, "set WEFT_CACHE_DIR to");
        *strrchr(cache_path, '/') = 0;
        CHECK(access(cache_path, F_OK) < 0);
    }
    end_below();
}

TEST(test_cache_folder_parents_that_others_write_to)
{
    check_parent("p", 0755, -1, NULL);
    check_parent("p", 0700, -1, NULL);
    check_parent("p", 01777, -1, NULL); /* as /tmp: nobody renames what is ours */
    check_parent("p", 01775, -1, NULL);
    check_parent("p", 0777, -1, "mode 0777, not sticky");
    check_parent("p", 0775, -1, "chmod go-w");
    check_parent("p", 0702, -1, "others can write to its parent");
}

TEST(test_cache_folder_parents_of_others)
{
    if (geteuid() != 0)
        SKIP("only root can give a folder to another user");
    check_parent("p", 0755, NOBODY, "is of user 65534");
    check_parent("p", 01777, NOBODY, "is of user 65534");
    check_parent("p", 0700, 0, NULL);
}

/* The parents are those of where the links lead to. */
TEST(test_cache_folder_links_on_the_way)
{
    char why[1000], path[1200], link[200];
    begin_below("open", 0777, -1);
    snprintf(link, sizeof link, "%s/link", place);
    snprintf(cache_path, sizeof cache_path, "%s/deeper//cache/", link);
    setenv("WEFT_CACHE_DIR", cache_path, 1);
    CHECK_INT(symlink("open", link), 0);
    CHECK(!weft_i_cache_folder_path(path, sizeof path, why, sizeof why));
    CHECK_CONTAINS(why, "mode 0777");
    CHECK(unlink(link) == 0 && symlink("./link", link) == 0);
    CHECK(!weft_i_cache_folder_path(path, sizeof path, why, sizeof why));
    CHECK_CONTAINS(why, "links");
    CHECK(unlink(link) == 0 && symlink(place, link) == 0);
    snprintf(cache_path, sizeof cache_path, "%s/../%s/closed/", link, strrchr(place, '/'));
    setenv("WEFT_CACHE_DIR", cache_path, 1);
    CHECK(weft_i_cache_folder_path(path, sizeof path, why, sizeof why));
    snprintf(link, sizeof link, "%s/closed", place);
    CHECK_INT(access(link, F_OK), 0);
    end_below();
}

TEST(test_cache_folder_links_of_others)
{
    char why[1000], path[1200], link[200];
    if (geteuid() != 0)
        SKIP("only root can give a link to another user");
    begin_below("own", 01777, -1);
    snprintf(link, sizeof link, "%s/own/link", place);
    CHECK(symlink(place, link) == 0 && lchown(link, NOBODY, NOBODY) == 0);
    snprintf(cache_path, sizeof cache_path, "%s/cache", link);
    setenv("WEFT_CACHE_DIR", cache_path, 1);
    CHECK(!weft_i_cache_folder_path(path, sizeof path, why, sizeof why));
    CHECK_CONTAINS(why, "is a link of user 65534");
    end_below();
}

/* Another folder in the place of the cache, with another object of that name, when the loader comes:
 * as somebody may do who can rename above it. */
static char away[80], planted[80];

static void *swap_and_load(const char *name)
{
    if (strstr(name, ".so") && !rename(harness_cache, away))
        rename(planted, harness_cache);
    return weft_i_os_linux.dlopen(name);
}

static void plant_object(const char *path)
{
    char command[800];
    snprintf(command, sizeof command, "cc -shared -fPIC -o %s%s %s.c", planted, strrchr(path, '/'),
             planted);
    CHECK_INT(system(command), 0);
}

static int run_swapped(double number)
{
    weft_i_os table = weft_i_os_linux;
    pid_t process = fork();
    if (process == 0) {
        table.dlopen = swap_and_load;
        weft_i_os_now = &table;
        _exit(!check_run(number) ? 8 : getenv("PLANTED") ? 9 : 7);
    }
    int status = 0;
    CHECK_INT(waitpid(process, &status, 0), process);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(test_cache_folder_that_is_swapped)
{
    char command[200];
    begin();
    if (system("command -v cc >/dev/null"))
        SKIP("no C compiler");
    CHECK_INT(in_child(32), 7);
    snprintf(away, sizeof away, "%s.away", harness_cache);
    snprintf(planted, sizeof planted, "%s.planted", harness_cache);
    CHECK_INT(mkdir(planted, 0700), 0);
    snprintf(command, sizeof command, "%s.c", planted);
    FILE *file = fopen(command, "w");
    CHECK(file != NULL);
    fputs("#include <stdlib.h>\n__attribute__((constructor)) static void run(void) { "
          "setenv(\"PLANTED\", \"1\", 1); }\n",
          file);
    fclose(file);
    harness_cache_each(plant_object);
    CHECK_INT(run_swapped(32), 7); /* found before */
    CHECK_INT(rename(harness_cache, planted), 0);
    CHECK_INT(rename(away, harness_cache), 0);
    CHECK_INT(run_swapped(33), 7); /* built now */
    CHECK_INT(rename(harness_cache, planted), 0);
    CHECK_INT(rename(away, harness_cache), 0);
    snprintf(command, sizeof command, "rm -r %s %s.c", planted, planted);
    CHECK_INT(system(command), 0);
}

/* ---- files ---- */

static char found[400];

static void note_object(const char *path)
{
    size_t length = strlen(path);
    if (length > 3 && !strcmp(path + length - 3, ".so"))
        strcpy(found, path);
}

TEST(test_cache_is_found_again)
{
    begin();
    use_compiler("exec cc \"$@\"");
    CHECK_INT(in_child(1), 7);
    CHECK_INT(in_child(1), 7);
    CHECK_INT(starts(), 1);
    CHECK_INT(harness_cache_each(note_object), 1); /* nothing beside the object */
    struct stat about;
    CHECK_INT(stat(harness_cache, &about), 0);
    CHECK_INT(about.st_mode & 07777, 0700);
    CHECK_INT(in_child(2), 7); /* another source */
    CHECK_INT(starts(), 2);
    leave_compiler();
}

TEST(test_cache_files_that_are_not_whole)
{
    static const char *const ways[] = {"cut", "changed", "garbage", "empty", "link"};
    begin();
    use_compiler("exec cc \"$@\"");
    CHECK_INT(in_child(3), 7);
    harness_cache_each(note_object);
    for (int i = 0; i < 5; i++) {
        struct stat about;
        CHECK_INT(stat(found, &about), 0);
        if (i == 0) {
            CHECK_INT(truncate(found, about.st_size / 2), 0);
        } else if (i == 4) {
            char other[420];
            snprintf(other, sizeof other, "%s.other", found);
            CHECK_INT(rename(found, other), 0);
            CHECK_INT(symlink(other, found), 0);
        } else {
            int fd = open(found, i == 3 ? O_WRONLY | O_TRUNC : O_WRONLY);
            CHECK_INT(pwrite(fd, "????????", i == 3 ? 0 : 8, i == 1 ? about.st_size / 2 : 0),
                      i == 3 ? 0 : 8);
            close(fd);
        }
        int before = starts();
        if (in_child(3) != 7 || starts() != before + 1)
            FAIL("%s: was taken, or not made anew", ways[i]);
        CHECK_INT(in_child(3), 7); /* and that is whole again */
        CHECK_INT(starts(), before + 1);
    }
    leave_compiler();
}

TEST(test_cache_folder_of_others_is_refused)
{
    char why[400], path[600];
    begin();
    CHECK_INT(chmod(harness_cache, 0755), 0);
    CHECK(!weft_i_cache_folder_path(path, sizeof path, why, sizeof why));
    CHECK_CONTAINS(why, "mode 0700");
    CHECK_INT(in_child(4), 7); /* compiled, and kept nowhere */
    CHECK_INT(harness_cache_each(NULL), 0);
    CHECK_INT(chmod(harness_cache, 0700), 0);
    snprintf(path, sizeof path, "%s.link", harness_cache);
    CHECK_INT(symlink(harness_cache, path), 0);
    setenv("WEFT_CACHE_DIR", path, 1);
    CHECK(!weft_i_cache_folder_path(path, sizeof path, why, sizeof why));
    CHECK_CONTAINS(why, "link");
    CHECK_INT(unlink(path), 0);
    setenv("WEFT_CACHE_DIR", "relative", 1);
    CHECK(!weft_i_cache_folder_path(path, sizeof path, why, sizeof why));
    setenv("WEFT_CACHE_DIR", harness_cache, 1);
}

/* ---- compilers ---- */

TEST(test_compiler_is_absent_or_fails)
{
    char what[1200];
    begin();
    setenv("WEFT_CC", "none", 1);
    CHECK(!check_run(5));
    CHECK(!check_run(6));
    weft_i_emit_describe(WEFT_CPU, what, sizeof what);
    CHECK_CONTAINS(what, "none: WEFT_CC is none");
    weft_compiler_info info;
    CHECK_OK(weft_compiler_describe(&info));
    CHECK(!info.program[0] && strstr(info.reason, "WEFT_CC is none"));
    CHECK(!strcmp(info.folder, harness_cache));
    setenv("WEFT_CC", "/nowhere/cc", 1);
    CHECK(!check_run(7));
    use_compiler("echo broken >&2; exit 1");
    CHECK(!check_run(8));
    weft_i_emit_describe(WEFT_CPU, what, sizeof what);
    CHECK_CONTAINS(what, "broken");
    use_compiler("exit 0"); /* and makes nothing */
    CHECK(!check_run(9));
    CHECK_INT(harness_cache_each(NULL), 0);
    leave_compiler();
    CHECK(check_run(10)); /* and once there is one */
}

/* Each compiler that is taken where it is the only one knows the flags: clang 14 for Arm64 has no
 * -march=native. */
TEST(test_compiler_each_that_is_taken)
{
    static const char *const names[] = {"cc", "gcc", "clang"};
    char command[64];
    int there = 0;
    for (int i = 0; i < 3; i++) {
        snprintf(command, sizeof command, "command -v %s >/dev/null", names[i]);
        if (system(command))
            continue;
        begin();
        setenv("WEFT_CC", names[i], 1);
        if (in_child(20 + i) != 7)
            FAIL("%s is there and compiles nothing", names[i]);
        there++;
    }
    leave_compiler();
    if (!there)
        SKIP("no C compiler");
}

TEST(test_compiler_hangs)
{
    int64_t start = weft_i_os_linux.clock_ns();
    begin();
    setenv("WEFT_CC_TIMEOUT", "300", 1);
    use_compiler("sleep 100 & echo $$ $! >\"$0.pid\"; wait");
    CHECK(!check_run(11));
    CHECK(weft_i_os_linux.clock_ns() - start < 20000000000);
    char path[320];
    int process = 0, child = 0;
    snprintf(path, sizeof path, "%s.pid", script_path);
    FILE *file = fopen(path, "r");
    CHECK(file && fscanf(file, "%d %d", &process, &child) == 2);
    fclose(file);
    CHECK(kill(process, 0) < 0);
    /* What it started was killed too, and goes a moment later; its name may stay. */
    char state = weft_i_os_process_state(child);
    for (int ms = 0; ms < 5000 && state != 0 && state != 'Z'; ms++) {
        usleep(1000);
        state = weft_i_os_process_state(child);
    }
    CHECK(state == 0 || state == 'Z');
    unlink(path);
    unsetenv("WEFT_CC_TIMEOUT");
    leave_compiler();
}

static ssize_t no_room(int fd, const void *bytes, size_t count)
{
    (void)fd, (void)bytes, (void)count;
    errno = ENOSPC;
    return -1;
}

TEST(test_disk_is_full)
{
    weft_i_os full = weft_i_os_linux;
    begin();
    full.write = no_room;
    weft_i_os_now = &full;
    CHECK(!check_run(12));
    weft_i_os_now = &weft_i_os_linux;
    CHECK_INT(harness_cache_each(NULL), 0);
    CHECK(check_run(13));
}

/* ---- ranks ---- */

TEST(test_ranks_compile_at_once)
{
    enum { RANKS = 4 };
    pid_t process[RANKS];
    begin();
    use_compiler("exec cc \"$@\"");
    for (int i = 0; i < RANKS; i++)
        if (!(process[i] = fork()))
            _exit(check_run(14) ? 7 : 8);
    for (int i = 0; i < RANKS; i++) {
        int status = 0;
        CHECK_INT(waitpid(process[i], &status, 0), process[i]);
        CHECK_INT(WEXITSTATUS(status), 7);
    }
    CHECK_INT(starts(), 1);
    CHECK_INT(harness_cache_each(NULL), 1);
    leave_compiler();
}

TEST(test_rank_is_killed_while_it_compiles)
{
    begin();
    use_compiler("exec sleep 100");
    pid_t process = fork();
    if (process == 0)
        _exit(check_run(15) ? 7 : 8);
    for (int i = 0; i < 2000 && !starts(); i++)
        usleep(10000);
    CHECK_INT(starts(), 1);
    CHECK_INT(kill(process, SIGKILL), 0);
    CHECK_INT(waitpid(process, NULL, 0), process);
    unlink(script_path);
    unsetenv("WEFT_CC");
    CHECK(check_run(15)); /* waits for nobody */
    /* What the killed rank left has names of its own compiler's key: one source, one lock. */
    CHECK(harness_cache_each(NULL) <= 3);
    leave_compiler();
}

/* ---- memory ---- */

TEST(test_memory_runs_out_anywhere)
{
    double number = 16;
    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    begin();
    opts.backend = "c";
    opts.fullgraph = true;
    CHECK(check_run(number)); /* the code is there */
    weft_tensor *x = weft_arange(WEFT_F32, WEFT_CPU, 0, 100, 1), *plain, *fast;
    CHECK_OK(function(&x, 1, &plain, 1, &number));
    for (int n = 1;; n++) {
        weft_scope_open();
        weft_compiled *compiled = weft_compile(function, &number, &opts);
        fault_arm(n);
        weft_status status = weft_compiled_call(compiled, &x, 1, &fast, 1);
        bool fired = fault_disarm();
        if (status >= 0)
            CHECK(!memcmp(weft_tensor_data(plain), weft_tensor_data(fast), 400));
        weft_clear_error();
        weft_scope_close();
        if (!fired)
            break;
        CHECK(n < 1000);
    }
}

int main(int argc, char **argv)
{
    harness_cache_open();
    int code = harness_main(argc, argv);
    harness_cache_close();
    return code;
}
