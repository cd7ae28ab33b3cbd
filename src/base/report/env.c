/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the variables of env.def.  Nothing is cached here: callers read at the point where a choice
 * is made. */
#include "base/report/env.h"

#include "base/os/assert.h"
#include "base/report/log.h"
#include "base/report/status.h"
#include "base/report/text.h"
#include "weft/env.h"
#include "weft/version.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static const weft_i_env_row rows[WEFT_I_ENV_COUNT] = {
#define ENV(name_, kind_, default_, text_) \
    {"WEFT_" #name_, WEFT_I_ENV_KIND_##kind_, default_, text_},
#include "base/report/env.def"
#undef ENV
};

const weft_i_env_row *weft_i_env_row_of(weft_i_env variable)
{
    WEFT_ASSERT(variable < WEFT_I_ENV_COUNT);
    return &rows[variable];
}

const char *weft_i_env_text(weft_i_env variable)
{
    WEFT_ASSERT(variable < WEFT_I_ENV_COUNT);
    const char *text = getenv(rows[variable].name);
    return text && *text ? text : rows[variable].fallback;
}

static int parse_integer(const char *text, int64_t *out, const char **end)
{
    char *stop = NULL;
    errno = 0;
    long long value = strtoll(text, &stop, 10);
    if (errno || stop == text)
        return 0;
    *out = value;
    *end = stop;
    return 1;
}

int weft_i_env_parse_bytes(const char *text, int64_t *out)
{
    const char *end = NULL;
    int64_t value = 0;
    if (!parse_integer(text, &value, &end) || value < 0)
        return 0;
    int shift = 0;
    switch (*end) {
    case 'G':
    case 'g':
        shift = 30;
        break;
    case 'M':
    case 'm':
        shift = 20;
        break;
    case 'K':
    case 'k':
        shift = 10;
        break;
    default:
        break;
    }
    if (shift)
        end++;
    if (*end || value > (INT64_MAX >> shift))
        return 0;
    *out = value << shift;
    return 1;
}

static int parse_bool(const char *text, int64_t *out)
{
    static const char *const yes[] = {"1", "on", "true", "yes"}, *const no[] = {"0", "off", "false",
                                                                                "no"};
    for (int i = 0; i < 4; i++) {
        if (!strcasecmp(text, yes[i]))
            return *out = 1, 1;
        if (!strcasecmp(text, no[i]))
            return *out = 0, 1;
    }
    return 0;
}

static int parse_limit(const char *text, int64_t *out)
{
    const char *end = NULL;
    if (!strcasecmp(text, "forever"))
        return *out = WEFT_FOREVER, 1;
    return parse_integer(text, out, &end) && !*end && *out > 0;
}

static int parse(weft_i_env_kind kind, const char *text, int64_t *out)
{
    const char *end = NULL;
    switch (kind) {
    case WEFT_I_ENV_KIND_BOOL:
        return parse_bool(text, out);
    case WEFT_I_ENV_KIND_SIZE:
        return !strcasecmp(text, "auto") ? (*out = -1, 1) : weft_i_env_parse_bytes(text, out);
    case WEFT_I_ENV_KIND_BYTES:
        return weft_i_env_parse_bytes(text, out);
    case WEFT_I_ENV_KIND_LIMIT:
        return parse_limit(text, out);
    case WEFT_I_ENV_KIND_MS:
        return parse_integer(text, out, &end) && !*end && *out >= 0;
    default: /* the only whole number is a descriptor */
        return parse_integer(text, out, &end) && !*end && *out >= -1 && *out <= INT32_MAX;
    }
}

/* The words a CHOICE may have; NULL: whoever reads it knows. */
static const char *const *words_of(weft_i_env variable)
{
    static const char *const wait[] = {"auto", "spin", "yield", "sleep", NULL};
    static const char *const copy[] = {"auto", "off", NULL};
    static const char *const build[] = {"auto", "off", NULL};
    static const char *const nccl[] = {"auto", "always", "off", NULL};
    static const char *const pages[] = {"auto", "on", "off", NULL};
    /* Of the table in symm, which lies above us; test_env compares them. */
    static const char *const backends[] = {"auto", "shm",     "threads", "cuda",
                                           "nccl", "nvshmem", NULL};
    switch (variable) {
    case WEFT_I_ENV_WAIT:
        return wait;
    case WEFT_I_ENV_CMA:
    case WEFT_I_ENV_UCX:
        return copy;
    case WEFT_I_ENV_TORCH_BUILD:
        return build;
    case WEFT_I_ENV_NCCL:
        return nccl;
    case WEFT_I_ENV_HUGE_PAGES:
        return pages;
    case WEFT_I_ENV_SYMM_BACKEND:
        return backends;
    default:
        return NULL;
    }
}

static bool is_word(weft_i_env variable, const char *text)
{
    const char *const *words = words_of(variable);
    if (variable == WEFT_I_ENV_DEBUG)
        return weft_i_log_level_of(text) >= 0;
    for (; words && *words; words++)
        if (!strcasecmp(text, *words))
            return true;
    return !words_of(variable);
}

static bool is_number_kind(weft_i_env_kind kind)
{
    return kind >= WEFT_I_ENV_KIND_INT && kind <= WEFT_I_ENV_KIND_BYTES;
}

/* As weft_i_keyed_parse reads it, above us. */
static bool is_secret(const char *text)
{
    size_t length = strlen(text);
    return !length || (length == 64 && strspn(text, "0123456789abcdefABCDEF") == length);
}

static bool is_valid(weft_i_env variable, const char *text)
{
    int64_t number = 0;
    weft_i_env_kind kind = rows[variable].kind;
    if (kind == WEFT_I_ENV_KIND_CHOICE)
        return is_word(variable, text);
    if (kind == WEFT_I_ENV_KIND_SECRET)
        return is_secret(text);
    return !is_number_kind(kind) || parse(kind, text, &number);
}

static weft_status refuse(weft_i_env variable)
{
    const weft_i_env_row *row = &rows[variable];
    if (row->kind == WEFT_I_ENV_KIND_SECRET)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "%s, of %zu characters, is not a valid value: it must have 64 "
                           "hexadecimal digits, as `weft token` prints them (%s)",
                           row->name, strlen(weft_i_env_text(variable)), row->text);
    static const char *const forms[] = {[WEFT_I_ENV_KIND_INT] = ", a number",
                                        [WEFT_I_ENV_KIND_BOOL] = ", 0 or 1",
                                        [WEFT_I_ENV_KIND_MS] = ", milliseconds from 0 on",
                                        [WEFT_I_ENV_KIND_LIMIT] =
                                            ", milliseconds from 1 on, or forever",
                                        [WEFT_I_ENV_KIND_SIZE] = ", bytes, with K, M or G, or auto",
                                        [WEFT_I_ENV_KIND_BYTES] = ", bytes, with K, M or G",
                                        [WEFT_I_ENV_KIND_CHOICE] = ""};
    return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s=\"%s\" is not a valid value (%s%s; default %s)",
                       row->name, weft_i_env_text(variable), row->text, forms[row->kind],
                       row->fallback);
}

weft_status weft_i_env_number(weft_i_env variable, int64_t *out)
{
    bool valid = parse(rows[variable].kind, weft_i_env_text(variable), out);
    return valid ? WEFT_OK : refuse(variable);
}

int64_t weft_i_env_number_or_default(weft_i_env variable)
{
    int64_t value = 0;
    if (parse(rows[variable].kind, weft_i_env_text(variable), &value))
        return value;
    weft_i_log(WEFT_LOG_WARN, "%s=\"%s\" is not a valid value; using %s", rows[variable].name,
               weft_i_env_text(variable), rows[variable].fallback);
    parse(rows[variable].kind, rows[variable].fallback, &value);
    return value;
}

/* ---- names ---- */

/* Names that others use: `weft run` for its ranks, the tests. */
static bool is_anothers(const char *name, size_t length)
{
    static const char *const theirs[] = {"WEFT_TEST_", "WEFT_RUN_", "WEFT_FUZZ_", "WEFT_SIM_",
                                         "WEFT_RESTART_COUNT"};
    for (size_t i = 0; i < sizeof theirs / sizeof *theirs; i++)
        if (length >= strlen(theirs[i]) && !strncmp(name, theirs[i], strlen(theirs[i])))
            return true;
    return false;
}

static void warn_of(const char *name, size_t length)
{
    int best = 0, fewest = WEFT_I_TEXT_NAME + 1;
    for (int i = 0; i < WEFT_I_ENV_COUNT; i++) {
        int changes = weft_i_text_distance(name, length, rows[i].name);
        if (changes < fewest) {
            fewest = changes;
            best = i;
        }
    }
    if (fewest)
        weft_i_log(WEFT_LOG_WARN, "%.*s is no variable of weft; the nearest is %s", (int)length,
                   name, rows[best].name);
}

static void check_names(void)
{
    for (char **entry = environ; entry && *entry; entry++) {
        size_t length = strcspn(*entry, "=");
        if (!strncmp(*entry, "WEFT_", 5) && !is_anothers(*entry, length))
            warn_of(*entry, length);
    }
}

weft_status weft_i_env_check(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    for (int i = 0; i < WEFT_I_ENV_COUNT; i++)
        if (!is_valid((weft_i_env)i, weft_i_env_text((weft_i_env)i)))
            return refuse((weft_i_env)i);
    pthread_once(&once, check_names);
    return WEFT_OK;
}

int weft_env_count(void)
{
    return WEFT_I_ENV_COUNT;
}

weft_status weft_env_describe(int index, weft_env_info *out)
{
    static const char *const kinds[] = {"string", "secret", "int",   "bool",  "ms",
                                        "limit",  "size",   "bytes", "choice"};
    _Static_assert(sizeof kinds / sizeof *kinds == WEFT_I_ENV_KIND_CHOICE + 1,
                   "a name for each kind");
    if (!out || index < 0 || index >= WEFT_I_ENV_COUNT)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "weft_env_describe: index %d of %d variables, out %s", index,
                           WEFT_I_ENV_COUNT, out ? "given" : "NULL");
    const weft_i_env_row *row = &rows[index];
    const char *value = getenv(row->name);
    if (value && !*value)
        value = NULL;
    *out = (weft_env_info){
        .name = row->name,
        .kind = kinds[row->kind],
        .fallback = row->fallback,
        .value = value && row->kind == WEFT_I_ENV_KIND_SECRET ? "(hidden)" : value,
        .meaning = row->text,
        .valid = !value || is_valid((weft_i_env)index, value),
    };
    return WEFT_OK;
}

void weft_i_env_tell(void)
{
    weft_version_info build;
    weft_env_info env;
    if (!weft_i_log_wants(WEFT_LOG_INFO))
        return;
    if (weft_version_describe(&build) == WEFT_OK)
        weft_i_log(WEFT_LOG_INFO, "weft %s, %s %s, %s", build.version, build.compiler, build.flags,
                   build.target);
    for (int i = 0; i < weft_env_count() && weft_env_describe(i, &env) == WEFT_OK; i++)
        if (env.value && strcmp(env.value, env.fallback) != 0)
            weft_i_log(WEFT_LOG_INFO, "%s=%s (default %s)", env.name, env.value,
                       *env.fallback ? env.fallback : "none");
}

/* ---- settings that come too late ---- */

/* Those that are read once: when a rank comes into its job, or at the first line of the log. */
static const weft_i_env early[] = {WEFT_I_ENV_TIMEOUT, WEFT_I_ENV_WARN_AFTER, WEFT_I_ENV_WAIT,
                                   WEFT_I_ENV_MEET_TIMEOUT, WEFT_I_ENV_DEBUG};
enum { EARLY = sizeof early / sizeof *early };
/* What they were, as numbers that differ where the texts do.  Relaxed: ranks that are threads write
 * the same, and nothing else depends on it. */
static _Atomic uint64_t noted[EARLY];

static uint64_t number_of(const char *text)
{
    uint64_t sum = 14695981039346656037u;
    for (; *text; text++)
        sum = (sum ^ (unsigned char)*text) * 1099511628211u;
    return sum;
}

void weft_i_env_note(void)
{
    for (int i = 0; i < EARLY; i++)
        atomic_store_explicit(&noted[i], number_of(weft_i_env_text(early[i])),
                              memory_order_relaxed);
}

void weft_i_env_tell_late(void)
{
    for (int i = 0; i < EARLY; i++) {
        const char *text = weft_i_env_text(early[i]);
        uint64_t now = number_of(text);
        uint64_t then = atomic_exchange_explicit(&noted[i], now, memory_order_relaxed);
        if (then && then != now)
            weft_i_log(
                WEFT_LOG_WARN,
                "%s became \"%s\" after weft_init, which had read it already, so that had no "
                "effect; set it before, or in the environment of weft run",
                rows[early[i]].name, text);
    }
}
