/* SPDX-License-Identifier: Apache-2.0 */
/* Which way an operation went, by the flight record. */
#ifndef WEFT_TESTS_WAY_OF_H
#define WEFT_TESTS_WAY_OF_H

#include "base/report/record.h"
#include "fabric/group/group.h"

#include <string.h>

/* The newest one of that name; -1: there is none. */
__attribute__((unused)) static int way_of(weft_group *group, const char *name)
{
    weft_i_record_entry entries[256];
    size_t count = weft_i_record_newest(weft_i_group_record(group), entries, 256);
    for (size_t i = 0; i < count; i++)
        if (!strcmp(entries[i].name, name))
            return entries[i].channel;
    return -1;
}

#endif
