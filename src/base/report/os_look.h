/* SPDX-License-Identifier: Apache-2.0 */
/* Looks at processes, links and names, by files that the kernel shows. */
#ifndef WEFT_BASE_OS_LOOK_H
#define WEFT_BASE_OS_LOOK_H

#include <stdbool.h>
#include <stddef.h>

/* 'R', 'S', 'D', 'T' (stopped), 'Z' (zombie) ... as the kernel shows it; 0 if the process is gone
 * or hidden. */
char weft_i_os_process_state(int process);

/* The user a process runs as, -1 if it is gone; the file name of its program (cut, always
 * terminated). */
int weft_i_os_process_user(int process);
void weft_i_os_process_program(int process, char *out, size_t bytes);

/* What a symbolic link says, cut and always terminated; false if there is none. */
bool weft_i_os_read_link(const char *path, char *out, size_t bytes);

/* Calls `each` with every number among the names in a folder (of /proc: processes, descriptors)
 * until it says false.  False if the folder cannot be read. */
bool weft_i_os_each_number(const char *folder, bool (*each)(void *arg, int number), void *arg);

/* The same with every name but those that begin with a dot. */
bool weft_i_os_each_name(const char *folder, bool (*each)(void *arg, const char *name), void *arg);

/* Calls `each` with every address (numeric, of IPv4 and IPv6, but not the link-local ones) of every
 * interface that is up, until it says false.  False if the kernel does not tell. */
bool weft_i_os_each_address(bool (*each)(void *arg, const char *interface, const char *address,
                                         bool loopback),
                            void *arg);

/* The folder this process works in, and another; false if there is none such. */
bool weft_i_os_folder(char *out, size_t bytes);
bool weft_i_os_enter_folder(const char *path);

/* The name this host has for itself. */
void weft_i_os_host_name(char *out, size_t bytes);

/* Identity of this host and boot, also different between containers that share no sockets; at most
 * 64 characters. */
void weft_i_os_host_id(char out[65]);

#endif
