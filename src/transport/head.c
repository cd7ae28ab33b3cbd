/* SPDX-License-Identifier: Apache-2.0 */
/* Heads of messages; see head.h. */
#include "head.h"

#include "base/os/assert.h"
#include "base/share/wire.h"

static const struct {
    const char *name;
    bool data;
} kinds[] = {
    {"?", false},
#define KIND(name_, data_, text_) {#name_, data_},
#include "transport/kinds.def"
#undef KIND
};

void weft_i_head_write(const weft_i_head *head, unsigned char out[WEFT_I_HEAD_BYTES])
{
    WEFT_ASSERT(head->kind > WEFT_I_HEAD_NONE && head->kind < WEFT_I_HEAD_KINDS);
    weft_i_wire_writer to = weft_i_wire_write(out, WEFT_I_HEAD_BYTES);
    weft_i_wire_put_u32(&to, WEFT_I_HEAD_MAGIC);
    weft_i_wire_put_u16(&to, WEFT_I_HEAD_LAYOUT);
    weft_i_wire_put_u16(&to, (uint16_t)head->kind);
    weft_i_wire_put_u32(&to, head->source);
    weft_i_wire_put_u32(&to, head->number);
    weft_i_wire_put_u64(&to, head->cookie);
    weft_i_wire_put_u64(&to, head->group);
    for (int i = 0; i < WEFT_I_HEAD_WORDS; i++)
        weft_i_wire_put_u32(&to, head->word[i]);
}

/* What no reader needs to know anything for. */
static weft_i_head_fault check(const weft_i_head *head, size_t bytes,
                               const weft_i_head_reader *reader)
{
    if (head->kind == WEFT_I_HEAD_NONE || head->kind >= WEFT_I_HEAD_KINDS)
        return WEFT_I_HEAD_BAD_KIND;
    if (head->source >= (uint32_t)reader->ranks || head->source == (uint32_t)reader->rank)
        return WEFT_I_HEAD_BAD_SOURCE;
    if ((head->kind == WEFT_I_HEAD_HELLO) != !head->cookie)
        return WEFT_I_HEAD_BAD_COOKIE;
    if (bytes > reader->segment || (bytes && !kinds[head->kind].data))
        return WEFT_I_HEAD_BAD_DATA;
    return WEFT_I_HEAD_GOOD;
}

weft_i_head_fault weft_i_head_read(const void *head, size_t bytes, const weft_i_head_reader *reader,
                                   weft_i_head *out)
{
    weft_i_wire_reader from = weft_i_wire_read(head, WEFT_I_HEAD_BYTES);
    weft_i_head found = {.kind = WEFT_I_HEAD_NONE};
    if (weft_i_wire_get_u32(&from) != WEFT_I_HEAD_MAGIC)
        return WEFT_I_HEAD_NOT_OURS;
    if (weft_i_wire_get_u16(&from) != WEFT_I_HEAD_LAYOUT)
        return WEFT_I_HEAD_OTHER_LAYOUT;
    found.kind = (weft_i_head_kind)weft_i_wire_get_u16(&from);
    found.source = weft_i_wire_get_u32(&from);
    found.number = weft_i_wire_get_u32(&from);
    found.cookie = weft_i_wire_get_u64(&from);
    found.group = weft_i_wire_get_u64(&from);
    for (int i = 0; i < WEFT_I_HEAD_WORDS; i++)
        found.word[i] = weft_i_wire_get_u32(&from);
    weft_i_head_fault fault = check(&found, bytes, reader);
    if (fault == WEFT_I_HEAD_GOOD)
        *out = found;
    return fault;
}

const char *weft_i_head_fault_text(weft_i_head_fault fault)
{
    static const char *const texts[] = {
        "good",         "not a message of weft", "another layout", "no such kind",
        "no such rank", "a wrong cookie",        "data too long",  "?"};
    return texts[fault <= WEFT_I_HEAD_BAD_DATA ? fault : WEFT_I_HEAD_BAD_DATA + 1];
}

const char *weft_i_head_kind_name(unsigned kind)
{
    return kinds[kind < WEFT_I_HEAD_KINDS ? kind : 0].name;
}

bool weft_i_head_is_from(const weft_i_head *head, uint64_t cookie)
{
    /* One word, one comparison: no byte is looked at before another. */
    return (head->cookie == cookie) & (cookie != 0);
}
