# SPDX-License-Identifier: Apache-2.0
"""Symmetric memory: an array that every rank has, in memory that all of them can touch.

    s = weft.symm.empty(4096, "f32", group=world)
    s.array[:] = world.rank
    s.barrier()
    print(s.peer(1)[0])
"""
from ._weft import Memory, Symm, symm_empty as _empty

__all__ = ["Memory", "Symm", "empty"]

# weft's names by NumPy's and PyTorch's.
_NAMES = {"float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "float8_e4m3fn": "f8e4m3",
          "float8_e5m2": "f8e5m2", "bool": "bool"}
_NAMES.update({f"{kind}int{bits}": f"{kind or 'i'}{bits}" for kind in ("", "u") for bits in (8, 16, 32, 64)})


def _dtype(dtype):
    """The name that weft has for a dtype: weft's own, NumPy's or PyTorch's, as text or as an object of theirs."""
    if isinstance(dtype, type) and issubclass(dtype, (float, int)):
        return "bool" if dtype is bool else "f64" if dtype is float else "i64"
    text = dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or getattr(dtype, "__name__", str(dtype))
    text = text.rsplit(".", 1)[-1]
    return _NAMES.get(text, text)


def empty(shape, dtype="f32", group=None):
    """Allocates zeroed memory of this shape on every rank of the group.  Collective: all ranks call it alike.

    Collectives of the group take the result as an operand and use it in place, without a copy.
    """
    if group is None:
        raise TypeError("symm.empty: a group is needed, for example the world")
    return _empty(group, shape, _dtype(dtype))


def _array(memory):
    import numpy

    return numpy.asarray(memory)


def _peer(symm, rank):
    """The array of another rank, as NumPy's: reading and writing it is reading and writing that rank's memory."""
    return _array(symm.peer_memory(rank))


def _all_reduce(symm, op="sum", **options):
    """Reduces the arrays of all ranks in place."""
    symm.group.all_reduce(symm.memory, op, **options)
    return symm


Symm.array = property(lambda symm: _array(symm.memory), doc="this rank's array, as NumPy's")
Symm.peer = _peer
Symm.all_reduce = _all_reduce
Symm.dtype = property(lambda symm: symm.memory.dtype, doc="weft's name of the dtype")
Symm.shape = property(lambda symm: symm.memory.shape)
Symm.__dlpack__ = lambda symm, **options: symm.memory.__dlpack__(**options)
Symm.__dlpack_device__ = lambda symm: symm.memory.__dlpack_device__()
