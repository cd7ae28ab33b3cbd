/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: store/file.c */
/* What only the file store does: count its workers, outlive them, survive writers that died in a
 * write. */
#include "store_kinds.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

TEST(test_store_file_last_worker_removes_it)
{
    char path[128];
    snprintf(path, sizeof path, "%s", fresh_path());
    OPEN();
    weft_store *a = weft_keep(weft_store_file(path, 2)), *copy = weft_keep(weft_store_clone(a));
    CHECK_OK(set(a, "k", "v"));
    weft_release(copy);
    weft_release(a); /* one of two came and left: the other must still find the data */
    CHECK(!access(path, F_OK));
    weft_store *b = weft_keep(weft_store_file(path, 2));
    CHECK(b);
    expect(b, "k", "v");
    weft_release(b);
    CHECK(access(path, F_OK) && errno == ENOENT);
    weft_store *c = weft_keep(weft_store_file(path, 0));
    CHECK_OK(set(c, "k", "stays"));
    CHECK(!weft_store_file(path, 3));
    CHECK_STATUS(weft_last_status(), WEFT_ERR_INVALID_ARG);
    weft_release(c);
    c = weft_keep(weft_store_file(path, 0));
    expect(c, "k", "stays");
    weft_release(c);
    CHECK(!unlink(path));
    CLOSE();
}

TEST(test_store_file_of_a_killed_job_is_emptied)
{
    OPEN();
    char path[128];
    snprintf(path, sizeof path, "%s", fresh_path());
    pid_t child = fork();
    if (!child) {
        weft_store *a = weft_store_file(path, 2), *b = weft_store_file(path, 2);
        set(a, "stale", "yes");
        (void)b;
        kill(getpid(), SIGKILL);
    }
    waitpid(child, NULL, 0);
    CHECK(!access(path, F_OK));
    weft_store *a = weft_store_file(path, 2), *b = weft_store_file(path, 2);
    size_t keys = 9;
    CHECK_OK(weft_store_num_keys(a, &keys));
    CHECK_INT(keys, 0);
    CHECK_OK(set(b, "new", "1"));
    expect(a, "new", "1");
    CLOSE();
    CHECK(access(path, F_OK));
}

/* The last record cut at every byte, and garbage behind the last record: the rest must be found,
 * and writing go on. */
TEST(test_store_file_torn_record)
{
    char path[128];
    snprintf(path, sizeof path, "%s", fresh_path());
    OPEN();
    weft_store *a = weft_store_file(path, 0);
    CHECK_OK(set(a, "first", "kept"));
    int fd = open(path, O_RDWR);
    CHECK(fd >= 0);
    off_t whole = lseek(fd, 0, SEEK_END);
    CHECK_OK(set(a, "second", "torn"));
    off_t full = lseek(fd, 0, SEEK_END);
    char *bytes = malloc((size_t)full);
    CHECK(pread(fd, bytes, (size_t)full, 0) == full);
    for (off_t cut = whole; cut < full; cut++)
        for (int garbage = 0; garbage < 2; garbage++) {
            CHECK_OK(weft_scope_open());
            CHECK(!ftruncate(fd, 0) && pwrite(fd, bytes, (size_t)cut, 0) == cut);
            if (garbage)
                CHECK(pwrite(fd, "\xff\xff\xff\xff\xff\xff\xff\xff", 8, cut) == 8);
            weft_store *s = weft_store_file(path, 0);
            CHECK(s);
            expect(s, "first", "kept");
            const char *second = "second";
            bool there = true;
            CHECK_OK(weft_store_check(s, 1, &second, &there));
            CHECK(!there);
            CHECK_OK(set(s, "third", "written"));
            weft_store *other = weft_store_file(path, 0);
            expect(other, "third", "written");
            expect(other, "first", "kept");
            CHECK_OK(weft_scope_close());
        }
    free(bytes);
    close(fd);
    CLOSE();
    unlink(path);
}

/* Writers killed at random moments never spoil what others wrote. */
TEST(test_store_file_killed_writers)
{
    OPEN();
    char path[128];
    snprintf(path, sizeof path, "%s", fresh_path());
    weft_store *s = weft_store_file(path, 0);
    CHECK(s);
    for (int round = 0; round < 8; round++) {
        pid_t child = fork();
        if (!child) {
            weft_store *mine = weft_store_file(path, 0);
            char big[5000];
            memset(big, 'x', sizeof big);
            for (;;) {
                weft_store_add(mine, "count", 1, NULL);
                weft_store_set(mine, "big", big, sizeof big);
            }
        }
        usleep(3000 + round * 1000);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        int64_t count = 0;
        CHECK_OK(weft_store_add(s, "count", 0, &count));
        weft_store_value big = {0};
        weft_status status = weft_store_get(s, "big", 0, &big);
        CHECK(status == WEFT_OK ? big.bytes == 5000 : status == WEFT_ERR_NOT_FOUND);
        weft_store_value_clear(&big);
    }
    CLOSE();
    unlink(path);
}

TEST(test_store_file_refuses_foreign_files)
{
    OPEN();
    char path[128];
    snprintf(path, sizeof path, "%s", fresh_path());
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    CHECK(write(fd, "this is somebody's letter, not a store", 38) == 38);
    close(fd);
    CHECK(!weft_store_file(path, 0) && !weft_store_file(path, 2));
    CHECK_CONTAINS(weft_last_error(), "not a weft store");
    unlink(path);
    CHECK(!weft_store_file("/nonexistent/folder/file", 1));
    CHECK_STATUS(weft_last_status(), WEFT_ERR_IO);
    CLOSE();
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* errors are the point here */
    return harness_main(argc, argv);
}
