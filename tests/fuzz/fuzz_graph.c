/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: graph/ir/parse.c, graph/ir/lexer.c, graph/ir/text.c */
/*
 * Texts of graphs that were changed: bytes, words, lines, and pieces of other texts.  What is read
 * prints as itself, reads again and prints the same; what is small is run.  Nothing else is checked
 * but that the library survives it: run it with AddressSanitizer and UndefinedBehaviorSanitizer.
 *
 *     test_fuzz_graph [--seed N] [--count N] [--show 1]
 *
 * Text number N is made of seed N alone, so a failure that prints its seed is made again by that
 * seed and a count of 1.  It begins with the texts in corpus/graph, which graphs of the tests print,
 * and with one of each operation of op_samples.h.
 */
#include "death.h"
#include "op_samples.h"

#include "graph/ir/graph.h"
#include "tensor/object/tensor.h"

#include <weft/weft.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TEXTS = 512, MOST = 1 << 14, WORDS = 1 << 15, STUCK_S = 120 };
enum { RUN_BYTES = 1 << 16, RUN_NODES = 60, INPUTS = 12, OUTPUTS = 12 };

static char *texts[TEXTS];
static int text_count;
static struct {
    const char *at;
    size_t length;
} words[WORDS];
static int word_count;
static unsigned long long seed = 1, count = 100000, now, taken, ran;

/* ---- numbers ---- */

static uint64_t state;

static void sow(unsigned long long number)
{
    state = number * 0x9e3779b97f4a7c15u;
}

static uint64_t draw(uint64_t below)
{
    uint64_t x = state += 0x9e3779b97f4a7c15u; /* splitmix64: the same sequence on every machine */
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (x ^ x >> 31) % below;
}

/* ---- the texts to begin with ---- */

static bool is_of_word(char c)
{
    return c == '_' || c == '%' || c == '.' || c == '-' || c == '+' || (c >= '0' && c <= '9') ||
           (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static size_t word_length(const char *at)
{
    size_t length = 1;
    while (is_of_word(*at) && is_of_word(at[length]))
        length++;
    return length;
}

static void note_words(const char *text)
{
    for (const char *at = text; *at; at += word_length(at))
        if (*at != ' ' && word_count < WORDS) {
            words[word_count].at = at;
            words[word_count++].length = word_length(at);
        }
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static char *read_text(const char *name)
{
    char path[1024], *text = calloc(1, MOST);
    snprintf(path, sizeof path, "%s/%s", WEFT_FUZZ_CORPUS, name);
    FILE *file = fopen(path, "r");
    if (file && text && fread(text, 1, MOST / 2, file) == 0)
        text[0] = 0;
    if (file)
        fclose(file);
    return text;
}

/* In the order of their names: that of a folder is the file system's. */
static bool load_texts(void)
{
    char *names[TEXTS];
    int found = 0;
    DIR *folder = opendir(WEFT_FUZZ_CORPUS);
    for (struct dirent *entry; folder && (entry = readdir(folder)) && found < TEXTS;)
        if (entry->d_name[0] != '.')
            names[found++] = strdup(entry->d_name);
    if (folder)
        closedir(folder);
    qsort(names, (size_t)found, sizeof *names, compare_names);
    for (int i = 0; i < found; i++) {
        if ((texts[text_count] = read_text(names[i])))
            text_count++;
        free(names[i]);
    }
    return text_count > 0;
}

static weft_status call_one(weft_tensor *const *in, int ins, weft_tensor **out, int outs,
                            void *user)
{
    const sample *s = user;
    inputs its = {.count = *s->inputs == 'L' ? 0 : ins};
    (void)outs;
    for (int i = 0; i < ins; i++)
        *(*s->inputs == 'L' ? &its.list[i] : &its.at[i]) = in[i];
    out[0] = call_sample(s, &its, WEFT_CPU);
    return out[0] ? WEFT_OK : weft_last_status();
}

/* What a graph of each operation prints. */
static void print_samples(void)
{
    for (size_t i = 0; i < sizeof samples / sizeof *samples && text_count < TEXTS; i++) {
        weft_scope_open();
        inputs its = make_inputs(&samples[i], WEFT_CPU);
        bool list = *samples[i].inputs == 'L';
        weft_graph *graph = weft_graph_capture(samples[i].op, call_one, (void *)&samples[i],
                                               list ? its.list : its.at, list ? 2 : its.count, 1);
        char *made = graph ? calloc(1, MOST) : NULL;
        if (made && weft_graph_text(graph, made, MOST) < MOST)
            texts[text_count++] = made;
        else
            free(made);
        weft_scope_close();
        weft_clear_error();
    }
    for (int i = 0; i < text_count; i++)
        note_words(texts[i]);
}

/* ---- changes ---- */

static char text[MOST];

/* `length` bytes at `at` give way to these. */
static void put(size_t at, size_t length, const char *bytes, size_t bytes_count)
{
    size_t used = strlen(text);
    if (used - length + bytes_count >= MOST)
        return;
    memmove(text + at + bytes_count, text + at + length, used - at - length + 1);
    memcpy(text + at, bytes, bytes_count);
}

static void change_byte(void)
{
    static const char likely[] = "0123456789%,=[]_ \n\"-./{}@xnft";
    size_t used = strlen(text);
    char byte = draw(2) ? likely[draw(sizeof likely - 1)] : (char)(1 + draw(255));
    if (used)
        put(draw(used), draw(2), &byte, draw(4) != 0);
}

/* Where some word begins. */
static size_t pick_word(void)
{
    size_t used = strlen(text), at = used ? draw(used) : 0;
    while (at && is_of_word(text[at]) && is_of_word(text[at - 1]))
        at--;
    return at;
}

/* Something odd in the place of a value, a number or a name. */
static const char *pick_odd(char first)
{
    static const char *const values[] = {"none", "none", "none", "_", "%0", "%1", "%2", "%99"};
    static const char *const numbers[] = {
        "-1", "0",    "1",  "2",    "64",   "9223372036854775807", "-9223372036854775808",
        "-3", "-0.0", "-1", "1e39", "-inf", "4294967296",          "18446744073709551615"};
    static const char *const others[] = {"true", "false", "quiet", "free",   "grad",    "into",
                                         "own",  "nan",   "inf",   "bytes",  "f32",     "f64",
                                         "u8",   "bool",  "bf16",  "i64",    "meta",    "none",
                                         "[]",   "=",     "%1",    "offset", "storage", "counter"};
    if (first == '%' || first == 'n')
        return values[draw(sizeof values / sizeof *values)];
    if (first == '-' || (first >= '0' && first <= '9'))
        return numbers[draw(sizeof numbers / sizeof *numbers)];
    return others[draw(sizeof others / sizeof *others)];
}

static void change_word(void)
{
    size_t at = pick_word(), length = text[at] ? word_length(text + at) : 0;
    int other = (int)draw((uint64_t)word_count);
    const char *word = pick_odd(text[at]);
    switch (draw(4)) {
    case 0:
        put(at, length, word, strlen(word));
        break;
    case 1: /* for another of its kind, so that what is read stays likely */
        for (int i = 0; i < 64 && words[other].at[0] != text[at]; i++)
            other = (int)draw((uint64_t)word_count);
        put(at, length, words[other].at, words[other].length);
        break;
    case 2: /* in front of it */
        put(at, 0, words[other].at, words[other].length);
        break;
    default:
        put(at, draw(2) ? length : 0, word, draw(2) ? strlen(word) : 0);
    }
}

static void change_number(void)
{
    char digits[32];
    size_t at = strcspn(text, "0123456789"), length;
    for (uint64_t skip = draw(40); skip; skip--) {
        size_t next = at + strspn(text + at, "0123456789");
        next += strcspn(text + next, "0123456789");
        at = text[next] ? next : at;
    }
    if (!(length = strspn(text + at, "0123456789")))
        return;
    long long number = strtoll(text + at, NULL, 10);
    int written = snprintf(digits, sizeof digits, "%lld", number / 2 + (long long)draw(8) - 3);
    put(at, length, digits, (size_t)written);
}

/* A line of `from`, where it begins; how long it is. */
static size_t pick_line(const char *from, size_t *at)
{
    size_t used = strlen(from);
    *at = used ? draw(used) : 0;
    while (*at && from[*at - 1] != '\n')
        --*at;
    size_t length = strcspn(from + *at, "\n");
    return length + (from[*at + length] == '\n');
}

static void change_line(void)
{
    char line[MOST];
    size_t at, to, length = pick_line(text, &at);
    const char *other = texts[draw((uint64_t)text_count)];
    memcpy(line, text + at, length);
    switch (draw(4)) {
    case 0: /* gone */
        put(at, length, "", 0);
        break;
    case 1: /* twice */
        put(at, 0, line, length);
        break;
    case 2: /* elsewhere */
        put(at, length, "", 0);
        pick_line(text, &to);
        put(to, 0, line, length);
        break;
    default: /* another text's in its place, or in front of it */
        to = pick_line(other, &at);
        memcpy(line, other + at, to);
        length = pick_line(text, &at);
        put(at, draw(2) ? length : 0, line, to);
    }
}

/* The end of another text behind some line. */
static void splice(void)
{
    const char *other = texts[draw((uint64_t)text_count)];
    size_t at, from;
    pick_line(text, &at);
    pick_line(other, &from);
    put(at, strlen(text) - at, other + from, strlen(other + from));
}

static void make_text(unsigned long long number)
{
    static void (*const ways[])(void) = {change_byte,   change_word, change_word,
                                         change_number, change_line, splice};
    sow(number);
    strcpy(text, texts[draw((uint64_t)text_count)]);
    for (uint64_t times = 1 + draw(2) * draw(draw(4) ? 3 : 10); times; times--)
        ways[draw(sizeof ways / sizeof *ways)]();
}

/* ---- what was read ---- */

static bool complain(const char *what, const char *first, const char *second)
{
    printf("%s: %s\n---- read\n%s\n---- printed\n%s\n---- then\n%s\n", what, weft_last_error(),
           text, first, second);
    return false;
}

/* Prints as itself. */
static bool check_round_trip(const weft_graph *graph)
{
    static char first[4 * MOST], second[4 * MOST];
    second[0] = 0;
    if (weft_graph_text(graph, first, sizeof first) >= (int)sizeof first)
        return true;
    weft_graph *again = weft_graph_parse(first);
    if (!again)
        return complain("what was printed cannot be read", first, second);
    weft_graph_text(again, second, sizeof second);
    return !strcmp(first, second) ||
           complain("what was printed reads as something else", first, second);
}

static bool is_small(const weft_graph *graph)
{
    if (graph->node_count > RUN_NODES || graph->input_count > INPUTS ||
        graph->argument_count > INPUTS || graph->output_count > OUTPUTS)
        return false;
    for (int i = 0; i < graph->value_count; i++) {
        const weft_i_graph_value *value = &graph->values[i];
        if (value->absent)
            continue;
        int64_t most = RUN_BYTES / (int64_t)weft_dtype_size(value->dtype);
        for (int d = 0; d < value->shape.ndim; d++)
            most = value->shape.dim[d] > most ? -1
                                              : most / (value->shape.dim[d] + !value->shape.dim[d]);
        if (most < 0 || value->bytes > RUN_BYTES || value->device != WEFT_CPU)
            return false;
    }
    return true;
}

/* A tensor as the input is described, on the storage of another one if it says so. */
static weft_tensor *tensor_of(const weft_graph *graph, int i, weft_tensor *const *before)
{
    const weft_i_graph_value *value = &graph->values[graph->inputs[i].value];
    weft_storage *storage = NULL;
    for (int k = 0; k < i && !storage; k++)
        if (graph->values[graph->inputs[k].value].storage == value->storage && before[k])
            storage = before[k]->storage;
    if (!storage) {
        weft_tensor *bytes = weft_ones(WEFT_U8, WEFT_CPU, WEFT_SHAPE((int64_t)value->bytes));
        storage = bytes ? bytes->storage : NULL;
    }
    if (!storage)
        return NULL;
    weft_tensor layout = {
        .dtype = value->dtype, .ndim = value->shape.ndim, .offset = value->offset};
    memcpy(layout.dim, value->shape.dim, sizeof layout.dim);
    memcpy(layout.stride, value->stride, sizeof layout.stride);
    weft_i_tensor_measure(&layout);
    return layout.end > storage->bytes
               ? NULL
               : weft_i_tensor_new_view(storage, &storage->version, value->dtype, value->shape,
                                        value->stride, value->offset);
}

static void run(weft_graph *graph)
{
    weft_tensor *all[INPUTS] = {NULL}, *in[INPUTS] = {NULL}, *out[OUTPUTS] = {NULL};
    for (int i = 0; i < graph->input_count; i++)
        all[i] = tensor_of(graph, i, all);
    for (int i = 0; i < graph->argument_count; i++)
        in[i] = all[graph->arguments[i]];
    if (weft_graph_run(graph, in, graph->argument_count, out, graph->output_count) >= 0)
        ran++;
}

static bool try_text(void)
{
    bool fine = true;
    weft_scope_open();
    weft_graph *graph = weft_graph_parse(text);
    if (graph) {
        taken++;
        fine = check_round_trip(graph);
        if (fine && is_small(graph))
            run(graph);
    }
    weft_scope_close();
    weft_clear_error();
    return fine;
}

/* ---- the program ---- */

static void tell_where(void)
{
    char line[100];
    int used = snprintf(line, sizeof line, "test_fuzz_graph --seed %llu --count 1 --show 1\n", now);
    if (write(2, line, (size_t)used) < 0)
        return;
}

static void prepare(void)
{
    fuzz_prepare(tell_where);
}

int main(int argc, char **argv)
{
    bool show = false, fine = true;
    for (int i = 1; i + 1 < argc; i += 2)
        if (!strcmp(argv[i], "--seed"))
            seed = strtoull(argv[i + 1], NULL, 0);
        else if (!strcmp(argv[i], "--count"))
            count = strtoull(argv[i + 1], NULL, 0);
        else if (!strcmp(argv[i], "--show"))
            show = true;
    prepare();
    if (!load_texts()) {
        printf("test_fuzz_graph - 1 fail: no texts in %s\n", WEFT_FUZZ_CORPUS);
        return 1;
    }
    print_samples();
    for (now = seed; fine && now - seed < count; now++) {
        if ((now - seed) % 1000 == 0)
            alarm(STUCK_S);
        make_text(now);
        if (show)
            fprintf(stderr, "%s\n", text);
        if (!(fine = try_text()))
            tell_where();
    }
    printf("test_fuzz_graph - 1 %s: %llu texts from seed %llu, %llu read, %llu run\n",
           fine ? "pass" : "fail", now - seed, seed, taken, ran);
    for (int i = 0; i < text_count; i++)
        free(texts[i]);
    return !fine;
}
