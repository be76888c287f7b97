"""Files folded with rotations: read as their contract says, or refused with the key."""

import numpy as np
import pytest

from golem_core.formats.gguf import GGUF
from tests.plugins import tiny

BLOCK = 128
WIDTHS = (256, 512)
NAMES = ("attn_qkv", "attn_gate", "ssm_out", "attn_q", "attn_k", "attn_v", "attn_output")
NAMES += ("ffn_gate", "ffn_up", "ffn_down")


def walsh(size: int) -> np.ndarray:
    """The normalised Sylvester matrix, made as a Kronecker power."""
    h = np.ones((1, 1))
    while len(h) < size:
        h = np.kron([[1, 1], [1, -1]], h)
    return h / np.sqrt(size)


SIGNS = {w: np.random.default_rng(w).choice([-1, 1], w) for w in WIDTHS}


def fold(rows: np.ndarray, signs: np.ndarray) -> np.ndarray:
    """H (s · row) of every row, in blocks: what a folded matrix stores."""
    blocks = (rows * signs).reshape(len(rows), -1, BLOCK)
    return (blocks @ walsh(BLOCK)).reshape(rows.shape)


def contract(grouped: bool, names: list[str]) -> dict:
    """The header of a folded file."""
    return {
        f"prism.hadamard.{key}": value
        for key, value in {
            "version": 1,
            "block_size": BLOCK,
            "transform": "normalized-sylvester-walsh-hadamard",
            "axis": "input-last-dimension",
            "sign_mode": "explicit",
            "sign_widths": np.array(WIDTHS, np.int32),
            "sign_values": np.concatenate([SIGNS[w] for w in WIDTHS]).astype(np.int32),
            "weight_names": names,
            "inverse_weight_names": ["token_embd.weight"],
            "gdn_v_grouped": grouped,
        }.items()
    }


@pytest.fixture
def folded(tiny_model, tmp_path):
    """folded(grouped, **keys) -> the tiny delta net with its matrices folded, and its own path."""

    def make(grouped=False, **keys):
        source = tiny_model("qwen35")
        with GGUF.open(source) as file:
            chosen = [n for n in file.tensors if n.split(".")[-2] in (*NAMES, "output")]
            tensors = {}
            for name in [*chosen, "token_embd.weight"]:
                rows = file.tensors[name].numpy().astype(np.float64)
                if grouped and name.endswith("ssm_out.weight"):  # (2, 2, 128) -> key heads first
                    rows = rows.reshape(-1, 2, 2, 128).transpose(0, 2, 1, 3).reshape(rows.shape)
                tensors[name] = fold(rows, SIGNS[rows.shape[1]])
        header = contract(grouped, chosen) | {f"prism.hadamard.{k}": v for k, v in keys.items()}
        return tiny.rewrite(source, tmp_path / "folded.gguf", header, tensors=tensors), source

    return make


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("kind", ["reference", "cpu"])
def test_a_folded_model_computes_what_the_unfolded_one_does(kind, grouped, folded):
    ids = np.random.default_rng(1).integers(0, 480, 40)
    found, wanted = (
        tiny.run(tiny.executor(kind, tiny.decoder(path)), (0, 0, ids, 1))["logits"]
        for path in folded(grouped)
    )
    assert tiny.relative_rms(found, wanted) < 2e-3


def test_a_fold_that_is_not_undone_would_show(folded):
    """The test above is worth something: without the header the folded model is another one."""
    path, source = folded()
    keys = {k: None for k in contract(False, [])}
    bare = tiny.rewrite(path, path.with_name("bare.gguf"), keys)
    ids = np.random.default_rng(1).integers(0, 480, 40)
    found, wanted = (
        tiny.run(tiny.executor("reference", tiny.decoder(p)), (0, 0, ids, 1))["logits"]
        for p in (bare, source)
    )
    assert tiny.relative_rms(found, wanted) > 0.5


def test_equal_rotations_of_one_value_are_done_once(folded):
    path, _ = folded()
    nodes = tiny.decoder(path).program(64, 64).nodes
    block = [node for node in nodes if node.site.startswith("blk.3/")]  # the first that attends
    assert sum(node.op == "hadamard" for node in block) == 4  # q k v, output, gate and up, down


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"version": 2}, "version is 2; 1, the only one"),
        ({"transform": "haar"}, "transform is 'haar'; 'normalized-sylvester"),
        ({"axis": "output"}, "axis is 'output'"),
        ({"block_size": 96}, "block_size is 96; a power of two"),
        ({"block_size": 1024}, "names of matrices whose rows are blocks of 1024"),
        ({"sign_mode": "random"}, "sign_mode is 'random'; explicit or identity"),
        ({"sign_widths": np.array([256], np.int32)}, "256 numbers that are 1 or -1"),
        ({"sign_values": np.zeros(768, np.int32)}, "768 numbers that are 1 or -1"),
        ({"weight_names": ["blk.9.attn_q.weight"]}, "unlike 'blk.9.attn_q.weight'"),
        ({"weight_names": 3}, "weight_names is 3; a list of tensors' names"),
        ({"inverse_weight_names": None}, "inverse_weight_names is missing"),
        ({"gdn_v_grouped": 1}, "gdn_v_grouped is 1; true or false"),
        ({"offset": 4}, "prism.hadamard.offset is 4; no such key"),
    ],
)
def test_what_golem_does_not_know_is_refused_with_the_key(keys, words, folded):
    path, _ = folded(**keys)
    with pytest.raises(ValueError, match=words):
        tiny.decoder(path)


def test_signs_may_all_be_one(folded):
    path, _ = folded(sign_mode="identity")
    hadamards = [n for n in tiny.decoder(path).program(64, 64).nodes if n.op == "hadamard"]
    assert hadamards
    assert all(node.inputs[1] is None for node in hadamards)
