/* SPDX-License-Identifier: Apache-2.0 */
/* For a program that says #include <nccl.h>: the shim. */
#include <weft/shim/nccl.h>
