/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations.  Every tensor operation of every floor is a row of one kind; a call is a row and its
 * arguments; and there is one way to run a call:
 *
 *     kinds -> recorder -> modes -> check arguments -> shape rule -> (meta: stop) -> allocate ->
 * run
 *
 * A mode sees only calls whose arguments are there and of the right kinds.
 *
 * Eager and meta execution, autograd, capture and compilation are walks over the same rows.  Each
 * floor lists its rows in its own ops.def and adds them to the registry when the library is loaded.
 */
#ifndef WEFT_TENSOR_OP_H
#define WEFT_TENSOR_OP_H

#include "tensor/object/tensor.h"

enum { WEFT_I_OP_ARGS = 16 };

typedef struct weft_i_op weft_i_op;
typedef struct weft_i_op_call weft_i_op_call;

/* One argument.  The row says what it means (a dtype, a bool, a size ... are integers). */
typedef enum weft_i_arg_kind {
    WEFT_I_ARG_NONE, /* an optional tensor that is absent */
    WEFT_I_ARG_TENSOR,
    WEFT_I_ARG_TENSORS,
    WEFT_I_ARG_NUMBER,
    WEFT_I_ARG_INTEGER,
    WEFT_I_ARG_INTEGERS,
    WEFT_I_ARG_GROUP
} weft_i_arg_kind;

typedef struct weft_i_arg {
    weft_i_arg_kind kind;
    size_t count; /* of tensors or integers, or of the ranks of a group */
    union {
        weft_tensor *tensor;
        weft_tensor *const *tensors;
        double number;
        int64_t integer;
        const int64_t *integers;
        struct {
            const char *name; /* what may be written down, and found again by */
            void *handle;     /* for the floor that runs it; shape rules do without */
        } group;
    };
} weft_i_arg;

#define WEFT_I_TENSOR_ARG(x_) ((weft_i_arg){.kind = WEFT_I_ARG_TENSOR, .tensor = (x_)})
#define WEFT_I_TENSORS_ARG(at_, n_) \
    ((weft_i_arg){.kind = WEFT_I_ARG_TENSORS, .count = (n_), .tensors = (at_)})
#define WEFT_I_NUMBER_ARG(x_)  ((weft_i_arg){.kind = WEFT_I_ARG_NUMBER, .number = (x_)})
#define WEFT_I_INTEGER_ARG(x_) ((weft_i_arg){.kind = WEFT_I_ARG_INTEGER, .integer = (x_)})
#define WEFT_I_INTEGERS_ARG(at_, n_) \
    ((weft_i_arg){.kind = WEFT_I_ARG_INTEGERS, .count = (size_t)(n_), .integers = (at_)})
/* A group is its name and size to everybody but the run function, which needs the handle. */
#define WEFT_I_GROUP_ARG(handle_, name_, size_) \
    ((weft_i_arg){.kind = WEFT_I_ARG_GROUP,     \
                  .count = (size_t)(size_),     \
                  .group = {.name = (name_), .handle = (handle_)}})
#define WEFT_I_OPTIONAL_ARG(x_) \
    ((x_) ? WEFT_I_TENSOR_ARG(x_) : (weft_i_arg){.kind = WEFT_I_ARG_NONE})

/* What a shape rule says about the result. */
typedef struct weft_i_result {
    weft_dtype dtype;
    weft_device device; /* preset: that of the first tensor argument */
    weft_shape shape;
    int64_t stride[WEFT_MAX_DIMS];
    int64_t offset;     /* views only: element in the storage of argument 0 */
    weft_dtype compute; /* the dtype the run function works in, where that is a choice */
    bool fresh_version; /* views only: does not share the counter */
    bool absent;        /* of several results: this one is not made, NULL stands for it */
} weft_i_result;

struct weft_i_op_call {
    const weft_i_op *op;
    const weft_i_arg *args; /* the caller's: one for each parameter */
    weft_tensor *into;      /* the caller's target, or NULL: make a new tensor */
    weft_tensor **outs;     /* of rows with several results: room for them */
    uint64_t fake; /* the tensors are fakes of this capture, as the results will be; 0: real ones */
    /* the rest is filled in by dispatch */
    size_t which;         /* of several results: the one that the shape rule is asked about */
    weft_i_result result; /* preset: the device, offset 0, nothing fresh or absent */
    weft_tensor *out;     /* what `run` writes; of several the first */
};

enum {
    WEFT_I_OP_VIEW = 1, /* the result shares the storage of argument 0; nothing runs */
    WEFT_I_OP_LAYOUT =
        2, /* touches storages and layouts, not elements: need not fit, runs on meta too */
    WEFT_I_OP_STRIDED = 4, /* `run` writes any layout, so it can write `into` directly */
    WEFT_I_OP_RANDOM = 8,  /* two equal calls give different values, or undefined ones */
    /* STRIDED, and an element is read before the same element is written: `into` may be an argument
     */
    WEFT_I_OP_ELEMENTWISE = 16 | WEFT_I_OP_STRIDED,
    /* One result for each tensor of the list that is argument 0; `run` writes them in one go. */
    WEFT_I_OP_LIST = 32,
    /* Must not be left out or done twice though nobody uses its result. */
    WEFT_I_OP_EFFECT = 64,
    /* A view of a subset of argument 0's elements, each at most once. */
    WEFT_I_OP_WITHIN = 128 | WEFT_I_OP_VIEW,
    /* Its tensors, the result included, may be on different devices; one that is not the CPU runs
     * it. */
    WEFT_I_OP_MIXED = 256,
    /* A collective that is done when it returns and writes its result into the memory of all ranks,
     * if that is symmetric: a graph that places memory places it there. */
    WEFT_I_OP_PLACED = 512,
    /* A collective whose ranks meet on the host, also where its operands are on a device. */
    WEFT_I_OP_MEETS = 1024
};

struct weft_i_op {
    const char *name;
    /*
     * "x:t dim:i": name and kind of each parameter.  t tensor, y tensor that must lie in symmetric
     * memory (nobody but a graph that places it can do without one), o optional tensor, l list of
     * tensors, L list of optional tensors, s tensor or number, n number, i integer, I integers, b
     * bool, d dtype, v device, g group, p reduction. Only the first may be w, a tensor that is
     * written in place, m, a list of such, or r, one whose storage changes without counting as a
     * write; all are returned themselves.
     */
    const char *params;
    unsigned flags;
    weft_status (*shape)(weft_i_op_call *call);
    weft_status (*run[WEFT_I_DEVICE_KINDS])(
        weft_i_op_call *call); /* by kind of device; NULL: not supported there */
    /* The common case of a row, at once: all that dispatch does, for arguments that need none of its
     * choices.  False, and nothing has happened: not the common case.  Else `out` is the result, or
     * NULL and the error is set.  NULL: there is none. */
    bool (*quick)(weft_i_op_call *call);
    int kernel;  /* which kernel of its family `run` takes */
    int results; /* how many, if more than one and not by a list; `run` writes call->outs */
    /* Read from `params` when the row is added: their number, letters, and a bit for each kind of
     * argument that is taken. */
    int arity;
    char changes; /* the first letter if it is w, m or r, else 0 */
    char kinds[WEFT_I_OP_ARGS + 1];
    unsigned char takes[WEFT_I_OP_ARGS];
    const struct weft_i_gradient *gradient; /* set by the floor that owns gradients */
    const char *about; /* of what was compiled: what it is made of; NULL: the name says it */
};

/*
 * Runs a call; `args` has one entry per parameter.  Returns the result in the current scope, or
 * `into` (or the written argument) itself if there is one; NULL on failure.
 */
weft_tensor *weft_i_op_apply(const weft_i_op *op, weft_tensor *into, const weft_i_arg *args);
/* Of rows with several results: `outs` gets them, all or none. */
weft_status weft_i_op_apply_list(const weft_i_op *op, weft_tensor **outs, const weft_i_arg *args);
/* The same for calls made for their effect, and for those that write the caller's tensor `into`
 * (not NULL). */
weft_status weft_i_op_act(const weft_i_op *op, const weft_i_arg *args);
weft_status weft_i_op_into(const weft_i_op *op, weft_tensor *into, const weft_i_arg *args);

/* The row's function for the device of `out`, at once: nothing is checked, no mode sees it. */
weft_status weft_i_op_run(weft_i_op_call *call);

#define WEFT_I_APPLY(op_, ...) weft_i_op_apply(&weft_i_op_##op_, NULL, (weft_i_arg[]){__VA_ARGS__})
#define WEFT_I_APPLY_INTO(op_, out_, ...) \
    weft_i_op_into(&weft_i_op_##op_, out_, (weft_i_arg[]){__VA_ARGS__})
#define WEFT_I_ACT(op_, ...) weft_i_op_act(&weft_i_op_##op_, (weft_i_arg[]){__VA_ARGS__})

/* How many arguments the row takes; name (not terminated, `length` bytes) of parameter `i`. */
static inline int weft_i_op_param_count(const weft_i_op *op)
{
    return op->arity;
}
const char *weft_i_op_param_name(const weft_i_op *op, int i, int *length);

/*
 * Interposition.  The innermost mode of the thread gets every call instead of the dispatcher; while
 * it handles one, the mode outside it is in force, so passing the call on with weft_i_op_pass_on
 * (or another with weft_i_op_apply) reaches the next mode and at last the dispatcher.  `handle`
 * returns what weft_i_op_apply would; of rows with several results it fills `outs` and returns the
 * first.  A mode may sit on the stack of one thread at a time.
 */
typedef struct weft_i_mode {
    weft_tensor *(*handle)(struct weft_i_mode *mode, const weft_i_op_call *call);
    struct weft_i_mode *outer; /* set by push */
} weft_i_mode;

weft_tensor *weft_i_op_pass_on(const weft_i_op_call *call);
void weft_i_mode_push(weft_i_mode *mode);
void weft_i_mode_pop(weft_i_mode *mode); /* must be the innermost */
/* Takes one out that others may have been pushed on; it is on the thread's stack. */
void weft_i_mode_remove(weft_i_mode *mode);

/*
 * The recorder of gradients, set by the floor that owns them when the library is loaded.  It lies
 * above the modes and gets the checked calls in which a tensor is known to that floor
 * (weft_i_tensor_is_known), instead of them; weft_i_op_below runs the call: modes, then dispatch.
 */
typedef weft_tensor *weft_i_recorder(const weft_i_op_call *call);
void weft_i_op_set_recorder(weft_i_recorder *recorder);
weft_tensor *weft_i_op_below(const weft_i_op_call *call);
/* For the eye of a capture (eye.h), with the stand-ins it sees: recorder, modes, dispatch. */
weft_tensor *weft_i_op_seen(const weft_i_op_call *call);
/* The tensors that a call writes in place (`into` not among them); returns how many. */
size_t weft_i_op_written(const weft_i_op_call *call, weft_tensor *const **out);
/* How many results the call has. */
size_t weft_i_op_result_count(const weft_i_op_call *call);

/* The registry: one table per floor, added by a constructor of the floor's ops.c. */
typedef struct weft_i_op_table {
    weft_i_op *const *rows;
    size_t count;
    struct weft_i_op_table *next; /* set when added */
} weft_i_op_table;

void weft_i_op_add_table(weft_i_op_table *table);

/*
 * Says how rows run on a kind of device (weft_i_device_kind); a row that is not named keeps what it
 * has.  For constructors of backends.
 */
typedef struct weft_i_op_column {
    weft_i_op *op;
    weft_status (*run)(weft_i_op_call *call);
} weft_i_op_column;

void weft_i_op_add_column(int kind, const weft_i_op_column *rows, size_t count);
weft_i_op_table *weft_i_op_tables(void);
weft_i_op *weft_i_op_find(const char *name); /* NULL if there is none */

#endif
