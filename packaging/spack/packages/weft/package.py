# SPDX-License-Identifier: Apache-2.0
"""The recipe for Spack; it builds the tree in which it lies:

    spack repo add packaging/spack
    spack install weft
"""
import os
import re

from spack.package import *

TREE = os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 4))
with open(os.path.join(TREE, "include", "weft", "version.h"), encoding="utf-8") as header:
    VERSION = re.search(r'WEFT_VERSION\s+"(.*)"', header.read()).group(1)


class Weft(CMakePackage):
    """Symmetric memory and collectives for the ranks of a parallel job."""

    git = "file://" + TREE
    license("Apache-2.0")
    version(VERSION, commit="HEAD")

    variant("python", default=False, description="Build the Python module")

    depends_on("c", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("python@3.9:", type=("build", "link", "run"), when="+python")
    # Loaded when something uses them.
    depends_on("openblas", type="run")
    depends_on("openssl@3:", type="run")

    def cmake_args(self):
        return [
            self.define("WEFT_BUILD_TESTS", False),
            self.define("WEFT_NVCC", False),
            self.define_from_variant("WEFT_BUILD_PYTHON", "python"),
        ]

    def setup_run_environment(self, env):
        env.prepend_path("LD_LIBRARY_PATH", self.spec["openblas"].prefix.lib)
