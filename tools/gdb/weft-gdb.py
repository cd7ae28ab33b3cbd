# SPDX-License-Identifier: Apache-2.0
"""Tensors, groups and symmetric memory in gdb: `source weft-gdb.py`, or by itself where libweft is installed by its packages.

    (gdb) print x                    weft_tensor f32[8, 512] at 0x7f0012345000
    (gdb) print world                weft_group "0", rank 2 of 4, 17 operations begun
    (gdb) weft-print x               the elements, as weft_print shows them
    (gdb) weft-last-error            what weft_last_error says in this thread

The objects are opaque to programs, so this calls functions of the library in the process that is debugged: it works on live
processes, not on core files.  Printing waits for nobody; weft-print waits for a result that is pending.
"""
import gdb

ROOM = 4096


def call(result, name, *words):
    """Calls a function of libweft, which may have no debugging information: its type is said here."""
    try:
        gdb.parse_and_eval(f"(long)&{name}")
    except gdb.error as why:
        raise gdb.error(f"the program has no {name}: is it linked with libweft, and has it started?") from why
    return gdb.parse_and_eval(f"(({result} (*)())(long)&{name})({', '.join(words)})")


def address(value):
    return f"(void *){int(value):#x}"


def tensor_text(value):
    at = address(value)
    dims = int(call("int", "weft_tensor_ndim", at))
    shape = ", ".join(str(int(call("long", "weft_tensor_size", at, str(i)))) for i in range(dims))
    kind = call("char *", "weft_dtype_name", str(int(call("int", "weft_tensor_dtype", at)))).string()
    return f"weft_tensor {kind}[{shape}]"


def group_text(value):
    at = address(value)
    rank, size = int(call("int", "weft_rank", at)), int(call("int", "weft_size", at))
    name = call("char *", "weft_group_name", at).string()
    return f'weft_group "{name}", rank {rank} of {size}, {int(call("unsigned long", "weft_group_sequence", at))} operations begun'


def work_text(value):
    status = int(call("int", "weft_work_status", address(value)))
    return f'weft_work, {call("char *", "weft_status_name", str(status)).string()}'


TEXTS = {"weft_tensor": tensor_text, "weft_group": group_text, "weft_work": work_text}


class Printer:
    """What a pointer to an object of weft points to."""

    def __init__(self, value, text):
        self.value, self.text = value, text

    def to_string(self):
        if int(self.value) == 0:
            return "NULL"
        try:
            return self.text(self.value) + f" at {int(self.value):#x}"
        except (gdb.error, RuntimeError) as why:
            return f"{int(self.value):#x} (cannot be asked: {why})"


def find(value):
    kind = value.type.strip_typedefs()
    if kind.code != gdb.TYPE_CODE_PTR:
        return None
    target = kind.target().unqualified()
    name = target.name or target.strip_typedefs().tag or ""
    text = TEXTS.get(name.replace("struct ", ""))
    return Printer(value, text) if text else None


class Print(gdb.Command):
    """Prints the elements of a tensor: weft-print EXPRESSION."""

    def __init__(self):
        super().__init__("weft-print", gdb.COMMAND_DATA, gdb.COMPLETE_EXPRESSION)

    def invoke(self, words, from_tty):
        if not words:
            raise gdb.GdbError("weft-print: which tensor?")
        at = address(gdb.parse_and_eval(words))
        room = call("char *", "malloc", str(ROOM))
        try:
            length = int(call("int", "weft_tensor_text", at, address(room), str(ROOM)))
            if length < 0:
                raise gdb.GdbError("weft-print: " + call("char *", "weft_last_error").string())
            gdb.write(room.string() + ("\n..." if length >= ROOM else "") + "\n")
        finally:
            call("void", "free", address(room))


class LastError(gdb.Command):
    """Prints the last error of weft in the selected thread."""

    def __init__(self):
        super().__init__("weft-last-error", gdb.COMMAND_DATA)

    def invoke(self, words, from_tty):
        gdb.write((call("char *", "weft_last_error").string() or "none") + "\n")


gdb.pretty_printers.append(find)
Print()
LastError()
