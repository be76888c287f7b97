"""How benchmarks/compare.py is called: its help, and a line and 1 for what does not go together."""

import json

import pytest

from benchmarks import compare
from benchmarks.lines import LINES

SHAPE = "qwen3-0.6b:q4_0"


@pytest.fixture
def call(monkeypatch, capsys):
    """Calls it; -> its status, what it printed and what it said."""

    def run(*argv):
        monkeypatch.setattr("sys.argv", ["compare", *map(str, argv)])
        status = 0
        try:
            compare.main()
        except SystemExit as left:
            status = left.code
        return status, *capsys.readouterr()

    return run


@pytest.fixture
def peer(tmp_path):
    """A folder that says it holds a program."""

    def made(name, **other):
        folder = tmp_path / name
        folder.mkdir()
        describe = {"name": name, "package": "p==1", "bin": "bin"} | other
        (folder / "peer.json").write_text(json.dumps(describe))
        return folder

    return made


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ([], "give a MODEL to measure, --json FILE to print its tables, or --list"),
        ([SHAPE, "--rounds", "0"], "argument --rounds: '0': it must be at least 1"),
        ([SHAPE, "--rounds=-1"], "argument --rounds: '-1': it must be at least 1"),
        ([SHAPE, "--threads", "0"], "argument --threads: '0': it must be at least 1"),
        ([SHAPE, "--resume"], "name it with --json FILE"),
        ([SHAPE, "--only", "fast"], "argument --only: 'fast' fits none of: pp512"),
        ([SHAPE, "--peer", "/nowhere"], "/nowhere/peer.json is missing; build the peer first"),
        ([SHAPE, "--peer", "other=/nowhere"], "there are llama.cpp and ik_llama.cpp"),
        ([SHAPE, "--no-golem"], "leaves nothing to measure"),
        ([SHAPE, "--json", "/nowhere/a.json"], "its folder is not there"),
        ([SHAPE, "--models", __file__], f"'{__file__}' is no folder"),
        (["--json", "/nowhere.json"], "there is no such file to print"),
        (["--json", __file__], "holds no samples of a comparison"),
        (["qwen9:q4_0"], "'qwen9:q4_0' is no file, and"),
        (["/nowhere.gguf"], "'/nowhere.gguf' is no file, and"),
        ([__file__], f"argument MODEL: {__file__}: is not GGUF"),
        (["/"], "argument MODEL: /: "),
    ],
)
def test_what_is_wrong_is_a_line_and_1(call, argv, says):
    status, printed, said = call(*argv)
    assert (status, printed) == (1, "")
    assert said.startswith("compare: ") and says in said and said.count("\n") == 1


def test_every_peer_has_a_folder_of_its_own(call, peer):
    one = peer("llama.cpp")
    status, _, said = call(SHAPE, "--peer", one, "--peer", f"ik_llama.cpp={one}")
    assert status == 1
    assert "that folder holds llama.cpp; ik_llama.cpp needs one of its own" in said
    status, _, said = call(SHAPE, "--peer", one, "--peer", one)
    assert status == 1 and "llama.cpp is already compared with" in said
    both = compare.peers_of([f"llama.cpp={one}", str(peer("ik_llama.cpp"))], False)
    assert [found.name for found in both] == ["llama.cpp", "ik_llama.cpp"]


@pytest.mark.parametrize("text", ["{", "[]", "{}"])
def test_a_folder_that_describes_no_peer_is_refused(call, peer, text):
    folder = peer("llama.cpp")
    (folder / "peer.json").write_text(text)
    status, _, said = call(SHAPE, "--peer", folder)
    assert status == 1 and "does not describe a peer" in said


@pytest.mark.parametrize(
    ("argv", "rounds", "names"),
    [
        ([], 3, [line.name for line in LINES]),
        (["--rounds", "5"], 5, [line.name for line in LINES]),
        (["--quick"], 1, [n for n in (line.name for line in LINES) if n in
                          ("pp512", "tg64", "4x tg32@0") or n.startswith("4 clients")]),
        (["--quick", "--only", "first*,tg64"], 1, ["tg64", "first token"]),
        (["--only", "tg64@4096", "--quick", "--rounds", "2"], 2, ["tg64@4096"]),
    ],
)  # fmt: skip
def test_quick_is_one_round_and_leaves_the_lines_to_only(call, monkeypatch, argv, rounds, names):
    seen = []
    monkeypatch.setattr(compare, "file_of", lambda model, folder: model)
    monkeypatch.setattr(
        compare, "rounds", lambda programs, model, lines, samples, args: seen.append((lines, args))
    )
    assert call(SHAPE, *argv)[0] == 0
    ((lines, args),) = seen
    assert [line.name for line in lines] == names and args.rounds == rounds


def test_the_help_tells_how_to_get_the_readmes_tables_and_of_every_argument(call):
    status, printed, said = call("--help")
    assert (status, said) == (0, "")
    assert "The tables of README.md:" in printed and "ik_llama.cpp=PEER_IK" in printed
    assert all(action.help for action in compare.parser()._actions)
