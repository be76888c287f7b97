"""Builds the C extensions; everything else about the package is in pyproject.toml.

Each ``.pyx`` names its own C sources in a ``# distutils: sources = ...`` comment, so that adding
an extension changes nothing here. No flag of the building machine is used: kernels for newer
instruction sets are compiled per function and chosen at import (see golem_core/cpu).

``GOLEM_EXT=text`` builds only the extensions whose name contains "text".
"""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from pathlib import Path

from Cython.Build import cythonize
from setuptools import setup
from setuptools.command.build_ext import build_ext

FLAGS = [
    "-O3",
    "-std=gnu11",
    "-fno-math-errno",
    # Python's own flags let signed numbers wrap around; attention with AVX2 then takes 1.2 times as
    # long, for counters that are widened at every use. Nothing here counts on it.
    "-fno-wrapv",
    "-ffp-contract=off",
    "-fvisibility=hidden",
    "-pthread",
    "-g0",
    "-Wno-unused-function",
    "-Wno-psabi",  # vectors wider than the baseline only go through functions that are inlined
]
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": False,
    "freethreading_compatible": True,
}


HEADERS = [str(path) for path in Path("golem_core").rglob("*.h")]


class ParallelBuild(build_ext):
    """Compiles C sources on all cores, and only those that changed; distutils takes them in turn,
    for every extension and for every build anew.

    Objects stay below build/, so a wheel made after an editable build links what that compiled.
    """

    def build_extensions(self):
        compile_one = self.compiler.compile
        made_with = repr((sys.version, self.compiler.compiler_so, FLAGS)).encode()
        self.build_temp = str(
            Path("build", f"objects-{blake2b(made_with, digest_size=6).hexdigest()}")
        )
        headers = max(map(os.path.getmtime, HEADERS))

        def objects_of(source, options):
            [built] = self.compiler.object_filenames([source], output_dir=self.build_temp)
            changed = max(headers, os.path.getmtime(source))
            if self.force or not os.path.exists(built) or os.path.getmtime(built) <= changed:
                compile_one([source], **options)
            return built

        def compile_all(sources, **options):
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                return list(pool.map(lambda source: objects_of(source, options), sources))

        self.compiler.compile = compile_all
        super().build_extensions()


def extensions():
    chosen = os.environ.get("GOLEM_EXT", "")
    files = [
        str(path)
        for package in ("golem_core", "golem_plugins")
        for path in sorted(Path(package).rglob("*.pyx"))
        if chosen in str(path)
    ]
    built = cythonize(files, compiler_directives=DIRECTIVES) if files else []
    for extension in built:
        extension.depends = [*extension.depends, *HEADERS]  # also what headers include
        extension.extra_compile_args = FLAGS
        extension.extra_link_args = ["-pthread"]
    return built


setup(ext_modules=extensions(), cmdclass={"build_ext": ParallelBuild})
