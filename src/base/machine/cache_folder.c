/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cache folder; see cache_folder.h.  Each step down opens a name in a folder that was found
 * safe: one where only the user and root can rename what is the user's or root's.  So what is at the
 * end is there because of them, and stays.
 */
#include "base/machine/cache_folder.h"

#include "base/os/os.h"
#include "base/report/env.h"
#include "base/report/log.h"
#include "base/report/os_look.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { PATH = WEFT_I_CACHE_PATH, NAME = 256, LINKS = 40, OTHERS = 022 };

typedef struct walk {
    const char *path;        /* the folder, for messages */
    char here[PATH];         /* where the walk is, for messages too */
    char left[2 * PATH];     /* what is still to go */
    int fd, links;           /* of `here`, O_PATH; how many links were followed */
    bool only_last, refused; /* parents must be there; it is not safe, which users are told */
    char why[WEFT_I_CACHE_WHY];
} walk;

__attribute__((format(printf, 2, 3))) static bool fail(walk *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int used = snprintf(w->why, sizeof w->why, "cache folder %s: ", w->path);
    vsnprintf(w->why + used, sizeof w->why - (size_t)used, format, args);
    va_end(args);
    return false;
}

/* ---- what is safe ---- */

static bool is_trusted(const struct stat *about)
{
    return about->st_uid == 0 || (int)about->st_uid == weft_i_os_user();
}

/* Nobody else can rename what is the user's in it: in a sticky folder only owners rename. */
static bool check_parent(walk *w, const struct stat *about)
{
    static const char instead[] = "set WEFT_CACHE_DIR to a folder that only you can write to, as "
                                  "all above it";
    const char *here = *w->here ? w->here : "/";
    unsigned mode = (unsigned)about->st_mode & 07777;
    w->refused = !is_trusted(about) || (mode & OTHERS && !(mode & S_ISVTX));
    if (!is_trusted(about))
        return fail(w, "its parent %s is of user %u, who could put other code in its place; %s",
                    here, (unsigned)about->st_uid, instead);
    return !w->refused || fail(w,
                               "others can write to its parent %s (mode %04o, not sticky) and "
                               "could put other code in its place: chmod go-w %s, or %s",
                               here, mode, here, instead);
}

static bool check_own(walk *w, const struct stat *about)
{
    w->refused = (int)about->st_uid != weft_i_os_user() || about->st_mode & 077;
    return !w->refused || fail(w, "must be the user's own with mode 0700, is of user %u with %04o",
                               (unsigned)about->st_uid, (unsigned)about->st_mode & 07777);
}

/* ---- steps ---- */

static void way(int fd, const char *name, char out[WEFT_I_CACHE_FILE + 64])
{
    snprintf(out, WEFT_I_CACHE_FILE + 64, "/proc/self/fd/%d/%s", fd, name);
}

/* Where the walk is now: never anywhere else again. */
static void stand(walk *w, int fd, const char *name)
{
    size_t used = strlen(w->here);
    if (w->fd >= 0)
        WEFT_OS->close(w->fd);
    w->fd = fd;
    snprintf(w->here + used, sizeof w->here - used, *name ? "/%s" : "%s", name);
}

static bool stand_at_root(walk *w)
{
    struct stat about;
    int fd = WEFT_OS->open("/", O_PATH | O_DIRECTORY, 0);
    w->here[0] = 0;
    stand(w, fd, "");
    return fd >= 0 && !WEFT_OS->fstat(fd, &about) ? check_parent(w, &about)
                                                  : fail(w, "/: %s", strerror(errno));
}

/* Takes the next name off what is left. */
static bool next_name(walk *w, char name[NAME])
{
    const char *from = w->left + strspn(w->left, "/");
    size_t length = strcspn(from, "/");
    if (length >= NAME)
        return fail(w, "%s", strerror(ENAMETOOLONG));
    memcpy(name, from, length);
    name[length] = 0;
    from += length;
    from += strspn(from, "/");
    memmove(w->left, from, strlen(from) + 1);
    return true;
}

/* The name in the folder where the walk is, itself: made if it is not there. */
static int open_name(walk *w, const char *name, struct stat *about)
{
    char at[WEFT_I_CACHE_FILE + 64];
    way(w->fd, name, at);
    int fd = WEFT_OS->open(at, O_PATH | O_NOFOLLOW, 0);
    bool make = fd < 0 && errno == ENOENT && !(w->only_last && *w->left);
    if (make && (!WEFT_OS->mkdir(at, 0700) || errno == EEXIST))
        fd = WEFT_OS->open(at, O_PATH | O_NOFOLLOW, 0);
    if (fd >= 0 && !WEFT_OS->fstat(fd, about))
        return fd;
    fail(w, "%s/%s: %s", w->here, name, strerror(errno));
    if (fd >= 0)
        WEFT_OS->close(fd);
    return -1;
}

/* What a link of the user's or root's says stands in front of what is left. */
static bool follow(walk *w, const char *name, const struct stat *link)
{
    char at[WEFT_I_CACHE_FILE + 64], target[PATH], left[2 * PATH];
    w->refused = !is_trusted(link);
    if (w->refused)
        return fail(w, "%s/%s is a link of user %u", w->here, name, (unsigned)link->st_uid);
    way(w->fd, name, at);
    if (!weft_i_os_read_link(at, target, sizeof target) || ++w->links > LINKS ||
        snprintf(left, sizeof left, "%s/%s", target, w->left) >= (int)sizeof left)
        return fail(w, "%s/%s: too many or too long links", w->here, name);
    strcpy(w->left, left);
    return target[0] != '/' || stand_at_root(w);
}

static bool step(walk *w)
{
    char name[NAME];
    struct stat about;
    int fd = next_name(w, name) ? open_name(w, name, &about) : -1;
    bool last = !*w->left;
    if (fd < 0)
        return false;
    if (S_ISDIR(about.st_mode)) {
        stand(w, fd, name);
        return last ? check_own(w, &about) : check_parent(w, &about);
    }
    WEFT_OS->close(fd);
    if (S_ISLNK(about.st_mode) && !last)
        return follow(w, name, &about);
    w->refused = S_ISLNK(about.st_mode);
    return fail(w, "%s/%s is a link or no folder", w->here, name);
}

/* ---- the folder ---- */

static bool walk_to(walk *w)
{
    snprintf(w->left, sizeof w->left, "%s", w->path);
    for (size_t length = strlen(w->left); length && w->left[length - 1] == '/'; length--)
        w->left[length - 1] = 0;
    bool safe = stand_at_root(w) && (*w->left || fail(w, "is the root"));
    while (safe && *w->left)
        safe = step(w);
    if (!safe && w->fd >= 0)
        WEFT_OS->close(w->fd);
    return safe;
}

/* Said once: every call that would keep something comes here. */
static void tell(const walk *w)
{
    static atomic_bool told; /* relaxed: says nothing of other memory */
    if (w->refused && !atomic_exchange_explicit(&told, true, memory_order_relaxed))
        weft_i_log(WEFT_LOG_WARN, "%s.  Nothing is kept for later runs", w->why);
}

static bool open_folder(weft_i_cache_folder *folder, bool lent, char *why, size_t bytes)
{
    walk w = {.path = folder->path, .fd = -1, .only_last = lent};
    bool safe = walk_to(&w);
    folder->lent = lent;
    folder->fd = safe ? w.fd : -1;
    if (!safe)
        snprintf(why, bytes, "%s", w.why);
    if (!lent)
        tell(&w);
    return safe;
}

bool weft_i_cache_folder_open(weft_i_cache_folder *out, char *why, size_t bytes)
{
    const char *own = weft_i_env_text(WEFT_I_ENV_CACHE_DIR), *cache = getenv("XDG_CACHE_HOME"),
               *home = getenv("HOME");
    int length = own[0]                     ? snprintf(out->path, PATH, "%s", own)
                 : cache && cache[0] == '/' ? snprintf(out->path, PATH, "%s/weft", cache)
                 : home && home[0] == '/'   ? snprintf(out->path, PATH, "%s/.cache/weft", home)
                                            : -1;
    if (length >= 0 && length < PATH && out->path[0] == '/')
        return open_folder(out, false, why, bytes);
    snprintf(why, bytes,
             length < 0 ? "no HOME for a cache folder"
                        : "the cache folder's path is too long or not absolute");
    return false;
}

bool weft_i_cache_folder_lend(weft_i_cache_folder *out, char *why, size_t bytes)
{
    const char *places[] = {getenv("TMPDIR"), "/tmp"};
    uint64_t number;
    for (int i = 0; i < 2; i++) {
        if (!places[i] || places[i][0] != '/' || WEFT_OS->random_bytes(&number, sizeof number))
            continue;
        int length = snprintf(out->path, PATH, "%s/weft-%d-%016" PRIx64, places[i],
                              weft_i_os_process(), number);
        if (length < PATH && open_folder(out, true, why, bytes))
            return true;
    }
    return false;
}

void weft_i_cache_folder_close(weft_i_cache_folder *folder)
{
    WEFT_OS->close(folder->fd);
    if (folder->lent)
        remove(folder->path);
}

void weft_i_cache_folder_way(const weft_i_cache_folder *folder, const char *name,
                             char out[WEFT_I_CACHE_FILE])
{
    snprintf(out, WEFT_I_CACHE_FILE, "/proc/self/fd/%d/%s", folder->fd, name);
}

void weft_i_cache_folder_name(const weft_i_cache_folder *folder, const char *name, char *out,
                              size_t bytes)
{
    snprintf(out, bytes, "%s/%s", folder->path, name);
}

bool weft_i_cache_folder_path(char *out, size_t bytes, char *why, size_t why_bytes)
{
    weft_i_cache_folder folder;
    if (!weft_i_cache_folder_open(&folder, why, why_bytes))
        return false;
    weft_i_cache_folder_close(&folder);
    if (snprintf(out, bytes, "%s", folder.path) < (int)bytes)
        return true;
    snprintf(why, why_bytes, "the cache folder's path is too long");
    return false;
}
