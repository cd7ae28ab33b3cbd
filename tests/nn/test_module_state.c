/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: nn/state.c */
/* What a module holds: by which names, in containers, and how a state is put back. */
#include "harness.h"

#include <weft/nn.h>
#include <weft/op.h>
#include <weft/view.h>

#include <string.h>

/* A name that leads nowhere: the message is about the level where it ended. */
TEST(test_module_misspelt)
{
    weft_scope_open();
    weft_module *net = weft_nn_sequential(weft_nn_linear(4, 4), weft_nn_layer_norm(4));
    static const struct {
        const char *name, *says;
    } cases[] = {
        {"0.wieght", "the linear \"0\" has no \"wieght\"; did you mean \"0.weight\"?  It has "
                     "\"weight\", \"bias\""},
        {"1.bais",
         "the layer_norm \"1\" has no \"bais\"; did you mean \"1.bias\"?  It has \"bias\", "
         "\"weight\""},
        {"2.weight", "the sequential has no \"2.weight\"; it has \"0\" (a child), \"1\" (a child)"},
        {"0.weight.x", "the linear \"0\" has no \"weight.x\"; did you mean \"0.weight\"?"},
        {"0", "the sequential has no \"0\"; it has \"0\" (a child), \"1\" (a child)"},
        {"0.", "the linear \"0\" has no \"\"; it has \"weight\", \"bias\""},
        {"", "the sequential has no \"\"; it has"},
        {"quite something else", "has no \"quite something else\"; it has \"0\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_clear_error();
        CHECK(!weft_module_param(net, cases[i].name));
        CHECK_INT(weft_last_status(), WEFT_ERR_NOT_FOUND);
        CHECK_CONTAINS(weft_last_error(), cases[i].says);
    }
    char name[400];
    memset(name, 'x', sizeof name);
    name[sizeof name - 1] = 0;
    CHECK(!weft_module_param(net, name));
    name[0] = '0', name[1] = '.';
    CHECK(!weft_module_param(net, name));
    CHECK_CONTAINS(weft_last_error(), "has no \"0.xxx");
    weft_clear_error();
    weft_scope_close();
}

/* It has names and a state, and calling it is an error that says why. */
TEST(test_module_container)
{
    weft_scope_open();
    weft_module *bag = weft_module_new(NULL, NULL), *list = weft_module_new_list(NULL, NULL);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2)), *out = NULL;
    weft_named state[4];
    CHECK_OK(weft_module_add_param(bag, "scale", weft_parameter(x, true)));
    CHECK_OK(weft_module_add(list, "bag", bag));
    CHECK_OK(weft_module_add(list, "layer", weft_nn_linear(2, 2)));
    CHECK_INT(weft_module_params(list, state, 4), 3);
    CHECK(!strcmp(state[0].name, "bag.scale") && !strcmp(state[2].name, "layer.bias"));
    CHECK(!weft_module_call(bag, x));
    CHECK_INT(weft_last_status(), WEFT_ERR_STATE);
    CHECK_CONTAINS(weft_last_error(), "is a container: it was made without a function");
    CHECK_STATUS(weft_module_call_list(list, &out, 1, &x, 1), WEFT_ERR_STATE);
    CHECK(!weft_module_call(weft_nn_sequential(bag), x));
    CHECK_CONTAINS(weft_last_error(),
                   "in a sequential: weft_module_call: this module is a container");
    CHECK(!weft_module_param(bag, "scala"));
    CHECK_CONTAINS(weft_last_error(), "the container has no \"scala\"; did you mean \"scale\"?");
    weft_clear_error();
    weft_scope_close();
}

/* What does not fit is refused before anything is copied. */
TEST(test_module_load_is_strict)
{
    weft_scope_open();
    weft_module *a = weft_nn_linear(2, 3), *b = weft_nn_linear(2, 3);
    weft_tensor *before = weft_clone(weft_detach(weft_module_param(b, "weight")));
    weft_named state[3] = {{"", NULL}};
    CHECK_INT(weft_module_state(a, state, 3), 2);
    CHECK_STATUS(weft_module_load(b, state, 1), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "\"bias\" is missing");
    strcpy(state[2].name, "other");
    state[2].tensor = state[0].tensor;
    CHECK_STATUS(weft_module_load(b, state, 3), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "has no \"other\"");
    state[1].tensor = state[0].tensor;
    CHECK_STATUS(weft_module_load(b, state, 2), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "\"bias\" has shape [3, 2]");
    CHECK(weft_equal(weft_module_param(b, "weight"), before));
    weft_clear_error();
    weft_scope_close();
}

enum { STATE = 4 };

typedef void spoil_state(weft_named *in);

static void spoil_freed(weft_named *in)
{
    CHECK_OK(weft_resize_storage(in[STATE - 1].tensor, 0));
}

static void spoil_meta(weft_named *in)
{
    in[STATE - 1].tensor = weft_empty(WEFT_F32, WEFT_META, weft_tensor_shape(in[STATE - 1].tensor));
}

static void spoil_null(weft_named *in)
{
    in[STATE - 1].tensor = NULL;
}

static void spoil_twice(weft_named *in)
{
    in[STATE] = in[1];
}

/* A state whose last tensor cannot be copied loads nothing. */
static void check_unchanged(spoil_state *spoil, int count, weft_status status, const char *text)
{
    weft_scope_open();
    weft_module *m = weft_nn_sequential(weft_nn_linear(2, 2), weft_nn_linear(2, 2));
    weft_named own[STATE], in[STATE + 1];
    weft_tensor *before[STATE];
    CHECK_INT(weft_module_state(m, own, STATE), STATE);
    memcpy(in, own, sizeof own);
    for (int i = 0; i < STATE; i++) {
        before[i] = weft_clone(weft_detach(own[i].tensor));
        in[i].tensor = weft_full(WEFT_F32, WEFT_CPU, weft_tensor_shape(own[i].tensor), 7);
    }
    spoil(in);
    CHECK_STATUS(weft_module_load(m, in, count), status);
    CHECK_CONTAINS(weft_last_error(), text);
    for (int i = 0; i < STATE; i++)
        CHECK(weft_equal(own[i].tensor, before[i]));
    weft_clear_error();
    weft_scope_close();
}

TEST(test_module_load_all_or_nothing)
{
    check_unchanged(
        spoil_freed, STATE, WEFT_ERR_STATE,
        "weft_module_load: \"1.bias\": the given: a f32 tensor of shape [2] needs 8 bytes");
    check_unchanged(spoil_meta, STATE, WEFT_ERR_TYPE,
                    "weft_module_load: \"1.bias\": it is on meta, the module's on cpu");
    check_unchanged(spoil_null, STATE, WEFT_ERR_INVALID_ARG, "\"1.bias\" is NULL");
    check_unchanged(spoil_twice, STATE + 1, WEFT_ERR_INVALID_ARG, "\"0.bias\" is given twice");
}

/* The same where the module's own tensor cannot be written. */
TEST(test_module_load_into_no_memory)
{
    weft_scope_open();
    weft_module *bag = weft_module_new(NULL, NULL);
    weft_tensor *first = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2));
    weft_tensor *wide = weft_expand(weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1)), WEFT_SHAPE(2));
    weft_tensor *freed = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2));
    weft_named in[2] = {{"first", weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2))},
                        {"other", weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2))}};
    CHECK_OK(weft_module_add_buffer(bag, "first", first));
    CHECK_OK(weft_module_add_buffer(bag, "other", wide));
    CHECK_STATUS(weft_module_load(bag, in, 2), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "\"other\": several elements of the module's share memory");
    CHECK_OK(weft_module_bind(bag, "other", freed));
    CHECK_OK(weft_resize_storage(freed, 0));
    CHECK_STATUS(weft_module_load(bag, in, 2), WEFT_ERR_STATE);
    CHECK_CONTAINS(weft_last_error(), "\"other\": the module's: a f32 tensor of shape [2] needs");
    CHECK(weft_item(first, 0) == 1);
    CHECK_OK(weft_resize_storage(freed, 8));
    CHECK_OK(weft_module_load(bag, in, 2));
    CHECK(weft_item(first, 0) == 0 && weft_item(freed, 1) == 0);
    weft_clear_error();
    weft_scope_close();
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
