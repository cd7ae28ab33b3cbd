/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA as a carrier of collectives: the entries of the backend's table. */
#ifndef WEFT_CUDA_CARRIER_H
#define WEFT_CUDA_CARRIER_H

#include "symm/backend.h"

weft_status weft_i_cuda_carrier_open(const weft_i_circle *circle, void **out);
void weft_i_cuda_carrier_close(void *carrier);

/* Enqueues the request on its stream.  WEFT_ERR_UNSUPPORTED without a message for kinds that have
 * no way on a device. */
weft_status weft_i_cuda_carrier_run(void *carrier, const weft_i_request *request);
bool weft_i_cuda_carrier_takes(const weft_i_request *request);

/* Has something that was enqueued failed since? */
weft_status weft_i_cuda_carrier_check(void *carrier);

#endif
