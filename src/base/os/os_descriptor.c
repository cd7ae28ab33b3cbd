/* SPDX-License-Identifier: Apache-2.0 */
/* What a descriptor is.  See os.h. */
#include "base/os/os.h"
#include "base/os/os_flush.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <unistd.h>

bool weft_i_os_is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

bool weft_i_os_is_terminal(int fd)
{
    return isatty(fd) == 1;
}

bool weft_i_os_in_foreground(int fd)
{
    return tcgetpgrp(fd) == getpgrp();
}

bool weft_i_os_is_file(int fd)
{
    struct stat status;
    return !fstat(fd, &status) && S_ISREG(status.st_mode);
}

bool weft_i_os_is_pipe(int fd)
{
    struct stat status;
    return !fstat(fd, &status) && S_ISFIFO(status.st_mode);
}

bool weft_i_os_same_file(int a, int b)
{
    struct stat of_a, of_b;
    return !fstat(a, &of_a) && !fstat(b, &of_b) && of_a.st_dev == of_b.st_dev &&
           of_a.st_ino == of_b.st_ino;
}

int weft_i_os_port_of(int fd)
{
    struct sockaddr_in address = {.sin_port = 0};
    socklen_t size = sizeof address;
    return getsockname(fd, (struct sockaddr *)&address, &size) ? 0 : ntohs(address.sin_port);
}

bool weft_i_os_same_user(int socket_fd)
{
    struct ucred who;
    socklen_t size = sizeof who;
    return getsockopt(socket_fd, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 && who.uid == geteuid();
}

int64_t weft_i_os_sealed_bytes(int fd)
{
    struct stat file;
    int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_SHRINK) && fstat(fd, &file) == 0 ? (int64_t)file.st_size
                                                                          : -1;
}

void weft_i_os_start_flush(int fd, off_t from, off_t bytes)
{
    int error = errno;
    sync_file_range(fd, from, bytes, SYNC_FILE_RANGE_WRITE);
    errno = error;
}
