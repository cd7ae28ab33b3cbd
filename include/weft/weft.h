/* SPDX-License-Identifier: Apache-2.0 */
/* All of weft: the one header most programs need.  One line per noun, in alphabetical order. */
#ifndef WEFT_WEFT_H
#define WEFT_WEFT_H

#include "weft/backend.h"
#include "weft/coalesce.h"
#include "weft/coll.h"
#include "weft/dlpack.h"
#include "weft/dtype.h"
#include "weft/env.h"
#include "weft/fake.h"
#include "weft/functional.h"
#include "weft/group.h"
#include "weft/job.h"
#include "weft/launch.h"
#include "weft/limit.h"
#include "weft/machine.h"
#include "weft/mesh.h"
#include "weft/monitor.h"
#include "weft/object.h"
#include "weft/op.h"
#include "weft/p2p.h"
#include "weft/parts.h"
#include "weft/ranks.h"
#include "weft/scope.h"
#include "weft/spawn.h"
#include "weft/status.h"
#include "weft/storage.h"
#include "weft/store.h"
#include "weft/symm.h"
#include "weft/symm_coll.h"
#include "weft/tensor.h"
#include "weft/tune.h"
#include "weft/version.h"
#include "weft/view.h"
#include "weft/work.h"

#endif
