"""How byte-pair models cut a text into words before they merge: llama.cpp's pre-tokenizers.

A model file names its pre-tokenizer; a wrong one gives other ids than the model was trained on,
so an unknown name is refused instead of guessed at. The expressions are the ones the models'
authors published, in the spelling of the ``regex`` package; \\s there is Unicode's White_Space,
as in llama.cpp.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import regex

from golem_core.text.errors import TokenizerError


class _Parting(str):
    """An expression that leaves text between its matches; all others match the whole text."""


_GPT2 = (r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s",)
_CONTRACTION = r"'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"


def _cl100k(number: str, contraction: str = _CONTRACTION + "|") -> str:
    """The family of GPT-4's pattern: Llama 3, Qwen, GLM and more, which differ in numbers."""
    return (
        rf"{contraction}[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{number}"
        rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
    )


def _o200k(number: str, contraction: str) -> str:
    """The family of GPT-4o's pattern as llama.cpp reads it: case matters in ASCII alone."""
    upper, lower = r"(?:(?=\p{L})[^a-z])", r"(?:(?=\p{L})[^A-Z])"
    start = r"[^\r\n\p{L}\p{N}]?"
    return (
        rf"{start}{upper}*{lower}+{contraction}|{start}{upper}+{lower}*{contraction}|{number}"
        rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
    )


_QWEN35 = (
    rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
)
_SMOLLM = (_Parting(r"\p{N}"), *_GPT2)
# The letters with case as DeepSeek LLM's own tokenizer.json lists them, in hexadecimal.
_CASED = """
41-5A 61-7A B5 C0-D6 D8-F6 F8-1BA 1BC-1BF 1C4-293 295-2AF 370-373 376 377 37B-37D 37F 386
388-38A 38C 38E-3A1 3A3-3F5 3F7-481 48A-52F 531-556 10A0-10C5 13A0-13F5 13F8-13FD 1C90-1CBA
1CBD-1CBF 1D00-1D2B 1D6B-1D77 1D79-1D9A 1E00-1F15 1F18-1F1D 1F20-1F45 1F48-1F4D 1F50-1F57
1F59 1F5B 1F5D 1F5F-1F7D 1F80-1FB4 1FB6-1FBC 1FBE 1FC2-1FC4 1FC6-1FCC 1FD0-1FD3 1FD6-1FDB
1FE0-1FEC 1FF2-1FF4 1FF6-1FFC 2102 2107 210A-2113 2115 2119-211D 2124 2126 2128 212A-212D
212F-2134 2139 213C-213F 2145-2149 214E 2183 2184 2C00-2C7B 2C7E-2CE4 2CEB-2CEE 2CF2 2CF3
A640-A66D A680-A69B A722-A76F A771-A787 A78B-A78E AB70-ABBF FB00-FB06 FB13-FB17 FF21-FF3A
FF41-FF5A 10400-1044F 104B0-104D3 104D8-104FB 10C80-10CB2 10CC0-10CF2 118A0-118DF
1E900-1E943
"""
_DEEPSEEK3 = (
    _Parting(r"\p{N}{1,3}"),
    _Parting(r"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"),
    _Parting(
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
        rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}"
    ),
)
_CHINESE = r"(?:(?!\s)[\u0800-\u9fa5\uac00-\ud7ff])+"


def _listed(ranges: str) -> str:
    """The inside of a character class from hexadecimal code points and ranges."""
    return "".join(
        "-".join(f"\\U{int(code, 16):08x}" for code in item.split("-")) for item in ranges.split()
    )


_DEEPSEEK_LLM = (
    _Parting(r"[\r\n]"),
    _Parting(rf"\s?[{_listed(_CASED)}]+"),
    _Parting(r"\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3001\u3002]+"),
    _Parting(r"\s+\Z"),
    _Parting(_CHINESE),
    _Parting(r"\p{N}+"),
)
_DEEPSEEK_CODER = tuple(
    _Parting(expression)
    for expression in (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CHINESE, r"\p{N}")
)
_THREES = _Parting(r"[0-9][0-9][0-9]")
_FALCON = (_Parting(r"[\p{P}$+<=>^~|`]+"), *_GPT2, _THREES)
_DEFAULT = (_Parting(r"[\p{P}$+<=>^~|]+"), *_GPT2, _Parting(r"\p{N}+"), _THREES)
_SEED_CODER = (
    rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACES}",
)
_BAILING = (
    rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
)


@dataclass(frozen=True)
class Splitter:
    """One pre-tokenizer.

    ``passes``: each expression cuts the pieces of the one before into matches and what lies
    between. ``whole_words``: a word that is a token is not merged (llama.cpp's ignore_merges).
    ``add_bos``: whether a file that does not say so wants a BOS.
    """

    passes: tuple[str, ...]
    whole_words: bool = False
    add_bos: bool = False

    @cached_property
    def _cutters(self) -> list[Callable[[str], list[str]]]:
        return [_cutter(expression) for expression in self.passes]

    def __call__(self, text: str) -> list[str]:
        """The words of ``text``, which they make up without a gap."""
        first, *others = self._cutters
        words = first(text)
        for cut in others:
            words = [word for piece in words for word in cut(piece)]
        return words


def _cutter(expression: str) -> Callable[[str], list[str]]:
    if isinstance(expression, _Parting):
        between = regex.compile(f"({expression})")
        return lambda text: [piece for piece in between.split(text) if piece]
    return regex.compile(expression).findall


_LLAMA3 = Splitter((_cl100k(r"\p{N}{1,3}"),), whole_words=True, add_bos=True)
_O200K = Splitter((_o200k(r"\p{N}{1,3}", f"(?:{_CONTRACTION})?"),))

_FAMILIES: dict[str, Splitter] = {
    "default": Splitter(_DEFAULT),
    "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano": _LLAMA3,
    "dbrx smaug-bpe chatglm-bpe": Splitter(_LLAMA3.passes),
    "glm4 glm5": Splitter(_LLAMA3.passes, whole_words=True),
    "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2": Splitter(
        (_cl100k(r"\p{N}"),)
    ),
    "qwen35": Splitter((_QWEN35,)),
    "ufakzeka": Splitter((_cl100k(r"\p{N}", contraction=""),)),
    "minicpm5": Splitter((_Parting(r"\p{N}{1,3}"), _cl100k(r"\p{N}+")), whole_words=True),
    "gpt-2 phi-2 mpt olmo jais trillion granite-docling gigachat a.x-4.0 mellum modern-bert "
    "exaone4 roberta-bpe jina-es jina-de jina-v1-en jina-v2-es jina-v2-de jina-v2-code": Splitter(
        _GPT2
    ),
    "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2": Splitter(_SMOLLM),
    "falcon": Splitter(_FALCON),
    "deepseek-llm": Splitter(_DEEPSEEK_LLM),
    "deepseek-coder": Splitter(_DEEPSEEK_CODER),
    "deepseek-v3 hunyuan-dense joyai-llm hy_v4": Splitter(_DEEPSEEK3),
    "gpt-4o llama4 kanana2 talkie minimax-m2": _O200K,
    "tekken": Splitter((_o200k(r"\p{N}", ""),), whole_words=True, add_bos=True),
    "seed-coder": Splitter(_SEED_CODER),
    "bailingmoe bailingmoe2 llada-moe": Splitter(_BAILING),
}
SPLITTERS: dict[str, Splitter] = {
    name: splitter for names, splitter in _FAMILIES.items() for name in names.split()
}


def splitter(name: str) -> Splitter:
    """The pre-tokenizer a file calls ``name``; ``TokenizerError`` lists the known ones."""
    if name not in SPLITTERS:
        raise TokenizerError(
            f"tokenizer.ggml.pre is {name!r}, a pre-tokenizer golem does not know, and guessing "
            f"would give other tokens than the model was trained on; known: {', '.join(SPLITTERS)}"
        )
    return SPLITTERS[name]


def word_pattern(before_space: str, apart: str = "") -> regex.Pattern[str]:
    """Cuts a text whose spaces are U+2581 where no merge can join: before a U+2581.

    Models of this kind merge whole texts, but a cut between two characters that no token has side
    by side changes nothing, and words can be kept in a cache. before_space: the characters that
    stand before a U+2581 inside some token. apart: a character whose runs are words of their own.
    """
    others = f"[^\u2581{apart}]"
    joined = regex.escape(before_space.replace("\u2581", ""), special_only=False)
    spaces = "\u2581+" if "\u2581" in before_space else "\u2581"
    word = f"(?:{spaces}{others}*|{others}+)"
    if joined:
        word += f"(?:(?<=[{joined}]){spaces}{others}*)*"
    return regex.compile(f"{word}|{apart}+" if apart else word)
