/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: store/link.c */
/* One connection of the store's protocol over a kernel that takes and gives what the test says. */
#include "harness.h"

#include "base/machine/nofork.h"
#include "base/os/os.h"
#include "store/link.h"

#include <errno.h>

/* ---- a kernel of the test's own ---- */

static weft_i_os table;
static uint8_t *sky; /* what was sent and not yet received */
static size_t sky_bytes, sky_room, last_room;
static size_t piece; /* bytes a call moves at most */
static int refusal;  /* errno of the next call; 0: none */

static ssize_t refuse_once(void)
{
    errno = refusal;
    refusal = 0;
    return -1;
}

static ssize_t sky_send(int fd, const struct msghdr *message, int flags)
{
    (void)fd, (void)flags;
    if (refusal)
        return refuse_once();
    size_t bytes = message->msg_iov->iov_len < piece ? message->msg_iov->iov_len : piece;
    CHECK(sky_bytes + bytes <= sky_room);
    memcpy(sky + sky_bytes, message->msg_iov->iov_base, bytes);
    sky_bytes += bytes;
    return (ssize_t)bytes;
}

static ssize_t sky_receive(int fd, struct msghdr *message, int flags)
{
    (void)fd, (void)flags;
    last_room = message->msg_iov->iov_len;
    if (refusal)
        return refuse_once();
    size_t bytes = last_room < piece ? last_room : piece;
    bytes = bytes < sky_bytes ? bytes : sky_bytes;
    memcpy(message->msg_iov->iov_base, sky, bytes);
    memmove(sky, sky + bytes, sky_bytes - bytes);
    sky_bytes -= bytes;
    return (ssize_t)bytes;
}

static weft_i_store_link from, to;

static void begin(bool is_signed)
{
    table = weft_i_os_linux;
    table.sendmsg = sky_send;
    table.recvmsg = sky_receive;
    weft_i_os_now = &table;
    sky_room = 4 << 20;
    sky = malloc(sky_room);
    sky_bytes = 0;
    piece = SIZE_MAX;
    refusal = 0;
    CHECK(sky);
    weft_i_store_link_open(&from, -1);
    weft_i_store_link_open(&to, -1);
    if (is_signed && weft_i_keyed_load() == WEFT_ERR_UNSUPPORTED)
        SKIP("no libcrypto.so.3");
    from.is_signed = to.is_signed = is_signed;
    memset(from.send_key, 7, sizeof from.send_key);
    memset(to.receive_key, 7, sizeof to.receive_key);
}

static void end(void)
{
    weft_i_store_link_close(&from, false);
    weft_i_store_link_close(&to, false);
    weft_i_os_now = &weft_i_os_linux;
    free(sky);
}

static void queue(uint64_t id, size_t bytes)
{
    uint8_t *payload = weft_i_store_link_begin(&from, id, bytes);
    CHECK(payload);
    for (size_t i = 0; i < bytes; i++)
        payload[i] = (uint8_t)(id + i * 7);
    CHECK_OK(weft_i_store_link_commit(&from, bytes));
}

static void expect_frame(uint64_t id, size_t bytes)
{
    weft_i_store_frame frame;
    CHECK_INT(weft_i_store_link_next(&to, &frame), 1);
    CHECK_INT(frame.id, id);
    CHECK_INT(frame.bytes, bytes);
    for (size_t i = 0; i < bytes; i++)
        CHECK(frame.payload[i] == (uint8_t)(id + i * 7));
}

/* ---- frames ---- */

/* Frames of every size around those of the buffers, in pieces of every kind. */
TEST(test_store_link_frames)
{
    static const size_t sizes[] = {0, 1, 100, 456, 488, 489, 512, 4000, 4072, 4096, 5000, 70000};
    static const size_t pieces[] = {1, 7, 24, 100, 4096, SIZE_MAX};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++)
        for (int is_signed = 0; is_signed < 2; is_signed++) {
            begin(is_signed);
            piece = pieces[p];
            size_t total = 0, got = 0;
            for (size_t i = 0; i < SIZES; i++) {
                if (piece == 1 && sizes[i] > 4096)
                    continue;
                queue(i, sizes[i]);
                total += WEFT_I_STORE_HEAD_BYTES + sizes[i] + (is_signed ? 32 : 0);
            }
            CHECK_INT(weft_i_store_link_unsent(&from), total);
            CHECK_OK(weft_i_store_link_flush(&from));
            CHECK_INT(from.flushed, total);
            CHECK_INT(weft_i_store_link_unsent(&from), 0);
            CHECK_INT(sky_bytes, total);
            for (weft_i_store_frame frame; got < SIZES && sky_bytes + to.in.end;) {
                int next = weft_i_store_link_next(&to, &frame);
                if (!next) {
                    CHECK_OK(weft_i_store_link_fill(&to, 1 << 20));
                    continue;
                }
                CHECK_INT(next, 1);
                CHECK_INT(frame.id, got);
                CHECK_INT(frame.bytes, sizes[got]);
                for (size_t i = 0; i < frame.bytes; i++)
                    CHECK(frame.payload[i] == (uint8_t)(got + i * 7));
                got++;
            }
            CHECK(got >= SIZES - 2 && to.received == got && from.sent == got);
            CHECK(!sky_bytes && to.in.start == to.in.end);
            end();
        }
}

/* A frame that was repeated, left out, or changed in any bit is none. */
TEST(test_store_link_changed_frames)
{
    for (int is_signed = 0; is_signed < 2; is_signed++) {
        begin(is_signed);
        queue(3, 5);
        CHECK_OK(weft_i_store_link_flush(&from));
        size_t bytes = sky_bytes;
        uint8_t frame[128];
        memcpy(frame, sky, bytes);
        for (size_t bit = 0; bit < 8 * bytes; bit++) {
            weft_i_store_frame out;
            memcpy(sky, frame, sky_bytes = bytes);
            sky[bit / 8] ^= (uint8_t)(1 << bit % 8);
            CHECK_OK(weft_i_store_link_fill(&to, 1 << 20));
            int got = weft_i_store_link_next(&to, &out);
            size_t at = bit / 8;
            bool fixed = at < 4 || (at >= 8 && at < 16); /* magic, sequence */
            bool length = at >= 4 && at < 8;
            if (fixed    ? got != WEFT_ERR_PROTOCOL
                : length ? got == 1 && is_signed
                         : got != (is_signed ? WEFT_ERR_AUTH : 1))
                FAIL("signed %d, bit %zu: %d", is_signed, bit, got);
            if (got != 1)
                CHECK_INT(to.received, 0);
            weft_i_store_link_close(&to, false);
            weft_i_store_link_open(&to, -1);
            to.is_signed = is_signed;
            memset(to.receive_key, 7, sizeof to.receive_key);
        }
        memcpy(sky, frame, sky_bytes = bytes);
        CHECK_OK(weft_i_store_link_fill(&to, 1 << 20));
        expect_frame(3, 5);
        memcpy(sky, frame, sky_bytes = bytes);
        CHECK_OK(weft_i_store_link_fill(&to, 1 << 20));
        weft_i_store_frame out;
        CHECK_INT(weft_i_store_link_next(&to, &out), WEFT_ERR_PROTOCOL); /* once more */
        end();
    }
}

/* What the next frame needs is known from its head on, and all of it. */
TEST(test_store_link_wants)
{
    begin(true);
    queue(1, 9000);
    CHECK_OK(weft_i_store_link_flush(&from));
    piece = WEFT_I_STORE_HEAD_BYTES - 1;
    CHECK_OK(weft_i_store_link_fill(&to, 1 << 20));
    CHECK_INT(last_room, 4096);
    CHECK_INT(weft_i_store_link_wants(&to), 0);
    piece = 1;
    CHECK_OK(weft_i_store_link_fill(&to, 1 << 20));
    size_t whole = WEFT_I_STORE_HEAD_BYTES + 9000 + 32;
    CHECK_INT(weft_i_store_link_wants(&to), whole);
    weft_i_store_frame frame;
    CHECK_INT(weft_i_store_link_next(&to, &frame), 0);
    CHECK_OK(weft_i_store_link_fill(&to, 1 << 20)); /* now the rest of the frame, and no more */
    CHECK_INT(last_room, whole - WEFT_I_STORE_HEAD_BYTES);
    piece = SIZE_MAX;
    CHECK_OK(weft_i_store_link_fill(&to, 1 << 20));
    CHECK_INT(last_room, whole - WEFT_I_STORE_HEAD_BYTES - 1);
    expect_frame(1, 9000);
    end();
}

/* A stranger gets as much memory as it may have, not a byte more. */
TEST(test_store_link_limit)
{
    begin(false);
    queue(1, 9000);
    CHECK_OK(weft_i_store_link_flush(&from));
    CHECK_OK(weft_i_store_link_fill(&to, 100));
    CHECK_INT(last_room, 100);
    CHECK_INT(to.in.end - to.in.start, 100);
    last_room = 0;
    CHECK_OK(weft_i_store_link_fill(&to, 100)); /* full: the kernel is not even asked */
    CHECK_INT(last_room, 0);
    CHECK_OK(weft_i_store_link_fill(&to, 101));
    CHECK_INT(last_room, 1);
    CHECK_OK(weft_i_store_link_fill(&to, 8000));
    CHECK_INT(last_room, 8000 - 101);
    CHECK_OK(weft_i_store_link_fill(&to, 1 << 20)); /* less than a piece is left of it */
    CHECK_INT(last_room, 4096);
    expect_frame(1, 9000);
    end();
}

/* After a large frame the memory goes back; a small buffer stays. */
TEST(test_store_link_gives_memory_back)
{
    begin(false);
    queue(1, 500000);
    CHECK_OK(weft_i_store_link_flush(&from));
    CHECK_INT(from.out.capacity, 0);
    while (sky_bytes)
        CHECK_OK(weft_i_store_link_fill(&to, 1 << 20));
    expect_frame(1, 500000);
    CHECK(to.in.capacity >= 500000);
    queue(2, 10);
    CHECK_OK(weft_i_store_link_flush(&from));
    CHECK(from.out.capacity && from.out.capacity <= 64 * 1024);
    const void *kept = from.out.bytes;
    CHECK_OK(weft_i_store_link_fill(&to, 1 << 20));
    CHECK(to.in.capacity && to.in.capacity <= 64 * 1024);
    expect_frame(2, 10);
    queue(3, 10);
    CHECK_OK(weft_i_store_link_flush(&from));
    CHECK(from.out.bytes == kept);
    end();
}

/* A buffer holds exactly what is needed at first, then doubles: frames in a row are not copied each
 * time. */
TEST(test_store_link_grows)
{
    begin(false);
    queue(0, 10);
    CHECK_INT(from.out.capacity, 512);
    size_t grown = 0, capacity = 512;
    for (int i = 1; i < 2000; i++) {
        queue((uint64_t)i, 10);
        grown += from.out.capacity != capacity;
        capacity = from.out.capacity;
        CHECK(from.out.end <= capacity);
    }
    CHECK_INT(grown, 8); /* 512 to 128 KiB */
    CHECK_INT(capacity, 512 << 8);
    piece = 34 * 100; /* room at the front is used before the buffer grows */
    refusal = 0;
    CHECK_OK(weft_i_store_link_flush(&from));
    end();
    begin(false);
    queue(0, 400);
    piece = 300;
    table.sendmsg = sky_send;
    struct iovec some = {from.out.bytes, 300};
    struct msghdr message = {.msg_iov = &some, .msg_iovlen = 1};
    CHECK(sky_send(-1, &message, 0) == 300);
    from.out.start += 300;
    queue(1, 364); /* exactly what there is room for */
    CHECK_INT(from.out.start, 0);
    CHECK_INT(from.out.capacity, 512);
    piece = SIZE_MAX;
    CHECK_OK(weft_i_store_link_flush(&from));
    CHECK_OK(weft_i_store_link_fill(&to, 1 << 20));
    expect_frame(0, 400);
    expect_frame(1, 364);
    end();
}

/* A frame without a payload is there with the last byte of its head; a wrong head is known then. */
TEST(test_store_link_bare_frames)
{
    begin(false);
    queue(3, 0);
    CHECK_OK(weft_i_store_link_flush(&from));
    CHECK_INT(sky_bytes, WEFT_I_STORE_HEAD_BYTES);
    piece = WEFT_I_STORE_HEAD_BYTES - 1;
    CHECK_OK(weft_i_store_link_fill(&to, 1 << 20));
    weft_i_store_frame frame;
    CHECK_INT(weft_i_store_link_next(&to, &frame), 0);
    CHECK_OK(weft_i_store_link_fill(&to, 1 << 20));
    expect_frame(3, 0);
    queue(4, 5);
    CHECK_OK(weft_i_store_link_flush(&from));
    memset(sky, 0xff, WEFT_I_STORE_HEAD_BYTES);
    piece = WEFT_I_STORE_HEAD_BYTES;
    CHECK_OK(weft_i_store_link_fill(&to, 1 << 20));
    CHECK_INT(weft_i_store_link_next(&to, &frame), WEFT_ERR_PROTOCOL);
    end();
}

/* ---- the kernel says no ---- */

TEST(test_store_link_refusals)
{
    static const int patient[] = {EAGAIN, ENOBUFS, ENOMEM}, fatal[] = {EPIPE, ECONNRESET, EBADF};
    for (int i = 0; i < 3; i++) {
        begin(false);
        queue(1, 5);
        refusal = patient[i];
        CHECK_OK(weft_i_store_link_flush(&from));
        CHECK(weft_i_store_link_unsent(&from) == 29 && !from.flushed);
        refusal = fatal[i];
        CHECK_INT(weft_i_store_link_flush(&from), WEFT_ERR_UNREACHABLE);
        CHECK_INT(weft_i_store_link_unsent(&from), 29);
        CHECK_OK(weft_i_store_link_flush(&from));
        refusal = EAGAIN;
        CHECK_OK(weft_i_store_link_fill(&to, 1 << 20));
        CHECK_INT(to.in.end, 0);
        refusal = fatal[i];
        CHECK_INT(weft_i_store_link_fill(&to, 1 << 20), WEFT_ERR_UNREACHABLE);
        CHECK_OK(weft_i_store_link_fill(&to, 1 << 20));
        expect_frame(1, 5);
        CHECK_INT(weft_i_store_link_fill(&to, 1 << 20), WEFT_ERR_UNREACHABLE); /* its end */
        end();
    }
}

static int allocations; /* that still succeed */
static void *poor_alloc(size_t bytes)
{
    return allocations-- > 0 ? weft_i_os_linux.alloc(bytes) : NULL;
}

TEST(test_store_link_without_memory)
{
    begin(false);
    table.alloc = poor_alloc;
    allocations = 0;
    weft_i_store_greeting hello = {.version = WEFT_I_STORE_VERSION, .kind = WEFT_I_STORE_HELLO};
    CHECK(!weft_i_store_link_begin(&from, 1, 10));
    CHECK_INT(weft_i_store_link_greet(&from, &hello), WEFT_ERR_NO_MEMORY);
    CHECK_INT(weft_i_store_link_unsent(&from), 0);
    CHECK_INT(weft_i_store_link_fill(&to, 100), WEFT_ERR_NO_MEMORY);
    allocations = 1;
    queue(1, 10);
    CHECK(!weft_i_store_link_begin(&from, 2, 10000));
    CHECK_INT(weft_i_store_link_unsent(&from), 34);
    CHECK_INT(from.sent, 1);
    end();
}

/* ---- greetings ---- */

TEST(test_store_link_greetings)
{
    begin(false);
    weft_i_store_greeting hello = {.version = WEFT_I_STORE_VERSION,
                                   .kind = WEFT_I_STORE_HELLO,
                                   .release = "1"},
                          out;
    CHECK_INT(weft_i_store_link_greeting(&to, &out), 0);
    CHECK_OK(weft_i_store_link_greet(&from, &hello));
    CHECK_OK(weft_i_store_link_greet(&from, &hello));
    queue(9, 3);
    CHECK_OK(weft_i_store_link_flush(&from));
    piece = 1;
    for (int i = 1; i < WEFT_I_STORE_GREETING_BYTES; i++) {
        CHECK_OK(weft_i_store_link_fill(&to, 1 << 20));
        CHECK_INT(weft_i_store_link_greeting(&to, &out), 0);
    }
    CHECK_OK(weft_i_store_link_fill(&to, 1 << 20));
    CHECK_INT(weft_i_store_link_greeting(&to, &out), 1);
    CHECK(out.kind == WEFT_I_STORE_HELLO && !strcmp(out.release, "1"));
    piece = SIZE_MAX;
    CHECK_OK(weft_i_store_link_fill(&to, 1 << 20));
    CHECK_INT(weft_i_store_link_greeting(&to, &out), 1);
    expect_frame(9, 3);
    static const char *const wrong[] = {"X", "WX", "WEX", "WEFX", "GET / HTTP/1.1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        weft_i_store_link_close(&to, false);
        weft_i_store_link_open(&to, -1);
        memcpy(sky, wrong[i], sky_bytes = strlen(wrong[i]));
        CHECK_OK(weft_i_store_link_fill(&to, 1 << 20));
        CHECK_INT(weft_i_store_link_greeting(&to, &out), WEFT_ERR_PROTOCOL);
    }
    weft_i_store_link_close(&to, false);
    weft_i_store_link_open(&to, -1);
    weft_i_store_greeting_encode(&hello, sky);
    sky[12] = 1; /* reserved */
    sky_bytes = WEFT_I_STORE_GREETING_BYTES;
    CHECK_OK(weft_i_store_link_fill(&to, 1 << 20));
    CHECK_INT(weft_i_store_link_greeting(&to, &out), WEFT_ERR_PROTOCOL);
    end();
}

/* What both prove depends on the token, on the purpose and on every byte that was said, but for the
 * challenge's own proof. */
TEST(test_store_link_proofs)
{
    if (weft_i_keyed_load() == WEFT_ERR_UNSUPPORTED)
        SKIP("no libcrypto.so.3");
    weft_i_store_greeting hello = {.version = WEFT_I_STORE_VERSION, .kind = WEFT_I_STORE_HELLO},
                          challenge = {.version = WEFT_I_STORE_VERSION,
                                       .kind = WEFT_I_STORE_CHALLENGE};
    uint8_t token[32] = {1}, other[32] = {2}, proof[32], again[32];
    weft_i_store_transcript said;
    weft_i_store_transcript_set(&said, &hello, &challenge);
    CHECK_OK(weft_i_store_link_derive(token, WEFT_I_STORE_SERVER_PROOF, &said, proof));
    for (int purpose = 1; purpose <= WEFT_I_STORE_HELLO_PROOF; purpose++) {
        CHECK_OK(weft_i_store_link_derive(token, (weft_i_store_purpose)purpose, &said, again));
        CHECK_INT(weft_i_keyed_equal(proof, again), purpose == WEFT_I_STORE_SERVER_PROOF);
    }
    CHECK_OK(weft_i_store_link_derive(other, WEFT_I_STORE_SERVER_PROOF, &said, again));
    CHECK(!weft_i_keyed_equal(proof, again));
    challenge.proof[5] = 1;
    weft_i_store_transcript_set(&said, &hello, &challenge);
    CHECK_OK(weft_i_store_link_derive(token, WEFT_I_STORE_SERVER_PROOF, &said, again));
    CHECK(weft_i_keyed_equal(proof, again));
    challenge.nonce[31] = 1;
    weft_i_store_transcript_set(&said, &hello, &challenge);
    CHECK_OK(weft_i_store_link_derive(token, WEFT_I_STORE_SERVER_PROOF, &said, again));
    CHECK(!weft_i_keyed_equal(proof, again));
    CHECK_OK(weft_i_store_link_hello_proof(token, &hello, proof));
    memcpy(hello.proof, proof, sizeof proof);
    CHECK_OK(weft_i_store_link_hello_proof(token, &hello, again));
    CHECK(weft_i_keyed_equal(proof, again));
    hello.nonce[0] = 1;
    CHECK_OK(weft_i_store_link_hello_proof(token, &hello, again));
    CHECK(!weft_i_keyed_equal(proof, again));
}

/* The end of a connection is told whatever the last failure of a call was. */
TEST(test_store_link_end)
{
    begin(false);
    errno = EAGAIN; /* the sky is empty, and that is the end of it */
    CHECK_STATUS(weft_i_store_link_fill(&to, 1 << 20), WEFT_ERR_UNREACHABLE);
    end();
}

/* Greetings one behind the other, the last one not yet whole. */
TEST(test_store_link_greetings_in_a_row)
{
    uint8_t bytes[3 * WEFT_I_STORE_GREETING_BYTES];
    weft_i_store_greeting out = {0};
    begin(false);
    for (unsigned i = 0; i < 3; i++) {
        weft_i_store_greeting greeting = {
            .version = WEFT_I_STORE_VERSION, .kind = WEFT_I_STORE_HELLO, .release = "1.2.3"};
        greeting.nonce[0] = (uint8_t)i;
        weft_i_store_greeting_encode(&greeting, bytes + i * WEFT_I_STORE_GREETING_BYTES);
    }
    memcpy(sky, bytes, sky_bytes = sizeof bytes - 1);
    CHECK_OK(weft_i_store_link_fill(&to, 1 << 20));
    CHECK_INT(weft_i_store_link_greeting(&to, &out), 1);
    CHECK_INT(out.nonce[0], 0);
    CHECK_INT(weft_i_store_link_greeting(&to, &out), 1);
    CHECK_INT(out.nonce[0], 1);
    CHECK_INT(weft_i_store_link_greeting(&to, &out), 0);
    memcpy(sky, bytes + sizeof bytes - 1, sky_bytes = 1);
    CHECK_OK(weft_i_store_link_fill(&to, 1 << 20));
    CHECK_INT(weft_i_store_link_greeting(&to, &out), 1);
    CHECK_INT(out.nonce[0], 2);
    CHECK_INT(weft_i_store_link_greeting(&to, &out), 0);
    end();
}

/* The keys are gone with the connection. */
TEST(test_store_link_forgets)
{
    begin(false);
    queue(1, 5);
    weft_i_store_link_close(&from, false);
    uint8_t zero[32] = {0};
    CHECK(!memcmp(from.send_key, zero, 32) && from.fd == -1 && !from.out.bytes && !from.sent);
    end();
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
