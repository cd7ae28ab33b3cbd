/* SPDX-License-Identifier: Apache-2.0 */
/* One look at a job page: everything weft/job.h tells of a job, copied out of the page. */
#ifndef WEFT_FABRIC_JOB_LOOK_H
#define WEFT_FABRIC_JOB_LOOK_H

#include "fabric/world/job.h"
#include "tensor/object/scope.h"
#include "weft/job.h"

struct weft_job {
    weft_i_object object;
    weft_job_info info;
    weft_job_rank *ranks;
    unsigned char *missing; /* a row of bits for each rank: whom it waits for */
    size_t row_bytes;
};

/* Copies what a checked page of `ranks` ranks shows.  NULL if memory runs out. */
weft_job *weft_i_job_look(weft_i_job *page, int ranks);

#endif
