# SPDX-License-Identifier: Apache-2.0
"""Symmetric memory and collectives for the ranks of a parallel job.

    world = weft.init()                 # under `weft run`, torchrun, mpirun, srun, or alone
    world.all_reduce(x)                 # a NumPy array, a tensor, anything with a buffer or DLPack

Operands are contiguous and on the CPU.  The GIL is free while a call waits, and Ctrl-C ends the wait.
"""
import atexit as _atexit
import weakref as _weakref

from . import _weft
from ._weft import (ArgumentError, CancelledError, Error, Group, Memory, MismatchError, MissingError, PeerDeadError,
                    PeerLeftError, RevokedError, Symm, TimeoutError, Work)
from . import symm

__all__ = ["ANY", "NOBODY", "ArgumentError", "CancelledError", "Error", "Group", "Memory", "MismatchError",
           "MissingError", "PeerDeadError", "PeerLeftError", "RevokedError", "Symm", "TimeoutError", "Work", "init",
           "symm", "__version__"]

__version__ = _weft.version()
ANY = -1  # as the source of a receive: the first rank to send
NOBODY = -2  # as a peer: nothing is sent or received

_worlds = []  # weak references, in the order in which they were made


def init(store=None, *, rank=None, size=None, timeout=None, meet_timeout=None):
    """Meets the other ranks of the job and returns the world group.

    The launcher's environment says who they are; without a launcher it is a world of one rank.  A store, with rank
    and size, takes its place: "file:PATH", "unix:NAME" (an abstract socket of this machine) or "tcp:HOST:PORT", which
    rank 0 serves.  `timeout` is the limit of operations in seconds, `meet_timeout` of this call.
    """
    world = _weft.init(store, rank=rank, size=size, timeout=timeout, meet_timeout=meet_timeout)
    _worlds[:] = [known for known in _worlds if known() is not None]
    _worlds.append(_weakref.ref(world))
    return world


@_atexit.register
def _leave():
    """A program that ends has left its jobs, so that the others need not guess whether it died."""
    for known in reversed(_worlds):
        world = known()
        if world is not None:
            try:
                world.finish()
            except Error:
                pass  # whoever wanted to know has called finish
    _weft._end()


def _await(work):
    """`await work` in asyncio: the event loop goes on meanwhile."""
    import asyncio

    loop = asyncio.get_running_loop()
    future = loop.create_future()

    def wake():
        if not future.done():
            future.set_result(None)

    work.add_done_callback(lambda _: loop.call_soon_threadsafe(wake))
    yield from future.__await__()
    work.wait()


Work.__await__ = _await
