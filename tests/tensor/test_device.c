/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: tensor/object/device.c, tensor/object/claim.c, tensor/object/stream.c,
 * tensor/object/touch.c, tensor/op/copy.c, tensor/op/loops.c */
/*
 * Kinds of devices: a device of this test, whose memory is the host's and whose streams note what
 * they are told.  So it shows what the library asks of a device and in which order, without one.
 */
#include "harness.h"
#include "memory_count.h"

#include "base/os/os.h"
#include "tensor/op/loops.h"
#include "tensor/op/ops.h"
#include "weft/weft.h"

#include <pthread.h>
#include <string.h>

/* Everything the device is asked, one letter and the streams' numbers each: "A1 W21 F2". */
static char told[2048];
static int streams, live;
static weft_status fails;       /* what the next ordering returns */
static weft_status copies_fail; /* what all copies return */
static bool no_streams, captures_fail;

__attribute__((format(printf, 1, 2))) static void tell(const char *format, ...)
{
    size_t used = strlen(told);
    va_list args;
    va_start(args, format);
    vsnprintf(told + used, sizeof told - used, format, args);
    va_end(args);
}

static int number(const void *stream)
{
    return stream ? *(const int *)stream : 0;
}

static weft_status own_alloc(weft_device device, void *stream, size_t bytes, void **out)
{
    (void)device;
    tell("A%d ", number(stream));
    *out = bytes > 1 << 20 ? NULL : malloc(bytes);
    live += *out != NULL;
    return *out ? WEFT_OK : WEFT_ERR_NO_MEMORY;
}

static void own_free(weft_device device, void *stream, void *memory, size_t bytes)
{
    (void)device, (void)bytes;
    tell("F%d ", number(stream));
    live--;
    free(memory);
}

static weft_status own_copy(weft_device device, void *stream, void *to, bool to_host,
                            const void *from, bool from_host, size_t bytes)
{
    (void)device;
    tell("C%d%s%s ", number(stream), from_host ? "<" : "", to_host ? ">" : "");
    if (copies_fail)
        return weft_i_fail(copies_fail, "copying fails");
    memcpy(to, from, bytes);
    return WEFT_OK;
}

static weft_status own_fill(weft_device device, void *stream, void *to, unsigned char value,
                            size_t bytes)
{
    (void)device;
    tell("S%d ", number(stream));
    memset(to, value, bytes);
    return WEFT_OK;
}

static weft_status own_check(weft_device device, const void *memory, size_t bytes)
{
    (void)device, (void)bytes;
    return memory == (const void *)&streams
               ? weft_i_fail(WEFT_ERR_INVALID_ARG, "that is not the device's")
               : WEFT_OK;
}

static weft_status own_stream(weft_device device, bool urgent, void **out)
{
    (void)device, (void)urgent;
    if (no_streams)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no streams");
    int *made = malloc(sizeof *made);
    *made = ++streams;
    live++;
    *out = made;
    return WEFT_OK;
}

static void own_stream_free(void *stream)
{
    live--;
    free(stream);
}

static weft_status own_after(void *stream, void *other, bool join)
{
    weft_status status = fails;
    fails = WEFT_OK;
    tell("W%d%d%s ", number(stream), number(other), join ? "j" : "");
    return status < 0 ? weft_i_fail(status, "ordering fails") : WEFT_OK;
}

static weft_status own_capture(void *stream)
{
    tell("B%d ", number(stream));
    return WEFT_OK;
}

static weft_status own_capture_end(void *stream, void **replay)
{
    tell("E%d ", number(stream));
    if (captures_fail)
        return weft_i_fail(WEFT_ERR_DEVICE, "it cannot be noted");
    live += replay != NULL;
    if (replay)
        *replay = &live;
    return WEFT_OK;
}

static void own_replay_free(void *replay)
{
    live -= replay == &live;
}

static const weft_i_device own = {
    .name = "own",
    .count = 2,
    .alloc = own_alloc,
    .free = own_free,
    .copy = own_copy,
    .fill = own_fill,
    .check = own_check,
    .stream_new = own_stream,
    .stream_free = own_stream_free,
    .stream_after = own_after,
    .capture_begin = own_capture,
    .capture_end = own_capture_end,
    .replay_free = own_replay_free,
};

/* The column of the rows under test: the host's loops, in the order of the current stream. */
static weft_status run_copy(weft_i_op_call *call)
{
    weft_tensor *to = call->out, *from = call->args[call->op == &weft_i_op_copy].tensor;
    weft_device here = weft_i_tensor_device(to), there = weft_i_tensor_device(from);
    if (here == there) {
        tell("K%d ", number(weft_i_stream_current(here)->own));
        weft_i_copy_tensor(to, from);
        return WEFT_OK;
    }
    return weft_i_device_copy(here, weft_i_tensor_data(to), there, weft_i_tensor_data(from),
                              weft_tensor_bytes(from));
}

static weft_status run_nothing(weft_i_op_call *call)
{
    (void)call;
    return WEFT_OK;
}

static const weft_i_device *before;
enum { ROWS = 5 };
static weft_status (*columns[ROWS])(weft_i_op_call *);

/* A test before it may have failed half way. */
static void begin(void)
{
    weft_i_stream_forget();
    live = 0;
    const weft_i_op_column rows[] = {{&weft_i_op_copy, run_copy},
                                     {&weft_i_op_to, run_copy},
                                     {&weft_i_op_empty, run_nothing},
                                     {&weft_i_op_neg, NULL},
                                     {&weft_i_op_mm, NULL}};
    for (int i = 0; i < ROWS; i++)
        columns[i] = rows[i].op->run[WEFT_I_KIND_CUDA];
    before = weft_i_device_find(WEFT_CUDA(0));
    weft_i_device_add(WEFT_I_KIND_CUDA, &own);
    weft_i_op_add_column(WEFT_I_KIND_CUDA, rows, ROWS);
    streams = 0;
    told[0] = 0;
    weft_scope_open();
}

/* Everything was given back, and the build's own device is there again. */
static void end(void)
{
    const weft_i_op_column rows[] = {{&weft_i_op_copy, columns[0]},
                                     {&weft_i_op_to, columns[1]},
                                     {&weft_i_op_empty, columns[2]},
                                     {&weft_i_op_neg, columns[3]},
                                     {&weft_i_op_mm, columns[4]}};
    weft_scope_close();
    weft_i_stream_forget();
    weft_i_device_add(WEFT_I_KIND_CUDA, before);
    weft_i_op_add_column(WEFT_I_KIND_CUDA, rows, ROWS);
    CHECK_INT(live, 0);
    weft_clear_error();
}

#define CHECK_TOLD(text_)                                 \
    do {                                                  \
        if (strcmp(told, text_))                          \
            FAIL("told \"%s\", not \"%s\"", told, text_); \
        told[0] = 0;                                      \
    } while (0)

static weft_tensor *on_device(int elements)
{
    return weft_empty(WEFT_F32, WEFT_CUDA(0), WEFT_SHAPE(elements));
}

TEST(test_device_memory_follows_a_stream)
{
    begin();
    weft_tensor *x = weft_keep(on_device(4));
    CHECK_TOLD("A1 ");
    CHECK(x && weft_tensor_device(x) == WEFT_CUDA(0));
    CHECK_OK(weft_resize_storage(x, 64));
    CHECK_TOLD("A1 C1 F1 ");
    weft_release(x);
    CHECK_TOLD("F1 ");
    CHECK(!on_device(1 << 20));
    CHECK_INT(weft_last_status(), WEFT_ERR_NO_MEMORY);
    CHECK_CONTAINS(weft_last_error(), "cuda:0");
    CHECK(!weft_empty(WEFT_F32, WEFT_CUDA(2), WEFT_SHAPE(4)));
    CHECK_INT(weft_last_status(), WEFT_ERR_UNSUPPORTED);
    told[0] = 0;
    end();
}

/* A thread's own stream goes with the thread, not when another takes its place. */
TEST(test_device_own_stream_stays)
{
    begin();
    weft_stream *home = weft_stream_current(WEFT_CUDA(0));
    weft_stream *other = weft_stream_new(WEFT_CUDA(0), false);
    CHECK_OK(weft_stream_use(other));
    CHECK_TOLD("");
    CHECK_OK(weft_stream_use(home));
    CHECK(weft_stream_current(WEFT_CUDA(0)) == home);
    weft_release(on_device(4));
    CHECK_TOLD("A1 F1 ");
    end();
}

/* The same stream needs nothing; a second waits for the first, once; a write waits for readers. */
TEST(test_device_streams_are_ordered)
{
    begin();
    weft_tensor *x = weft_keep(on_device(4)), *y = weft_keep(on_device(4));
    weft_stream *first = weft_keep(weft_stream_current(WEFT_CUDA(0)));
    CHECK_OK(weft_copy(x, y));
    CHECK_TOLD("A1 A1 K1 ");
    weft_stream *second = weft_stream_new(WEFT_CUDA(0), false),
                *third = weft_stream_new(WEFT_CUDA(0), true);
    CHECK_OK(weft_stream_use(second));
    weft_tensor *z = on_device(4);
    CHECK_OK(weft_copy(z, x)); /* reads x */
    CHECK_OK(weft_copy(z, x));
    CHECK_TOLD("A2 W21 K2 K2 ");
    CHECK_OK(weft_stream_use(third));
    CHECK(weft_tensor_data(y) != NULL); /* may be read, and written */
    CHECK_TOLD("W31 W31 ");
    weft_tensor *u = on_device(4);
    CHECK_OK(weft_copy(u, x)); /* a third reader is behind the second */
    CHECK_TOLD("A3 W31 W32 K3 ");
    CHECK_OK(weft_stream_use(first));
    CHECK_OK(weft_copy(x, x)); /* the same memory: no readers before, or behind them */
    CHECK_TOLD("W13 K1 ");
    CHECK_OK(weft_stream_use(second));
    weft_release(y); /* the third wrote it last */
    CHECK_OK(weft_copy(z, x));
    weft_release(x); /* the first did, and the second has read it since */
    CHECK_TOLD("F3 W21 K2 W12 F1 ");
    weft_release(first);
    end();
    CHECK_TOLD("F3 F2 ");
}

/* Another thread has a stream of its own, which is gone with it; memory keeps what it needs. */
static void *in_thread(void *x)
{
    weft_tensor *mine = on_device(4);
    weft_status status = weft_copy(mine, x);
    return status < 0 ? NULL : weft_keep(mine);
}

TEST(test_device_threads_have_streams)
{
    begin();
    pthread_t thread;
    void *made = NULL;
    weft_tensor *x = on_device(4);
    CHECK(pthread_create(&thread, NULL, in_thread, x) == 0);
    pthread_join(thread, &made);
    CHECK(made);
    CHECK_TOLD("A1 A2 W21 K2 ");
    CHECK_OK(weft_copy(x, made));
    CHECK_TOLD("W12 W12 K1 ");
    weft_release(made);
    CHECK_TOLD("W21 F2 ");
    end();
}

TEST(test_device_rows_that_mix)
{
    begin();
    weft_tensor *here = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
    weft_tensor *there = weft_to(here, WEFT_F32, WEFT_CUDA(0));
    CHECK(there && weft_tensor_device(there) == WEFT_CUDA(0));
    CHECK_TOLD("A1 C1< ");
    weft_tensor *back = weft_to(there, WEFT_F32, WEFT_CPU);
    CHECK(back && weft_tensor_device(back) == WEFT_CPU && weft_item(back, 3) == 1);
    CHECK_TOLD("C1> ");
    CHECK_OK(weft_fill(here, 2));
    CHECK_OK(weft_copy(there, here));
    CHECK_INT(weft_tensor_version(there), 1);
    CHECK_TOLD("C1< ");
    CHECK(weft_item(there, 1) == 2 && weft_item_int(there, 2) == 2);
    CHECK(weft_equal(there, here) && weft_equal(here, there) &&
          weft_allclose(there, here, 0, 0, 0));
    CHECK(!weft_equal(there, back));
    char text[128];
    CHECK(weft_tensor_text(there, text, sizeof text) > 0);
    CHECK(!strcmp(text, "tensor([2., 2., 2., 2.], device=cuda:0, dtype=f32)"));
    CHECK(!weft_add(here, there)); /* no other row mixes */
    CHECK_CONTAINS(weft_last_error(), "cpu and cuda:0");
    weft_clear_error();
    CHECK(!weft_neg(there)); /* and a row without a column says so */
    CHECK_INT(weft_last_status(), WEFT_ERR_UNSUPPORTED);
    weft_clear_error();
    weft_tensor *matrix = weft_view(there, WEFT_SHAPE(2, 2));
    CHECK(!weft_linear(matrix, matrix, NULL)); /* made of others where its row has none */
    CHECK(!strcmp(weft_last_error(), "mm: does not run on cuda:0 in this build"));
    weft_clear_error();
    weft_tensor *meta = weft_to(there, WEFT_F32, WEFT_META);
    CHECK(meta);
    CHECK(!weft_to(meta, WEFT_F32, WEFT_CPU) && weft_last_status() == WEFT_ERR_TYPE);
    CHECK_STATUS(weft_copy(here, meta), WEFT_ERR_TYPE);
    CHECK_STATUS(weft_copy(meta, there), WEFT_ERR_TYPE);
    end();
}

/* What cannot be brought here is not printed, and not compared. */
TEST(test_device_copies_that_fail)
{
    begin();
    weft_tensor *x = on_device(2), *y = on_device(2);
    char text[64] = "before";
    CHECK_OK(weft_copy(x, y));
    copies_fail = WEFT_ERR_DEVICE;
    CHECK_INT(weft_tensor_text(x, text, sizeof text), WEFT_ERR_DEVICE);
    CHECK(!strcmp(weft_last_error(), "copying fails"));
    weft_clear_error();
    CHECK_STATUS(weft_print(x, stderr), WEFT_ERR_DEVICE);
    weft_clear_error();
    CHECK(!weft_equal(x, y) && weft_last_status() == WEFT_ERR_DEVICE);
    copies_fail = WEFT_OK;
    end();
}

/* What is copied by the library itself is ordered as the copies of a program are. */
TEST(test_device_copies_of_the_library)
{
    begin();
    weft_tensor *x = on_device(4), *y = on_device(4), *z = on_device(4);
    CHECK_OK(weft_stream_use(weft_stream_new(WEFT_CUDA(0), false)));
    told[0] = 0;
    CHECK_OK(weft_i_tensor_copy(x, y));
    CHECK_TOLD("W21 W21 K2 ");
    fails = WEFT_ERR_DEVICE;
    CHECK_STATUS(weft_i_tensor_copy(x, z), WEFT_ERR_DEVICE); /* the one is not to be read */
    CHECK_TOLD("W21 ");
    CHECK_OK(weft_stream_use(weft_stream_new(WEFT_CUDA(0), false)));
    CHECK_OK(weft_copy(on_device(4), y));
    told[0] = 0;
    fails = WEFT_ERR_DEVICE;
    CHECK_STATUS(weft_i_tensor_copy(z, y), WEFT_ERR_DEVICE); /* the other is not to be written */
    CHECK_TOLD("W31 ");
    CHECK_OK(weft_i_tensor_copy(z, y));
    CHECK_TOLD("W31 K3 ");
    end();
}

TEST(test_device_memory_of_others)
{
    begin();
    static float data[4] = {1, 2, 3, 4};
    weft_tensor *x = weft_tensor_wrap(WEFT_F32, WEFT_CUDA(1), WEFT_SHAPE(4), data, NULL, NULL);
    CHECK(x && weft_tensor_data(x) == data && weft_item(x, 3) == 4);
    CHECK(!weft_tensor_wrap(WEFT_F32, WEFT_CUDA(1), WEFT_SHAPE(1), &streams, NULL, NULL));
    CHECK_CONTAINS(weft_last_error(), "not the device's");
    weft_dlpack *description = weft_dlpack_export(x);
    CHECK(description && description->tensor.device_type == WEFT_DLPACK_CUDA);
    CHECK_INT(description->tensor.device_id, 1);
    weft_tensor *again = weft_dlpack_import(description);
    CHECK(again && weft_tensor_device(again) == WEFT_CUDA(1) && weft_tensor_data(again) == data);
    weft_release(again);
    weft_clear_error();
    int64_t shape[] = {4};
    weft_dlpack strange = {{data, 7, 0, 1, 2, 32, 1, shape, NULL, 0}, NULL, NULL};
    CHECK(!weft_dlpack_import(&strange));
    CHECK_INT(weft_last_status(), WEFT_ERR_UNSUPPORTED);
    end();
}

/* ---- claims ---- */

typedef struct operation {
    weft_i_object head;
    weft_i_claim claim;
    int waited, ordered, ended;
    weft_status result;
} operation;

static operation *of(const weft_i_claim *claim)
{
    return (operation *)(void *)claim->owner;
}

static bool is_done(const weft_i_claim *claim)
{
    return of(claim)->waited;
}

static weft_status wait_for(const weft_i_claim *claim)
{
    of(claim)->waited++;
    return of(claim)->result;
}

static weft_status order(const weft_i_claim *claim, weft_stream *stream)
{
    of(claim)->ordered = number(stream->own);
    return of(claim)->result < 0 ? weft_i_fail(of(claim)->result, "it failed") : WEFT_OK;
}

static void ended(const weft_i_claim *claim, bool waited)
{
    of(claim)->ended += waited ? 1 : 100;
}

static void stay(weft_i_object *object)
{
    (void)object;
}

static void claim_on(operation *op, const weft_tensor *x, const weft_i_claimant *claimant,
                     bool writes)
{
    *op = (operation){.head = {.kind = WEFT_I_WORK, .references = 1, .destroy = stay}};
    op->claim = (weft_i_claim){.claimant = claimant, .owner = &op->head, .writes = writes};
    weft_i_claim_put(&op->claim, x->storage);
}

static const weft_i_claimant orders = {
    .done = is_done, .wait = wait_for, .ended = ended, .order = order};
static const weft_i_claimant waits = {.done = is_done, .wait = wait_for, .ended = ended};

/* A stream is ordered behind a claim and then stands for it; the host waits as ever. */
TEST(test_device_claims_order)
{
    begin();
    operation op;
    weft_tensor *x = on_device(4), *y = on_device(4);
    told[0] = 0;
    claim_on(&op, x, &orders, true);
    CHECK_OK(weft_copy(y, x));
    CHECK(op.ordered == 1 && op.waited == 0 && op.ended == 1);
    CHECK_INT(op.head.references, 1); /* ours */
    CHECK_TOLD("K1 ");
    claim_on(&op, x, &orders, false); /* a reader is in nobody's way but a writer's */
    CHECK_OK(weft_copy(y, x));
    CHECK(!op.ordered && !op.waited && !op.ended);
    CHECK_OK(weft_copy(x, y));
    CHECK(op.ordered == 1 && !op.waited && op.ended == 1);
    told[0] = 0;
    CHECK_OK(weft_stream_use(weft_stream_new(WEFT_CUDA(0), false)));
    claim_on(&op, x, &orders, true);
    double first = weft_item(x, 0), second = weft_item(x, 0); /* which does not ask again */
    CHECK(!memcmp(&first, &second, sizeof first)); /* of memory that nobody has filled: any bits */
    CHECK(op.ordered == 2 && !op.waited && op.ended == 1);
    CHECK_TOLD("W21 C2> C2> ");
    operation several[3]; /* one use is ordered behind all of them */
    for (int i = 0; i < 3; i++)
        claim_on(&several[i], x, i == 1 ? &waits : &orders, i == 2);
    CHECK_OK(weft_copy(x, y));
    for (int i = 0; i < 3; i++)
        CHECK(several[i].ended == 1 && several[i].ordered == (i == 1 ? 0 : 2) &&
              several[i].waited == (i == 1));
    claim_on(&op, x, &waits, true); /* one that cannot order is waited for */
    CHECK(weft_tensor_data(x) != NULL);
    CHECK(op.waited == 1 && op.ended == 1);
    weft_tensor *cpu = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
    claim_on(&op, cpu, &orders, true);
    CHECK(weft_item(cpu, 0) == 1);
    CHECK(!op.ordered && op.waited == 1 && op.ended == 1);
    end();
}

/* A failure is told and nothing has happened: the claim stays, the next use gets it again. */
TEST(test_device_order_that_fails)
{
    begin();
    operation op;
    weft_tensor *x = on_device(4), *y = on_device(4);
    claim_on(&op, x, &orders, true);
    op.result = WEFT_ERR_PEER_DEAD;
    CHECK_STATUS(weft_copy(y, x), WEFT_ERR_PEER_DEAD);
    CHECK_STATUS(weft_copy(x, y), WEFT_ERR_PEER_DEAD);
    CHECK(op.ended == 0 && weft_tensor_version(x) == 0);
    op.result = WEFT_OK;
    CHECK_OK(weft_copy(x, y));
    CHECK_OK(weft_stream_use(weft_stream_new(WEFT_CUDA(0), false)));
    fails = WEFT_ERR_DEVICE;
    CHECK_STATUS(weft_copy(y, x), WEFT_ERR_DEVICE);
    told[0] = 0;
    CHECK_OK(weft_copy(y, x));     /* it is tried again */
    CHECK_TOLD("W21 W21 W21 K2 "); /* x to read, y to check and to write */
    weft_tensor *z = on_device(4);
    CHECK_OK(weft_stream_use(weft_stream_new(WEFT_CUDA(0), false)));
    CHECK_OK(weft_copy(on_device(4), z)); /* the third reads what is the second's */
    weft_stream_use(z->storage->stream);
    told[0] = 0;
    fails = WEFT_ERR_DEVICE;
    CHECK_STATUS(weft_copy(z, z), WEFT_ERR_DEVICE); /* a write is behind the readers, or is none */
    CHECK_TOLD("W23 ");
    CHECK_OK(weft_copy(z, z));
    CHECK_TOLD("W23 K2 ");
    end();
}

static void *ready_in_thread(void *x)
{
    return (void *)(intptr_t)weft_i_storage_ready(((weft_tensor *)x)->storage, false);
}

/* A thread that gets no stream cannot be ordered behind a claim: it is told, and the claim stays. */
TEST(test_device_claims_without_a_stream)
{
    begin();
    operation op;
    pthread_t thread;
    void *status = NULL;
    weft_tensor *x = on_device(4);
    claim_on(&op, x, &orders, true);
    no_streams = true;
    CHECK(pthread_create(&thread, NULL, ready_in_thread, x) == 0);
    pthread_join(thread, &status);
    no_streams = false;
    CHECK_INT((intptr_t)status, WEFT_ERR_NO_MEMORY);
    CHECK(!op.ordered && !op.waited && !op.ended);
    CHECK_OK(weft_i_storage_ready(x->storage, false));
    CHECK(op.ordered == 1 && op.ended == 1);
    end();
}

/* What cannot be noted leaves nothing behind, though the scope stays open. */
TEST(test_device_captures_that_fail)
{
    begin();
    weft_stream *stream = weft_stream_current(WEFT_CUDA(0));
    CHECK_OK(weft_capture_begin(stream));
    weft_replay *noted = weft_capture_end(stream);
    CHECK(noted && live == 2); /* the stream, and what it noted */
    weft_release(noted);
    CHECK_INT(live, 1);
    captures_fail = true;
    for (int i = 0; i < 11; i++) {
        if (i == 1) /* what is made once is made */
            count_begin();
        CHECK_OK(weft_capture_begin(stream));
        CHECK(!weft_capture_end(stream) && weft_last_status() == WEFT_ERR_DEVICE);
    }
    CHECK_INT(count_end(), 0);
    captures_fail = false;
    end();
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
