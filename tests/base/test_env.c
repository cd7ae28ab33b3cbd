/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: base/report/env.c */
/* The public list of environment variables. */
#include "base/report/log.h"
#include "harness.h"
#include "store/address.h"
#include "symm/backend.h"

#include <weft/weft.h>

#include <sys/wait.h>
#include <unistd.h>

static weft_env_info find(const char *name)
{
    weft_env_info env;
    for (int i = 0; i < weft_env_count(); i++) {
        CHECK_OK(weft_env_describe(i, &env));
        if (!strcmp(env.name, name))
            return env;
    }
    FAIL("no variable %s", name);
}

TEST(test_env_rows_are_complete)
{
    CHECK(weft_env_count() > 0);
    for (int i = 0; i < weft_env_count(); i++) {
        weft_env_info env;
        CHECK_OK(weft_env_describe(i, &env));
        CHECK(!strncmp(env.name, "WEFT_", 5));
        CHECK(*env.kind && *env.meaning && env.fallback);
    }
}

TEST(test_env_value)
{
    unsetenv("WEFT_TIMEOUT");
    CHECK(!find("WEFT_TIMEOUT").value);
    CHECK(find("WEFT_TIMEOUT").valid);
    setenv("WEFT_TIMEOUT", "", 1);
    CHECK(!find("WEFT_TIMEOUT").value);
    setenv("WEFT_TIMEOUT", "250", 1);
    CHECK(!strcmp(find("WEFT_TIMEOUT").value, "250"));
    CHECK(find("WEFT_TIMEOUT").valid);
    CHECK(!strcmp(find("WEFT_TIMEOUT").kind, "limit"));
    setenv("WEFT_TIMEOUT", "soon", 1);
    CHECK(!find("WEFT_TIMEOUT").valid);
    setenv("WEFT_TIMEOUT", "-1", 1);
    CHECK(!find("WEFT_TIMEOUT").valid);
    unsetenv("WEFT_TIMEOUT");
}

TEST(test_env_hides_secrets)
{
    setenv("WEFT_TOKEN", "0123456789abcdef", 1);
    weft_env_info env = find("WEFT_TOKEN");
    CHECK(!strcmp(env.kind, "secret"));
    CHECK(!strcmp(env.value, "(hidden)"));
    unsetenv("WEFT_TOKEN");
}

TEST(test_env_refuses_bad_arguments)
{
    weft_env_info env;
    CHECK_STATUS(weft_env_describe(-1, &env), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_env_describe(weft_env_count(), &env), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_env_describe(0, NULL), WEFT_ERR_INVALID_ARG);
}

/* Standard error of a process that starts with these settings ("A=b", NULL at the end), and changes
 * some later (or NULL).  Names are
 * looked at once per process: these tests come before others start weft here. */
static int start_then(const char *const *settings, const char *const *late, char *err, size_t bytes)
{
    int ends[2], status = 0;
    CHECK(!pipe(ends));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        dup2(ends[1], 2);
        for (; *settings; settings++)
            putenv((char *)(uintptr_t)*settings);
        weft_init_opts opts = WEFT_INIT_OPTS;
        opts.meet_timeout_ms = 300;
        weft_group *world = weft_init(&opts);
        for (; late && *late; late++)
            putenv((char *)(uintptr_t)*late);
        if (!world)
            dprintf(2, "%s", weft_last_error());
        _exit(world ? weft_finish(world) : -(int)weft_last_status());
    }
    close(ends[1]);
    CHECK(waitpid(child, &status, 0) == child);
    ssize_t n = read(ends[0], err, bytes - 1);
    err[n > 0 ? n : 0] = 0;
    close(ends[0]);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000;
}

static int start_with(const char *const *settings, char *err, size_t bytes)
{
    return start_then(settings, NULL, err, bytes);
}

/* What only weft_init reads is told when it changes later; what is read when it is needed is not. */
TEST(test_env_too_late)
{
    char err[2048];
    static const char *const before[] = {"WEFT_WARN_AFTER=20000", NULL};
    static const char *const late[] = {"WEFT_TIMEOUT=1500", "WEFT_WARN_AFTER=20000",
                                       "WEFT_OBJECT_LIMIT=1M", NULL};
    CHECK_INT(start_then(before, late, err, sizeof err), 0);
    CHECK_CONTAINS(err, "WEFT_TIMEOUT became \"1500\" after weft_init, which had read it already");
    CHECK(!strstr(err, "WARN_AFTER") && !strstr(err, "OBJECT_LIMIT"));
    CHECK(!strstr(strstr(err, "became") + 1, "became"));
}

TEST(test_env_misspelt)
{
    char err[2048];
    static const char *const near[] = {"WEFT_TIMEOTU=7", "WEFT_HUGE_PAGE=on", NULL};
    CHECK_INT(start_with(near, err, sizeof err), 0);
    CHECK_CONTAINS(err, "WEFT_TIMEOTU is no variable of weft; the nearest is WEFT_TIMEOUT\n");
    CHECK_CONTAINS(err, "WEFT_HUGE_PAGE is no variable of weft; the nearest is WEFT_HUGE_PAGES\n");
    static const char *const right[] = {"WEFT_TIMEOUT=7000", "WEFT_RESTART_COUNT=0",
                                        "WEFT_TEST_ALL=1", "WEFTY=3", NULL};
    CHECK_INT(start_with(right, err, sizeof err), 0);
    CHECK(!*err);
}

#define NO_SECRET "WEFT_TOKEN=00000000000000001111111111111111222222222222222233333333333333ff"

TEST(test_env_port)
{
    char err[2048];
    static const char *const junk[] = {
        "RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29999junk", NO_SECRET,
        NULL};
    CHECK_INT(start_with(junk, err, sizeof err), -WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(err, "\"29999junk\" in MASTER_PORT is not a port");
    static const char *const far[] = {"RANK=1", "WORLD_SIZE=2", "WEFT_STORE_ADDR=[::1]:70000",
                                      NO_SECRET, NULL};
    CHECK_INT(start_with(far, err, sizeof err), -WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(err, "\"70000\" in WEFT_STORE_ADDR is not a port");
}

/* A token that is none is refused before anybody waits for anybody, and never shown. */
TEST(test_env_token)
{
    char err[2048],
        setting[] = "WEFT_TOKEN=zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz";
    const char *const wrong[] = {"WEFT_TOKEN=s3cr3t", setting, NULL};
    for (int i = 0; wrong[i]; i++) {
        const char *const settings[] = {wrong[i], NULL};
        CHECK_INT(start_with(settings, err, sizeof err), -WEFT_ERR_INVALID_ARG);
        CHECK_CONTAINS(err, i ? "WEFT_TOKEN, of 64 characters, is not a valid value"
                              : "WEFT_TOKEN, of 6 characters, is not a valid value");
        CHECK_CONTAINS(err, "64 hexadecimal digits");
        CHECK(!strstr(err, wrong[i] + strlen("WEFT_TOKEN=")));
    }
    static const char *const right[] = {NO_SECRET, NULL};
    CHECK_INT(start_with(right, err, sizeof err), 0);
}

/* The words and numbers of other libraries. */
TEST(test_env_debug_levels)
{
    static const struct {
        const char *text;
        int level;
    } levels[] = {{"NONE", 0},  {"off", 0},     {"0", 0},      {"WARN", 1}, {"VERSION", 1},
                  {"error", 1}, {"Warning", 1}, {"1", 1},      {"INFO", 2}, {"2", 2},
                  {"trace", 3}, {"DEBUG", 3},   {"DETAIL", 3}, {"3", 3},    {"9", 3},
                  {"0002", 2},  {"12", 3},      {"LOUD", -1},  {"-1", -1},  {"1x", -1}};
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
        if (weft_i_log_level_of(levels[i].text) != levels[i].level)
            FAIL("WEFT_DEBUG=%s is level %d, not %d", levels[i].text,
                 weft_i_log_level_of(levels[i].text), levels[i].level);
    char err[2048];
    static const char *const quiet[] = {"WEFT_DEBUG=ERROR", NULL};
    CHECK_INT(start_with(quiet, err, sizeof err), 0);
    CHECK(!*err);
}

/* Every backend that makes memory may be named, and one that cannot work here is told at once. */
TEST(test_env_backends)
{
    char err[2048], setting[64];
    static const char *const nonsense[] = {"WEFT_SYMM_BACKEND=nonsense", NULL};
    CHECK_INT(start_with(nonsense, err, sizeof err), -WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(err, "WEFT_SYMM_BACKEND=\"nonsense\" is not a valid value");
    CHECK_CONTAINS(err, "auto, shm, threads, cuda, nccl or nvshmem");
    for (int i = 0; i < weft_backend_count(); i++) {
        weft_backend_info info;
        CHECK_OK(weft_backend_describe(i, &info));
        const weft_i_backend *table = weft_i_backend_named(info.name);
        if (!table || !table->memory)
            continue;
        snprintf(setting, sizeof setting, "WEFT_SYMM_BACKEND=%s", info.name);
        const char *const settings[] = {setting, NULL};
        CHECK_INT(start_with(settings, err, sizeof err), 0);
        if (info.usable) {
            CHECK(!*err);
            continue;
        }
        CHECK_CONTAINS(err, info.reason);
        CHECK_CONTAINS(err, " cannot be had here: ");
        CHECK(strchr(err, '\n') == err + strlen(err) - 1);
    }
}

/* Values that weft_init must refuse, with the name, the value and what is allowed. */
TEST(test_env_init_refuses)
{
    static const struct {
        const char *name, *value, *allowed;
    } wrong[] = {
        {"WEFT_WAIT", "nonsense", "auto, spin, yield or sleep"},
        {"WEFT_CMA", "7", "auto"},
        {"WEFT_OBJECT_LIMIT", "1Q", "K, M or G"},
        {"WEFT_DEBUG", "LOUD", "NONE, WARN, INFO or TRACE"},
        {"WEFT_JOB_FD", "2147483648", "descriptor"},
        {"WEFT_TIMEOUT", "abc", "milliseconds"},
        {"WEFT_TIMEOUT", "-5", "milliseconds"},
        {"WEFT_HUGE_PAGES", "maybe", "auto, on or off"},
        {"WEFT_SIGNAL_PAD", "9K9", "K, M or G"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char shown[64];
        setenv(wrong[i].name, wrong[i].value, 1);
        weft_group *world = weft_init(NULL);
        weft_group *fake = weft_fake_init(NULL);
        unsetenv(wrong[i].name);
        CHECK(!world && !fake);
        CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
        snprintf(shown, sizeof shown, "%s=\"%s\"", wrong[i].name, wrong[i].value);
        CHECK_CONTAINS(weft_last_error(), shown);
        CHECK_CONTAINS(weft_last_error(), wrong[i].allowed);
    }
    setenv("WEFT_WAIT", "Spin", 1); /* letters of either case */
    weft_group *world = weft_init(NULL);
    unsetenv("WEFT_WAIT");
    CHECK(world);
    CHECK_INT(weft_finish(world), 0);
}

TEST(test_env_brackets)
{
    weft_i_store_addresses found;
    CHECK_OK(weft_i_store_address_tcp("[::1]", 4711, &found));
    CHECK_INT(found.count, 1);
    CHECK_INT(((struct sockaddr *)&found.list[0].where)->sa_family, AF_INET6);
    CHECK(weft_i_store_address_tcp("[::]", 4711, &found) < 0); /* still a wildcard */
    CHECK(weft_i_store_address_tcp("[", 4711, &found) < 0);
}

/* A size that cuts a field in half is refused; one between fields takes those before it. */
TEST(test_env_option_sizes)
{
    static const size_t cut[] = {0, 4, 7, 9, 12, 20, 44, SIZE_MAX};
    for (size_t i = 0; i < sizeof cut / sizeof *cut; i++) {
        weft_init_opts opts = WEFT_INIT_OPTS;
        weft_fake_opts fake = WEFT_FAKE_OPTS(0, 2);
        opts.size = fake.size = cut[i];
        CHECK(!weft_init(&opts));
        CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
        CHECK(!weft_fake_init(&fake));
        CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
    }
    weft_init_opts opts = WEFT_INIT_OPTS;
    opts.meet_timeout_ms = -99; /* not there: refused if it is looked at */
    opts.size = offsetof(weft_init_opts, meet_timeout_ms);
    weft_group *world = weft_init(&opts);
    CHECK(world);
    CHECK_INT(weft_finish(world), 0);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
