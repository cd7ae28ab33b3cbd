/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: launch/host_list.c, launch/rsh.c, launch/frame.c */
/* The parts of a launch on several hosts that need no host: names, commands, frames. */
#include "harness.h"

#include "base/os/os.h"
#include "launch/frame.h"
#include "launch/host_list.h"
#include "launch/job_frame.h"
#include "launch/rsh.h"

#include <stdlib.h>
#include <unistd.h>

static void check_host(const weft_i_host_list *list, int at, const char *name, int ranks, int first)
{
    CHECK(!strcmp(list->hosts[at].name, name));
    CHECK_INT(list->hosts[at].ranks, ranks);
    CHECK_INT(list->hosts[at].first, first);
}

TEST(test_host_list_reads)
{
    weft_i_host_list list;
    CHECK_OK(weft_i_host_list_read("a:4, me@b.example.org:2,[fe80::1]:3,2001:db8::7,c", 5, &list));
    CHECK_INT(list.count, 5);
    CHECK_INT(list.ranks, 19);
    check_host(&list, 0, "a", 4, 0);
    check_host(&list, 1, "me@b.example.org", 2, 4);
    check_host(&list, 2, "fe80::1", 3, 6);
    check_host(&list, 3, "2001:db8::7", 5, 9);
    check_host(&list, 4, "c", 5, 14);
    weft_i_host_list_free(&list);
    CHECK_OK(weft_i_host_list_read("# ours\r\n a slots=2 # first\n\n\tb:7\nc", 1, &list));
    CHECK_INT(list.count, 3);
    check_host(&list, 1, "b", 7, 2);
    check_host(&list, 2, "c", 1, 9);
    weft_i_host_list_free(&list);
}

TEST(test_host_list_refuses)
{
    static const char *const wrong[] = {
        "",      ",,\n#a", "a:0",   "a:1025",  "a:x",       "a:",     "a:-1", "a:4:4 x", "-oX:1",
        "a b:2", "$(x)",   "a,a:2", "a slots", "a slots=0", "a\"b:2", "a/b",  "a%h"};
    weft_i_host_list list;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECK_STATUS(weft_i_host_list_read(wrong[i], 1, &list), WEFT_ERR_INVALID_ARG);
    char many[20000] = "";
    for (int i = 0; i < 1025; i++)
        snprintf(many + strlen(many), 12, "h%d,", i);
    CHECK_STATUS(weft_i_host_list_read(many, 1, &list), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_i_host_list_read("a:1024,b,c", 0x4000, &list), WEFT_ERR_INVALID_ARG);
}

static void check_words(char **words, const char *const *wanted)
{
    CHECK(words);
    int i = 0;
    for (; wanted[i]; i++)
        CHECK(words[i] && !strcmp(words[i], wanted[i]));
    CHECK(!words[i]);
    WEFT_OS->free(words);
}

TEST(test_rsh_words)
{
    check_words(weft_i_rsh_words("ssh -x %h", "b", "/opt/weft"),
                (const char *[]){"ssh", "-x", "b", "/opt/weft", "run", "--join", NULL});
    check_words(weft_i_rsh_words(" kexec 'a b' \"%h\"c 100%% ", "b", "/my opt/we'ft"),
                (const char *[]){"kexec", "a b", "bc", "100%", "'/my opt/we'\\''ft'", "run",
                                 "--join", NULL});
    CHECK_OK(weft_i_rsh_check("ssh %h"));
    CHECK_STATUS(weft_i_rsh_check("ssh %%h"), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_i_rsh_check("ssh '%h"), WEFT_ERR_INVALID_ARG);
}

/* Through a pipe, a byte at a time. */
TEST(test_frame_travels)
{
    weft_i_frame_out out = {.fd = -1};
    weft_i_frame_in in = {.bytes = NULL};
    weft_i_frame frame;
    int ends[2], got = 0;
    CHECK(!pipe(ends));
    out.fd = 1000; /* not written to */
    weft_i_frame_put(&out, WEFT_I_FRAME_SAY, "hello", 5);
    weft_i_wire_writer to = weft_i_frame_begin(&out, WEFT_I_FRAME_PING, 64);
    weft_i_wire_put_u64(&to, 77);
    weft_i_frame_end(&out, &to);
    for (size_t i = out.start; i < out.end; i++) {
        CHECK_INT((int)write(ends[1], out.bytes + i, 1), 1);
        CHECK_OK(weft_i_frame_fill(&in, ends[0]));
        while (weft_i_frame_next(&in, &frame) == 1) {
            CHECK_INT((int)frame.kind, got ? WEFT_I_FRAME_PING : WEFT_I_FRAME_SAY);
            CHECK_INT((int)frame.count, got ? 8 : 5);
            got++;
        }
    }
    CHECK_INT(got, 2);
    close(ends[1]);
    CHECK_STATUS(weft_i_frame_fill(&in, ends[0]), WEFT_ERR_UNREACHABLE);
    close(ends[0]);
    weft_i_frame_in_free(&in);
    weft_i_frame_out_free(&out);
}

/* What a job frame says comes back as it was; spoiled anywhere it is refused or says something else,
 * and never reads beyond. */
TEST(test_frame_job)
{
    weft_i_frame_out out = {.fd = 1000};
    char *argv[] = {(char *)"prog", (char *)"", (char *)"an argument", NULL};
    const char *env[] = {"A=1", "B=x=y", NULL};
    weft_i_job_frame job = {.place = {.host = 1, .hosts = 3, .first = 4, .world = 9},
                            .ranks = 5,
                            .restarts = 2,
                            .flags = 32,
                            .grace_ns = 5000000,
                            .silence_ns = WEFT_I_NEVER,
                            .folder = "/tmp",
                            .env = env,
                            .argv = argv};
    memset(job.place.token, 'a', 64);
    weft_i_job_frame_put(&out, &job);
    weft_i_frame frame = {WEFT_I_FRAME_JOB, out.bytes + 8, out.end - 8};
    weft_i_job_frame got;
    setenv("WEFT_DEBUG", "NONE", 1); /* thousands of refusals */
    CHECK_OK(weft_i_job_frame_read(&frame, &got));
    CHECK_INT(got.place.first, 4);
    CHECK_INT(got.ranks, 5);
    CHECK(got.silence_ns == WEFT_I_NEVER && got.grace_ns == 5000000);
    CHECK(!strcmp(got.argv[2], "an argument") && !got.argv[3] && !*got.argv[1]);
    CHECK(!strcmp(got.env[1], "B=x=y") && !got.env[2] && !strcmp(got.folder, "/tmp"));
    WEFT_OS->free(got.memory);
    for (size_t at = 8; at < out.end; at++)
        for (int bit = 0; bit < 8; bit += 3) {
            out.bytes[at] ^= (uint8_t)(1 << bit);
            (void)weft_i_job_frame_read(&frame, &got);
            WEFT_OS->free(got.memory);
            out.bytes[at] ^= (uint8_t)(1 << bit);
        }
    for (frame.count = 0; frame.count < out.end - 8; frame.count++) {
        CHECK_STATUS(weft_i_job_frame_read(&frame, &got), WEFT_ERR_PROTOCOL);
        WEFT_OS->free(got.memory);
    }
    unsetenv("WEFT_DEBUG");
    weft_i_frame_out_free(&out);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
