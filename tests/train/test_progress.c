/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: train/progress.c, tools/weft/plot.c, tools/weft/plot_read.c, tools/weft/plot_draw.c */
/* The line of a run, with a clock of the test's own; its table, and the curve that is drawn of it. */
#include "folder.h"
#include "harness.h"

#include "base/os/os.h"

#include <pty.h>
#include <sys/wait.h>

static int64_t now_ns;

static int64_t clock_of_test(void)
{
    return now_ns;
}

static weft_i_os table;

/* From now on the clock stands still but for this test. */
static void own_clock(void)
{
    table = weft_i_os_linux;
    table.clock_ns = clock_of_test;
    now_ns = 1000000000;
    weft_i_os_now = &table;
}

static void steps(weft_progress *p, int from, int to)
{
    for (int s = from; s < to; s++) {
        now_ns += 500000000;
        CHECK_OK(weft_progress_step(p, s, 4.0 / (s + 1)));
    }
}

TEST(test_progress_line)
{
    char text[256];
    weft_progress_opts opts = WEFT_PROGRESS_OPTS_INIT;
    opts.tokens = 32768, opts.flops = 1e12, opts.peak = 5e12;
    own_clock();
    weft_progress *p = weft_progress_new(NULL, 1000, &opts);
    CHECK(!strcmp(weft_progress_text(p, text, sizeof text), "step    0/1000"));
    steps(p, 0, 1);
    CHECK(!strcmp(weft_progress_text(p, text, sizeof text), "step    1/1000  loss 4.0000"));
    steps(p, 1, 300);
    CHECK(!strcmp(weft_progress_text(p, text, sizeof text),
                  "step  300/1000  loss 0.0133  65.5k tokens/s  MFU 40.0%  left 5:50"));
    /* A pause does not count. */
    CHECK_OK(weft_progress_pause(p));
    now_ns += 1000000000000;
    steps(p, 300, 302);
    CHECK_CONTAINS(weft_progress_text(p, text, sizeof text), "65.5k tokens/s");
    CHECK_OK(weft_progress_end(p));
    CHECK_OK(weft_progress_end(p));
    CHECK_STATUS(weft_progress_step(p, 1, 1), WEFT_ERR_STATE);
    opts.peak = -1;
    CHECK(!weft_progress_new(NULL, 10, &opts) && !weft_progress_new(NULL, 0, NULL));
    weft_i_os_now = &weft_i_os_linux;
    weft_clear_error();
}

/* Elsewhere than on a terminal: whole lines, the first, one in ten seconds, and the last. */
TEST(test_progress_into_a_file)
{
    path_text folder, path;
    char text[4096];
    make_tree(folder);
    join_path(path, folder, "log");
    FILE *file = fopen(path, "w");
    CHECK(file);
    own_clock();
    weft_progress *p = weft_progress_new(file, 50, NULL);
    steps(p, 0, 50);
    CHECK_OK(weft_progress_end(p));
    weft_i_os_now = &weft_i_os_linux;
    fclose(file);
    text[read_bytes(path, text, sizeof text - 1)] = 0;
    CHECK(!strcmp(text, "step  1/50  loss 4.0000\n"
                        "step 21/50  loss 0.1905  2.00 steps/s  left 0:15\n"
                        "step 41/50  loss 0.0976  2.00 steps/s  left 0:05\n"
                        "step 50/50  loss 0.0800  2.00 steps/s\n"));
    remove_tree(folder);
}

/* What a terminal shows up to the end of a line; it comes in pieces. */
static void read_line(int master, char *text, size_t room)
{
    size_t length = 0;
    while (!memchr(text, '\n', length)) {
        ssize_t n = read(master, text + length, room - 1 - length);
        CHECK(n > 0);
        length += (size_t)n;
    }
    text[length] = 0;
}

/* On a terminal one line, over and over, with a bar. */
TEST(test_progress_on_a_terminal)
{
    int master, slave;
    char text[8192];
    if (openpty(&master, &slave, NULL, NULL, NULL))
        SKIP("no terminals to be had");
    FILE *file = fdopen(slave, "w");
    CHECK(file);
    own_clock();
    weft_progress *p = weft_progress_new(file, 4, NULL);
    steps(p, 0, 4);
    CHECK_OK(weft_progress_end(p));
    weft_i_os_now = &weft_i_os_linux;
    read_line(master, text, sizeof text);
    CHECK_CONTAINS(text, "\r[======>                 ] step 1/4  loss 4.0000");
    CHECK_CONTAINS(text, "\r[========================] step 4/4  loss 1.0000  2.00 steps/s");
    CHECK(strchr(text, '\n') == strrchr(text, '\n'));
    fclose(file);
    close(master);
}

/* ---- the table and its curve ---- */

/* Runs the command in the folder; its output is in `text`. */
static int plot(const char *folder, const char *arguments, char *text, size_t bytes)
{
    char command[2048];
    snprintf(command, sizeof command, "cd %s && unset LC_ALL LC_CTYPE LANG; '%s' plot %s 2>&1",
             folder, WEFT_COMMAND, arguments);
    FILE *pipe = popen(command, "r");
    text[pipe ? fread(text, 1, bytes - 1, pipe) : 0] = 0;
    int status = pipe ? pclose(pipe) : -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void write_steps(const char *path, int from, int to)
{
    weft_progress_opts opts = WEFT_PROGRESS_OPTS_INIT;
    opts.csv = path;
    opts.tokens = 100;
    own_clock();
    weft_progress *p = weft_progress_new(NULL, 100, &opts);
    if (!p)
        FAIL("%s", weft_last_error());
    steps(p, from, to);
    CHECK_OK(weft_progress_end(p));
    weft_i_os_now = &weft_i_os_linux;
}

TEST(test_progress_table)
{
    path_text folder, path;
    char text[4096];
    make_tree(folder);
    join_path(path, folder, "steps.csv");
    write_steps(path, 0, 2);
    write_steps(path, 1, 3); /* goes on behind what is there */
    text[read_bytes(path, text, sizeof text - 1)] = 0;
    CHECK(!strcmp(text, "step,loss,seconds,tokens_per_second\n0,4,0.000000,0.0\n"
                        "1,2,0.500000,200.0\n1,2,0.000000,0.0\n2,1.33333333,0.500000,200.0\n"));
    weft_progress_opts opts = WEFT_PROGRESS_OPTS_INIT;
    opts.csv = "/nowhere/at/all";
    CHECK(!weft_progress_new(NULL, 100, &opts));
    weft_clear_error();
    remove_tree(folder);
}

TEST(test_plot)
{
    static char text[1 << 16];
    path_text folder, path;
    make_tree(folder);
    join_path(path, folder, "steps.csv");
    write_steps(path, 0, 40);
    write_steps(path, 30, 60);
    CHECK_INT(plot(folder, "--ascii --width 40 --height 8 steps.csv", text, sizeof text), 0);
    CHECK_CONTAINS(text, "loss over step");
    CHECK_CONTAINS(text, "         4 |*");
    CHECK_CONTAINS(text, "0                                     59\n");
    CHECK_INT(plot(folder, "-o out.svg steps.csv", text, sizeof text), 0);
    join_path(path, folder, "out.svg");
    text[read_bytes(path, text, sizeof text - 1)] = 0;
    CHECK_CONTAINS(text, "<polyline");
    CHECK_CONTAINS(text, "64.0,64.0 ");
    CHECK_CONTAINS(text, "</svg>");
    CHECK_INT(plot(folder, "-c speed steps.csv", text, sizeof text), 1);
    CHECK_CONTAINS(text, "no column \"speed\"");
    CHECK_INT(plot(folder, "nothing.csv", text, sizeof text), 1);
    CHECK_INT(plot(folder, "", text, sizeof text), 2);
    CHECK_INT(plot(folder, "-o out.bmp steps.csv", text, sizeof text), 2);
    /* With gnuplot where it is, with a message where it is not. */
    int drawn = plot(folder, "-o out.png steps.csv", text, sizeof text);
    CHECK(drawn ? strstr(text, "is it installed?") != NULL : is_there(folder, "out.png"));
    remove_tree(folder);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
