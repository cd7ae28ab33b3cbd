/* SPDX-License-Identifier: Apache-2.0 */
/* Carriers: backends that run the collectives of a group themselves, instead of its lane. */
#ifndef WEFT_COLL_CARRIER_H
#define WEFT_COLL_CARRIER_H

#include "coll/call.h"
#include "symm/backend.h"

/* The carrier of a group's collectives; NULL: its lane carries them. */
static inline const weft_i_backend *weft_i_carrier_of(const weft_group *group)
{
    return group->world->carrier;
}

/* Hands a checked call to the carrier. */
weft_status weft_i_carrier_run(const weft_i_coll *coll);

/* The object collectives there: no backend carries them itself, but one without peers need not. */
weft_status weft_i_carrier_run_object(const weft_i_coll *coll);

#endif
