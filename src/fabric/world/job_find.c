/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding jobs.  A job page is a memory file without a name, but every process of the job keeps a
 * descriptor of it open (its launcher and its ranks), and /proc/<process>/fd leads to it: readable
 * for the same user, whatever the process is doing and also when it is stopped, and gone with the
 * last of them.
 */
#include "fabric/world/job_look.h"

#include "base/os/os.h"
#include "base/report/os_look.h"
#include "base/report/status.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

typedef struct page_id {
    dev_t device;
    ino_t file;
} page_id;

typedef struct hunt {
    int user;    /* whose processes */
    int process; /* whose descriptors */
    int wanted;  /* the page that this process made, or is a rank of; 0: every page */
    page_id *seen;
    size_t seen_count;
    weft_job **out;
    int room, count;
    weft_status status;
} hunt;

/* ---- one page ---- */

static weft_status map_page(int fd, weft_i_segment *page)
{
    *page = (weft_i_segment){.bytes = (size_t)weft_i_os_sealed_bytes(fd), .fd = fd};
    page->base = WEFT_OS->mmap(NULL, page->bytes, PROT_READ, MAP_SHARED, fd, 0);
    return page->base == MAP_FAILED ? weft_i_fail_errno(errno, "mapping a job page") : WEFT_OK;
}

static bool belongs(const weft_job *job, int process)
{
    if (!process || job->info.process == process)
        return true;
    for (int i = 0; i < job->info.ranks; i++)
        if (job->ranks[i].process == process)
            return true;
    return false;
}

/* Looks at the page behind a descriptor; NULL with an error. */
static weft_job *look_at(int fd)
{
    weft_i_segment page;
    weft_job *job = NULL;
    if (map_page(fd, &page) < 0)
        return NULL;
    int ranks = 0;
    if (weft_i_job_check(&page, &ranks) == WEFT_OK)
        job = weft_i_job_look(weft_i_job_of(&page), ranks);
    WEFT_OS->munmap(page.base, page.bytes);
    return job;
}

/* ---- all of them ---- */

static bool is_new(hunt *search, int fd)
{
    struct stat file;
    if (WEFT_OS->fstat(fd, &file))
        return false;
    page_id id = {file.st_dev, file.st_ino};
    for (size_t i = 0; i < search->seen_count; i++)
        if (search->seen[i].device == id.device && search->seen[i].file == id.file)
            return false;
    page_id *wider = WEFT_OS->resize(search->seen, (search->seen_count + 1) * sizeof *wider);
    if (!wider) {
        search->status = weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory to look for jobs");
        return false;
    }
    search->seen = wider;
    search->seen[search->seen_count++] = id;
    return true;
}

static void take(hunt *search, int fd)
{
    uint32_t layout = weft_i_job_layout_of(fd);
    if (!layout || (layout != WEFT_I_JOB_LAYOUT && !search->wanted))
        return; /* another memory file of weft's; a job of another weft */
    weft_job *job = look_at(fd);
    weft_status why = job ? WEFT_OK : weft_last_status();
    if (!job) { /* one damaged page must not hide the others */
        bool all = search->wanted || why == WEFT_ERR_NO_MEMORY || why == WEFT_ERR_LIMIT;
        search->status = all ? why : WEFT_OK;
        return;
    }
    bool wanted = belongs(job, search->wanted);
    if (wanted && search->count < search->room)
        search->out[search->count] = job;
    else
        weft_release(job);
    search->count += wanted;
}

static bool look_at_descriptor(void *arg, int number)
{
    hunt *search = arg;
    char path[64], target[32];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", search->process, number);
    if (!weft_i_os_read_link(path, target, sizeof target) || strncmp(target, "/memfd:weft", 11))
        return true;
    /* Another user's process may have put a FIFO under the number meanwhile. */
    int fd = WEFT_OS->open(path, O_RDONLY | O_NONBLOCK, 0);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM))
        search->status = weft_i_fail_errno(errno, "opening a job page");
    if (fd < 0) /* else it was closed meanwhile, or may not be looked at */
        return search->status == WEFT_OK;
    if (is_new(search, fd))
        take(search, fd);
    WEFT_OS->close(fd);
    return search->status == WEFT_OK;
}

static bool look_at_process(void *arg, int process)
{
    hunt *search = arg;
    char folder[32];
    if (weft_i_os_process_user(process) != search->user)
        return true;
    search->process = process;
    snprintf(folder, sizeof folder, "/proc/%d/fd", process);
    weft_i_os_each_number(folder, look_at_descriptor, search); /* some may not be looked at */
    return search->status == WEFT_OK;
}

int weft_job_list(weft_job **out, int room)
{
    if (room < 0 || (room > 0 && !out))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_job_list: no room for the result");
    hunt search = {.user = weft_i_os_user(), .out = out, .room = room};
    if (!weft_i_os_each_number("/proc", look_at_process, &search))
        search.status = weft_i_fail(WEFT_ERR_IO, "weft_job_list: /proc cannot be read");
    WEFT_OS->free(search.seen);
    for (int i = 0; search.status < 0 && i < search.count && i < room; i++)
        weft_release(out[i]);
    return search.status < 0 ? (int)search.status : search.count;
}

weft_job *weft_job_open(int process)
{
    char folder[32];
    weft_job *job = NULL;
    hunt search = {.process = process, .wanted = process, .out = &job, .room = 1};
    snprintf(folder, sizeof folder, "/proc/%d/fd", process);
    bool readable = process > 0 && weft_i_os_each_number(folder, look_at_descriptor, &search);
    WEFT_OS->free(search.seen);
    if (search.status < 0) {
        weft_release(job);
        return NULL;
    }
    if (job)
        return job;
    if (!readable && process > 0 && weft_i_os_process_user(process) >= 0)
        return weft_i_null(WEFT_ERR_IO,
                           "process %d may not be looked at: it is another user's, or "
                           "has more rights than this one",
                           process);
    return weft_i_null(WEFT_ERR_NOT_FOUND, "process %d %s", process,
                       readable ? "is not in a job" : "does not exist");
}
