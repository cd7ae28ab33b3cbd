/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Communication alone: groups, symmetric memory, collectives, send and receive, and posted work, on
 * tensors and on plain memory.  For programs that compute by themselves.  weft/weft.h has the rest
 * too: operations on tensors, gradients, modules, graphs.
 */
#ifndef WEFT_COMM_H
#define WEFT_COMM_H

#include "weft/coll.h"
#include "weft/group.h"
#include "weft/p2p.h"
#include "weft/pointer.h"
#include "weft/symm.h"
#include "weft/work.h"

#endif
