/* SPDX-License-Identifier: Apache-2.0 */
/* What this rank does to memory of other hosts; see remote.h. */
#include "symm/remote_moves.h"

#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/status.h"
#include "symm/remote_messages.h"

#include <string.h>

static size_t piece_of(size_t left)
{
    return left < WEFT_I_FAR_PIECE ? left : WEFT_I_FAR_PIECE;
}

/* A member that cannot be reached is left to whoever looks at its fate. */
static bool is_fatal(weft_status status)
{
    return status < 0 && status != WEFT_ERR_UNREACHABLE;
}

weft_status weft_i_far_refuse(const weft_symm *mem, int rank, const char *what)
{
    return weft_i_fail(
        WEFT_ERR_UNSUPPORTED,
        "%s: rank %d of group \"%s\" is on another host, so its memory has no address "
        "here; weft_symm_put, weft_symm_get and signals reach it",
        what, rank, mem->group->name);
}

/* ---- putting ---- */

typedef struct putting {
    const weft_symm *mem;
    int rank;
    size_t at;
    const char *from;
    size_t left;
    uint32_t facts; /* of the last piece */
    weft_status status;
} putting;

static weft_status send_piece(putting *p, size_t bytes)
{
    WEFT_ASSERT(bytes > 0 && bytes <= p->left);
    weft_i_hosts *hosts = p->mem->group->hosts;
    uint32_t facts = bytes == p->left ? p->facts : 0;
    const uint32_t word[WEFT_I_HEAD_WORDS] = {[WORD_SERIAL] = p->mem->registration->serial,
                                              [WORD_AT] = (uint32_t)p->at,
                                              [WORD_AT_HIGH] = (uint32_t)((uint64_t)p->at >> 32),
                                              [WORD_FACTS] = facts};
    WEFT_TRY(weft_i_hosts_tell(p->mem->group, p->rank, WEFT_I_HEAD_PUT, word, p->from, bytes));
    weft_i_hosts_put_sent(hosts, p->rank, true, facts & PUT_ASKS);
    p->at += bytes;
    p->from += bytes;
    p->left -= bytes;
    return WEFT_OK;
}

/* Sends what there is room for; true if that was all, or it failed. */
static bool push(void *arg)
{
    putting *p = arg;
    weft_i_remote *remote = p->mem->group->world->remote;
    weft_i_errors before;
    weft_i_errors_save(&before);
    weft_i_remote_enter(remote);
    p->status = WEFT_OK;
    while (p->left && p->status == WEFT_OK &&
           weft_i_hosts_put_has_room(p->mem->group->hosts, p->rank))
        p->status = send_piece(p, piece_of(p->left));
    weft_i_remote_give(remote);
    if (!is_fatal(p->status))
        weft_i_errors_restore(&before);
    return !p->left || is_fatal(p->status);
}

weft_status weft_i_far_put(const weft_i_label *label, const weft_symm *mem, int rank, size_t at,
                           const char *from, size_t bytes, bool signals, int64_t limit_ms)
{
    putting p = {.mem = mem, .rank = rank, .at = at, .from = from, .left = bytes};
    p.facts = signals ? PUT_SIGNALS | (uint32_t)label->channel << PUT_BITS : PUT_ASKS;
    WEFT_ASSERT(!signals || (bytes && bytes <= WEFT_I_FAR_PIECE));
    WEFT_TRY(weft_i_group_check_revoked(label));
    if (!push(&p))
        WEFT_TRY(weft_i_hosts_wait(label, push, &p, rank, limit_ms));
    return p.status;
}

/* ---- getting ---- */

struct weft_i_far_get {
    weft_i_far_get *next;
    const weft_symm *mem;
    uint32_t number;
    int rank;
    size_t at;
    char *to;
    size_t bytes, asked, got;
    weft_status status;
};

static weft_status ask_piece(weft_i_far_get *get, size_t bytes)
{
    unsigned char wanted[4];
    uint64_t at = get->at + get->asked;
    const uint32_t word[WEFT_I_HEAD_WORDS] = {[WORD_SERIAL] = get->mem->registration->serial,
                                              [WORD_AT] = (uint32_t)at,
                                              [WORD_AT_HIGH] = (uint32_t)(at >> 32),
                                              [WORD_FACTS] = get->number};
    weft_i_wire_writer to = weft_i_wire_write(wanted, sizeof wanted);
    weft_i_wire_put_u32(&to, (uint32_t)bytes);
    WEFT_TRY(weft_i_hosts_tell(get->mem->group, get->rank, WEFT_I_HEAD_GET, word, wanted,
                               sizeof wanted));
    get->asked += bytes;
    return WEFT_OK;
}

/* Under the remote's lock. */
static void ask_more(weft_i_far_get *get)
{
    WEFT_ASSERT(get->got <= get->asked && get->asked <= get->bytes);
    const size_t window = (size_t)WEFT_I_FAR_GETS * WEFT_I_FAR_PIECE;
    weft_status status = WEFT_OK;
    while (get->asked < get->bytes && get->asked - get->got < window && status == WEFT_OK)
        status = ask_piece(get, piece_of(get->bytes - get->asked));
    if (is_fatal(status) && get->status == WEFT_OK)
        get->status = status;
}

void weft_i_far_got(weft_i_far_memory *far, int from, uint32_t number, int32_t status,
                    const void *data, size_t bytes)
{
    weft_i_far_get *get = far->gets;
    while (get && (get->number != number || get->rank != from))
        get = get->next;
    if (!get || get->status < 0)
        return; /* it was given up */
    if (status)
        get->status = status < 0 ? (weft_status)status : WEFT_ERR_PROTOCOL;
    else if (get->got == get->asked || bytes != piece_of(get->bytes - get->got))
        get->status = WEFT_ERR_PROTOCOL;
    if (get->status < 0)
        return;
    memcpy(get->to + get->got, data, bytes);
    get->got += bytes;
    ask_more(get);
}

static bool has_got(void *arg)
{
    weft_i_far_get *get = arg;
    weft_i_remote *remote = get->mem->group->world->remote;
    weft_i_errors before;
    weft_i_remote_enter(remote);
    if (get->asked < get->bytes && get->status == WEFT_OK) {
        weft_i_errors_save(&before);
        ask_more(get);
        weft_i_errors_restore(&before); /* `fail` has its own words */
    }
    bool over = get->got == get->bytes || get->status < 0;
    weft_i_remote_give(remote);
    return over;
}

static void begin(weft_i_far_get *get)
{
    weft_i_far_memory *far = get->mem->registration->far;
    weft_i_remote *remote = get->mem->group->world->remote;
    weft_i_remote_enter(remote);
    get->number = ++far->last_get;
    get->next = far->gets;
    far->gets = get;
    weft_i_remote_give(remote);
}

/* Nothing is written to its memory any more. */
static void end(const weft_i_far_get *get)
{
    weft_i_far_get **at = &get->mem->registration->far->gets;
    weft_i_remote *remote = get->mem->group->world->remote;
    weft_i_remote_enter(remote);
    while (*at != get) {
        WEFT_ASSERT(*at); /* `begin` has put it there */
        at = &(*at)->next;
    }
    *at = get->next;
    weft_i_remote_give(remote);
}

static weft_status fail(const weft_i_label *label, const weft_i_far_get *get)
{
    const weft_group *group = label->group;
    const char *why = get->status == WEFT_ERR_STATE         ? "it has let go of that memory"
                      : get->status == WEFT_ERR_INVALID_ARG ? "it has no such bytes"
                      : get->status == WEFT_ERR_PROTOCOL    ? "its answer makes no sense"
                                                            : weft_strerror(get->status);
    weft_i_group_concerns(group);
    return weft_i_fail(get->status, "%s in group \"%s\": %zu bytes of rank %d: %s", label->op,
                       group->name, get->bytes, get->rank, why);
}

weft_status weft_i_far_fetch(const weft_i_label *label, const weft_symm *mem, int rank, size_t at,
                             char *to, size_t bytes, int64_t limit_ms)
{
    weft_i_far_get get = {.mem = mem, .rank = rank, .at = at, .to = to, .bytes = bytes};
    WEFT_TRY(weft_i_group_check_revoked(label));
    begin(&get);
    weft_status status =
        has_got(&get) ? WEFT_OK : weft_i_hosts_wait(label, has_got, &get, rank, limit_ms);
    end(&get);
    return status == WEFT_OK && get.status < 0 ? fail(label, &get) : status;
}

/* ---- signals ---- */

static weft_status tell(const weft_symm *mem, int rank, int channel, weft_i_head_kind kind)
{
    weft_i_hosts *hosts = mem->group->hosts;
    weft_i_remote *remote = mem->group->world->remote;
    weft_i_errors before;
    weft_i_errors_save(&before);
    weft_i_remote_enter(remote);
    uint32_t word[WEFT_I_HEAD_WORDS] = {
        [WORD_SERIAL] = mem->registration->serial, [WORD_CHANNEL] = (uint32_t)channel};
    if (kind == WEFT_I_HEAD_TAKEN)
        word[WORD_APPLIED] = weft_i_hosts_put_tell(hosts, rank);
    weft_status status = weft_i_hosts_tell(mem->group, rank, kind, word, NULL, 0);
    if (kind == WEFT_I_HEAD_SIGNAL && status == WEFT_OK)
        weft_i_hosts_put_sent(hosts, rank, false, false);
    weft_i_remote_give(remote);
    if (is_fatal(status))
        return status;
    weft_i_errors_restore(&before);
    return WEFT_OK;
}

weft_status weft_i_far_tell_signal(const weft_symm *mem, int rank, int channel)
{
    return tell(mem, rank, channel, WEFT_I_HEAD_SIGNAL);
}

weft_status weft_i_far_tell_taken(const weft_symm *mem, int rank, int channel)
{
    return tell(mem, rank, channel, WEFT_I_HEAD_TAKEN);
}
