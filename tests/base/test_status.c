/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: base/report/status.c */
#include "harness.h"

#include "base/report/status.h"

#include <errno.h>

TEST(test_status_names)
{
    CHECK(!strcmp(weft_status_name(WEFT_OK), "WEFT_OK"));
    CHECK(!strcmp(weft_status_name(WEFT_ERR_TIMEOUT), "WEFT_ERR_TIMEOUT"));
    CHECK(!strcmp(weft_status_name((weft_status)-79), "unknown status"));
}

TEST(test_status_scopes)
{
    CHECK_INT(weft_status_scope(WEFT_OK), WEFT_SCOPE_NONE);
    CHECK_INT(weft_status_scope(WEFT_ERR_NO_MEMORY), WEFT_SCOPE_CALL);
    CHECK_INT(weft_status_scope(WEFT_ERR_TIMEOUT), WEFT_SCOPE_OP);
    CHECK_INT(weft_status_scope(WEFT_ERR_PEER_DEAD), WEFT_SCOPE_GROUP);
    CHECK_INT(weft_status_scope(WEFT_ERR_AUTH), WEFT_SCOPE_START);
    CHECK_INT(weft_status_scope(WEFT_ERR_INTERNAL), WEFT_SCOPE_BUG);
}

TEST(test_status_message)
{
    weft_clear_error();
    CHECK_STATUS(weft_i_fail(WEFT_ERR_TYPE, "dtype %s", "f32"), WEFT_ERR_TYPE);
    CHECK(!strcmp(weft_last_error(), "dtype f32"));
    CHECK_STATUS(weft_i_fail_errno(EMFILE, "socket"), WEFT_ERR_LIMIT);
    CHECK_CONTAINS(weft_last_error(), "socket: Too many open files");
    CHECK_STATUS(weft_i_explain(WEFT_ERR_LIMIT, "meeting"), WEFT_ERR_LIMIT);
    CHECK_CONTAINS(weft_last_error(), "meeting: socket: ");
    const char *first = NULL;
    CHECK_INT(weft_i_first_error(&first), WEFT_ERR_TYPE);
    CHECK(!strcmp(first, "dtype f32"));
    weft_clear_error();
    CHECK(!*weft_last_error());
}

/* A NULL that a failed call has left passes on that call's error; any other is an error itself. */
TEST(test_status_missing)
{
    weft_clear_error();
    CHECK_STATUS(weft_i_missing("%s: the tensor is NULL", "add"), WEFT_ERR_INVALID_ARG);
    CHECK(!strcmp(weft_last_error(), "add: the tensor is NULL"));
    weft_clear_error();
    weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for a tensor");
    CHECK_STATUS(weft_i_missing("%s: the tensor is NULL", "add"), WEFT_ERR_NO_MEMORY);
    CHECK(!strcmp(weft_last_error(), "no memory for a tensor"));
    weft_clear_error();
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
