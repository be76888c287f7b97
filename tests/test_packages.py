"""What a wheel and a source distribution hold."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BUILT_FROM = {".pyx", ".pxd", ".c", ".h", ".inc"}


def setup(*command):
    """Runs setup.py without the extensions, whose building takes minutes."""
    environ = os.environ | {"GOLEM_EXT": "none of them", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "setup.py", "-q", *map(str, command)]
    subprocess.run(command, cwd=ROOT, env=environ, check=True, capture_output=True)


@pytest.fixture(scope="module")
def checkout():
    if not (ROOT / "setup.py").exists():
        pytest.skip("there is no setup.py: this is not a checkout")


def test_a_wheel_holds_nothing_but_what_runs(checkout, tmp_path):
    setup("egg_info", "--egg-base", tmp_path, "build_py", "--build-lib", tmp_path / "lib")
    files = [p.relative_to(tmp_path / "lib") for p in (tmp_path / "lib").rglob("*") if p.is_file()]
    assert {file.parts[0] for file in files} == {"golem_core", "golem_plugins", "golem_server"}
    assert {file.suffix for file in files} == {".py"}  # and the extensions, built elsewhere
    packaged = {str(file) for file in files}
    for package in ("golem_core", "golem_plugins", "golem_server"):
        for source in (ROOT / package).rglob("*.py"):
            assert str(source.relative_to(ROOT)) in packaged


def test_a_source_distribution_holds_what_a_wheel_is_built_from(checkout, tmp_path):
    setup("egg_info", "--egg-base", tmp_path, "sdist", "--dist-dir", tmp_path)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        held = {name.partition("/")[2] for name in opened.getnames()}
    assert {"setup.py", "pyproject.toml", "README.md", "LICENSE", "tox.ini"} <= held
    for package in ("golem_core", "golem_plugins"):
        for source in (ROOT / package).rglob("*"):
            name = str(source.relative_to(ROOT))
            written = source.suffix == ".c" and source.with_suffix(".pyx").exists()
            if source.suffix in BUILT_FROM:
                assert (name in held) is not written, name
