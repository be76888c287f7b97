"""What the system tells of its caches."""

import pytest

from golem_core.cpu.cores import last_cache


@pytest.mark.parametrize(
    ("caches", "size"),
    [
        ({}, 0),
        ({"index0": (1, "48K"), "index1": (1, "32K"), "index2": (2, "2048K")}, 2 << 20),
        ({"index2": (2, "2M"), "index3": (3, "307200K"), "index0": (1, "48K")}, 300 << 20),
        ({"index0": (1, "48K"), "index3": (3, "what"), "index4": ("x", "1K")}, 48 << 10),
        ({"index0": (1, "65536"), "index1": (1, "")}, 65536),
    ],
)
def test_the_last_cache_is_the_one_of_the_highest_level(tmp_path, caches, size):
    for name, (level, text) in caches.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "level").write_text(f"{level}\n")
        (tmp_path / name / "size").write_text(f"{text}\n")
    (tmp_path / "index9").mkdir()  # one that tells nothing
    assert last_cache(tmp_path) == size
    assert last_cache(tmp_path / "none") == 0
