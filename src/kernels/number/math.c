/* SPDX-License-Identifier: Apache-2.0 */
/* Angles that are too large for the reductions in math.h. */
#include "kernels/number/math_angle.h"
