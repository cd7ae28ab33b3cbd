# SPDX-License-Identifier: Apache-2.0
"""python -m weft: the weft command of this package.  `run` also takes programs in Python:

    python -m weft run -n 4 program.py            (by this interpreter)
    python -m weft run -n 4 -m package.program
    python -m weft info | bench | top ...         (python -m weft --help lists them)
    python -m weft torch-build                    compiles the backend of torch.distributed for this PyTorch
"""
import os
import shutil
import sys

from . import _places


def find_program(words):
    """Where in the words of `weft run` the program stands: after the options, of which some take a value."""
    i = 1
    while i < len(words) and words[i].startswith("-") and words[i] not in ("-m", "--"):
        i += 2 if words[i] in _VALUED else 1
    return i


_VALUED = ("-n", "-np", "-x", "--ranks", "--env", "--bind", "--log-dir", "--max-restarts", "--timeout")


def with_interpreter(words):
    """`run` of a program in Python is `run` of the interpreter."""
    i = find_program(words)
    if i < len(words) and words[i] == "--":
        i += 1
    if i < len(words) and (words[i] == "-m" or words[i].endswith((".py", ".pyz"))):
        return words[:i] + [sys.executable] + words[i:]
    return words


def main():
    words = sys.argv[1:]
    if words[:1] == ["torch-build"]:
        from .torch import _build

        print(_build.find(build=True))
        return 0
    command = _places.COMMAND if os.path.exists(_places.COMMAND) else shutil.which("weft")
    if not command or os.path.realpath(command) == os.path.realpath(sys.argv[0]):  # this file, under the command's name
        print("python -m weft: this package has no weft command, and PATH has none", file=sys.stderr)
        return 127
    if words[:1] == ["run"]:
        words = with_interpreter(words)
    os.execv(command, [command] + words)


if __name__ == "__main__":
    sys.exit(main())
