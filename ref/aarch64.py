"""Builds golem for AArch64 on another machine and runs its tests there, under qemu's user mode.

Nobody who writes golem has to own such a machine for its NEON kernels to be tested. FOLDER gets a
Debian root with that architecture's Python (packages are unpacked, nothing is installed and no
rights are needed) and the wheels golem and its tests need. The extensions are cross-compiled in
place, beside this machine's own: their names tell them apart. Tests that start programs of their
own cannot run: the kernel here does not know theirs.

    apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static
    python -m ref.aarch64 FOLDER [--cpu cortex-a72] [PYTEST ARGUMENT ...]

Without arguments for pytest it runs tests/core/cpu, some ten minutes. ``--cpu`` names a processor
that qemu knows: cortex-a76 has what the NEON kernels ask for; cortex-a72 has not, and runs the
portable ones. What runs here says nothing about speed.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
COMPILER = "aarch64-linux-gnu-gcc"
EMULATORS = ("qemu-aarch64-static", "qemu-aarch64")
TOOLS = "apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static"
PACKAGES = ("python3", "libpython3-dev", "libstdc++6")  # of Debian; the last for numpy
PLATFORMS = ("manylinux2014_aarch64", "manylinux_2_28_aarch64")  # of wheels


def emulator() -> str | None:
    """qemu's user mode for AArch64, where it is installed."""
    return next((found for name in EMULATORS if (found := shutil.which(name))), None)


def missing_tools() -> list[str]:
    """Programs that have to be installed first; ``TOOLS`` is how."""
    missing = [] if emulator() else [EMULATORS[0]]
    return missing + [name for name in (COMPILER,) if not shutil.which(name)]


def run(*command, **kwargs) -> None:
    print("+", *command, flush=True)
    subprocess.run([str(part) for part in command], check=True, **kwargs)


def make_root(folder: Path) -> Path:
    """Debian's Python for AArch64 with all it needs, unpacked below ``folder``."""
    root, apt = folder / "root", folder / "apt"
    if root.exists():
        return root
    for name in ("lists/partial", "cache/archives/partial"):
        (apt / name).mkdir(parents=True, exist_ok=True)
    (apt / "status").touch()  # as if nothing were installed: everything needed is fetched
    settings = {
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "APT::Sandbox::User": "",
        "Dir::State": apt,
        "Dir::State::lists": apt / "lists",
        "Dir::State::status": apt / "status",
        "Dir::Cache": apt / "cache",
    }
    command = ["apt-get", "-qq", *(f"-o{key}={value}" for key, value in settings.items())]
    run(*command, "update")
    run(*command, "install", "--download-only", "--yes", "--no-install-recommends", *PACKAGES)
    unpacked = folder / "unpacked"
    for archive in sorted((apt / "cache/archives").glob("*.deb")):
        subprocess.run(["dpkg-deb", "-x", archive, unpacked], check=True)
    shutil.rmtree(apt)
    return unpacked.rename(root)


def python_of(root: Path) -> tuple[Path, str]:
    """The root's interpreter and its version, as "3.11"."""
    found = [
        path for path in root.glob("usr/bin/python3.*") if re.fullmatch(r"\d+", path.suffix[1:])
    ]
    if len(found) != 1:
        raise SystemExit(
            f"{root} holds {len(found)} interpreters; remove the folder to make it anew"
        )
    return found[0], found[0].name.removeprefix("python")


def make_site(folder: Path, version: str) -> Path:
    """The packages golem and its tests need, as wheels for AArch64."""
    site = folder / "site"
    if site.exists():
        return site
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--only-binary=:all:"]
    command += ["--implementation", "cp", "--python-version", version]
    command += [part for platform in PLATFORMS for part in ("--platform", platform)]
    made = folder / "wheels"
    run(*command, "--target", made, *project["dependencies"], *extras["media"], *extras["test"])
    return made.rename(site)


def build(folder: Path, root: Path, version: str) -> None:
    """The extensions, in place: distutils compiles for the machine whose settings it is given."""
    name = "_sysconfigdata__aarch64-linux-gnu"
    settings = folder / "settings"
    settings.mkdir(exist_ok=True)
    shutil.copy(root / f"usr/lib/python{version}/{name}.py", settings)
    cached = "ccache " if shutil.which("ccache") else ""
    headers = root / f"usr/include/python{version}"
    environment = os.environ | {
        "CC": f"{cached}{COMPILER} --sysroot={root} -I{headers}",
        "PYTHONPATH": str(settings),
        "_PYTHON_SYSCONFIGDATA_NAME": name,
        "_PYTHON_HOST_PLATFORM": "linux-aarch64",
    }
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    run(*command, cwd=CHECKOUT, env=environment)


def test(root: Path, python: Path, site: Path, cpu: str, arguments: list[str]) -> int:
    """pytest's exit status, under qemu."""
    environment = os.environ | {
        "PYTHONPATH": f"{site}{os.pathsep}{CHECKOUT}",
        "OPENBLAS_NUM_THREADS": "1",
    }
    command = [
        emulator(),
        "-cpu",
        cpu,
        "-L",
        root,
        python,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
    ]
    return subprocess.run([*command, *arguments], cwd=CHECKOUT, env=environment).returncode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, help="where the other machine's files go (400 MB)")
    parser.add_argument("--cpu", default="cortex-a76", help="the processor qemu stands in for")
    args, arguments = parser.parse_known_args()
    if missing := missing_tools():
        raise SystemExit(f"aarch64: no {' and no '.join(missing)} here; {TOOLS}")
    folder = args.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    root = make_root(folder)
    python, version = python_of(root)
    site = make_site(folder, version)
    build(folder, root, version)
    raise SystemExit(test(root, python, site, args.cpu, arguments or ["tests/core/cpu"]))


if __name__ == "__main__":
    main()
