/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: tensor/op/profile.c, tensor/op/profile_trace.c */
/*
 * Profiles: every operation is counted once, under its name, with its bytes, in the thread that opened the
 * profile; the table and the trace say the same.
 */
#include "harness.h"
#include "harness_cache.h"

#include <weft/weft.h>

#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { ROWS = 64 };

/* The row of an operation; fails if it is not there. */
static weft_profile_row row_of(const weft_profile *profile, const char *name)
{
    weft_profile_row rows[ROWS];
    int count = weft_profile_rows(profile, rows, ROWS);
    for (int i = 0; i < count && i < ROWS; i++)
        if (!strncmp(rows[i].name, name, strlen(name)))
            return rows[i];
    FAIL("no row of %s among %d", name, count);
}

static bool has_row(const weft_profile *profile, const char *name)
{
    weft_profile_row rows[ROWS];
    int count = weft_profile_rows(profile, rows, ROWS);
    for (int i = 0; i < count && i < ROWS; i++)
        if (!strcmp(rows[i].name, name))
            return true;
    return false;
}

TEST(test_profile_counts_operations)
{
    weft_tensor *a = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(20, 30)),
                *b = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(30, 10));
    weft_profile *profile = weft_profile_open(NULL);
    CHECK(profile);
    for (int i = 0; i < 3; i++)
        CHECK(weft_mm(a, b));
    CHECK(weft_exp(a));
    CHECK(weft_select(a, 0, 1));
    CHECK_OK(weft_profile_close(profile));
    int64_t all = weft_profile_ns(profile);
    CHECK(weft_exp(b)); /* is not seen */
    weft_profile_row mm = row_of(profile, "mm"), exp = row_of(profile, "exp");
    CHECK_INT(mm.calls, 3);
    CHECK_INT(mm.bytes, 3 * 4 * (600 + 300 + 200));
    CHECK(mm.flops == 3 * 2.0 * 20 * 30 * 10);
    CHECK_INT(mm.device, WEFT_CPU);
    CHECK_INT(mm.device_ns, 0);
    CHECK_INT(exp.calls, 1);
    CHECK_INT(exp.bytes, 2 * 4 * 600);
    CHECK_INT(row_of(profile, "select").bytes, 0); /* a view moves nothing */
    CHECK(mm.host_ns > 0 && mm.host_ns + exp.host_ns <= all);
    CHECK_INT(weft_profile_ns(profile), all);
    CHECK_OK(weft_profile_close(profile));
}

static weft_status chain(weft_tensor *const *in, int ins, weft_tensor **out, int outs, void *user)
{
    (void)ins, (void)outs, (void)user;
    out[0] = weft_mul(weft_exp(weft_add(in[0], in[1])), in[1]);
    return WEFT_OK;
}

/* What a compiled function runs has rows too: capturing has none, a group has one. */
TEST(test_profile_sees_compiled_groups)
{
    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    opts.backend = "c";
    opts.fullgraph = true;
    weft_tensor *out, *in[2] = {weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(64)),
                                weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(64))};
    weft_compiled *fast = weft_compile(chain, NULL, &opts);
    weft_profile *profile = weft_profile_open(NULL);
    for (int i = 0; i < 4; i++)
        CHECK_OK(weft_compiled_call(fast, in, 2, &out, 1));
    CHECK_OK(weft_profile_close(profile));
    weft_profile_row fused = row_of(profile, "fused_");
    CHECK_INT(fused.calls, 4);
    CHECK_INT(fused.bytes, 4 * 3 * 64 * 4);
    CHECK(!strcmp(fused.about, "add exp mul"));
    CHECK(!has_row(profile, "exp"));
}

TEST(test_profile_sees_backward)
{
    weft_tensor *w = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(8, 8));
    CHECK_OK(weft_require_grad(w, true));
    weft_tensor *loss = weft_sum(weft_mm(w, w), NULL, 0, false);
    weft_profile *profile = weft_profile_open(NULL);
    CHECK_OK(weft_backward(loss));
    CHECK_OK(weft_profile_close(profile));
    CHECK_INT(row_of(profile, "mm").calls, 2);
}

static void *elsewhere(void *profile)
{
    weft_scope_open();
    CHECK(weft_exp(weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4))));
    CHECK_STATUS(weft_profile_close(profile), WEFT_ERR_STATE);
    CHECK_CONTAINS(weft_last_error(), "another thread");
    weft_scope_close();
    return NULL;
}

TEST(test_profile_is_the_threads_own)
{
    pthread_t thread;
    weft_profile *profile = weft_profile_open(NULL);
    CHECK_INT(pthread_create(&thread, NULL, elsewhere, profile), 0);
    CHECK_INT(pthread_join(thread, NULL), 0);
    CHECK_OK(weft_profile_close(profile));
    CHECK(!has_row(profile, "exp"));
}

/* Profiles nest in any order of closing; one whose scope closes ends there. */
TEST(test_profile_inside_another)
{
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
    weft_profile *outer = weft_profile_open(NULL), *inner = weft_profile_open(NULL);
    CHECK(weft_exp(x));
    CHECK_OK(weft_profile_close(outer));
    CHECK(weft_exp(x));
    CHECK_OK(weft_profile_close(inner));
    CHECK_INT(row_of(outer, "exp").calls, 1);
    CHECK_INT(row_of(inner, "exp").calls, 2);
    weft_scope_open();
    CHECK(weft_profile_open(NULL));
    weft_scope_close();
    CHECK(weft_exp(x));
    weft_profile *many[17];
    for (int i = 0; i < 17; i++)
        many[i] = weft_profile_open(NULL);
    CHECK(many[15] && !many[16]);
    CHECK_STATUS(weft_last_status(), WEFT_ERR_LIMIT);
    weft_clear_error();
    CHECK(weft_exp(x));
    CHECK_INT(row_of(many[0], "exp").calls, 1);
    for (int i = 0; i < 16; i++)
        weft_release(many[i]); /* the first first */
    CHECK(weft_exp(x));
}

TEST(test_profile_table)
{
    char text[4096];
    weft_profile *profile = weft_profile_open(NULL);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1000));
    CHECK(weft_exp(x));
    CHECK_OK(weft_profile_close(profile));
    int length = weft_profile_text(profile, NULL, 0);
    CHECK_INT(weft_profile_text(profile, text, sizeof text), length);
    CHECK_INT((int)strlen(text), length);
    CHECK_CONTAINS(text, "operation");
    CHECK_CONTAINS(text, "exp                      cpu           1");
    CHECK_CONTAINS(text, "between operations");
    FILE *file = tmpfile();
    CHECK_OK(weft_profile_print(profile, file));
    CHECK_INT(ftell(file), length);
    fclose(file);
    CHECK_STATUS(weft_profile_print(profile, NULL), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_profile_text(NULL, text, 1), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_profile_rows(profile, NULL, 1), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
}

static int count_in(const char *text, const char *part)
{
    int count = 0;
    for (const char *at = text; (at = strstr(at, part)); at++)
        count++;
    return count;
}

TEST(test_profile_trace)
{
    char path[] = "/tmp/weft-profile-XXXXXX", text[8192];
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    weft_profile_opts opts = WEFT_PROFILE_OPTS;
    opts.trace = path;
    opts.events = 3;
    weft_profile *profile = weft_profile_open(&opts);
    weft_tensor *x = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(10), 1);
    for (int i = 0; i < 4; i++)
        CHECK(x = weft_exp(x));
    CHECK_OK(weft_profile_close(profile));
    ssize_t got = read(fd, text, sizeof text - 1);
    CHECK(got > 0);
    text[got] = 0;
    CHECK_INT(count_in(text, "\"name\":\"exp\""), 2);
    CHECK_INT(count_in(text, "\"ph\":\"X\""), 3);
    CHECK_CONTAINS(text, "\"dropped\": 2");
    CHECK_CONTAINS(text, "\"bytes\":80");
    close(fd);
    unlink(path);
    opts.trace = "/nowhere/at/all.json";
    profile = weft_profile_open(&opts);
    CHECK(weft_profile_close(profile) < 0);
    CHECK_CONTAINS(weft_last_error(), "/nowhere/at/all.json");
    weft_clear_error();
}

int main(int argc, char **argv)
{
    harness_cache_share();
    int code = harness_main(argc, argv);
    harness_cache_close();
    return code;
}
