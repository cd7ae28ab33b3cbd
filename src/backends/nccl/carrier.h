/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL as a carrier of collectives, around backend cuda: small ones, and what NCCL has no operation
 * for, go to weft's own kernels.  The entries of the backend's table.
 */
#ifndef WEFT_NCCL_CARRIER_H
#define WEFT_NCCL_CARRIER_H

#include "comm.h"

weft_status weft_i_nccl_carrier_open(const weft_i_circle *circle, void **out);
void weft_i_nccl_carrier_close(void *carrier);
weft_status weft_i_nccl_carrier_run(void *carrier, const weft_i_request *request);
bool weft_i_nccl_carrier_takes(const weft_i_request *request);
weft_status weft_i_nccl_carrier_check(void *carrier);
bool weft_i_nccl_carrier_captures(const void *carrier);

extern const weft_i_fast_path weft_i_nccl_fast_path;

/* The group's communicator, NULL if NCCL does not serve it.  For tests. */
weft_i_nccl_comm *weft_i_nccl_carrier_comm(void *carrier);

/* ---- collective.c ---- */

/* Has NCCL an operation for it, with the result that weft promises? */
bool weft_i_nccl_has(const weft_i_request *request);

/* Gives a plain one to NCCL, which has it after WEFT_OK, and `*result` is what it said: then comes
 * weft_i_nccl_comm_leave.  WEFT_ERR_UNSUPPORTED without a message: it has no such operation. */
weft_status weft_i_nccl_start(weft_i_nccl_comm *comm, const weft_i_plain *plain,
                              weft_i_nccl_result *result);

/* Gives it to the request's stream, as one operation. */
weft_status weft_i_nccl_run(weft_i_nccl_comm *comm, const weft_i_request *request);

#endif
