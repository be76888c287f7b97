"""The house rules that no single module can check: imports point one way, importing is cheap."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# A package may import itself and the packages named here, nothing else of golem.
FLOORS = {
    "golem_core": set(),
    "golem_plugins": {"golem_core"},
    "golem_server": {"golem_core"},
}
MODULES = sorted(p for package in FLOORS for p in (ROOT / package).rglob("*.py"))


def golem_imports(path: Path) -> set[str]:
    """Dotted names of golem's own modules that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return {name for name in found if name.split(".")[0] in FLOORS}


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_down(path):
    package, *rest = path.relative_to(ROOT).parts
    for name in golem_imports(path):
        target = name.split(".")
        if target[0] != package:
            assert target[0] in FLOORS[package], f"{package} imports {name}"
        elif package == "golem_plugins" and len(target) > 1:
            assert target[1] == rest[0], f"plugin {rest[0]} imports plugin {target[1]}"


def test_the_rule_sees_a_violation(tmp_path):
    bad = tmp_path / "bad.py"
    bad.write_text("def f():\n    from golem_server.app import create_app\n")
    assert golem_imports(bad) == {"golem_server.app"}


@pytest.mark.parametrize("package", sorted(FLOORS))
def test_importing_a_package_starts_no_thread_and_loads_no_heavy_library(package):
    heavy = ("PIL", "soundfile", "vulkan", "torch", "openai")
    code = (
        f"import {package}, threading, sys\n"
        "assert threading.active_count() == 1, threading.enumerate()\n"
        f"loaded = [m for m in {heavy!r} if m in sys.modules]\n"
        "assert not loaded, loaded\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
