"""Builds the C extensions; everything else about the package is in pyproject.toml.

Each ``.pyx`` names its own C sources in a ``# distutils: sources = ...`` comment, so that adding
an extension changes nothing here. No flag of the building machine is used: kernels for newer
instruction sets are compiled per function and chosen at import (see golem_core/cpu).

``GOLEM_EXT=text`` builds only the extensions whose name contains "text".
"""

import os
from concurrent.futures import ThreadPoolExecutor
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


class ParallelBuild(build_ext):
    """Compiles C sources on all cores, and those that extensions share once; distutils takes them
    in turn, for every extension anew."""

    def build_extensions(self):
        compile_one = self.compiler.compile
        compiled = {}

        def compile_all(sources, *args, **kwargs):
            def objects_of(source):
                key = source, repr((args, kwargs))
                if key not in compiled:
                    compiled[key] = compile_one([source], *args, **kwargs)
                return compiled[key]

            with ThreadPoolExecutor(os.cpu_count()) as pool:
                return [item for part in pool.map(objects_of, sources) for item in part]

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
    headers = [str(path) for path in Path("golem_core").rglob("*.h")]
    for extension in built:
        extension.depends = [*extension.depends, *headers]  # also what headers include
        extension.extra_compile_args = FLAGS
        extension.extra_link_args = ["-pthread"]
    return built


setup(ext_modules=extensions(), cmdclass={"build_ext": ParallelBuild})
