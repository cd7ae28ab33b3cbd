# SPDX-License-Identifier: Apache-2.0
"""Ranks for tests: `ranks(n, body)` runs the text of a program by `weft run`, which has np, weft, world, me and n."""
import os
import subprocess
import sys
import textwrap

import pytest

HEAD = """
import os, signal, sys, threading, time
import numpy as np
import weft
world = weft.init()
me, n = world.rank, world.size
def raises(kind, call, *words):
    try:
        call()
    except kind as error:
        for word in words:
            assert word in str(error), (word, str(error))
        return error
    raise AssertionError(f"{kind} was not raised")
"""


def run(count, body, head=HEAD, check=True, timeout=120, env=None, launcher=None):
    program = head + textwrap.dedent(body)
    # A job that hangs tells what its ranks are doing.
    command = launcher or [sys.executable, "-m", "weft", "run", "-n", str(count), "--no-prefix",
                           "--timeout", str(max(timeout - 20, 1))]
    done = subprocess.run(command + [sys.executable, "-c", program], capture_output=True, text=True, timeout=timeout,
                          env={**os.environ, **(env or {})})
    if check:
        assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture
def ranks():
    return run


@pytest.fixture(scope="session")
def world():
    """A world of one rank in this process."""
    import weft

    return weft.init()
