/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A unit: a module whose parameters exist in full only while it computes.  Each rank has some rows of
 * each parameter, all the same number but for the last ones.
 *
 *     own   [rows, ...]           memory of a rank's part, with rows of padding if it has fewer
 *     shard [at most rows, ...]   the parameter that the module has outside of its calls; in `own`
 *     room  [ranks * rows, ...]   memory of the whole; its storage is empty most of the time
 *     whole [...]                 the parameter that the module has while it computes; in `room`
 *
 * So a gather writes the parameters, and a scatter reads their gradients, where they lie.  Parts that
 * are the same in several parameters (tied weights) are one piece with several places.
 */
#ifndef WEFT_PARALLEL_UNIT_H
#define WEFT_PARALLEL_UNIT_H

#include "nn/module.h"
#include "weft/parallel.h"
#include "weft/work.h"

typedef struct weft_i_unit weft_i_unit;

typedef struct weft_i_unit_piece {
    weft_i_unit *unit;
    weft_tensor *shard, *own, *whole, *room; /* held */
    weft_tensor *reduced;                    /* kept: its part of the gradient, on its way; NULL */
    int64_t rows;
    bool trains;
    bool arrived; /* the gradient of the whole, in this backward */
    bool given;   /* this backward left one for the shard */
    int64_t hook;
    char name[WEFT_NAME_MAX];
} weft_i_unit_piece;

/* Under which name which module has a piece. */
typedef struct weft_i_site {
    weft_module *module; /* below the unit's module */
    char key[WEFT_I_NAME_PART];
    int piece;
} weft_i_site;

typedef enum weft_i_unit_state {
    WEFT_I_UNIT_EMPTY,
    WEFT_I_UNIT_GATHERING, /* the gather was posted */
    WEFT_I_UNIT_FULL,
    WEFT_I_UNIT_PARTLY /* a backward has emptied pieces that it reads no more */
} weft_i_unit_state;

/* The units of one tree, in the order in which forward came to them. */
typedef struct weft_i_schedule {
    weft_i_object head;
    weft_i_unit **unit; /* not held: a unit goes out when it dies */
    int count, room;
    int depth;            /* calls of units under way, one within the other */
    bool armed;           /* a backward is under way, at whose end all is settled */
    weft_i_unit *pending; /* its gradients are on their way; NULL: none are */
} weft_i_schedule;

struct weft_i_unit {
    weft_i_object head;
    weft_module *module;        /* whose part this is */
    weft_group *group, *copies; /* held: the shards; their copies, or NULL */
    int ranks, rank;
    weft_i_schedule *schedule; /* held */
    int count, sites;
    weft_i_unit_piece *piece;
    weft_i_site *site;
    int training; /* pieces that train */
    weft_i_unit_state state;
    weft_work *gather, *scatter, *average; /* kept; NULL: none */
    weft_tensor *present; /* kept: for each piece the share of ranks that have a gradient */
    bool keep, unused, sync;
    bool captured; /* a compiled function fills and empties it as well */
    int prefetch;
    bool backward; /* its backward has begun */
    bool reduced;  /* and its gradients were sent */
    int arrivals;
    int64_t hook[3]; /* of the module */
    int hooks;
    char name[WEFT_NAME_MAX]; /* as messages call it */
};

/* ---- memory of a unit (unit.c) ---- */

weft_status weft_i_unit_start_gather(weft_i_unit *unit); /* nothing if it is not empty */
weft_status weft_i_unit_fill(weft_i_unit *unit);         /* starts it if need be, and waits */
weft_status weft_i_unit_empty(weft_i_unit *unit);
/* The memory of one piece alone, whose whole this backward reads no more. */
weft_status weft_i_unit_empty_piece(weft_i_unit_piece *piece);
/* Which tensors the modules have: the whole ones, or the shards. */
weft_status weft_i_unit_bind(weft_i_unit *unit, bool whole);

/* ---- gradients of a unit (unit_reduce.c) ---- */

/* Posts the gradients of the wholes, with zeros where there is none, and lets go of them. */
weft_status weft_i_unit_send(weft_i_unit *unit);
/* Waits until they are there; with copies, sends them on. */
weft_status weft_i_unit_receive(weft_i_unit *unit);
/* Adds them to those of the shards; WEFT_ERR_STATE on all ranks if some were missing. */
weft_status weft_i_unit_deliver(weft_i_unit *unit);
/* After a failure: waits for what is on its way, and forgets it. */
void weft_i_unit_abandon(weft_i_unit *unit);

/* ---- while a function is captured (unit_captured.c) ---- */

weft_status weft_i_unit_captured_fill(weft_i_unit *unit, bool bind);
weft_status weft_i_unit_captured_empty(weft_i_unit *unit, bool bind);
weft_status weft_i_unit_captured_gradient(weft_i_unit_piece *piece);

/* ---- when what happens (unit_hooks.c) ---- */

weft_status weft_i_unit_add_hooks(weft_i_unit *unit);
/* For a unit that did not come about. */
void weft_i_unit_drop_hooks(weft_i_unit *unit);
weft_i_schedule *weft_i_schedule_new(void);
void weft_i_schedule_leave(weft_i_unit *unit);

static inline weft_i_unit *weft_i_unit_of(const weft_module *module)
{
    return (weft_i_unit *)module->part[WEFT_I_PART_UNIT];
}

#endif
