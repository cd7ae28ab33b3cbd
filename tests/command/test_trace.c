/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: tools/weft/trace.c, tools/weft/trace_overlap.c, base/report/record_trace.c */
/* `weft trace merge`: traces of several ranks and hosts in one file, on one clock. */
#include "harness.h"

#include "base/os/os.h"
#include "base/report/record.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static weft_i_record record;
static char folder[] = "/tmp/weft-trace-XXXXXX";
static char text[1 << 16];

/* Runs a shell command in the folder with W the weft command; its output is in `text`. */
static int shell(const char *arguments)
{
    char command[1024];
    snprintf(command, sizeof command, "cd %s && W='%s' && { %s\n} 2>&1", folder, WEFT_COMMAND,
             arguments);
    FILE *pipe = popen(command, "r");
    text[pipe ? fread(text, 1, sizeof text - 1, pipe) : 0] = 0;
    int status = pipe ? pclose(pipe) : -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void write_file(const char *name, const char *content)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    CHECK(file);
    fputs(content, file);
    CHECK(fclose(file) == 0);
}

TEST(test_trace_merge_of_one_host)
{
    char path[128];
    snprintf(path, sizeof path, "%s/t.json", folder);
    for (int rank = 0; rank < 3; rank++) {
        weft_i_record_init(&record);
        weft_i_record_end(&record, weft_i_record_begin(&record, "barrier", 0, 0, -1, rank), 0);
        weft_i_record_begin(&record, "all_reduce", 0, 64, -1, rank);
        CHECK_OK(weft_i_record_write_trace(&record, rank, path));
    }
    CHECK_INT(shell("$W trace merge -o all.json t.0.json t.1.json t.2.json && cat all.json"), 0);
    CHECK_CONTAINS(text, "\"name\":\"rank 0\"");
    CHECK_CONTAINS(text, "\"name\":\"rank 2\"");
    int events = 0;
    for (const char *at = text; (at = strstr(at, "\"ph\":\"X\"")); at++)
        events++;
    CHECK_INT(events, 6);
    if (shell("command -v python3 >/dev/null") == 0)
        CHECK_INT(shell("python3 -m json.tool all.json >/dev/null"), 0);
    CHECK_INT(shell("for r in 0 1 2; do grep -c -F \"$(grep -o '\"ts\":[0-9.]*' t.$r.json | head "
                    "-n 1)\" all.json; done"),
              0);
    CHECK(!strcmp(text, "1\n1\n1\n")); /* the times are those of the traces */
}

/* Host b booted 2.5 s earlier than host a, so that its monotonic clock is ahead by as much. */
TEST(test_trace_merge_of_two_hosts)
{
    write_file("a.json", "{\"otherData\":{\"host\":\"a\",\"wall_minus_monotonic_ns\":5000000000},"
                         "\"traceEvents\":[{\"name\":\"x\",\"ts\":100.5,\"args\":{\"ts\":7}}]}");
    write_file("b.json", "{\"traceEvents\" : [ {\"args\":{\"ts\":7,\"s\":\"]}\\\"\"},\"ts\": "
                         "2500100.750 ,\"ph\":\"X\"},\n"
                         "{\"ph\":\"M\"} , {\"ts\":1}],"
                         "\"otherData\":{\"host\":\"b\",\"wall_minus_monotonic_ns\":2500000000}}");
    write_file("c.json", "[]");
    CHECK_INT(shell("$W trace merge a.json b.json c.json 2>/dev/null"), 0);
    CHECK(!strcmp(text, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n"
                        "{\"name\":\"x\",\"ts\":100.5,\"args\":{\"ts\":7}},\n"
                        "{\"args\":{\"ts\":7,\"s\":\"]}\\\"\"},\"ts\": 100.750 ,\"ph\":\"X\"},\n"
                        "{\"ph\":\"M\"},\n"
                        "{\"ts\":-2499999.000}\n]}\n"));
    CHECK_INT(shell("$W trace merge c.json a.json"), 0);
    CHECK_CONTAINS(text, "c.json does not say whose clock it has");
}

/* Hosts that have compared their clocks: wall clocks do not matter, and what happened between two
 * comparisons is moved along a line. */
TEST(test_trace_merge_compared)
{
    write_file("a.json",
               "{\"otherData\":{\"host\":\"a\",\"wall_minus_monotonic_ns\":0,\"compared\":["
               "{\"with\":\"f0\",\"at_ns\":0,\"ahead_ns\":500,\"within_ns\":10}]},"
               "\"traceEvents\":[{\"ts\":7}]}");
    write_file("b.json",
               "{\"otherData\":{\"host\":\"b\",\"wall_minus_monotonic_ns\":9,\"compared\":["
               "{\"with\":\"f0\",\"at_ns\":0,\"ahead_ns\":-1000000000,\"within_ns\":10},"
               "{\"with\":\"f0\",\"at_ns\":10000000000,\"ahead_ns\":-1000010000,"
               "\"within_ns\":10}]},\"traceEvents\":[{\"ts\":5000000}]}");
    /* Another rank of b, which was compared less exactly, and with another clock later. */
    write_file("d.json",
               "{\"otherData\":{\"host\":\"b\",\"wall_minus_monotonic_ns\":9,\"compared\":["
               "{\"with\":\"f0\",\"at_ns\":10,\"ahead_ns\":-999000000,\"within_ns\":2000000},"
               "{\"with\":\"f1\",\"at_ns\":10,\"ahead_ns\":3,\"within_ns\":1}]},"
               "\"traceEvents\":[{\"ts\":10000000}]}");
    CHECK_INT(shell("$W trace merge a.json b.json d.json"), 0);
    CHECK(!strcmp(text, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n{\"ts\":7},\n"
                        "{\"ts\":3999994.500},\n{\"ts\":8999989.500}\n]}\n"));
    CHECK_INT(shell("sed s/f0/f2/g b.json >e.json && $W trace merge a.json e.json"), 0);
    CHECK_CONTAINS(text, "the hosts of a.json and e.json did not compare their clocks");
}

/* Rank 0 computes from 0 to 50 and from 60 to 100 us; of what it posted 10 + 10 us lie beside that, of
 * 30, and one that came behind the profile does not count.  Rank 1 posted nothing, and rank 2 has no
 * profile. */
TEST(test_trace_overlap)
{
    write_file("record.json",
               "{\"traceEvents\":["
               "{\"name\":\"a\",\"cat\":\"weft\",\"ph\":\"X\",\"pid\":0,\"ts\":10,\"dur\":10,"
               "\"args\":{\"posted\":9}},"
               "{\"name\":\"b\",\"cat\":\"weft\",\"ph\":\"X\",\"pid\":0,\"ts\":45,\"dur\":20,"
               "\"args\":{\"posted\":44}},"
               "{\"name\":\"c\",\"cat\":\"weft\",\"ph\":\"X\",\"pid\":0,\"ts\":200,\"dur\":20,"
               "\"args\":{\"posted\":44}},"
               "{\"name\":\"d\",\"cat\":\"weft\",\"ph\":\"X\",\"pid\":0,\"ts\":20,\"dur\":20,"
               "\"args\":{}},"
               "{\"name\":\"e\",\"cat\":\"weft\",\"ph\":\"X\",\"pid\":2,\"ts\":20,\"dur\":20,"
               "\"args\":{\"posted\":4}}]}");
    write_file("profile.json",
               "{\"traceEvents\":["
               "{\"name\":\"mm\",\"cat\":\"operation\",\"ph\":\"X\",\"pid\":0,\"ts\":60,\"dur\":40,"
               "\"args\":{}},"
               "{\"name\":\"mm\",\"cat\":\"operation\",\"ph\":\"X\",\"pid\":0,\"ts\":0,\"dur\":50,"
               "\"args\":{}},"
               "{\"name\":\"mm\",\"cat\":\"operation\",\"ph\":\"X\",\"pid\":0,\"ts\":5,\"dur\":9,"
               "\"args\":{}},"
               "{\"name\":\"mm\",\"cat\":\"operation\",\"ph\":\"X\",\"pid\":1,\"ts\":5,\"dur\":9,"
               "\"args\":{}}]}");
    CHECK_INT(shell("$W trace overlap record.json profile.json"), 0);
    CHECK_CONTAINS(text, "\n0                2        0.030        0.020    66.7 %\nall ");
    CHECK_INT(shell("$W trace overlap profile.json"), 1);
    CHECK_CONTAINS(text, "no posted operation lies in a profile");
    CHECK_INT(shell("$W trace overlap -o x profile.json"), 2);
}

TEST(test_trace_merge_refuses)
{
    static const char *const bad[] = {"",
                                      "{",
                                      "[1,",
                                      "{\"traceEvents\":3}",
                                      "{\"a\":[]}",
                                      "[{\"ts\":}]",
                                      "[] x",
                                      "[\"\\",
                                      "{\"traceEvents\":[}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_file("bad.json", bad[i]);
        CHECK_INT(shell("$W trace merge bad.json"), 1);
        CHECK_CONTAINS(text, "bad.json is not a Chrome trace");
    }
    char deep[400] = "";
    memset(deep, '[', sizeof deep - 1);
    write_file("bad.json", deep);
    CHECK_INT(shell("$W trace merge bad.json"), 1);
    CHECK_INT(shell("$W trace merge none.json"), 1);
    CHECK_CONTAINS(text, "none.json: No such file or directory");
    CHECK_INT(shell("$W trace merge -o no/dir/x c.json"), 1);
    CHECK_INT(shell("$W trace merge c.json >/dev/full"), 1);
    CHECK_INT(shell("$W trace"), 2);
    CHECK_INT(shell("$W trace split a"), 2);
    CHECK_INT(shell("$W trace --help"), 0);
}

/* Two ranks: rank 1 came 3 ms late to operation 2, so rank 0 waited for it. */
TEST(test_trace_summary)
{
    write_file("s0.json",
               "{\"otherData\":{\"dropped\":7},\"traceEvents\":[{\"ph\":\"M\",\"args\":{}},"
               "{\"name\":\"all_reduce\",\"ph\":\"X\",\"pid\":0,\"ts\":100,\"dur\":5.5,\"args\":{"
               "\"number\":1,\"bytes\":64,\"group\":0,\"group_name\":\"0\",\"operation\":1}},"
               "{\"name\":\"all_reduce\",\"ph\":\"X\",\"pid\":0,\"ts\":200,\"dur\":3005,\"args\":{"
               "\"number\":2,\"bytes\":64,\"group\":0,\"group_name\":\"0\",\"operation\":2}}]}");
    write_file("s1.json",
               "{\"traceEvents\":["
               "{\"name\":\"all_reduce\",\"ph\":\"X\",\"pid\":1,\"ts\":101,\"dur\":4,\"args\":{"
               "\"number\":1,\"bytes\":64,\"group\":0,\"group_name\":\"0\",\"operation\":1}},"
               "{\"name\":\"all_reduce\",\"ph\":\"X\",\"pid\":1,\"ts\":3200,\"dur\":5,\"args\":{"
               "\"number\":2,\"bytes\":64,\"group\":0,\"group_name\":\"0\",\"operation\":2}},"
               "{\"name\":\"recv\",\"ph\":\"X\",\"pid\":1,\"ts\":3300,\"dur\":40,\"args\":{"
               "\"number\":3,\"bytes\":8,\"group\":0,\"peer\":0}}]}");
    CHECK_INT(shell("$W trace summary s0.json s1.json 2>/dev/null"), 0);
    CHECK_CONTAINS(text,
                   "all_reduce               4             256    3.02 ms    5.50 us    3.00 ms "
                   "   3.00 ms");
    CHECK_CONTAINS(text, "recv                     1               8    40.0 us    40.0 us");
    CHECK_CONTAINS(text,
                   "all_reduce #2 of rank 0 in group 0 took 3.00 ms; rank 1 came last, 3.00 ms "
                   "later");
    CHECK_CONTAINS(text, "recv #3 of rank 1 in group 0 took 40.0 us; its peer is rank 0");
    CHECK_CONTAINS(text, "7 earlier operations are not in these traces.");
    CHECK(!strstr(text, "steps of weft's own"));
    CHECK_INT(shell("$W trace summary -o x s0.json"), 2);
    CHECK_INT(shell("$W trace summary nothing.json"), 1);
}

/* Names come from files of anybody: no control character of theirs reaches the terminal. */
TEST(test_trace_summary_names)
{
    write_file(
        "evil.json",
        "{\"traceEvents\":[{\"name\":\"a\302\233b\",\"ph\":\"X\",\"pid\":0,\"ts\":1,\"dur\":5,"
        "\"args\":{\"number\":1,\"bytes\":8,\"group_name\":\"g\302\205\303\274\"}}]}");
    CHECK_INT(shell("$W trace summary evil.json"), 0);
    CHECK_CONTAINS(text, "a?b #1 of rank 0 in group g?\303\274 took");
    CHECK(!strstr(text, "\302\233") && !strstr(text, "\302\205"));
}

/* What a program has called stands first.  Steps that weft took within are apart, and never the
 * longest call. */
TEST(test_trace_summary_steps)
{
    char path[128];
    snprintf(path, sizeof path, "%s/w.json", folder);
    weft_i_record_init(&record);
    uint64_t call = weft_i_record_begin(&record, "send", 0, 64, -1, 1);
    uint64_t step =
        weft_i_record_begin(&record, "lane", 0, 96, -1, -1); /* the shorter call ends first */
    weft_i_record_end(&record, call, 0);
    for (int64_t begin = WEFT_OS->clock_ns(); WEFT_OS->clock_ns() - begin < 2000000;)
        ;
    weft_i_record_end(&record, step, 0);
    weft_i_record_begin(&record, "rendezvous end", 0, 0, -1, -1); /* a rank that died there */
    CHECK_OK(weft_i_record_write_trace(&record, 0, path));
    CHECK_INT(shell("$W trace merge w.0.json"), 0);
    CHECK_CONTAINS(text, "\"name\":\"lane\",\"cat\":\"weft,step\"");
    CHECK_CONTAINS(text, "\"name\":\"send\",\"cat\":\"weft\"");
    CHECK_CONTAINS(text, "\"name\":\"rendezvous\",\"cat\":\"weft\"");
    CHECK_INT(shell("$W trace summary w.0.json"), 0);
    const char *calls = strstr(text, "\nsend "), *lane = strstr(text, "\nlane "),
               *steps = strstr(text, "\nsteps of weft's own, within these calls:\n"),
               *longest = strstr(text, "\nThe longest calls:");
    CHECK(calls && steps && lane && longest);
    CHECK(calls < steps && steps < lane && lane < longest);
    CHECK_CONTAINS(longest, "send #1");
    CHECK(!strstr(longest, "lane #"));
}

int main(int argc, char **argv)
{
    if (!mkdtemp(folder))
        return 2;
    int result = harness_main(argc, argv);
    char command[256];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command) != 0 || result;
}
