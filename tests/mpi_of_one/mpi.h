/* SPDX-License-Identifier: Apache-2.0 */
/* An MPI for jobs of one rank, with as much as bench/peers/mpi.c uses: tests/test-bench installs it as
 * if it were each of the libraries that `weft bench --peers` looks for. */
#ifndef WEFT_TESTS_MPI_OF_ONE_H
#define WEFT_TESTS_MPI_OF_ONE_H

#include <stdlib.h>
#include <string.h>

typedef int MPI_Comm, MPI_Op;
typedef size_t MPI_Datatype; /* the bytes of an element */

enum { MPI_COMM_WORLD, MPI_MAX_LIBRARY_VERSION_STRING = 256 };
enum { MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX, MPI_BAND, MPI_BOR, MPI_BXOR };
enum { MPI_INT8_T = 1, MPI_UINT8_T = 1, MPI_INT16_T = 2, MPI_UINT16_T = 2, MPI_INT32_T = 4 };
enum { MPI_UINT32_T = 4, MPI_FLOAT = 4, MPI_INT64_T = 8, MPI_UINT64_T = 8, MPI_DOUBLE = 8 };
#define MPI_IN_PLACE      ((void *)0)
#define MPI_STATUS_IGNORE ((void *)0)

/* The library's one function: its name and version are what tells one from the other. */
int MPI_Get_library_version(char *text, int *length);

static inline int one_copies(const void *in, void *out, int count, MPI_Datatype type)
{
    if (in && in != out)
        memcpy(out, in, (size_t)count * type);
    return 0;
}

/* clang-format off */
#define MPI_Init(argc, argv)                              ((void)(argc), (void)(argv), 0)
#define MPI_Finalize()                                    0
#define MPI_Abort(comm, status)                           exit(status)
#define MPI_Comm_rank(comm, rank)                         (*(rank) = 0)
#define MPI_Comm_size(comm, size)                         (*(size) = 1)
#define MPI_Barrier(comm)                                 ((void)(comm), 0)
#define MPI_Bcast(at, n, type, root, comm)                ((void)(comm), 0)
#define MPI_Reduce(in, out, n, type, op, root, comm)      ((void)(comm), one_copies(in, out, n, type))
#define MPI_Allreduce(in, out, n, type, op, comm)         ((void)(comm), one_copies(in, out, n, type))
#define MPI_Gather(in, n, type, out, m, t, root, comm)    ((void)(comm), one_copies(in, out, n, type))
#define MPI_Scatter(in, n, type, out, m, t, root, comm)   ((void)(comm), one_copies(in, out, n, type))
#define MPI_Allgather(in, n, type, out, m, t, comm)       ((void)(comm), one_copies(in, out, n, type))
#define MPI_Alltoall(in, n, type, out, m, t, comm)        ((void)(comm), one_copies(in, out, n, type))
#define MPI_Reduce_scatter_block(in, out, n, type, op, comm) \
                                                          ((void)(comm), one_copies(in, out, n, type))
#define MPI_Sendrecv(in, n, type, to, a, out, m, t, from, b, comm, status) \
                                                          ((void)(comm), one_copies(in, out, n, type))
/* clang-format on */

#endif
