# SPDX-License-Identifier: Apache-2.0
"""Where the library, its headers, its command and the sources of the adapter are: inside the package, or in a build folder of the source tree."""
import os

_here = os.path.dirname(os.path.abspath(__file__))
try:
    from ._built import ADAPTER, COMMAND, INCLUDE, LIBRARY  # written by the build
except ImportError:
    ADAPTER = os.path.join(_here, "torch", "adapter")  # sources
    INCLUDE = os.path.join(_here, "include")
    LIBRARY = os.path.join(_here, "lib")
    COMMAND = os.path.join(_here, "bin", "weft")
