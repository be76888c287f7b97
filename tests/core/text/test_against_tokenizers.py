"""A byte-pair vocabulary rebuilt in Hugging Face's library cuts any text as golem does."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golem_core.text import load_tokenizer
from golem_core.text.split import SPLITTERS
from tests.core.text.vocabularies import recorded

tokenizers = pytest.importorskip("tokenizers", reason="pip install tokenizers for this oracle")

# As their authors write them, where that is not how they are written here.
PATTERNS = {
    "gpt-2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "llama-bpe": SPLITTERS["llama-bpe"].passes[0],
    "qwen2": SPLITTERS["qwen2"].passes[0],
    "qwen35": SPLITTERS["qwen35"].passes[0],
}
# Characters that every version of Unicode in use knows.
texts = st.text(
    st.characters(max_codepoint=0x52F, exclude_categories=("Cs", "Cn"))
    | st.sampled_from("  \n\r\t'sS123\u4e2d\U0001f600\u0301"),
    max_size=60,
)


def pair(pre):
    """Both tokenizers of the recorded vocabulary under one pre-tokenizer."""
    header = recorded()["bytes"]["metadata"] | {"tokenizer.ggml.pre": pre}
    tokens = header["tokenizer.ggml.tokens"]
    merges = [tuple(line.split(" ")) for line in header["tokenizer.ggml.merges"]]
    model = tokenizers.models.BPE(
        vocab={text: i for i, text in enumerate(tokens)},
        merges=merges,
        ignore_merges=SPLITTERS[pre].whole_words,
    )
    other = tokenizers.Tokenizer(model)
    other.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [
            tokenizers.pre_tokenizers.Split(tokenizers.Regex(PATTERNS[pre]), "isolated"),
            tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    header |= {"tokenizer.ggml.token_type": [1] * len(tokens)}
    return load_tokenizer(header), other


@pytest.fixture(scope="module", params=PATTERNS)
def both(request):
    return pair(request.param)


@settings(max_examples=200, deadline=None)
@given(text=texts)
def test_random_texts_give_the_same_ids(both, text):
    golem, other = both
    assert golem.encode(text, parse_special=False) == other.encode(text).ids
