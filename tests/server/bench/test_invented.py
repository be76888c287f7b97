"""Random models: the types llama-quantize chooses, sizes of the real ones, files others read."""

import math
import re

import gguf
import pytest

from golem_core.formats.gguf import GGUF
from golem_core.plugins import load_plugins
from golem_server.bench.command import main
from golem_server.bench.invented import metadata, parse, tensors, write_invented
from golem_server.bench.quantised import MIXTURES, type_of
from golem_server.bench.shapes import SHAPES
from tests.paths import external, gemma3_270m, smollm2
from tests.plugins import tiny

MATRIX = re.compile(r"(?:blk\.(\d+)\.)?(.*)\.weight")
UNTOUCHED = "per_layer_model_proj.weight"  # it keeps the type of the file before, here F32
FILES = (
    ("llama", "Q4_K_M"),
    ("llama", "Q8_0"),
    *(("qwen3", m) for m in ("IQ4_NL", "IQ4_XS", "Q1_0", "Q2_0", "Q2_K", "Q3_K_M", "Q4_0")),
    *(("qwen3", m) for m in ("Q4_1", "Q4_K_M", "Q5_0", "Q5_1", "Q5_K_M", "Q6_K", "Q8_0")),
    *(("qwen3", m) for m in ("TQ1_0", "TQ2_0")),
    ("qwen3moe", "MXFP4_MOE"),
    ("qwen3moe", "Q4_K_M"),
    ("gemma3", "Q4_K_M"),
    ("gemma3", "Q8_0"),
    ("gemma4-dense", "Q4_K_M"),
    ("gemma4-dense", "Q8_0"),
    ("gemma4-e2b", "Q4_K_M"),
    ("gemma4-moe", "Q4_K_M"),
    *(("qwen35", m) for m in ("Q1_0", "Q2_0", "Q4_K_M", "Q8_0", "TQ1_0", "TQ2_0")),
    ("qwen35moe", "Q4_K_M"),
)


def chosen(mixture, shape, file):
    """The types that golem would choose for a file's matrices, beside those it has."""
    for name, tensor in file.tensors.items():
        if len(tensor.shape) > 1 and name != UNTOUCHED:
            block, part = MATRIX.fullmatch(name).groups()
            mine = type_of(mixture, shape, part, tensor.shape[-1], int(block or 0))
            yield name, mine.name, tensor.type.name


@pytest.mark.parametrize(("name", "mixture"), FILES)
def test_types_are_those_llama_quantize_chose(name, mixture):
    with GGUF.open(external(f"llamacpp/{name}-{mixture.lower()}.gguf")) as file:
        for tensor, mine, theirs in chosen(mixture, tiny.SHAPES[name], file):
            assert mine == theirs, tensor
        assert file.metadata["general.file_type"] == MIXTURES[mixture][0]


@pytest.mark.real
@pytest.mark.parametrize(
    ("path", "shape", "mixture"),
    [(smollm2, "smollm2-135m", "Q4_1"), (gemma3_270m, "gemma3-270m", "Q4_K_M")],
)
def test_types_and_shapes_are_those_of_real_files(path, shape, mixture):
    """Rows of 576 and 640 weights are no multiple of 256, so most fall back to smaller blocks."""
    with GGUF.open(path()) as file:
        for tensor, mine, theirs in chosen(mixture, SHAPES[shape], file):
            assert mine == theirs, tensor
        real = {name: tensor.shape for name, tensor in file.tensors.items()}
        assert {name: size for name, size, *_ in tensors(SHAPES[shape], mixture, 0)} == real
        header = metadata(SHAPES[shape], mixture)
        for key, value in file.metadata.items():
            if key.startswith(f"{file.architecture}.") and key in header:
                assert header[key] == pytest.approx(value), key


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("qwen3-0.6b", 0.596),
        ("qwen3-4b", 4.02),
        ("qwen3-8b", 8.19),
        ("qwen3-30b-a3b", 30.5),
        ("llama3.1-8b", 8.03),
        ("gemma3-1b", 1.00),
        ("gemma3-12b", 11.77),
        ("gemma4-26b-a4b", 25.2),
        ("gemma4-31b", 30.7),
    ],
)
def test_parameters_are_those_the_models_publish(name, billions):
    count = sum(math.prod(size) for _, size, *_ in tensors(SHAPES[name], "Q4_0", 0))
    assert count / 1e9 == pytest.approx(billions, rel=0.005)


@pytest.mark.parametrize(
    "name",
    ["llama", "qwen3-tied", "qwen3moe", "gemma3", "gemma4-e2b", "gemma4-moe", "gemma4-dense"],
)
def test_a_written_model_is_whole_for_golem_and_for_the_gguf_package(name, tmp_path):
    path = write_invented(tmp_path / "m.gguf", tiny.SHAPES[name], "Q4_K_M", seed=1)
    model = load_plugins().architecture(tiny.SHAPES[name].architecture)(GGUF.open(path))
    model.program(32, 32)
    assert model.tensors.unused() == []
    theirs = {t.name: t.tensor_type.name for t in gguf.GGUFReader(path).tensors}
    assert theirs == {n: t.type.name for n, t in model.file.tensors.items()}


def test_prismmls_types_come_with_the_rotations_of_their_files(tmp_path):
    """As Ternary-Bonsai-2-27B has them: 401 folded matrices, the embedding, blocks of 1024."""
    keys = metadata(SHAPES["qwen35-27b"], "PQ2_0")
    assert len(keys["prism.hadamard.weight_names"]) == 401
    assert keys["prism.hadamard.block_size"] == 1024
    assert keys["prism.hadamard.sign_widths"].tolist() == [5120, 6144, 17408]
    path = write_invented(tmp_path / "m.gguf", tiny.SHAPES["qwen35"], "PTQ1_0", seed=1)
    model = load_plugins().architecture("qwen35")(GGUF.open(path))
    turned = [node for node in model.program(32, 32).nodes if node.op == "hadamard"]
    assert len(turned) == 2 + 4 * tiny.SHAPES["qwen35"].blocks  # after the table, before the head
    assert not any(k.startswith("prism.") for k in metadata(SHAPES["qwen35-27b"], "TQ2_0"))


def test_a_seed_decides_the_weights(tmp_path):
    files = [
        write_invented(tmp_path / f"{i}.gguf", tiny.SHAPES["llama"], "Q4_0", seed).read_bytes()
        for i, seed in enumerate((1, 1, 2))
    ]
    assert files[0] == files[1] != files[2]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("qwen3-4b:q4_0", ("qwen3-4b", "Q4_0")),
        ("Qwen3-4B:Q4_K", ("qwen3-4b", "Q4_K_M")),
        ("gemma3-1b", ("gemma3-1b", "Q4_K_M")),
    ],
)
def test_names_are_read_in_any_case(text, wanted):
    assert parse(text) == wanted


@pytest.mark.parametrize(
    ("text", "hint"),
    [("qwen3-4:q4_0", "did you mean qwen3-4b?"), ("qwen3-4b:q4_9", "did you mean Q4_")],
)
def test_an_unknown_name_is_refused_with_the_nearest(text, hint):
    with pytest.raises(ValueError, match=re.escape(hint)):
        parse(text)


def test_a_shape_cut_to_its_first_blocks_keeps_everything_else(tmp_path, capsys):
    path = tmp_path / "cut.gguf"
    cut = ["--random", "smollm2-135m:q4_0", "--blocks", "2", "--write", str(path)]
    assert main([*cut, "-p", "0", "-n", "0"]) == 0  # nothing is measured, the file kept
    with GGUF.open(path) as file:
        assert file.metadata["llama.block_count"] == 2
        assert not any(name.startswith("blk.2.") for name in file.tensors)
        assert file.tensors["token_embd.weight"].shape == (49152, 576)
    capsys.readouterr()
    assert main([*cut[:2], "--blocks", "31"]) == 1
    assert "135M has 1 to 30" in capsys.readouterr().err


@pytest.mark.parametrize(("blocks", "shared"), [(35, 20), (20, 5), (15, 0), (1, 0)])
def test_a_cut_of_shared_blocks_shares_fewer(blocks, shared):
    whole = {n: size for n, size, *_ in tensors(SHAPES["gemma4-e2b"], "Q4_0", 0)}
    shape = SHAPES["gemma4-e2b"].cut(blocks)
    assert shape.shared == shared
    for tensor, size, *_ in tensors(shape, "Q4_0", 0):
        assert size == whole[tensor] or tensor.startswith("per_layer_")  # a part of every block
