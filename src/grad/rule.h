/* SPDX-License-Identifier: Apache-2.0 */
// clang-format off
/*
 * How the gradient of an operation is declared.  grad/rules.def has a line for every row of
 * tensor/ and coll/, and fills weft_i_op.gradient when the library is loaded:
 *
 *     RULE(sin, SAVE(0), GRAD(0, weft_mul(g, weft_cos(x0))))
 *     RULE(mul, SAVE_OTHER, GRAD(0, TIMES(g, 1)) GRAD(1, TIMES(g, 0)))
 *     FUNCTION(cat, SAVE_NONE)          // weft_i_cat_back(c), for what is more than expressions
 *     CHECKED(all_reduce, SAVE_NONE)    // as FUNCTION, and weft_i_all_reduce_refuse at forward time
 *     NONE(eq, "a comparison is constant almost everywhere")
 *     REFUSED(set, "the tensor takes over another's memory")
 *
 * NONE: gradients end here, the results require none.  REFUSED: the call itself fails while it
 * would be recorded, with the reason; a row without a line is refused as well.
 *
 * What a rule sees (`c`, a weft_i_back):
 *
 *     g         the gradient of result 0; c->g[k] that of result k, NULL if nothing depends on it
 *               (not all are NULL); weft_i_back_g(c, k) gives zeros instead
 *     x0 .. x3  tensor arguments 0 .. 3 if they were saved, else NULL
 *     y         result 0 if it was saved (SAVE_RESULT); c->y[k] result k
 *     ARG(i)    argument i, as the call had it: numbers, integers, lists of integers, groups; of
 *               tensors only the saved ones, the others are NULL pointers
 *     SHAPE(i)  the shape of tensor argument i, if it needs a gradient (no saving needed);
 *               weft_i_back_layout tells dtype, device, strides and offset too
 *     WHERE(condition, g), UNLESS(condition, g)   g there, else 0
 *     NEEDS(i)  whether argument i needs a gradient; needs of lists: weft_i_back_needs_item
 *
 * A rule leaves the gradient of argument i in c->grad[i] (of the items of a list in
 * c->list[0], c->list[1] ...), NULL for none.  It is written with public operations, so that meta
 * tensors, double backward and capture come free; what it makes belongs to a scope of its own.  It
 * need not care about broadcasting and dtypes: the engine sums and converts each gradient to what
 * its argument was.  It must not wait for a gradient (g may be a collective under way).
 *
 * Rows that write their first argument (w, m): that is argument 0, and its gradient is that of the
 * value before.  A saved argument 0 is then a copy of that value.  With a target (`into`) the rule
 * is the same as without.
 */
// clang-format on
#ifndef WEFT_GRAD_RULE_H
#define WEFT_GRAD_RULE_H

#include "tensor/op/op.h"
#include "weft/grad.h"
#include "weft/op.h"
#include "weft/view.h"

typedef struct weft_i_back weft_i_back;

enum {
    WEFT_I_SAVE_RESULT = 1 << 16,
    /* Of two arguments each where the other needs a gradient. */
    WEFT_I_SAVE_OTHER = 1 << 17
};

typedef struct weft_i_gradient {
    const char *why; /* there is no rule: the reason; else NULL */
    bool refused;    /* with a reason: the call fails, instead of giving constants */
    bool hands_out;  /* the rule calls weft_i_engine_hand_out once for each edge */
    unsigned save;   /* bit i: argument i; WEFT_I_SAVE_ */
    weft_status (*back)(weft_i_back *c);
    /* Before the call is made: fails if this one has no gradient.  May be NULL. */
    weft_status (*refuse)(const weft_i_op_call *call);
    void *user; /* of a user's own operation */
} weft_i_gradient;

/* One run of a rule. */
struct weft_i_back {
    const weft_i_op *op;
    const weft_i_arg *arg;
    weft_tensor *const *g, *const *y;
    weft_tensor **grad; /* one for each argument */
    weft_tensor **list; /* one for each tensor of the list argument */
    const struct weft_i_node *node;
};

bool weft_i_back_needs(const weft_i_back *c, int argument);
bool weft_i_back_needs_item(const weft_i_back *c, size_t item);
/* What an argument was, if it needs a gradient; what an item of the list was, in any case. */
typedef struct weft_i_layout {
    weft_dtype dtype;
    weft_device device;
    weft_shape shape;
    int64_t stride[WEFT_MAX_DIMS], offset;
} weft_i_layout;

void weft_i_back_layout(const weft_i_back *c, int argument, weft_i_layout *out);
void weft_i_back_item_layout(const weft_i_back *c, size_t item, weft_i_layout *out);
weft_shape weft_i_back_shape(const weft_i_back *c, int argument);
weft_shape weft_i_back_item_shape(const weft_i_back *c, size_t item);
/* The same of result k; and its gradient, zeros if nothing depends on it. */
void weft_i_back_result_layout(const weft_i_back *c, int k, weft_i_layout *out);
weft_shape weft_i_back_result_shape(const weft_i_back *c, int k);
weft_tensor *weft_i_back_g(const weft_i_back *c, int k);

/* g times argument `i`, a tensor or a number. */
weft_tensor *weft_i_back_times(const weft_i_back *c, weft_tensor *g, int i);

/* g where the condition holds, or where it does not; 0 elsewhere, whatever g is there. */
weft_tensor *weft_i_back_where(weft_tensor *condition, weft_tensor *g);
weft_tensor *weft_i_back_unless(weft_tensor *condition, weft_tensor *g);

/*
 * The rule has read argument i for the last time, and what it makes next takes memory.  If the
 * argument is a leaf whose value nothing else of this backward reads, its owner may give up its
 * memory now.
 */
weft_status weft_i_back_spent(const weft_i_back *c, int argument);

#define ARG(i_)                (&c->arg[i_])
#define NEEDS(i_)              weft_i_back_needs(c, i_)
#define SHAPE(i_)              weft_i_back_shape(c, i_)
#define TIMES(g_, i_)          weft_i_back_times(c, g_, i_)
#define WHERE(condition_, g_)  weft_i_back_where(condition_, g_)
#define UNLESS(condition_, g_) weft_i_back_unless(condition_, g_)
/* The end of a rule: the gradient that it made, or the error. */
#define GIVE(i_, expression_)  ((c->grad[i_] = (expression_)) ? WEFT_OK : weft_last_status())

static inline weft_tensor *weft_i_back_x(const weft_i_back *c, int i)
{
    return i < c->op->arity && c->arg[i].kind == WEFT_I_ARG_TENSOR ? c->arg[i].tensor : NULL;
}

/* Gives the rows of rules.def their rules.  The recorder calls it, so that a static library has
 * them too. */
void weft_i_rules_give(void);

/* Floors above this one bring their rows' rules with it. */
static inline void weft_i_rule_set(weft_i_op *op, const weft_i_gradient *gradient)
{
    op->gradient = gradient;
}

#endif
