/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: grad/rule_index.c, grad/rule_linear.c, grad/rule_network.c, grad/rule_pointwise.c,
 * grad/rule_reduce.c, grad/rule_view.c */
/* Gradients beside PyTorch's, where Python has it: tests/torch/torch_grad.py. */
#include "harness.h"

#include <sys/wait.h>

#if defined(WEFT_SHARED)
/* The exit status of the Python side, and the last line it printed. */
static int run_python(const char *python, char last[512])
{
    char command[4096], line[512];
    snprintf(command, sizeof command,
             "%s '%s/tests/torch/torch_grad.py' '%s' '%s/src/grad/rules.def' 2>&1", python,
             WEFT_SOURCE, WEFT_SHARED, WEFT_SOURCE);
    FILE *pipe = popen(command, "r");
    CHECK(pipe);
    while (fgets(line, sizeof line, pipe))
        snprintf(last, 512, "%.*s", (int)strcspn(line, "\n"), line);
    int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
#endif

/* The script exits with 77 and a reason if PyTorch is missing. */
TEST(test_torch_gradients)
{
#if defined(WEFT_SHARED)
    char last[512] = "";
    int status = run_python("python3", last);
    if (status == 77 || status == 127)
        SKIP("%s", last);
    if (status)
        FAIL("torch_grad.py exits with %d: %s", status, last);
    CHECK_CONTAINS(last, "agree with PyTorch");
#else
    SKIP("this build has no shared library that Python can load");
#endif
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
