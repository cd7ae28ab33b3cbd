/* SPDX-License-Identifier: Apache-2.0 */
/* The public list of environment variables. */
#include "harness.h"

#include <weft/weft.h>

static weft_env_info find(const char *name)
{
    weft_env_info env;
    for (int i = 0; i < weft_env_count(); i++) {
        CHECK_OK(weft_env_describe(i, &env));
        if (!strcmp(env.name, name))
            return env;
    }
    FAIL("no variable %s", name);
}

TEST(test_env_rows_are_complete)
{
    CHECK(weft_env_count() > 0);
    for (int i = 0; i < weft_env_count(); i++) {
        weft_env_info env;
        CHECK_OK(weft_env_describe(i, &env));
        CHECK(!strncmp(env.name, "WEFT_", 5));
        CHECK(*env.kind && *env.meaning && env.fallback);
    }
}

TEST(test_env_value)
{
    unsetenv("WEFT_TIMEOUT");
    CHECK(!find("WEFT_TIMEOUT").value);
    CHECK(find("WEFT_TIMEOUT").valid);
    setenv("WEFT_TIMEOUT", "", 1);
    CHECK(!find("WEFT_TIMEOUT").value);
    setenv("WEFT_TIMEOUT", "250", 1);
    CHECK(!strcmp(find("WEFT_TIMEOUT").value, "250"));
    CHECK(find("WEFT_TIMEOUT").valid);
    CHECK(!strcmp(find("WEFT_TIMEOUT").kind, "ms"));
    setenv("WEFT_TIMEOUT", "soon", 1);
    CHECK(!find("WEFT_TIMEOUT").valid);
    setenv("WEFT_TIMEOUT", "-1", 1);
    CHECK(!find("WEFT_TIMEOUT").valid);
    unsetenv("WEFT_TIMEOUT");
}

TEST(test_env_hides_secrets)
{
    setenv("WEFT_TOKEN", "0123456789abcdef", 1);
    weft_env_info env = find("WEFT_TOKEN");
    CHECK(!strcmp(env.kind, "secret"));
    CHECK(!strcmp(env.value, "(hidden)"));
    unsetenv("WEFT_TOKEN");
}

TEST(test_env_refuses_bad_arguments)
{
    weft_env_info env;
    CHECK_STATUS(weft_env_describe(-1, &env), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_env_describe(weft_env_count(), &env), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_env_describe(0, NULL), WEFT_ERR_INVALID_ARG);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
