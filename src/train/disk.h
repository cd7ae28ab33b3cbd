/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are whole on the disk before anybody sees them by their name. */
#ifndef WEFT_TRAIN_DISK_H
#define WEFT_TRAIN_DISK_H

#include "weft/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { WEFT_I_DISK_PATH = 4096 };

/* A descriptor of a new file, instead of one that had this name. */
weft_status weft_i_disk_create(const char *path, int *fd);
weft_status weft_i_disk_write(int fd, const char *path, const void *bytes, size_t count);
/* The same over what is there from `offset` on. */
weft_status weft_i_disk_write_at(int fd, const char *path, const void *bytes, size_t count,
                                 off_t offset);
/* The disk may begin with what was written there, while more is computed; a hint. */
void weft_i_disk_start(int fd, off_t from, size_t count);
/* Closes it.  If all was well so far (`status`), what was written is on the disk then; returns the
 * first error. */
weft_status weft_i_disk_close(int fd, const char *path, weft_status status);

/* The names in a folder are on the disk. */
weft_status weft_i_disk_flush_names(const char *folder);
/* The same of the folder that a file is in. */
weft_status weft_i_disk_flush_name(const char *path);
weft_status weft_i_disk_rename(const char *from, const char *to);
/* A rename would replace a device or a FIFO (root's, /dev/null) as well as a file. */
weft_status weft_i_disk_check_place(const char *path);

/* Makes a folder; one that is there is fine. */
weft_status weft_i_disk_make_folder(const char *path);
/* Removes a folder and its files, as far as that can be done; folders in it stay. */
void weft_i_disk_remove_folder(const char *path);

/* folder/name; WEFT_ERR_LIMIT if it is too long. */
weft_status weft_i_disk_path(char out[WEFT_I_DISK_PATH], const char *folder, const char *name);

#endif
