/* SPDX-License-Identifier: Apache-2.0 */
/* The library of an MPI of one rank: what it calls itself is said when it is compiled. */
#include "mpi.h"

#include <stdio.h>

int MPI_Get_library_version(char *text, int *length)
{
    return *length =
               snprintf(text, MPI_MAX_LIBRARY_VERSION_STRING, "%s, and more\nand more", LIBRARY),
           0;
}
