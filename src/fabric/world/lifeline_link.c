/* SPDX-License-Identifier: Apache-2.0 */
/* One lifeline; see lifeline_link.h. */
#include "lifeline_link.h"

#include "base/machine/nofork.h"
#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/text.h"

#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <string.h>

/* FRAME_MOST: of one that is signed, with its head and its tag. */
enum { MAGIC = 0x4c544657 /* "WFTL" */, LAYOUT = 1, FRAME_MOST = 1024, UNSENT_MOST = 256 * 1024 };
enum { SIGNED_BYTES = 4 + 16 + 4 + 4 + 2 * WEFT_I_LIFE_NONCE };
enum { HELLO_BYTES = 6 + 4 + 4 + WEFT_I_LIFE_NONCE + WEFT_I_KEYED_BYTES };
enum { WELCOME_BYTES = WEFT_I_LIFE_NONCE + WEFT_I_KEYED_BYTES };
enum { NEWS_BYTES = 4 + 2 + 2 + 8 + WEFT_I_LIFE_TEXT };

/* What is derived; the one for this place in the conversation is good for no other. */
typedef enum purpose {
    LIFE_KEY = 1,
    HELLO_PROOF,
    WELCOME_PROOF,
    TO_DIALLER_KEY,
    TO_ACCEPTOR_KEY
} purpose;

void weft_i_life_self_set(weft_i_life_self *self, const uint8_t secret[WEFT_I_KEYED_BYTES],
                          weft_i_key job, int rank, int ranks, int silence_ms)
{
    static const char name[] = "weft lifeline";
    *self = (weft_i_life_self){.job = job, .rank = rank, .ranks = ranks, .silence_ms = silence_ms};
    weft_i_keyed_sign(secret, name, sizeof name, self->key);
}

static bool derive(const weft_i_life_link *link, const weft_i_life_self *self, purpose what,
                   uint8_t out[WEFT_I_KEYED_BYTES])
{
    static const uint8_t none[WEFT_I_LIFE_NONCE];
    unsigned char text[SIGNED_BYTES];
    const uint8_t *first = link->dialled ? link->nonce : link->other;
    const uint8_t *second = link->dialled ? link->other : link->nonce;
    weft_i_wire_writer to = weft_i_wire_write(text, sizeof text);
    weft_i_wire_put_u32(&to, what);
    weft_i_wire_put_u64(&to, self->job.word[0]);
    weft_i_wire_put_u64(&to, self->job.word[1]);
    weft_i_wire_put_u32(&to, (uint32_t)(link->dialled ? self->rank : link->rank));
    weft_i_wire_put_u32(&to, (uint32_t)(link->dialled ? link->rank : self->rank));
    /* The dialler's nonce comes first; of a HELLO there is no other yet. */
    weft_i_wire_put_bytes(&to, first, WEFT_I_LIFE_NONCE);
    weft_i_wire_put_bytes(&to, what == HELLO_PROOF ? none : second, WEFT_I_LIFE_NONCE);
    WEFT_ASSERT(to.at == sizeof text);
    return weft_i_keyed_sign(self->key, text, to.at, out) == WEFT_OK;
}

static void set_stage(weft_i_life_link *link, weft_i_life_stage stage)
{
    WEFT_ASSERT(stage > link->stage);
    link->stage = stage;
    link->since = WEFT_OS->clock_ns();
}

/* ---- saying ---- */

static uint8_t *begin(weft_i_life_link *link, weft_i_life_kind kind, size_t bytes)
{
    /* Nobody reads there: what is told is told again when the connection is a new one. */
    if (weft_i_store_link_unsent(&link->line) > UNSENT_MOST)
        return NULL;
    return weft_i_store_link_begin(&link->line, kind, bytes);
}

static void commit(weft_i_life_link *link, size_t bytes)
{
    if (weft_i_store_link_commit(&link->line, bytes) == WEFT_OK)
        weft_i_store_link_flush(&link->line);
}

void weft_i_life_say_number(weft_i_life_link *link, weft_i_life_kind kind, uint64_t number)
{
    uint8_t *payload = begin(link, kind, sizeof number);
    if (!payload)
        return;
    weft_i_wire_writer to = weft_i_wire_write(payload, sizeof number);
    weft_i_wire_put_u64(&to, number);
    commit(link, to.at);
}

void weft_i_life_say_news(weft_i_life_link *link, const weft_i_life_news *news)
{
    uint8_t *payload = begin(link, WEFT_I_LIFE_NEWS, NEWS_BYTES);
    if (!payload)
        return;
    weft_i_wire_writer to = weft_i_wire_write(payload, NEWS_BYTES);
    weft_i_wire_put_u32(&to, (uint32_t)news->rank);
    weft_i_wire_put_u8(&to, (uint8_t)news->fate);
    weft_i_wire_put_u8(&to, news->stopped);
    weft_i_wire_put_zero(&to, 2);
    weft_i_wire_put_u64(&to, news->serial);
    weft_i_wire_put_text(&to, news->text, WEFT_I_LIFE_TEXT);
    WEFT_ASSERT(to.at == NEWS_BYTES);
    commit(link, to.at);
}

static bool say_hello(weft_i_life_link *link, const weft_i_life_self *self)
{
    uint8_t proof[WEFT_I_KEYED_BYTES];
    uint8_t *payload = begin(link, WEFT_I_LIFE_HELLO, HELLO_BYTES);
    if (!payload || !derive(link, self, HELLO_PROOF, proof))
        return false;
    weft_i_wire_writer to = weft_i_wire_write(payload, HELLO_BYTES);
    weft_i_wire_put_head(&to, MAGIC, LAYOUT);
    weft_i_wire_put_u32(&to, (uint32_t)self->rank);
    weft_i_wire_put_u32(&to, (uint32_t)link->rank);
    weft_i_wire_put_bytes(&to, link->nonce, sizeof link->nonce);
    weft_i_wire_put_bytes(&to, proof, sizeof proof);
    WEFT_ASSERT(to.at == HELLO_BYTES);
    commit(link, to.at);
    return true;
}

/* From here on all is signed. */
static bool take_keys(weft_i_life_link *link, const weft_i_life_self *self)
{
    WEFT_ASSERT(!link->line.is_signed);
    purpose out = link->dialled ? TO_ACCEPTOR_KEY : TO_DIALLER_KEY;
    purpose in = link->dialled ? TO_DIALLER_KEY : TO_ACCEPTOR_KEY;
    link->line.is_signed = derive(link, self, out, link->line.send_key) &&
                           derive(link, self, in, link->line.receive_key);
    return link->line.is_signed;
}

static bool say_welcome(weft_i_life_link *link, const weft_i_life_self *self)
{
    uint8_t proof[WEFT_I_KEYED_BYTES];
    uint8_t *payload = begin(link, WEFT_I_LIFE_WELCOME, WELCOME_BYTES);
    if (!payload || !derive(link, self, WELCOME_PROOF, proof))
        return false;
    weft_i_wire_writer to = weft_i_wire_write(payload, WELCOME_BYTES);
    weft_i_wire_put_bytes(&to, link->nonce, sizeof link->nonce);
    weft_i_wire_put_bytes(&to, proof, sizeof proof);
    WEFT_ASSERT(to.at == WELCOME_BYTES);
    commit(link, to.at);
    return true;
}

/* ---- its beginning and end ---- */

/* The kernel asks an idle peer each second, and gives a connection up on which nothing that was sent is
 * acknowledged. */
static void tune(int fd, int silence_ms)
{
    int one = 1, probes = 1 + silence_ms / 1000;
    unsigned limit = (unsigned)silence_ms;
    WEFT_OS->setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    WEFT_OS->setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    WEFT_OS->setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &one, sizeof one);
    WEFT_OS->setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &one, sizeof one);
    WEFT_OS->setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
    WEFT_OS->setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit, sizeof limit);
}

/* False: it is closed again. */
static bool open_link(weft_i_life_link *link, const weft_i_life_self *self, int fd,
                      weft_i_life_stage stage)
{
    WEFT_ASSERT(link->stage == WEFT_I_LIFE_CLOSED);
    *link = (weft_i_life_link){.rank = -1};
    if (weft_i_nofork_add(fd) < 0) {
        WEFT_OS->close(fd);
        return false;
    }
    weft_i_store_link_open(&link->line, fd);
    set_stage(link, stage);
    tune(fd, self->silence_ms);
    if (WEFT_OS->random_bytes(link->nonce, sizeof link->nonce) == 0)
        return true;
    weft_i_life_close(link);
    return false;
}

weft_i_life_end weft_i_life_dial(weft_i_life_link *link, const weft_i_life_self *self, int rank,
                                 const char *address)
{
    weft_i_store_address where;
    if (!weft_i_store_address_read(address, &where))
        return WEFT_I_LIFE_BROKE;
    int fd = WEFT_OS->socket(where.where.ss_family, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (fd < 0 || !open_link(link, self, fd, WEFT_I_LIFE_CONNECTING))
        return WEFT_I_LIFE_BROKE;
    link->rank = rank;
    link->dialled = true;
    link->where = where;
    if (WEFT_OS->connect(fd, (const struct sockaddr *)&where.where, where.length) == 0 ||
        errno == EINPROGRESS)
        return WEFT_I_LIFE_GOES_ON;
    bool refused = errno == ECONNREFUSED;
    weft_i_life_close(link);
    return refused ? WEFT_I_LIFE_REFUSED : WEFT_I_LIFE_BROKE;
}

void weft_i_life_accept(weft_i_life_link *link, const weft_i_life_self *self, int fd)
{
    open_link(link, self, fd, WEFT_I_LIFE_LISTENING);
}

void weft_i_life_close(weft_i_life_link *link)
{
    if (link->stage == WEFT_I_LIFE_CLOSED)
        return;
    weft_i_store_link_close(&link->line, false);
    *link = (weft_i_life_link){.rank = -1};
}

/* ---- moving ---- */

short weft_i_life_events(const weft_i_life_link *link)
{
    bool writes =
        link->stage == WEFT_I_LIFE_CONNECTING || weft_i_store_link_unsent(&link->line) > 0;
    return (short)(POLLIN | (writes ? POLLOUT : 0));
}

/* A connect to a free port of this host can meet itself, and then no server can have that port. */
static bool met_itself(const weft_i_life_link *link)
{
    const weft_i_store_address *to = &link->where;
    weft_i_store_address own = {.length = sizeof own.where};
    return WEFT_OS->getsockname(link->line.fd, (struct sockaddr *)&own.where, &own.length) != 0 ||
           (own.length == to->length && memcmp(&own.where, &to->where, own.length) == 0);
}

static weft_i_life_end connected(weft_i_life_link *link, const weft_i_life_self *self)
{
    int error = 0;
    socklen_t length = sizeof error;
    if (WEFT_OS->getsockopt(link->line.fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0 || error)
        return error == ECONNREFUSED ? WEFT_I_LIFE_REFUSED : WEFT_I_LIFE_BROKE;
    if (met_itself(link)) /* nobody listens there */
        return WEFT_I_LIFE_REFUSED;
    if (!say_hello(link, self))
        return WEFT_I_LIFE_BROKE;
    set_stage(link, WEFT_I_LIFE_GREETING);
    return WEFT_I_LIFE_GOES_ON;
}

weft_i_life_end weft_i_life_move(weft_i_life_link *link, const weft_i_life_self *self,
                                 short revents)
{
    size_t limit = link->stage == WEFT_I_LIFE_OPEN ? FRAME_MOST * 64 : WEFT_I_LIFE_STRANGER_BYTES;
    if (!revents)
        return WEFT_I_LIFE_GOES_ON;
    if (link->stage == WEFT_I_LIFE_CONNECTING)
        return connected(link, self);
    if (weft_i_store_link_flush(&link->line) < 0)
        return WEFT_I_LIFE_BROKE;
    if ((revents & (POLLIN | POLLHUP | POLLERR)) && weft_i_store_link_fill(&link->line, limit) < 0)
        return WEFT_I_LIFE_BROKE;
    return WEFT_I_LIFE_GOES_ON;
}

/* ---- hearing ---- */

static bool take_hello(weft_i_life_link *link, const weft_i_life_self *self,
                       const weft_i_store_frame *frame)
{
    uint8_t proof[WEFT_I_KEYED_BYTES], expected[WEFT_I_KEYED_BYTES];
    weft_i_wire_reader from = weft_i_wire_read(frame->payload, frame->bytes);
    if (weft_i_wire_get_head(&from, MAGIC) != LAYOUT)
        return false;
    uint32_t rank = weft_i_wire_get_u32(&from), to = weft_i_wire_get_u32(&from);
    weft_i_wire_get_bytes(&from, link->other, sizeof link->other);
    weft_i_wire_get_bytes(&from, proof, sizeof proof);
    if (!weft_i_wire_done(&from) || rank >= (uint32_t)self->ranks || (int)rank == self->rank ||
        (int)to != self->rank)
        return false;
    link->rank = (int)rank;
    if (!derive(link, self, HELLO_PROOF, expected) || !weft_i_keyed_equal(expected, proof) ||
        !say_welcome(link, self) || !take_keys(link, self))
        return false;
    set_stage(link, WEFT_I_LIFE_PROVING);
    return true;
}

static bool take_welcome(weft_i_life_link *link, const weft_i_life_self *self,
                         const weft_i_store_frame *frame)
{
    uint8_t proof[WEFT_I_KEYED_BYTES], expected[WEFT_I_KEYED_BYTES];
    weft_i_wire_reader from = weft_i_wire_read(frame->payload, frame->bytes);
    weft_i_wire_get_bytes(&from, link->other, sizeof link->other);
    weft_i_wire_get_bytes(&from, proof, sizeof proof);
    if (!weft_i_wire_done(&from) || !derive(link, self, WELCOME_PROOF, expected) ||
        !weft_i_keyed_equal(expected, proof) || !take_keys(link, self))
        return false;
    set_stage(link, WEFT_I_LIFE_OPEN);
    return true;
}

static bool take_news(const weft_i_life_self *self, weft_i_wire_reader *from, weft_i_life_news *out)
{
    uint32_t rank = weft_i_wire_get_u32(from);
    out->fate = weft_i_wire_get_u8(from);
    uint8_t stopped = weft_i_wire_get_u8(from);
    weft_i_wire_get_zero(from, 2);
    out->serial = weft_i_wire_get_u64(from);
    weft_i_wire_get_text(from, out->text, sizeof out->text);
    weft_i_text_tame(out->text, false);
    out->rank = (int)rank;
    out->stopped = stopped == 1;
    return rank < (uint32_t)self->ranks && out->fate <= 2 && stopped <= 1;
}

/* What only comes once both have proved themselves. */
static bool take_signed(const weft_i_life_self *self, const weft_i_store_frame *frame,
                        weft_i_life_said *out)
{
    weft_i_wire_reader from = weft_i_wire_read(frame->payload, frame->bytes);
    bool good = true;
    out->kind = (weft_i_life_kind)frame->id;
    if (frame->id == WEFT_I_LIFE_PING || frame->id == WEFT_I_LIFE_PONG)
        out->number = weft_i_wire_get_u64(&from);
    else
        good = frame->id == WEFT_I_LIFE_NEWS && take_news(self, &from, &out->news);
    return good && weft_i_wire_done(&from);
}

int weft_i_life_next(weft_i_life_link *link, const weft_i_life_self *self, weft_i_life_said *out)
{
    weft_i_store_frame frame;
    bool stranger = !link->line.is_signed;
    if (weft_i_store_link_wants(&link->line) > FRAME_MOST)
        return WEFT_ERR_PROTOCOL;
    int got = weft_i_store_link_next(&link->line, &frame);
    if (got <= 0)
        return got;
    if (stranger) {
        weft_i_life_kind due = link->dialled ? WEFT_I_LIFE_WELCOME : WEFT_I_LIFE_HELLO;
        bool good = frame.id == due && (link->dialled ? take_welcome(link, self, &frame)
                                                      : take_hello(link, self, &frame));
        out->kind = due;
        return good ? 1 : WEFT_ERR_AUTH;
    }
    if (!take_signed(self, &frame, out))
        return WEFT_ERR_PROTOCOL;
    if (link->stage == WEFT_I_LIFE_PROVING)
        set_stage(link, WEFT_I_LIFE_OPEN);
    return 1;
}

int64_t weft_i_life_quiet_ns(const weft_i_life_link *link, bool *settled)
{
    struct tcp_info info = {0};
    socklen_t length = sizeof info;
    *settled = false;
    if (WEFT_OS->getsockopt(link->line.fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0)
        return -1;
    *settled = !info.tcpi_unacked && !weft_i_store_link_unsent(&link->line);
    return (int64_t)info.tcpi_last_ack_recv * 1000000;
}
