/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests that are about a rank which waits make sure that it does: its flight record, which all
 * ranks of a host can read, has the operation it stands in.  A sleep would only make it likely.
 */
#ifndef WEFT_TESTS_STANDING_H
#define WEFT_TESTS_STANDING_H

#include "base/os/os.h"
#include "base/report/os_look.h"
#include "fabric/group/group.h"

#include <string.h>
#include <time.h>

enum { STANDING_LOOKS = 20000 }; /* a millisecond each, at least */

static inline void standing_rest(void)
{
    nanosleep(&(struct timespec){0, 1000000}, NULL);
}

/*
 * A rank says that its next operation in the group is the one others wait for.  The mark is an
 * entry of its flight record: an earlier operation of the same name, which the rank may not have
 * come out of yet though its peers have, lies before the mark and is not taken for the one meant.
 */
__attribute__((unused)) static inline void standing_mark(const weft_group *group)
{
    weft_i_record *record = weft_i_group_record(group);
    weft_i_record_end(record, weft_i_record_begin(record, "standing", group->id, 0, -1, -1), 0);
}

/* Has that rank of the world begun `op` in the group since its mark; and if `still`, not come out
 * of it? */
static inline bool standing_in(const weft_group *group, int world_rank, const char *op, bool still)
{
    weft_i_record_entry entries[16];
    const weft_i_rank_record *rank_record = group->world->peers[world_rank].rank_record;
    size_t count = weft_i_record_newest(&rank_record->record, entries, 16);
    bool stands = false, is_found = false;
    for (size_t i = 0; i < count; i++) { /* newest first */
        if (entries[i].group != group->id)
            continue;
        if (!strcmp(entries[i].name, "standing"))
            return stands;
        if (!is_found && !strcmp(entries[i].name, op)) {
            is_found = true;
            stands = !still || !entries[i].finished;
        }
    }
    return false;
}

/* Waits for it; false if it does not happen within 20 s. */
__attribute__((unused)) static inline bool standing_await(const weft_group *group, int world_rank,
                                                          const char *op, bool still)
{
    bool stands = standing_in(group, world_rank, op, still);
    for (int i = 0; i < STANDING_LOOKS && !stands; i++) {
        standing_rest();
        stands = standing_in(group, world_rank, op, still);
    }
    return stands;
}

/* Waits until the process of that rank of the world is dead; false if it lives on for 20 s. */
__attribute__((unused)) static inline bool standing_await_death(const weft_group *group,
                                                                int world_rank)
{
    int process = group->world->peers[world_rank].rank_record->address.process;
    char state = weft_i_os_process_state(process);
    for (int i = 0; i < STANDING_LOOKS && state && state != 'Z'; i++) {
        standing_rest();
        state = weft_i_os_process_state(process);
    }
    return !state || state == 'Z';
}

#endif
