/* SPDX-License-Identifier: Apache-2.0 */
/* The environment variables of env.def, read on demand; a bad value is an error that names it. */
#ifndef WEFT_BASE_ENV_H
#define WEFT_BASE_ENV_H

#include "weft/status.h"

#include <stddef.h>
#include <stdint.h>

typedef enum weft_i_env {
#define ENV(name_, kind_, default_, text_) WEFT_I_ENV_##name_,
#include "base/report/env.def"
#undef ENV
    WEFT_I_ENV_COUNT
} weft_i_env;

typedef enum weft_i_env_kind {
    WEFT_I_ENV_KIND_STRING,
    WEFT_I_ENV_KIND_SECRET, /* a text that is never shown */
    WEFT_I_ENV_KIND_INT,
    WEFT_I_ENV_KIND_BOOL,
    WEFT_I_ENV_KIND_MS,
    WEFT_I_ENV_KIND_LIMIT, /* ms from 1 on, or "forever", which is WEFT_FOREVER */
    WEFT_I_ENV_KIND_SIZE,  /* bytes, or "auto", which is -1 */
    WEFT_I_ENV_KIND_BYTES,
    WEFT_I_ENV_KIND_CHOICE
} weft_i_env_kind;

typedef struct weft_i_env_row {
    const char *name; /* with its prefix: "WEFT_DEBUG" */
    weft_i_env_kind kind;
    const char *fallback; /* the default, as text */
    const char *text;
} weft_i_env_row;

const weft_i_env_row *weft_i_env_row_of(weft_i_env variable);

/* The text of the variable, or its default.  An empty variable counts as unset. */
const char *weft_i_env_text(weft_i_env variable);

/* The number of an INT, BOOL, MS, LIMIT, SIZE or BYTES variable.  A malformed value is WEFT_ERR_INVALID_ARG
 * naming it. */
weft_status weft_i_env_number(weft_i_env variable, int64_t *out);

/* As above, but a malformed value is logged once and the default taken: for places that cannot
 * fail. */
int64_t weft_i_env_number_or_default(weft_i_env variable);

/*
 * Looks at every variable that is set: the first with a value that is not allowed is
 * WEFT_ERR_INVALID_ARG, with its name, the value and what is allowed.  Names that begin with WEFT_
 * but are no variable of weft are warned of, once per process, with the nearest that is one.
 */
weft_status weft_i_env_check(void);

/* Notes the settings that only weft_init reads; warns of those that have changed since, each once. */
void weft_i_env_note(void);
void weft_i_env_tell_late(void);

/* What one pastes into a bug report, at WEFT_DEBUG=INFO: version, build, settings that differ. */
void weft_i_env_tell(void);

/* Parses "12", "64K", "2G"; returns false on anything else or overflow. */
int weft_i_env_parse_bytes(const char *text, int64_t *out);

#endif
