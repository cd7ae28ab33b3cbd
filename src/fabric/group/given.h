/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is given to a device: collectives that a member has enqueued there, and which wait for the
 * others without it.  On the lane that is not seen.  So a member counts them in its row, and writes
 * beside the count how many entries of the lane it had called before.
 *
 * A member that is at entry n of the lane with c collectives given, and sees a member that gave its device
 * number c + 1 before it came to entry n, knows that the two called in different orders: neither
 * will come.  Nothing is concluded from slowness.  A member with posted work does not know how many
 * entries came before, and says so.  One whose device replays collectives has not counted all of
 * its own, and concludes nothing; what it has counted is enough for the others.
 */
#ifndef WEFT_FABRIC_GIVEN_H
#define WEFT_FABRIC_GIVEN_H

#include "fabric/group/quarrel.h"

#define WEFT_I_GIVEN_UNSURE UINT64_MAX

/* This rank has given its device a collective; `what` and `count` are for `tell_given` (weft_i_lanes). */
void weft_i_given_note(const weft_group *group, uint64_t what, uint64_t count);

/* Has `rank`, for which this rank waits, given its device what this one has not called yet, and
 * instead of coming?  Then tells all. */
void weft_i_given_look(const weft_i_vigil *vigil, int rank);

#endif
