/* SPDX-License-Identifier: Apache-2.0 */
/* What other hosts do to memory of this rank, and what this rank has of such memory; see remote.h. */
#include "symm/remote.h"

#include "base/os/os.h"
#include "base/report/status.h"
#include "symm/remote_messages.h"

#include <string.h>

/* ---- its beginning and end ---- */

static void release_nothing(weft_i_segment *segment)
{
    (void)segment;
}

weft_status weft_i_far_block(size_t bytes, weft_i_segment **out)
{
    return weft_i_segment_wrap(NULL, bytes, -1, release_nothing, NULL, out);
}

static weft_i_point first_point(const weft_group *group, const weft_i_pads *pads)
{
    return (weft_i_point){.me = group->rank,
                          .size = group->size,
                          .words = pads->segment->base + pads->words_at,
                          .passes = pads->segment->base + pads->passes_at,
                          .bells = pads->segment->base,
                          .gave_up = pads->segment->base + sizeof(uint64_t),
                          .stride = pads->stride,
                          .mode = group->world->mode};
}

weft_status weft_i_far_open(weft_group *group, uint32_t serial, const weft_i_pads *pads,
                            const weft_i_segment *own, weft_i_far_memory **out)
{
    weft_i_far_memory *far = WEFT_OS->alloc(sizeof *far);
    if (!far)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "rendezvous: no memory for what other hosts write");
    far->pads.serial = serial;
    far->pads.channels = pads->channels;
    far->pads.first = first_point(group, pads);
    far->users = *pads;
    far->ranks = group->size;
    far->base = own->base;
    far->bytes = own->bytes;
    weft_status status = weft_i_hosts_pads_join(group, &far->pads);
    if (status == WEFT_OK)
        *out = far;
    else
        WEFT_OS->free(far);
    return status;
}

void weft_i_far_close(weft_i_far_memory *far)
{
    if (!far)
        return;
    weft_i_hosts_pads_leave(&far->pads);
    WEFT_OS->free(far);
}

weft_i_far_memory *weft_i_far_find(const weft_group *group, int from, uint32_t serial)
{
    return group->hosts->away[from]
               ? (weft_i_far_memory *)(void *)weft_i_hosts_pads_find(group, serial)
               : NULL;
}

/* What no member of ours would send: nobody knows any more what the memory holds. */
static void end_group(weft_group *group)
{
    weft_i_group_spoil(group, WEFT_ERR_PROTOCOL);
}

static void count_piece(const weft_group *group, int from, bool tell)
{
    if (group->hosts->puts && group->hosts->away[from])
        weft_i_hosts_put_came(group->hosts, from, tell);
}

/* ---- signals ---- */

static bool word_of(const weft_i_far_memory *far, int to, int from, uint32_t channel,
                    _Atomic uint32_t **out)
{
    if (channel >= (uint32_t)far->users.channels)
        return false;
    char *pad = weft_i_pads_of(&far->users, to);
    *out = (_Atomic uint32_t *)(void *)pad + (size_t)far->ranks * channel + (size_t)from;
    return true;
}

static void ring_own_bell(const weft_i_far_memory *far, int rank)
{
    /* Pairs with the fence in set_bell. */
    atomic_thread_fence(memory_order_seq_cst);
    weft_i_wait_ring((_Atomic uint32_t *)(void *)weft_i_pads_part(&far->users, rank));
}

/* One that is full already stays so. */
static bool fill_word(const weft_group *group, const weft_i_far_memory *far, int from,
                      uint32_t channel)
{
    _Atomic uint32_t *word;
    if (!word_of(far, group->rank, from, channel, &word))
        return false;
    weft_i_signal_put(word);
    ring_own_bell(far, group->rank);
    return true;
}

static bool take_signal(weft_group *group, int from, const weft_i_head *head, const void *data,
                        size_t bytes)
{
    const weft_i_far_memory *far = weft_i_far_find(group, from, head->word[WORD_SERIAL]);
    (void)data;
    (void)bytes;
    if (far && !fill_word(group, far, from, head->word[WORD_CHANNEL]))
        end_group(group);
    else
        count_piece(group, from, false);
    return true;
}

static bool take_taken(weft_group *group, int from, const weft_i_head *head, const void *data,
                       size_t bytes)
{
    const weft_i_far_memory *far = weft_i_far_find(group, from, head->word[WORD_SERIAL]);
    _Atomic uint32_t *word;
    (void)data;
    (void)bytes;
    if (!far)
        return true;
    weft_i_hosts_put_applied(group->hosts, from, head->word[WORD_APPLIED]);
    if (!word_of(far, from, group->rank, head->word[WORD_CHANNEL], &word)) {
        end_group(group);
        return true;
    }
    weft_i_signal_take(word);
    ring_own_bell(far, group->rank);
    return true;
}

/* ---- puts ---- */

static uint64_t place_in(const weft_i_head *head)
{
    return (uint64_t)head->word[WORD_AT_HIGH] << 32 | head->word[WORD_AT];
}

static bool is_inside(const weft_i_far_memory *far, uint64_t at, size_t bytes)
{
    return bytes <= far->bytes && at <= far->bytes - bytes;
}

static bool apply(const weft_group *group, const weft_i_far_memory *far, int from,
                  const weft_i_head *head, const void *data, size_t bytes)
{
    uint32_t facts = head->word[WORD_FACTS];
    if (!is_inside(far, place_in(head), bytes))
        return false;
    if (bytes)
        memcpy(far->base + place_in(head), data, bytes);
    return !(facts & PUT_SIGNALS) || fill_word(group, far, from, facts >> PUT_BITS);
}

static bool take_put(weft_group *group, int from, const weft_i_head *head, const void *data,
                     size_t bytes)
{
    const weft_i_far_memory *far = weft_i_far_find(group, from, head->word[WORD_SERIAL]);
    if (far && !apply(group, far, from, head, data, bytes))
        end_group(group);
    else
        count_piece(group, from, head->word[WORD_FACTS] & PUT_ASKS);
    return true;
}

/* ---- gets ---- */

static weft_status answer_get(const weft_group *group, int to, const weft_i_head *asked,
                              weft_status status, const void *data, size_t bytes)
{
    const uint32_t word[WEFT_I_HEAD_WORDS] = {[WORD_SERIAL] = asked->word[WORD_SERIAL],
                                              [WORD_GET] = asked->word[WORD_FACTS],
                                              [WORD_STATUS] = (uint32_t)status};
    return weft_i_hosts_tell(group, to, WEFT_I_HEAD_GOT, word, data, bytes);
}

static bool take_get(weft_group *group, int from, const weft_i_head *head, const void *data,
                     size_t bytes)
{
    const weft_i_far_memory *far = weft_i_far_find(group, from, head->word[WORD_SERIAL]);
    weft_i_wire_reader reader = weft_i_wire_read(data, bytes);
    size_t wanted = weft_i_wire_get_u32(&reader);
    weft_i_errors before;
    weft_status status = WEFT_OK;
    if (!group->hosts->away[from])
        return true;
    if (!far)
        status = WEFT_ERR_STATE;
    else if (!weft_i_wire_done(&reader) || wanted > WEFT_I_FAR_PIECE ||
             !is_inside(far, place_in(head), wanted))
        status = WEFT_ERR_INVALID_ARG;
    weft_i_errors_save(&before);
    bool good = status == WEFT_OK;
    status = answer_get(group, from, head, status, good ? far->base + place_in(head) : NULL,
                        good ? wanted : 0);
    if (status == WEFT_ERR_NO_MEMORY &&
        answer_get(group, from, head, status, NULL, 0) == WEFT_ERR_NO_MEMORY)
        weft_i_group_spoil(group, WEFT_ERR_NO_MEMORY); /* else it would wait for ever */
    weft_i_errors_restore(&before);
    return true;
}

static bool take_got(weft_group *group, int from, const weft_i_head *head, const void *data,
                     size_t bytes)
{
    weft_i_far_memory *far = weft_i_far_find(group, from, head->word[WORD_SERIAL]);
    if (far)
        weft_i_far_got(far, from, head->word[WORD_GET], (int32_t)head->word[WORD_STATUS], data,
                       bytes);
    return true;
}

__attribute__((constructor)) static void take_messages(void)
{
    weft_i_hosts_on(WEFT_I_HEAD_PUT, take_put);
    weft_i_hosts_on(WEFT_I_HEAD_GET, take_get);
    weft_i_hosts_on(WEFT_I_HEAD_GOT, take_got);
    weft_i_hosts_on(WEFT_I_HEAD_SIGNAL, take_signal);
    weft_i_hosts_on(WEFT_I_HEAD_TAKEN, take_taken);
}
