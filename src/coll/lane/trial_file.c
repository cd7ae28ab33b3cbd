/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file of what trials have taught; see trial_file.h.  Text, so that people can read it:
 *
 *     weft trials 1
 *     machine Neoverse-N1, aarch64, 2 cores, Linux 6.1.0, weft 0.1.0
 *     all_gather 1048576 412345 801234
 *     digest 5f3a09c2d1e46b87
 *
 * A row has an operation, the least bytes of its class, and nanoseconds through bounce buffers and
 * by CMA.
 */
#include "coll/lane/trial_file.h"

#include "base/machine/cache_folder.h"
#include "base/os/file.h"
#include "base/os/os.h"
#include "base/report/env.h"
#include "base/report/log.h"
#include "base/report/status.h"
#include "tune/tune.h"
#include "weft/machine.h"
#include "weft/version.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { TEXT = 16384, KEY = 400, DIGITS = 16, DIGEST_LINE = 7 + DIGITS + 1 };
static const char first_line[] = "weft trials 1\n";

/* ---- which machine ---- */

static void add_fact(char key[KEY], const weft_machine_fact *fact, const char *after)
{
    size_t used = strlen(key);
    snprintf(key + used, KEY - used, "%s%s, ", fact->text, after);
    for (char *at = key + used; *at; at++)
        if (*at == '\n')
            *at = ' ';
}

/* Cores online, not usable: a rank that is bound to one core is on the same machine. */
static void describe_machine(char key[KEY])
{
    static const char *const names[] = {"model", "architecture", "cores online", "kernel"};
    enum { NAMES = sizeof names / sizeof *names };
    weft_machine_fact fact;
    key[0] = 0;
    for (int i = 0, found = 0; found < NAMES && weft_machine_describe(i, &fact) == WEFT_OK; i++)
        for (int n = 0; n < NAMES; n++)
            if (!strcmp(fact.name, names[n])) {
                add_fact(key, &fact, n == 2 ? " cores" : "");
                found++;
            }
    size_t used = strlen(key);
    snprintf(key + used, KEY - used, "weft %s", weft_version());
}

/* FNV-1a, against accidents; against others the folder is closed. */
static void digest_of(const char *text, size_t bytes, char out[DIGITS + 1])
{
    uint64_t sum = 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes; i++)
        sum = (sum ^ (unsigned char)text[i]) * 0x100000001b3u;
    snprintf(out, DIGITS + 1, "%016" PRIx64, sum);
}

typedef struct place {
    weft_i_cache_folder folder;
    char way[WEFT_I_CACHE_FILE]; /* through the folder that was opened */
    char path[WEFT_I_TRIAL_PATH];
} place;

static bool open_place(int ranks, place *out)
{
    char why[1000], key[KEY], digest[DIGITS + 1], name[80];
    if (!weft_i_cache_folder_open(&out->folder, why, sizeof why)) {
        weft_i_log(WEFT_LOG_TRACE, "what large calls teach is not kept: %s", why);
        return false;
    }
    describe_machine(key);
    digest_of(key, strlen(key), digest);
    snprintf(name, sizeof name, "trials-%s-%d", digest, ranks);
    weft_i_cache_folder_way(&out->folder, name, out->way);
    weft_i_cache_folder_name(&out->folder, name, out->path, sizeof out->path);
    return true;
}

bool weft_i_trial_file_path(int ranks, char path[WEFT_I_TRIAL_PATH])
{
    place at;
    if (!open_place(ranks, &at))
        return false;
    weft_i_cache_folder_close(&at.folder);
    memcpy(path, at.path, WEFT_I_TRIAL_PATH);
    return true;
}

/* Is there such a kind, and has it times of its own?  Barriers and messages have none. */
static bool is_timed(int kind)
{
    switch (kind) {
    case WEFT_I_BARRIER:
    case WEFT_I_SEND:
    case WEFT_I_RECV:
    case WEFT_I_SEND_RECV:
        return false;
    default:
        return kind >= 0 && (int)weft_i_kinds[kind].as == kind;
    }
}

/* ---- reading ---- */

/* Cuts the last line off if it is the digest of all before, and the first lines are this machine's.
 * Where the rows begin; NULL if the text is not what was written here. */
static char *check(char *text, size_t length)
{
    char key[KEY], line[KEY + 16], digest[DIGITS + 1];
    size_t head = sizeof first_line - 1;
    if (length < head + DIGEST_LINE + 1 || strlen(text) != length || memcmp(text, first_line, head))
        return NULL;
    char *last = text + length - DIGEST_LINE;
    digest_of(text, (size_t)(last - text), digest);
    if (memcmp(last, "digest ", 7) || memcmp(last + 7, digest, DIGITS) || text[length - 1] != '\n')
        return NULL;
    *last = 0;
    describe_machine(key);
    snprintf(line, sizeof line, "machine %s\n", key);
    return strncmp(text + head, line, strlen(line)) ? NULL : text + head + strlen(line);
}

/* One row; false if it makes no sense. */
static bool take_row(const char *row, weft_i_trials trials)
{
    char name[32], line[100];
    uint64_t bytes;
    uint32_t staged, cma;
    snprintf(line, sizeof line, "%.*s", (int)strcspn(row, "\n"), row);
    if (sscanf(line, "%31s %" SCNu64 " %" SCNu32 " %" SCNu32, name, &bytes, &staged, &cma) != 4)
        return false;
    int kind = weft_i_kind_named(name), class = 0;
    while (class < WEFT_I_TRIAL_SIZES && (uint64_t)WEFT_I_TRIAL_FROM << class != bytes)
        class ++;
    if (!is_timed(kind) || class == WEFT_I_TRIAL_SIZES || !staged || !cma || staged > INT32_MAX ||
        cma > INT32_MAX)
        return false;
    trials[kind][class] = (weft_i_trial){{staged, cma},
                                         {WEFT_I_TRIAL_RUNS, WEFT_I_TRIAL_RUNS},
                                         {WEFT_I_TRIAL_COLD, WEFT_I_TRIAL_COLD},
                                         0,
                                         0};
    return true;
}

int weft_i_trial_file_read(int ranks, weft_i_trials trials)
{
    char text[TEXT];
    place at;
    int count = 0;
    if (!open_place(ranks, &at))
        return 0;
    size_t length = weft_i_file_read_own(at.way, text, sizeof text);
    weft_i_cache_folder_close(&at.folder);
    char *row = length ? check(text, length) : NULL;
    if (length && !row)
        weft_i_log(WEFT_LOG_INFO, "%s is not what weft wrote here; it is not used", at.path);
    while (row && *row) {
        count += take_row(row, trials);
        row += strcspn(row, "\n");
        row += *row == '\n';
    }
    return count;
}

/* ---- writing ---- */

static bool is_known(const weft_i_trial *trial)
{
    return trial->runs[0] >= WEFT_I_TRIAL_RUNS && trial->runs[1] >= WEFT_I_TRIAL_RUNS;
}

static size_t write_rows(char *text, size_t used, weft_i_trials trials)
{
    for (int kind = 0; kind < WEFT_I_COLL_KINDS; kind++)
        for (int class = 0; class < WEFT_I_TRIAL_SIZES && used < TEXT - 200; class ++) {
            const weft_i_trial *trial = &trials[kind][class];
            if (!is_known(trial))
                continue;
            used += (size_t)snprintf(text + used, TEXT - used, "%s %" PRIu64 " %u %u\n",
                                     weft_i_coll_name((weft_i_coll_kind)kind),
                                     (uint64_t)WEFT_I_TRIAL_FROM << class, trial->mean[0],
                                     trial->mean[1]);
        }
    return used;
}

/* Under a name of its own, then renamed: nobody ever reads half of it. */
static bool put(const char *way, const char *text, size_t length)
{
    char part[WEFT_I_CACHE_FILE + 32];
    snprintf(part, sizeof part, "%s.%d", way, weft_i_os_process());
    bool written = weft_i_file_make_own(part, text, length) && !WEFT_OS->rename(part, way);
    if (!written)
        WEFT_OS->unlink(part);
    return written;
}

bool weft_i_trial_file_write(int ranks, weft_i_trials trials)
{
    char text[TEXT], key[KEY], digest[DIGITS + 1];
    place at;
    if (!open_place(ranks, &at))
        return false;
    describe_machine(key);
    size_t used = (size_t)snprintf(text, TEXT, "%smachine %s\n", first_line, key);
    used = write_rows(text, used, trials);
    digest_of(text, used, digest);
    used += (size_t)snprintf(text + used, TEXT - used, "digest %s\n", digest);
    bool written = put(at.way, text, used);
    weft_i_log(WEFT_LOG_TRACE, written ? "large calls: kept in %s" : "large calls: %s: %s", at.path,
               written ? "" : strerror(errno));
    weft_i_cache_folder_close(&at.folder);
    return written;
}

/* ---- as the user wants it ---- */

static bool is_wanted(void)
{
    return weft_i_env_number_or_default(WEFT_I_ENV_LEARN) != 0;
}

void weft_i_trial_remember(int ranks, weft_i_trials trials)
{
    int count = is_wanted() ? weft_i_trial_file_read(ranks, trials) : 0;
    if (count)
        weft_i_log(WEFT_LOG_INFO, "large calls: %d results of earlier jobs on this machine", count);
}

void weft_i_trial_keep(int ranks, weft_i_trials trials)
{
    weft_i_trials all;
    if (!is_wanted())
        return;
    memset(all, 0, sizeof all);
    weft_i_trial_file_read(ranks, all);
    for (int kind = 0; kind < WEFT_I_COLL_KINDS; kind++)
        for (int class = 0; class < WEFT_I_TRIAL_SIZES; class ++)
            if (is_known(&trials[kind][class]))
                all[kind][class] = trials[kind][class];
    weft_i_trial_file_write(ranks, all);
}

/* ---- for users ---- */

/* Row `index` of what earlier jobs have learned, if it is there; how many there are up to it. */
static int find_row(int ranks, int index, weft_tune_time *out)
{
    weft_i_trials trials;
    int rows = 0;
    memset(trials, 0, sizeof trials);
    weft_i_trial_file_read(ranks, trials);
    for (int i = 0; i < WEFT_I_COLL_KINDS * WEFT_I_TRIAL_SIZES && rows <= index; i++) {
        int kind = i / WEFT_I_TRIAL_SIZES, class = i % WEFT_I_TRIAL_SIZES;
        const weft_i_trial *trial = &trials[kind][class];
        if (is_known(trial) && rows++ == index)
            *out = (weft_tune_time){.op = weft_i_coll_name((weft_i_coll_kind)kind),
                                    .bytes = (size_t)WEFT_I_TRIAL_FROM << class,
                                    .staged_ns = trial->mean[0],
                                    .cma_ns = trial->mean[1]};
    }
    return rows;
}

/* For the table of decisions: has an earlier job timed such calls? */
static bool has_learned(weft_i_decision which, const char *op, int ranks)
{
    weft_i_trials trials;
    int kind = weft_i_kind_named(op);
    if (which != WEFT_I_TUNE_CMA || !is_wanted() || !is_timed(kind))
        return false;
    memset(trials, 0, sizeof trials);
    weft_i_trial_file_read(ranks, trials);
    for (int class = 0; class < WEFT_I_TRIAL_SIZES; class ++)
        if (is_known(&trials[kind][class]))
            return true;
    return false;
}

__attribute__((constructor)) static void tell_what_is_learned(void)
{
    weft_i_tune_ask_learned(has_learned);
}

int weft_tune_count(int ranks)
{
    return find_row(ranks, INT_MAX, NULL);
}

weft_status weft_tune_describe(int ranks, int index, weft_tune_time *out)
{
    if (out && index >= 0 && find_row(ranks, index, out) > index)
        return WEFT_OK;
    return weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_tune_describe: row %d of %d ranks, out %s",
                       index, ranks, out ? "given" : "NULL");
}
