/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: launch/lines.c */
/* The output of the ranks, line by line: what is written where, in which pieces, and what happens
 * when a reader is slow, goes away, or memory runs out. */
#include "fault.h"
#include "harness.h"

#include "base/report/status.h"
#include "launch/lines.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OUT = 1001, ERR = 1002, MOST = 4 << 20 };

static weft_i_os table;
static struct {
    char *text;
    size_t used, largest;
    int answer; /* errno of the next write, -1: it takes nothing; 0: it works */
    size_t most;
} sky[2];
static weft_i_lines lines;
static int out[4], err[4];

static ssize_t test_write(int fd, const void *bytes, size_t count)
{
    if (fd != OUT && fd != ERR)
        return weft_i_os_linux.write(fd, bytes, count);
    int i = fd - OUT;
    sky[i].largest = count > sky[i].largest ? count : sky[i].largest;
    if (sky[i].answer) {
        errno = sky[i].answer < 0 ? EAGAIN : sky[i].answer; /* of an earlier call, where it works */
        return sky[i].answer < 0 ? 0 : -1;
    }
    count = count < sky[i].most ? count : sky[i].most;
    CHECK(sky[i].used + count < MOST);
    memcpy(sky[i].text + sky[i].used, bytes, count);
    sky[i].used += count;
    sky[i].text[sky[i].used] = 0;
    return (ssize_t)count;
}

static void begin(int ranks, bool prefixes, const char *log_dir, bool one_sink)
{
    table = weft_i_os_linux;
    table.write = test_write;
    weft_i_os_now = &table;
    for (int i = 0; i < 2; i++) {
        sky[i].text = sky[i].text ? sky[i].text : malloc(MOST);
        sky[i].used = sky[i].largest = 0;
        sky[i].text[0] = 0;
        sky[i].answer = 0;
        sky[i].most = SIZE_MAX;
    }
    CHECK_OK(weft_i_lines_open(&lines, ranks, prefixes, log_dir, false, true));
    for (int i = 0; i < 2; i++) {
        if (lines.sinks[i].own)
            close(lines.sinks[i].own);
        lines.sinks[i] = (weft_i_sink){.fd = one_sink && i ? -1 : OUT + i};
    }
    for (int i = 0; i < 2 * ranks; i++)
        lines.streams[i].sink = &lines.sinks[one_sink ? 0 : i % 2];
    for (int rank = 0; rank < ranks; rank++)
        CHECK_OK(weft_i_lines_add(&lines, rank, &out[rank], &err[rank]));
}

static void end(void)
{
    for (int rank = 0; rank < lines.ranks; rank++) {
        close(out[rank]);
        close(err[rank]);
    }
    weft_i_lines_close(&lines);
    weft_i_os_now = &weft_i_os_linux;
}

/* One turn of the loop: reads what is there, writes if `writing`. */
static size_t turn(bool writing)
{
    struct pollfd fds[16];
    size_t count = weft_i_lines_poll(&lines, fds);
    CHECK(count <= (size_t)(2 * lines.ranks + 2));
    for (size_t i = 0; i < count; i++) {
        if (fds[i].events == POLLOUT)
            fds[i].revents = writing ? POLLOUT : 0;
        else
            poll(&fds[i], 1, 0);
    }
    weft_i_lines_take(&lines, fds, count);
    return count;
}

static void run(void)
{
    for (int i = 0; i < 6; i++)
        turn(true);
}

static void write_text(int fd, const char *text)
{
    CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
}

static void expect_written(int i, const char *text)
{
    if (strcmp(sky[i].text, text))
        FAIL("written is \"%s\", not \"%s\"", sky[i].text, text);
    sky[i].used = 0;
    sky[i].text[0] = 0;
}

TEST(test_lines_prefixed)
{
    begin(2, true, NULL, false);
    write_text(out[0], "one\ntw");
    write_text(out[1], "first\n\nsecond\n");
    write_text(err[1], "bad\n");
    run();
    expect_written(0, "[0] one\n[1] first\n[1] \n[1] second\n");
    expect_written(1, "[1] bad\n");
    write_text(out[0], "o\nthr");
    run();
    expect_written(0, "[0] two\n");
    CHECK_INT(weft_i_lines_pending(&lines), 0);
    weft_i_lines_end(&lines, 0); /* the rest of a line, with an end of its own */
    CHECK(weft_i_lines_ended(&lines, 0) && !weft_i_lines_ended(&lines, 1));
    run();
    expect_written(0, "[0] thr\n");
    close(out[1]);
    run();
    CHECK(lines.streams[2].fd < 0 && !weft_i_lines_ended(&lines, 1));
    close(err[1]);
    run();
    CHECK(weft_i_lines_ended(&lines, 1));
    expect_written(0, "");
    CHECK_INT(turn(true), 0);
    CHECK(!weft_i_lines_tell_lost(&lines, true));
    out[1] = err[1] = -1;
    end();
}

/* Equal messages of the library become one line; a rank's other lines keep their place behind them,
 * on either stream, and logs have every byte. */
TEST(test_lines_equal_messages)
{
    char folder[64] = "/tmp/weft-lines-XXXXXX", path[96];
    CHECK(mkdtemp(folder));
    begin(3, true, folder, true);
    write_text(err[0], "weft WARN [rank 0]: rank 0 is lonely\nweft WARN [rank 0]: bye\n");
    run();
    expect_written(0, "");
    CHECK(weft_i_lines_due(&lines) != WEFT_I_NEVER);
    write_text(err[2], "weft WARN [rank 2]: rank 2 is lonely\nweft WARN [rank 2]: bye\n");
    write_text(out[1], "I am not\n");
    run();
    expect_written(0, "[1] I am not\n");
    write_text(out[2], "and that is all\n"); /* after all that rank 2 said before */
    run();
    expect_written(0, "[0,2] weft WARN: this rank is lonely\n[0,2] weft WARN: bye\n"
                      "[2] and that is all\n");
    for (int rank = 0; rank < 3; rank++) /* said by all: nothing to wait for */
        write_text(err[rank], "weft WARN: all\n");
    write_text(out[0], "weft WARN: not where messages are\n");
    run();
    expect_written(0, "[0] weft WARN: not where messages are\n[0-2] weft WARN: all\n");
    CHECK(weft_i_lines_due(&lines) == WEFT_I_NEVER);
    write_text(err[1], "weft WARN [rank 1]: late\n");
    run();
    expect_written(0, "");
    usleep((WEFT_I_CHORUS_MS + 1) * 1000);
    run();
    expect_written(0, "[1] weft WARN [rank 1]: late\n");
    write_text(err[1], "weft WARN [rank 1]: later\n");
    run();
    weft_i_lines_say(&lines, "the end");
    run();
    expect_written(0, "[1] weft WARN [rank 1]: later\nthe end\n");
    write_text(err[0], "weft WARN [rank 0]: nobody reads this\n");
    run();
    end();
    for (int i = 0; i < 6; i++) {
        struct stat state;
        snprintf(path, sizeof path, "%s/rank_%d.%s", folder, i / 2, i % 2 ? "err" : "out");
        CHECK(!stat(path, &state));
        if (i == 5)
            CHECK_INT(state.st_size, 37 + 24 + 15);
        CHECK(!unlink(path));
    }
    CHECK(!rmdir(folder));
    begin(2, false, NULL, true); /* without prefixes not a byte changes */
    for (int rank = 0; rank < 2; rank++)
        write_text(err[rank], "weft WARN: all\n");
    run();
    expect_written(0, "weft WARN: all\nweft WARN: all\n");
    end();
}

/* A carriage return ends a line, but not the one before a newline; and a part of a line that stands
 * last gets its end from whoever writes next. */
TEST(test_lines_progress_and_parts)
{
    begin(2, true, NULL, true);
    write_text(out[0], "10%\r20%\r");
    run();
    expect_written(0, "[0] 10%\r"); /* what follows may be a newline */
    write_text(out[0], "\nend\r\n");
    run();
    expect_written(0, "[0] 20%\r\n[0] end\r\n");
    write_text(err[1], "x\r\ry\n");
    run();
    expect_written(0, "[1] x\r[1] \r[1] y\n");
    end();
    begin(2, false, NULL, true);
    write_text(out[0], "whole\npart");
    run();
    weft_i_lines_end(&lines, 0);
    run();
    expect_written(0, "whole\npart");
    write_text(out[1], "next\n");
    run();
    expect_written(0, "\nnext\n");
    weft_i_lines_say(&lines, "we say %d", 7);
    run();
    expect_written(0, "we say 7\n");
    write_text(out[1], "part");
    weft_i_lines_end(&lines, 1);
    weft_i_lines_say(&lines, "again");
    weft_i_lines_say(&lines, "and again");
    run();
    expect_written(0, "part\nagain\nand again\n");
    end();
}

/* A line of a megabyte is one; of a longer one the first megabyte goes out by itself, and nobody's
 * line comes between. */
TEST(test_lines_long)
{
    enum { LIMIT = 1 << 20 };
    for (int prefixes = 0; prefixes < 2; prefixes++) {
        begin(2, prefixes, NULL, true);
        lines.sinks[0].is_file = true;
        char *text = malloc(2 * LIMIT);
        memset(text, 'x', 2 * LIMIT);
        CHECK(fcntl(out[0], F_SETPIPE_SZ, 1 << 16) > 0);
        size_t sent = 0, length = LIMIT + 5;
        text[length - 1] = '\n';
        bool other = false;
        while (sent < length) {
            size_t piece = length - sent < 30000 ? length - sent : 30000;
            CHECK(write(out[0], text + sent, piece) == (ssize_t)piece);
            sent += piece;
            for (int i = 0; i < 8; i++)
                turn(true);
            if (!other && sky[0].used)
                FAIL("%zu bytes came too early", sky[0].used);
            if (sent > 500000 && !other) {
                write_text(out[1], "other\n");
                turn(false);
                other = true;
                run();
                expect_written(0, prefixes ? "[1] other\n" : "other\n");
            }
            if (sent < LIMIT)
                CHECK_INT(sky[0].used, 0);
        }
        run();
        CHECK_INT(sky[0].used, prefixes ? (size_t)LIMIT + 5 + 5 + 4 : (size_t)LIMIT + 5);
        CHECK_INT(sky[0].text[sky[0].used - 1], '\n');
        CHECK_INT(lines.streams[0].room, LIMIT);
        free(text);
        end();
    }
}

/* A reader that does not read stops the ranks behind it when 64 KiB wait, and no others; to a pipe
 * we write what it takes for certain. */
TEST(test_lines_slow_reader)
{
    begin(2, false, NULL, false);
    char text[4097];
    memset(text, 'y', sizeof text);
    text[4095] = '\n';
    text[4096] = 0;
    for (int i = 0; i < 15; i++)
        write_text(out[0], text);
    while (lines.sinks[0].used < 15 * 4096)
        turn(false);
    CHECK(!weft_i_lines_stuck(&lines, 0));
    CHECK_INT(turn(false), 5); /* all four pipes, and the sink that has something */
    write_text(out[0], text);
    turn(false);
    CHECK_INT(lines.sinks[0].used, 16 * 4096);
    CHECK(weft_i_lines_stuck(&lines, 0) && weft_i_lines_stuck(&lines, 1));
    CHECK_INT(turn(false), 3); /* both standard errors and the sink */
    write_text(out[0], text);
    write_text(err[1], "free\n");
    turn(false);
    CHECK_INT(lines.sinks[0].used, 16 * 4096);
    CHECK_INT(weft_i_lines_pending(&lines), 16 * 4096 + 5);
    sky[0].answer = EAGAIN;
    turn(true);
    CHECK_INT(lines.sinks[0].used, 16 * 4096);
    CHECK(!lines.sinks[0].broken);
    expect_written(1, "free\n");
    sky[0].answer = 0;
    sky[0].most = 100;
    turn(true);
    CHECK_INT(lines.sinks[0].used, 16 * 4096 - 100);
    CHECK(!weft_i_lines_stuck(&lines, 0));
    sky[0].most = SIZE_MAX;
    for (int i = 0; i < 40; i++)
        turn(true);
    CHECK_INT(sky[0].used, 17 * 4096);
    for (size_t i = 0; i < sky[0].used; i++)
        CHECK_INT(sky[0].text[i], i % 4096 == 4095 ? '\n' : 'y');
    CHECK_INT(sky[0].largest, PIPE_BUF);
    end();
    begin(1, false, NULL, true);
    lines.sinks[0].is_file = true; /* takes any amount at once */
    for (int i = 0; i < 4; i++)
        write_text(out[0], text);
    turn(false);
    turn(true);
    CHECK_INT(sky[0].largest, 4 * 4096);
    end();
}

static void lose(int answer, bool log)
{
    char folder[64] = "/tmp/weft-lines-XXXXXX", path[96];
    CHECK(mkdtemp(folder));
    begin(2, false, log ? folder : NULL, false);
    write_text(out[0], "lost\n");
    sky[0].answer = answer;
    run();
    CHECK(lines.sinks[0].broken && !lines.sinks[0].used && !lines.sinks[1].broken);
    bool gone = answer == EPIPE;
    CHECK_INT(lines.sinks[0].error, gone ? 0 : answer < 0 ? EIO : answer);
    /* The reader went: so do the pipes, unless a log wants what comes.  A full disk ends nobody. */
    CHECK_INT(lines.streams[0].fd < 0, gone && !log);
    CHECK_INT(lines.streams[2].fd < 0, gone && !log);
    CHECK(lines.streams[1].fd >= 0 && lines.streams[3].fd >= 0);
    sky[0].answer = 0;
    write_text(err[0], "still\n");
    run();
    if (!gone || log) {
        write_text(out[0], "after\n");
        run();
    }
    CHECK_INT(sky[0].used, 0);
    expect_written(1, "still\n");
    CHECK_INT(weft_i_lines_tell_lost(&lines, false), !gone);
    run();
    expect_written(1, "");
    CHECK_INT(weft_i_lines_tell_lost(&lines, true), !gone);
    run();
    if (!gone) {
        CHECK_CONTAINS(sky[1].text, "lost: writing to standard output: ");
        CHECK_CONTAINS(sky[1].text, strerror(answer < 0 ? EIO : answer));
    }
    end();
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/rank_%d.%s", folder, i / 2, i % 2 ? "err" : "out");
        struct stat state;
        CHECK_INT(!stat(path, &state), log);
        if (log && i == 0)
            CHECK_INT(state.st_size, 11); /* both lines */
        if (log && i == 1)
            CHECK_INT(state.st_size, 6);
        unlink(path);
    }
    CHECK(!rmdir(folder));
}

TEST(test_lines_lost)
{
    for (int log = 0; log < 2; log++) {
        lose(EPIPE, log);
        lose(ENOSPC, log);
        lose(EIO, log);
        lose(-1, log);
    }
}

TEST(test_lines_given_up)
{
    begin(1, false, NULL, false);
    write_text(err[0], "unread\n");
    turn(false);
    weft_i_lines_drop(&lines);
    CHECK_INT(weft_i_lines_pending(&lines), 0);
    CHECK(lines.sinks[1].broken && !lines.sinks[0].broken && !lines.sinks[0].error);
    CHECK(weft_i_lines_tell_lost(&lines, true)); /* nobody hears it */
    CHECK_INT(weft_i_lines_pending(&lines), 0);
    end();
    begin(1, false, NULL, false);
    write_text(out[0], "unread\n");
    turn(false);
    weft_i_lines_drop(&lines);
    CHECK(weft_i_lines_tell_lost(&lines, true));
    run();
    expect_written(1, "weft: output of the ranks is lost: writing to standard output: its reader "
                      "does not read\n");
    end();
}

static void expect_tail(int count, const char *text)
{
    char tail[WEFT_I_LINES_TAIL + 1];
    weft_i_lines_tail(&lines, 1, count, tail);
    if (strcmp(tail, text))
        FAIL("the tail of %d is \"%s\", not \"%s\"", count, tail, text);
}

TEST(test_lines_tail)
{
    begin(2, false, NULL, true);
    expect_tail(3, "");
    write_text(err[1], "one\ntwo\302\2331m\nthree\033[1m\tx\n");
    write_text(err[0], "not this\n");
    write_text(out[1], "nor this\n");
    run();
    expect_tail(1, "three?[1m\tx");
    expect_tail(2, "two?1m\nthree?[1m\tx");
    expect_tail(3, "one\ntwo?1m\nthree?[1m\tx");
    expect_tail(9, "one\ntwo?1m\nthree?[1m\tx");
    write_text(err[1], "\n\nopen");
    run();
    expect_tail(1, "open");
    char text[WEFT_I_LINES_TAIL * 2 + 1];
    for (size_t size = WEFT_I_LINES_TAIL - 1; size <= WEFT_I_LINES_TAIL + 1; size++) {
        memset(text, 'a', size); /* the newest bytes only, wherever the ring begins */
        text[size - 1] = 'z';
        text[size] = 0;
        write_text(err[1], text);
        run();
        char tail[WEFT_I_LINES_TAIL + 1];
        weft_i_lines_tail(&lines, 1, 1, tail);
        size_t kept = strlen(tail);
        CHECK(kept == WEFT_I_LINES_TAIL);
        CHECK(tail[kept - 1] == 'z' && tail[kept - 2] == 'a');
    }
    for (size_t i = 0; i < sizeof text - 1; i++)
        text[i] = (char)('a' + i % 26);
    text[sizeof text - 1] = 0;
    write_text(err[1], text);
    run();
    expect_tail(1, text + WEFT_I_LINES_TAIL);
    end();
}

/* What an escaped process writes on and on is not waited for. */
TEST(test_lines_end_is_bounded)
{
    begin(1, false, NULL, true);
    char block[8192];
    memset(block, 'b', sizeof block);
    CHECK(write(out[0], block, sizeof block) == sizeof block);
    write_text(err[0], "last words");
    weft_i_lines_end(&lines, 0);
    CHECK(weft_i_lines_ended(&lines, 0));
    run();
    CHECK_INT(sky[0].used, sizeof block + 1 + strlen("last words"));
    weft_i_lines_end(&lines, 0); /* once more: nothing */
    run();
    CHECK_INT(sky[0].used, sizeof block + 1 + strlen("last words"));
    end();
}

/* Without memory for its queue a line waits until what is there has gone; without memory for a long
 * line it is broken. */
TEST(test_lines_without_memory)
{
    begin(1, false, NULL, true);
    write_text(out[0], "one\n");
    fault_arm(1);
    fault_table.write = test_write;
    fault_table.read = weft_i_os_linux.read;
    turn(false);
    CHECK(fault_disarm());
    fault_fill();
    weft_i_os_now = &table;
    CHECK_INT(lines.sinks[0].error, ENOMEM);
    CHECK(!lines.sinks[0].broken && !lines.sinks[0].used);
    CHECK(weft_i_lines_tell_lost(&lines, false));
    write_text(out[0], "two\n");
    run();
    expect_written(0, "two\n");
    char text[20001];
    memset(text, 'c', sizeof text);
    text[20000] = 0;
    write_text(out[0], text);
    turn(false);
    CHECK_INT(lines.streams[0].used, 16384);
    fault_arm(1);
    fault_table.write = test_write;
    fault_table.read = weft_i_os_linux.read;
    turn(false);
    CHECK(fault_disarm());
    fault_fill();
    weft_i_os_now = &table;
    run();
    CHECK_INT(sky[0].used, 16384);
    CHECK_INT(lines.streams[0].used, 20000 - 16384);
    end();
    for (int n = 1; n < 20; n++) {
        int a = 7, b = 7;
        fault_arm(n);
        weft_status status = weft_i_lines_open(&lines, 2, true, NULL, false, true);
        if (status == WEFT_OK) {
            status = weft_i_lines_add(&lines, 1, &a, &b);
            if (status < 0)
                CHECK(a == -1 && b == -1);
            else
                CHECK(a >= 0 && b >= 0 && !close(a) && !close(b));
            weft_i_lines_close(&lines);
        }
        bool fired = fault_disarm();
        if (!fired) {
            CHECK_OK(status);
            CHECK(n > 4);
            return;
        }
        CHECK(status < 0 || !strcmp(fault_name, "open"));
    }
    FAIL("it never succeeds");
}

static int descriptors(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

/* A child keeps nothing of ours; and what was opened is closed. */
TEST(test_lines_leave)
{
    char folder[64] = "/tmp/weft-lines-XXXXXX", path[96];
    CHECK(mkdtemp(folder));
    int before = descriptors();
    begin(2, true, folder, false);
    CHECK_INT(descriptors(), before + 4 + 4 + 4);
    weft_i_lines_leave(&lines);
    CHECK_INT(descriptors(), before + 4);
    CHECK(weft_i_lines_ended(&lines, 0) && lines.streams[0].log == -1);
    end();
    CHECK_INT(descriptors(), before);
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/rank_%d.%s", folder, i / 2, i % 2 ? "err" : "out");
        CHECK(!unlink(path));
    }
    CHECK(!rmdir(folder));
    CHECK_STATUS(weft_i_lines_open(&lines, 1, true, "/proc/nowhere/logs", false, true),
                 WEFT_ERR_IO);
    CHECK(!lines.streams && !lines.ranks);
    CHECK_INT(descriptors(), before);
}

/* A log that cannot be written is given up, the terminal is not. */
TEST(test_lines_log_fails)
{
    begin(2, true, NULL, false);
    lines.streams[0].log = open("/dev/full", O_WRONLY);
    int keep = open("/dev/null", O_WRONLY);
    lines.streams[2].log = keep;
    CHECK(lines.streams[0].log >= 0);
    write_text(out[0], "a\n");
    write_text(out[1], "b\n");
    run();
    CHECK_INT(lines.log_error, ENOSPC);
    CHECK_INT(lines.streams[0].log, -1);
    CHECK_INT(lines.streams[2].log, keep);
    write_text(out[0], "c\n");
    run();
    expect_written(0, "[0] a\n[1] b\n[0] c\n");
    end();
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0);
    return harness_main(argc, argv);
}
