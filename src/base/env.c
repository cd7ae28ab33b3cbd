/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the variables of env.def.  Nothing is cached here: callers read at the point where a choice
 * is made. */
#include "base/env.h"

#include "base/log.h"
#include "base/status.h"
#include "weft/env.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const weft_i_env_row rows[WEFT_I_ENV_COUNT] = {
#define ENV(name_, kind_, default_, text_) \
    {"WEFT_" #name_, WEFT_I_ENV_KIND_##kind_, default_, text_},
#include "base/env.def"
#undef ENV
};

const weft_i_env_row *weft_i_env_row_of(weft_i_env variable)
{
    return &rows[variable];
}

const char *weft_i_env_text(weft_i_env variable)
{
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

static int parse(weft_i_env_kind kind, const char *text, int64_t *out)
{
    const char *end = NULL;
    switch (kind) {
    case WEFT_I_ENV_KIND_BOOL:
        return parse_bool(text, out);
    case WEFT_I_ENV_KIND_BYTES:
        return weft_i_env_parse_bytes(text, out);
    case WEFT_I_ENV_KIND_MS:
        return parse_integer(text, out, &end) && !*end && *out >= 0;
    default:
        return parse_integer(text, out, &end) && !*end;
    }
}

weft_status weft_i_env_number(weft_i_env variable, int64_t *out)
{
    const weft_i_env_row *row = &rows[variable];
    if (parse(row->kind, weft_i_env_text(variable), out))
        return WEFT_OK;
    return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s=\"%s\" is not a valid value (%s; default %s)",
                       row->name, weft_i_env_text(variable), row->text, row->fallback);
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

int weft_env_count(void)
{
    return WEFT_I_ENV_COUNT;
}

weft_status weft_env_describe(int index, weft_env_info *out)
{
    static const char *const kinds[] = {"string", "secret", "int", "bool", "ms", "bytes", "choice"};
    if (!out || index < 0 || index >= WEFT_I_ENV_COUNT)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "weft_env_describe: index %d of %d variables, out %s", index,
                           WEFT_I_ENV_COUNT, out ? "given" : "NULL");
    const weft_i_env_row *row = &rows[index];
    const char *value = getenv(row->name);
    if (value && !*value)
        value = NULL;
    bool is_number = row->kind >= WEFT_I_ENV_KIND_INT && row->kind <= WEFT_I_ENV_KIND_BYTES;
    int64_t number = 0;
    *out = (weft_env_info){
        .name = row->name,
        .kind = kinds[row->kind],
        .fallback = row->fallback,
        .value = value && row->kind == WEFT_I_ENV_KIND_SECRET ? "(hidden)" : value,
        .meaning = row->text,
        .valid = !value || !is_number || parse(row->kind, value, &number),
    };
    return WEFT_OK;
}
