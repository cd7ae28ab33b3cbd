# SPDX-License-Identifier: Apache-2.0
"""The backend "weft" of torch.distributed, for tensors on the CPU.

    import torch.distributed as dist
    dist.init_process_group("weft")

An installed weft is found by `import torch` itself, through the entry point torch.backends.  Where it is used by
PYTHONPATH, `import weft.torch` does the same.  The adapter, which is compiled for one release of PyTorch, is loaded when
the first group is made.
"""
import atexit

import weft  # loads libweft, which the adapter shares

from . import _build

__all__ = ["adapter", "create", "register"]

_adapter = None


def adapter():
    """The adapter as a module, found or compiled."""
    global _adapter
    if _adapter is None:
        _adapter = _build.load(_build.find())
        atexit.register(_adapter.end_threads)
    return _adapter


def create(opts, backend_options=None):
    """Called by torch.distributed for every group with this backend."""
    milliseconds = int(opts.timeout.total_seconds() * 1000)
    return adapter().create(opts.store, opts.group_rank, opts.group_size, milliseconds, opts.group_id)


def register():
    import _weft_torch

    _weft_torch.register()


def __getattr__(name):
    if name == "ProcessGroupWeft":
        return adapter().ProcessGroupWeft
    raise AttributeError(f"module 'weft.torch' has no attribute {name!r}")


register()
