/* SPDX-License-Identifier: Apache-2.0 */
/* What a name that leads nowhere may have meant. */
#include "base/report/text.h"
#include "nn/module.h"

#include <string.h>

enum { MOST_WRONG = 3 }; /* letters in a misspelt name */

/* The entry that `name` may be a misspelling of, or NULL if none is like it. */
static const weft_i_entry *nearest(const weft_module *module, const char *name)
{
    const weft_i_entry *found = NULL;
    int least = 1 + (int)strlen(name) / 2; /* of one letter: only itself */
    if (least > MOST_WRONG + 1)
        least = MOST_WRONG + 1;
    for (int i = 0; i < module->count; i++) {
        int far = weft_i_text_distance(name, strlen(name), module->entries[i].name);
        if (far < least) {
            least = far;
            found = &module->entries[i];
        }
    }
    return found;
}

/* The module that the parts of the name lead to, as far as there are children; `*rest` is what
 * follows. */
static const weft_module *follow(const weft_module *module, const char *name, const char **rest)
{
    for (*rest = name;;) {
        size_t length = strcspn(*rest, ".");
        const weft_i_entry *entry = weft_i_module_entry(module, *rest, length);
        if (!(*rest)[length] || !entry || entry->kind != WEFT_I_ENTRY_CHILD)
            return module;
        module = entry->child;
        *rest += length + 1;
    }
}

static void put_entry(weft_i_text *text, const weft_i_entry *entry)
{
    static const char *const kinds[] = {"", " (a buffer)", " (a child)"};
    weft_i_text_put(text, "%s\"%s\"%s", text->used ? ", " : "", entry->name, kinds[entry->kind]);
}

/* All of them, what was probably meant first. */
static void list_entries(weft_i_text *text, const weft_module *module, const weft_i_entry *first)
{
    if (first)
        put_entry(text, first);
    for (int i = 0; i < module->count; i++) {
        if (text->used + WEFT_I_NAME_PART + 16 > text->room) {
            weft_i_text_put(text, " ...");
            return;
        }
        if (&module->entries[i] != first)
            put_entry(text, &module->entries[i]);
    }
    if (!text->used)
        weft_i_text_put(text, "nothing");
}

weft_status weft_i_module_refuse_name(const weft_module *module, const char *what, const char *name)
{
    char list[512] = "", meant[WEFT_NAME_MAX + WEFT_I_NAME_PART + 32] = "";
    const char *rest;
    const weft_module *at = follow(module, name, &rest);
    weft_i_text text = {list, sizeof list, 0};
    int above = rest == name ? 0 : (int)(rest - name) - 1;
    if (strlen(rest) >= WEFT_I_NAME_PART || above >= WEFT_NAME_MAX)
        rest = name, above = 0, at = module;
    const weft_i_entry *near = strlen(rest) < WEFT_I_NAME_PART ? nearest(at, rest) : NULL;
    if (near && strcmp(near->name, rest))
        snprintf(meant, sizeof meant, "; did you mean \"%.*s%s\"?  It", (int)(rest - name), name,
                 near->name);
    list_entries(&text, at, near);
    return weft_i_fail(WEFT_ERR_NOT_FOUND, "%s: the %s%s%.*s%s has no \"%.80s\"%s has %s", what,
                       at->kind, above ? " \"" : "", above, name, above ? "\"" : "", rest,
                       meant[0] ? meant : "; it", list);
}
