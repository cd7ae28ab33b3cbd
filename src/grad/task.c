/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tasks of a backward.  A node or leaf points to its task of the innermost backward that came
 * to it; the task remembers the one before, so that a backward inside a hook of another may walk
 * the same graph.
 */
#include "base/os/assert.h"
#include "base/os/os.h"
#include "grad/engine.h"

enum { CHUNK = 64 };

struct chunk {
    struct chunk *next;
    size_t used;
    struct entry {
        weft_i_task task;
        weft_i_backward_pass *run; /* whose task it is */
    } entry[CHUNK];
};

weft_i_task **weft_i_task_field(weft_i_object *target)
{
    return weft_i_is_node(target) ? &((weft_i_node *)target)->task
                                  : &((weft_i_history *)((weft_tensor *)target)->grad)->task;
}

static struct entry *new_entry(weft_i_backward_pass *run)
{
    struct chunk *chunk = run->chunks;
    if (!chunk || chunk->used == CHUNK) {
        if (!(chunk = WEFT_OS->alloc(sizeof *chunk)))
            return weft_i_null(WEFT_ERR_NO_MEMORY, "backward: no memory for %zu nodes",
                               run->task_count + 1);
        chunk->next = run->chunks;
        run->chunks = chunk;
    }
    WEFT_ASSERT(chunk->used < CHUNK);
    return &chunk->entry[chunk->used++];
}

/* Room for gradients of several results. */
static weft_status widen(weft_i_task *task)
{
    int outputs = weft_i_is_node(task->target) ? ((const weft_i_node *)task->target)->outputs : 1;
    task->g = &task->only;
    if (outputs < 2)
        return WEFT_OK;
    weft_tensor **g = WEFT_OS->alloc((size_t)outputs * sizeof *g);
    if (!g)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "backward: no memory for %d gradients", outputs);
    task->g = g;
    return WEFT_OK;
}

weft_i_task *weft_i_task_if(const weft_i_backward_pass *run, weft_i_object *target)
{
    weft_i_task *task = *weft_i_task_field(target);
    return task && ((struct entry *)task)->run == run ? task : NULL;
}

weft_i_task *weft_i_task_of(weft_i_backward_pass *run, weft_i_object *target)
{
    weft_i_task **field = weft_i_task_field(target), *known = weft_i_task_if(run, target);
    if (known)
        return known;
    struct entry *entry = new_entry(run);
    if (!entry)
        return NULL;
    weft_i_task *task = &entry->task;
    task->target = target;
    if (widen(task) < 0)
        return NULL;
    entry->run = run;
    weft_i_object_hold(target);
    task->outer = *field;
    *field = task;
    run->task_count++;
    return task;
}

static void end(weft_i_task *task)
{
    int outputs = weft_i_is_node(task->target) ? ((const weft_i_node *)task->target)->outputs : 1;
    for (int k = 0; k < outputs; k++)
        weft_i_object_drop(task->g[k]);
    if (task->g != &task->only)
        WEFT_OS->free(task->g);
    WEFT_ASSERT(*weft_i_task_field(task->target) == task); /* runs end in turn */
    *weft_i_task_field(task->target) = task->outer;
    weft_i_object_drop(task->target);
}

void weft_i_task_end_all(weft_i_backward_pass *run)
{
    while (run->chunks) {
        struct chunk *chunk = run->chunks;
        run->chunks = chunk->next;
        for (size_t i = chunk->used; i-- > 0;)
            if (chunk->entry[i].run)
                end(&chunk->entry[i].task);
        WEFT_OS->free(chunk);
    }
    WEFT_OS->free(run->heap);
    run->heap = NULL;
}

/* ---- the heap: its array has room for all tasks ---- */

void weft_i_heap_push(weft_i_backward_pass *run, weft_i_task *task)
{
    WEFT_ASSERT(run->heap_count < run->task_count);
    size_t at = run->heap_count++;
    for (; at && run->heap[(at - 1) / 2]->order < task->order; at = (at - 1) / 2)
        run->heap[at] = run->heap[(at - 1) / 2];
    run->heap[at] = task;
}

weft_i_task *weft_i_heap_pop(weft_i_backward_pass *run)
{
    if (!run->heap_count)
        return NULL;
    weft_i_task *top = run->heap[0], *last = run->heap[--run->heap_count];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < run->heap_count; at = child) {
        child +=
            child + 1 < run->heap_count && run->heap[child]->order < run->heap[child + 1]->order;
        if (run->heap[child]->order <= last->order)
            break;
        run->heap[at] = run->heap[child];
    }
    run->heap[at] = last;
    WEFT_ASSERT(!run->heap_count || top->order >= run->heap[0]->order); /* the newest comes first */
    return top;
}
