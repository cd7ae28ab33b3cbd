/* SPDX-License-Identifier: Apache-2.0 */
/* The part of `weft info` about decisions by size; see info_tune.h. */
#include "info_tune.h"

#include <weft/weft.h>

#include <stdio.h>
#include <string.h>

enum { COLUMNS = 4 };
static const int ranks_shown[COLUMNS] = {2, 4, 8, 16};
static const char *const senses[] = {
    [WEFT_TUNE_UP_TO] = "up to", [WEFT_TUNE_BEYOND] = "beyond", [WEFT_TUNE_FROM] = "from"};

/* A row for all numbers of ranks; false: there is none. */
static int read_row(int index, weft_tune_decision row[COLUMNS])
{
    for (int n = 0; n < COLUMNS; n++)
        if (weft_tune_decision_describe(index, ranks_shown[n], &row[n]) != WEFT_OK)
            return 0;
    return 1;
}

static const char *source_of(const weft_tune_decision *d)
{
    switch (d->source) {
    case WEFT_TUNE_FILE:
        return "file";
    case WEFT_TUNE_PROGRAM:
        return "set by the program";
    case WEFT_TUNE_VARIABLE:
        return d->variable;
    case WEFT_TUNE_LEARNED:
        return "learned";
    default:
        return "compiled in";
    }
}

/* Nothing is up to 0, everything beyond it and from it. */
static void print_value(const weft_tune_decision *d)
{
    int up_to = d->sense == WEFT_TUNE_UP_TO;
    if (d->value == SIZE_MAX || d->value == 0)
        printf("%10s", (d->value == 0) == up_to ? "never" : "always");
    else
        printf("%10zu", d->value);
}

static int is_alike(const weft_tune_decision *a, const weft_tune_decision *b)
{
    return !strcmp(source_of(a), source_of(b));
}

/* Sources, once where they are the same for every number of ranks, and where it was measured. */
static void print_sources(const weft_tune_decision row[COLUMNS])
{
    int alike = 1;
    const char *told = "";
    for (int n = 0; n < COLUMNS; n++)
        alike &= is_alike(&row[0], &row[n]);
    printf("  %s", source_of(&row[0]));
    for (int n = 1; n < COLUMNS && !alike; n++)
        printf(", %s", source_of(&row[n]));
    for (int n = 0; n < COLUMNS; n++)
        if (row[n].source == WEFT_TUNE_COMPILED && strcmp(told, row[n].measured) != 0) {
            printf("%s%s", *told ? "; " : ": ", row[n].measured);
            told = row[n].measured;
        }
    putchar('\n');
}

static void print_row(const weft_tune_decision row[COLUMNS])
{
    printf("  %-22s", row->op);
    for (int n = 0; n < COLUMNS; n++)
        if (n == 0 || !row->any_ranks)
            print_value(&row[n]);
        else
            printf("%10s", "");
    print_sources(row);
}

int info_tune_print(void)
{
    weft_tune_decision row[COLUMNS];
    int last = -1;
    for (int i = 0; i < weft_tune_decision_count() && read_row(i, row); i++) {
        if ((int)row->which != last) {
            printf("%s%s: %s%s\n  %-22s", last < 0 ? "" : "\n", row->name, row->meaning,
                   row->can_be_set ? "" : "; cannot be set", senses[row->sense]);
            for (int n = 0; n < COLUMNS && !row->any_ranks; n++)
                printf("%4d ranks", ranks_shown[n]);
            printf("%s%s\n", row->any_ranks ? "          " : "  ", row->unit);
        }
        last = (int)row->which;
        print_row(row);
    }
    return fflush(stdout) != 0 || ferror(stdout);
}

static void json_values(weft_i_json *j, const weft_tune_decision row[COLUMNS])
{
    char ranks[16];
    weft_i_json_open(j, "values", '{');
    for (int n = 0; n < COLUMNS; n++) {
        snprintf(ranks, sizeof ranks, "%d", ranks_shown[n]);
        weft_i_json_open(j, ranks, '{');
        weft_i_json_integer(j, "value", row[n].value == SIZE_MAX ? -1 : (int64_t)row[n].value);
        weft_i_json_text(j, "source", source_of(&row[n]));
        weft_i_json_text(j, "measured", row[n].measured);
        weft_i_json_close(j);
    }
    weft_i_json_close(j);
}

void info_tune_json(weft_i_json *j)
{
    weft_tune_decision row[COLUMNS];
    weft_i_json_open(j, "decisions", '[');
    for (int i = 0; i < weft_tune_decision_count() && read_row(i, row); i++) {
        weft_i_json_open(j, NULL, '{');
        weft_i_json_text(j, "name", row->name);
        weft_i_json_text(j, "op", row->op);
        weft_i_json_text(j, "meaning", row->meaning);
        weft_i_json_text(j, "sense", senses[row->sense]);
        weft_i_json_text(j, "unit", row->unit);
        weft_i_json_bool(j, "can_be_set", row->can_be_set);
        json_values(j, row);
        weft_i_json_close(j);
    }
    weft_i_json_close(j);
}
