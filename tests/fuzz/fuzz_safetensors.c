/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: train/header.c, train/json_reader.c */
/* Headers of strangers: what is taken keeps its promises, and is written and read again the same. */
#include "fuzz.h"

#include "base/os/os.h"
#include "tensor/object/tensor.h"
#include "train/header.h"
#include "train/portion.h"

#include <stdlib.h>
#include <string.h>

/* Places in the notes, as a checkpoint has them. */
static void read_places(const weft_i_header *h)
{
    for (int i = 0; i < h->notes; i++) {
        weft_i_portion p = {.name = "x", .dtype = WEFT_U8, .shape = WEFT_SHAPE(4, 3)}, again;
        char text[WEFT_I_PORTION_TEXT];
        const char *end;
        if (!weft_i_portion_read(&p, h->note[i].value, &end) || weft_i_portion_check(&p) < 0)
            continue;
        again = p;
        weft_i_portion_write(&p, text);
        PROMISE(weft_i_portion_read(&again, text, &end) && !*end);
        PROMISE(weft_i_portion_check_whole(&p, 1) < 0 || weft_i_shape_equal(p.shape, p.full));
    }
}

static void write_again(const weft_i_header *h, uint64_t data_bytes)
{
    size_t bytes = 0;
    weft_i_header again;
    char *text = weft_i_header_write(h->tensor, h->count, h->note, h->notes, &bytes);
    PROMISE(text && bytes % WEFT_I_HEADER_ALIGN == 0);
    PROMISE(weft_i_header_read(&again, text, bytes, bytes + data_bytes) >= 0);
    PROMISE(again.count == h->count && again.notes == h->notes);
    for (int i = 0; i < h->count; i++) {
        const weft_i_header_tensor *a = &h->tensor[i], *b = weft_i_header_find(&again, a->name);
        PROMISE(b && b->dtype == a->dtype && b->begin == a->begin && b->end == a->end);
        PROMISE(weft_i_shape_equal(a->shape, b->shape));
    }
    weft_i_header_clear(&again);
    WEFT_OS->free(text);
}

static void read_one(const uint8_t *bytes, size_t count)
{
    weft_i_header h;
    if (weft_i_header_read(&h, bytes, count, count) >= 0) {
        uint64_t at = 0;
        for (int i = 0; i < h.count; i++) {
            const weft_i_header_tensor *t = &h.tensor[i];
            PROMISE(t->begin == at && t->end >= t->begin && strlen(t->name) < count);
            PROMISE(h.data + t->end <= count && weft_i_header_find(&h, t->name) == t);
            at = t->end;
        }
        PROMISE(h.data + at == count);
        read_places(&h);
        write_again(&h, at);
    }
    weft_i_header_clear(&h);
    weft_clear_error();
}

/* The same as if its length were right: most changes would be refused by that alone. */
static void read_with_length(const uint8_t *bytes, size_t count)
{
    uint64_t length = count;
    while (length > 8 && bytes[length - 1] != '}')
        length--;
    uint8_t *copy = malloc(count);
    PROMISE(copy);
    memcpy(copy, bytes, count);
    length -= 8;
    memcpy(copy, &length, 8);
    read_one(copy, count);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    read_one(bytes, count);
    if (count >= 8)
        read_with_length(bytes, count);
    return 0;
}
