# SPDX-License-Identifier: Apache-2.0
"""What `import torch` loads, through the entry point torch.backends, in every program of an environment that has weft.

So it stands outside the package weft, whose extension it must not load, and nothing in it may raise: an exception would
make `import torch` fail, also for those who have never heard of weft.
"""


def _create(opts, backend_options=None):
    import weft.torch

    return weft.torch.create(opts, backend_options)


def register():
    """Makes the name "weft" known to torch.distributed; the first group loads the rest."""
    try:
        import torch.distributed as dist

        if dist.is_available() and "weft" not in dist.Backend.backend_list:
            dist.Backend.register_backend("weft", _create, extended_api=True, devices=["cpu"])
    except Exception:  # a PyTorch without torch.distributed, or one that has become another
        pass
