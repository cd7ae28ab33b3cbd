/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: base/machine/net.c */
#include "harness.h"

#include "base/machine/net.h"

TEST(test_net_setting)
{
    CHECK(weft_i_net_takes("", "eth0"));
    CHECK(weft_i_net_takes("eth,ib0", "eth1") && weft_i_net_takes("eth,ib0", "ib0"));
    CHECK(!weft_i_net_takes("eth,ib0", "lo"));
    CHECK(weft_i_net_takes("=eth0,ib0", "ib0") && !weft_i_net_takes("=eth0", "eth01"));
    CHECK(weft_i_net_takes("^docker,lo", "eth0") && !weft_i_net_takes("^docker,lo", "docker0"));
}

TEST(test_net_addresses)
{
    char all[WEFT_I_NET_ADDRESSES][WEFT_I_NET_TEXT], list[WEFT_I_NET_LIST];
    unsetenv("WEFT_NET");
    int count = weft_i_net_addresses(all);
    CHECK(count >= 0);
    for (int i = 0; i < count - 1; i++) /* that of the loopback interface comes behind the others */
        CHECK(strcmp(all[i], "127.0.0.1") != 0 || !strcmp(all[i + 1], "::1"));
    CHECK_OK(weft_i_net_interfaces(list));
    CHECK(!*list);
    setenv("WEFT_NET", "=weft-no-such", 1);
    CHECK_INT(weft_i_net_addresses(all), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "takes no network interface");
    CHECK_STATUS(weft_i_net_interfaces(list), WEFT_ERR_INVALID_ARG);
    if (!count)
        SKIP("this machine has no network interface that is up");
    setenv("WEFT_NET", "=lo", 1);
    CHECK(weft_i_net_addresses(all) >= 1);
    CHECK_OK(weft_i_net_interfaces(list));
    CHECK(!strcmp(list, "lo"));
    unsetenv("WEFT_NET");
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
