# SPDX-License-Identifier: Apache-2.0
"""The recipe for Conan 2; it builds the tree in which it lies:

    conan create packaging/conan
"""
import os
import re

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load


class Weft(ConanFile):
    name = "weft"
    package_type = "library"
    description = "Symmetric memory and collectives for the ranks of a parallel job"
    license = "Apache-2.0"
    topics = ("shared memory", "collectives", "parallel computing")
    settings = "os", "compiler", "build_type", "arch"
    options = {"shared": [True, False]}
    default_options = {"shared": True}

    @property
    def tree(self):
        return os.path.abspath(os.path.join(self.recipe_folder, os.pardir, os.pardir))

    def set_version(self):
        if self.version:  # the recipe was exported, and has left the tree
            return
        header = load(self, os.path.join(self.tree, "include", "weft", "version.h"))
        self.version = re.search(r'WEFT_VERSION\s+"(.*)"', header).group(1)

    def export_sources(self):
        for what in ("include/*", "src/*", "tools/*", "bench/*", "cmake/*", "examples/*", "CMakeLists.txt", "LICENSE"):
            copy(self, what, self.tree, self.export_sources_folder)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables.update(WEFT_BUILD_TESTS=False, WEFT_BUILD_PYTHON=False, WEFT_NVCC=False)
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        unwanted = ".a" if self.options.shared else ".so"
        for name in os.listdir(os.path.join(self.package_folder, "lib")):
            if name.startswith("libweft" + unwanted):
                os.remove(os.path.join(self.package_folder, "lib", name))

    def package_info(self):
        self.cpp_info.libs = ["weft"]
        self.cpp_info.system_libs = ["m", "dl", "pthread"]
        self.cpp_info.set_property("cmake_target_name", "weft::weft")
        self.cpp_info.set_property("pkg_config_name", "weft")
