/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of tensors in the format safetensors, as Hugging Face has them.
 *
 *     weft_safetensors *file = weft_safetensors_open("model.safetensors");
 *     weft_copy(weft_module_param(net, "weight"), weft_safetensors_get(file, "wte.weight"));
 *
 * Nothing is read before it is used: a file is mapped, and a tensor of it lies in the mapping.  What
 * is wrong with a file is found when it is opened: lengths, shapes, tensors that overlap or leave gaps,
 * names that come twice.  A file that is open must not be changed or shortened; to replace one, rename
 * another to its name, as weft_safetensors_save does.
 *
 * Training that is to go on later: weft/checkpoint.h.
 */
#ifndef WEFT_SAFETENSORS_H
#define WEFT_SAFETENSORS_H

#include "weft/module.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_safetensors weft_safetensors;

/*
 * Opens a file, a handle in the current scope.  A path that ends in ".json" is an index: the files
 * that it names lie beside it, and all their tensors are there.  A folder stands for its
 * model.safetensors, or else its model.safetensors.index.json.
 *
 * WEFT_ERR_NOT_FOUND if there is no such file; WEFT_ERR_INVALID_ARG for one that is cut or wrong;
 * WEFT_ERR_UNSUPPORTED for dtypes that weft does not have and more than 8 dimensions.
 */
WEFT_API weft_safetensors *weft_safetensors_open(const char *path);

/* What a file has: tensors in the order in which they lie there. */
typedef struct weft_safetensors_entry {
    const char *name; /* valid as long as the file */
    weft_dtype dtype;
    weft_shape shape;
} weft_safetensors_entry;

/* The number of tensors; 0 for NULL. */
WEFT_API int weft_safetensors_count(const weft_safetensors *file);
/* Tensor number `index`; WEFT_ERR_INVALID_ARG if there are fewer. */
WEFT_API weft_status weft_safetensors_about(const weft_safetensors *file, int index,
                                            weft_safetensors_entry *out);
WEFT_API bool weft_safetensors_has(const weft_safetensors *file, const char *name);

/*
 * A tensor of the file, on the CPU.  It is read-only and lies in the mapping, which it holds; a tensor
 * whose bytes in the file are not aligned to its elements is a copy.  WEFT_ERR_NOT_FOUND if there is none.
 */
WEFT_API weft_tensor *weft_safetensors_get(const weft_safetensors *file, const char *name);

/* A text of the file's metadata, valid as long as the file; NULL without an error if there is none. */
WEFT_API const char *weft_safetensors_metadata(const weft_safetensors *file, const char *key);

typedef struct weft_safetensors_note {
    const char *key, *value;
} weft_safetensors_note;

/*
 * Writes tensors of any device and layout to a file, with `note_count` texts of metadata.  The file
 * has its name only when all of it is on the disk: whatever fails or dies before leaves what had that
 * name.  Local.  WEFT_ERR_INVALID_ARG for names that come twice or are not UTF-8, WEFT_ERR_NO_SPACE on
 * a disk that is full.
 */
WEFT_API weft_status weft_safetensors_save(const char *path, const weft_named *tensors, int count,
                                           const weft_safetensors_note *notes, int note_count);

#ifdef __cplusplus
}
#endif

#endif
