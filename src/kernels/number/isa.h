/* SPDX-License-Identifier: Apache-2.0 */
/* The instruction sets that loops are compiled for beside what every processor of the architecture
 * has. */
#ifndef WEFT_KERNELS_ISA_H
#define WEFT_KERNELS_ISA_H

#include <stdbool.h>

/* Whether this processor has it and is not slower with it. */
bool weft_i_isa_always(void);
bool weft_i_isa_avx2(void);
bool weft_i_isa_avx512(void);
/* Those that multiply bf16.  For AMX the system's leave is asked, and had until the process ends. */
bool weft_i_isa_avx512_bf16(void);
bool weft_i_isa_amx(void);
bool weft_i_isa_bfmmla(void); /* of Arm */

#endif
