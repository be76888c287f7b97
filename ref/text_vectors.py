"""Writes tests/data/text/vocabularies.json.gz: small vocabularies, and llama.cpp's tokens.

Real vocabularies are large and other people's, so these are made here: pairs of the test texts
themselves, merged across the borders of words. A pre-tokenizer that cuts elsewhere than
llama.cpp's therefore gives other ids at once. Needs the shared library of a built llama.cpp:

    python -m ref.text_vectors FOLDER_WITH_LIBLLAMA
"""

from __future__ import annotations

import argparse
import ctypes
import gzip
import json
import random
import tempfile
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from golem_core.formats.gguf import write_gguf
from golem_core.text.split import SPLITTERS

OUT = Path(__file__).parents[1] / "tests/data/text/vocabularies.json.gz"
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
SPACE = "\u2581"
CHARSMAP = "tokenizer.ggml.precompiled_charsmap"

TEXTS = [
    "",
    " ",
    "  ",
    "   \n",
    "\n\n\n",
    "\r\n\r\n x",
    "\t\t tab\tbetween\t",
    "Hello world",
    " Hello  world   twice",
    "HELLO Hello hELLO heLLo",
    "I'm sure they'LL say we've DON'T; 'tis o'clock'S 're",
    "it's 'quoted' and ''double''",
    "1 12 123 1234 12345 123456 1234567 3.14159 1,000,000",
    "a1b22c333d4444 x86_64 v2.0.1",
    "\u00bd\u00b2\u2460\u0663\u0664\u0665 \u2167 \u4e09\u5341",
    "def f(x, *, y=None):\n    return {'a': x ** 2, \"b\": y}\n\n\n# done\n",
    "for (int i = 0; i < n; ++i) { sum += a[i]; } // \\n\r\n",
    "<div class=\"x\">a &amp; b</div>  <!-- c -->",
    "https://example.org/path?q=1&r=%20#frag",
    "!!! ??? ... --- === $$$ ^^ `` ~~ || ++ << >>",
    "$5.00 + 3% = x^2 | y~z `code` <tag>",
    "na\u00efve caf\u00e9 \u00c5ngstr\u00f6m stra\u00dfe \u00c9COLE",
    "e\u0301a\u0300 o\u0308\u0327 combining",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645\u060c 12",
    "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01 \u0e51\u0e52",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002 \u4e2d\u6587 mixed English",
    "\u3053\u3093\u306b\u3061\u306f\u4e16\u754c \u30ab\u30bf\u30ab\u30ca \uff76\uff85",
    "\uff21\uff22\uff43 \uff11\uff12 \uff01\uff1f\u3000wide\u3000space",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u0401\u0436\u0438\u043a",
    "\u0393\u03b5\u03b9\u03ac \u03c3\u03bf\u03c5 \u039a\u03cc\u03c3\u03bc\u03b5",
    "\U0001f600\U0001f680 \U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1eb\U0001f1f7",
    "\u2764\ufe0f hearts",
    "\u00a0nbsp\u00a0 \u2003em\u2003 \u2028line\u2029para \u0085next",
    "zero\u200bwidth\u200djoin\ufeffbom \u00adsoft",
    "\x01\x02\x1f\x7f control \x0b\x0c",
    "\ue000\uf8ff private \U000f0000",
    "\u2018curly\u2019 \u201cquotes\u201d \u2013 \u2014 \u2026 \u00ab\u00bb",
    "a" * 41 + " " + "ab" * 30,
    " " * 45 + "x" + "\n" * 44,
    "   leading and trailing   ",
    "line one\n line two\n\n  line three  \n\t\tend",
    "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|><|im_start|>xx <|im_en<|im_end|>d|>",
    "<tool>a</tool> <tool><tool>  <unk> <s> </s>",
    "<mask> mid<mask>dle  <mask>",
    "\u2581already \u2581\u2581marked\u2581",
    "word\u2581\u2581 <0x41> <0x0A>",
    "it costs 100\u20ac or \u00a35, \u00b17\u00b0 \u00d7 \u00f7",
    "x = y\r\rz\r\n",
    "....... , ;;; :: ??!!",
    "UPPERCASE lowercase MixedCase camelCaseWord snake_case_word",
    "L'\u00e9t\u00e9 d'\u00c9mile \u2019s \u2019LL",
    "co-operate re-use 24/7 and/or A+B",
    "\u1100\u1161\u11a8 \ud55c\uad6d\uc5b4 \uc548\ub155",
    "\u10d2\u10d0\u10db\u10d0\u10e0\u10ef\u10dd\u10d1\u10d0 \u1f10\u03bd \u0531\u0580",
    "!a?b #tag @name $var %d &amp ~x",
    "end with space ",
    "end with newline\n",
    "\n start",
    "a\u0300\u0301\u0302\u0303 b\u20dd 1\ufe0f\u20e3",
    "x'lly 'remember d'tis 'movement 'SX'Ty 'vE'reX 'DD",
    "end.\n\nNext?!\r\n; (a).\n{b}/\n\n//\n/x",
    "HTMLParser getURLFor iOS McDonald's \u00c9COLEnormale",
    "n   12  3 \t 4\n\n  5",
    "12345678 1234567890123 \u0661\u0662\u0663\u0664\u0665 7even 0x1F",
    "a\n \n  \nb \r\n \t\n c",
]  # fmt: skip


def alphabet() -> list[str]:
    """GPT-2's characters for the 256 bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(others)) for byte in range(256)]


def learn(rows: list[list[str]], count: int) -> list[tuple[str, str]]:
    """``count`` merges of the commonest neighbours in ``rows``, the usual way."""
    merges = []
    for _ in range(count):
        pairs = Counter(pair for row in rows for pair in pairwise(row))
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], len(pair[0] + pair[1]), pair))
        merges.append(best)
        for row in rows:
            at = 0
            while at < len(row) - 1:
                if (row[at], row[at + 1]) == best:
                    row[at : at + 2] = ["".join(best)]
                at += 1
    return merges


def pieces_of(rows: list[list[str]], merges: list[tuple[str, str]]) -> list[str]:
    letters = sorted({symbol for row in rows for symbol in row})
    return list(dict.fromkeys([*letters, *("".join(pair) for pair in merges)]))


def once(tokens: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Every text once, where it came first, of the kind it came with last."""
    return list(dict(tokens).items())


def keys(model: str, tokens: list[tuple[str, int]], **more: Any) -> dict[str, Any]:
    """A GGUF header; other keys of the tokenizer by their last name."""
    named = {"architecture" if k == "arch" else k: v for k, v in more.items()}
    header = {"general.architecture": named.pop("architecture", "llama")}
    header["general.name"] = named.pop("name", "test")
    header["tokenizer.ggml.model"] = model
    header["tokenizer.ggml.tokens"] = [text for text, _ in tokens]
    header["tokenizer.ggml.token_type"] = [kind for _, kind in tokens]
    return header | {f"tokenizer.ggml.{key}": value for key, value in named.items()}


SPECIALS = [
    ("<|im_start|>", CONTROL),
    ("<|im_end|>", CONTROL),
    ("<|im_start|>x", CONTROL),
    ("<|im_en<|im", USER),
    ("<tool>", USER),
    ("<unk>", UNKNOWN),
    ("<s>", CONTROL),
    ("</s>", CONTROL),
    ("<mask>", CONTROL),
    ("<unused0>", UNUSED),
]
BYTES = [(f"<0x{byte:02X}>", BYTE) for byte in range(256)]


def byte_bpe() -> dict[str, Any]:
    letters = alphabet()
    rows = [[letters[byte] for byte in text.encode()] for text in TEXTS[1:]]
    merges = learn([row[:] for row in rows], 5000)
    tokens = list(dict.fromkeys([*letters, *("".join(pair) for pair in merges)]))
    # Words that no merge makes, for the pre-tokenizers that take a known word whole.
    whole = ["".join(letters[b] for b in word) for word in (b" twice", b"Hello", b"English")]
    normal = [(text, NORMAL) for text in [*tokens, *(w for w in whole if w not in tokens)]]
    return keys(
        "gpt2",
        once(normal + SPECIALS),
        pre="default",
        merges=[" ".join(pair) for pair in merges],
        bos_token_id=len(normal),
        eos_token_id=len(normal) + 1,
        add_bos_token=True,
        add_eos_token=True,
    )


def space_rows() -> list[list[str]]:
    return [
        list(text.replace(" ", SPACE)) for text in TEXTS[1:42] if text.isascii() or len(text) < 30
    ]


def gemma4() -> dict[str, Any]:
    rows = space_rows()
    merges = learn([row[:] for row in rows], 400)
    pieces = [p for p in pieces_of(rows[:-8], merges) if p != "\u0e2a"]
    normal = [(text, NORMAL) for text in pieces if len(text) != 2 or text[0] != "q"]
    lead = [("<pad>", CONTROL), ("<eos>", CONTROL), ("<bos>", CONTROL), ("<unk>", UNKNOWN)]
    rest = [("<|turn>", CONTROL), ("<turn|>", CONTROL), ("<|tool_response>", USER)]
    lines = [("\n" * n, NORMAL) for n in (4, 5)]
    return keys(
        "gemma4",
        once(lead + BYTES + normal + lines + rest + [("</s>", NORMAL), *lead]),
        merges=[" ".join(pair) for pair in merges],
        bos_token_id=2,
        eos_token_id=1,
        unknown_token_id=3,
        add_bos_token=False,
        add_space_prefix=False,
    )


def llama(**more: Any) -> dict[str, Any]:
    rows = space_rows()
    merges = learn([row[:] for row in rows], 400)
    pieces = [p for p in pieces_of(rows[:-8], merges) if p != "\n"]
    tokens = [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL), *BYTES]
    tokens += [(text, NORMAL) for text in pieces] + [("<tool>", USER), ("<|im_end|>", CONTROL)]
    tokens += [("<|endoftext|>", CONTROL)]
    tokens = once(tokens + tokens[:3])
    # Many equal scores, so that the leftmost of a tie shows.
    scores = [-float(i // 7) for i in range(len(tokens))]
    return keys("llama", tokens, scores=scores, **more)


def unigram(charsmap: bytes, **more: Any) -> dict[str, Any]:
    rows = space_rows()
    pieces = pieces_of(rows[:-8], learn([row[:] for row in rows], 400))
    tokens = [("<s>", CONTROL), ("<pad>", CONTROL), ("</s>", CONTROL), ("<unk>", UNKNOWN)]
    tokens += [(text, NORMAL) for text in pieces if text != "x"]
    tokens += [("<mask>", CONTROL), ("<tool>", USER), ("Hello world", UNUSED)]
    tokens = once(tokens + tokens[:4])
    draw = random.Random(7)
    scores = [0.0] * 4 + [round(draw.uniform(-12, -2), 1) for _ in tokens[4:]]
    more = {"precompiled_charsmap": list(charsmap), **more} if charsmap else more
    return keys(
        "t5",
        tokens,
        scores=scores,
        bos_token_id=0,
        eos_token_id=2,
        unknown_token_id=3,
        padding_token_id=1,
        **more,
    )


RULES = {
    "\t": " ", "\n": " ", "\u3000": " ", "\u00a0": " ", "\u200b": "", "\ufeff": "", "\u00bd": "1/2",
    "\uff21": "A", "\uff22": "B", "\uff43": "c", "\uff01": "!", "e\u0301": "\u00e9", "e": "e",
    "\u00b2": "2", "...": "\u2026", "..": "::", "\u2460": "1",
}  # fmt: skip


def charsmap_of(rules: dict[str, str]) -> bytes:
    """SentencePiece's blob: a double array by XOR over the bytes, then the replacements."""
    tree: dict[int, Any] = {}
    texts = b""
    for source, target in rules.items():
        node = tree
        for byte in source.encode():
            node = node.setdefault(byte, {})
        node[0] = len(texts)
        texts += target.encode() + b"\0"
    units = [0] * 4096
    taken = {0}

    def place(node: dict[int, Any], at: int) -> None:
        start = next(b for b in range(1, 4096) if not any((b ^ c) in taken for c in node))
        taken.update(start ^ c for c in node)
        units[at] |= (at ^ start) << 10 | (0 in node) << 8
        for byte, child in node.items():
            if byte == 0:
                units[start] = child | 1 << 31
            else:
                units[start ^ byte] = byte
                place(child, start ^ byte)

    place(tree, 0)
    array = b"".join(unit.to_bytes(4, "little") for unit in units[: (max(taken) | 255) + 1])
    return len(array).to_bytes(4, "little") + array + texts


def bert() -> dict[str, Any]:
    words = Counter(word for text in TEXTS for word in text.lower().split())
    letters = sorted({c for word in words for c in word if c.isascii() or c > "\u0400"})
    tokens = [("[PAD]", CONTROL), ("[UNK]", UNKNOWN), ("[CLS]", CONTROL), ("[SEP]", CONTROL)]
    pieces = [SPACE + c for c in letters] + letters
    pieces += [SPACE + word for word in list(words)[::3]] + [w[1:] for w in list(words)[::4]]
    pieces = [p for p in dict.fromkeys(pieces) if p and p not in ("z", SPACE + "q")]
    return keys(
        "bert",
        tokens + [(text, NORMAL) for text in pieces],
        bos_token_id=2,
        seperator_token_id=3,
        unknown_token_id=1,
        padding_token_id=0,
    )


class ModelParams(ctypes.Structure):
    """llama_model_params of build 11434; only vocab_only is set here."""

    _fields_ = (
        ("lists", ctypes.c_void_p * 2),
        ("layers", ctypes.c_int32),
        ("modes", ctypes.c_int * 3),
        ("main_gpu", ctypes.c_int32),
        ("pointers", ctypes.c_void_p * 4),
        ("vocab_only", ctypes.c_bool),
        ("others", ctypes.c_bool * 5),
    )


class Peer:
    """llama.cpp's tokenizer of one file."""

    def __init__(self, folder: Path, path: str):
        for name in ("ggml-base", "ggml-cpu", "ggml", "llama"):
            lib = ctypes.CDLL(str(folder / f"lib{name}.so"), mode=ctypes.RTLD_GLOBAL)
        lib.llama_model_default_params.restype = ModelParams
        for name in ("llama_model_load_from_file", "llama_model_get_vocab"):
            getattr(lib, name).restype = ctypes.c_void_p
        params = lib.llama_model_default_params()
        params.vocab_only = True
        model = lib.llama_model_load_from_file(path.encode(), params)
        if not model:
            raise SystemExit(f"llama.cpp cannot open {path}")
        self.lib = lib
        self.vocab = ctypes.c_void_p(lib.llama_model_get_vocab(ctypes.c_void_p(model)))
        self.count = lib.llama_vocab_n_tokens(self.vocab)

    def encode(self, text: str, special: bool) -> list[int]:
        raw = text.encode()
        out = (ctypes.c_int32 * (len(raw) * 2 + 8))()
        count = self.lib.llama_tokenize(
            self.vocab, raw, len(raw), out, len(out), ctypes.c_bool(special), ctypes.c_bool(special)
        )
        return list(out[:count])

    def piece(self, token: int, special: bool) -> bytes:
        buffer = ctypes.create_string_buffer(4096)
        shown = ctypes.c_bool(special)
        size = self.lib.llama_token_to_piece(self.vocab, token, buffer, 4096, 0, shown)
        return buffer.raw[:size]

    def ends(self) -> list[int]:
        is_end = self.lib.llama_vocab_is_eog
        is_end.restype = ctypes.c_bool
        return [token for token in range(self.count) if is_end(self.vocab, token)]


def record(folder: Path, header: dict[str, Any]) -> dict[str, Any]:
    """What llama.cpp does with every text: alone, and with specials added and parsed."""
    with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
        blob = header.get(CHARSMAP)
        exact = {CHARSMAP: np.array(blob, np.uint8)} if blob else {}
        write_gguf(file.name, header | exact, [])
        peer = Peer(folder, file.name)
        return {
            "plain": [peer.encode(text, False) for text in TEXTS],
            "special": [peer.encode(text, True) for text in TEXTS],
            "pieces": [[peer.piece(t, s).hex() for s in (False, True)] for t in range(peer.count)],
            "eog": peer.ends(),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, help="where libllama.so is")
    folder = parser.parse_args().folder
    bytes_header = byte_bpe()
    vocabularies = {
        "gemma4": gemma4(),
        "llama": llama(),
        "llama without a prefix": llama(add_space_prefix=False, add_bos_token=False),
        "phi-3": llama(name="Phi-3 mini"),
        "t5": unigram(b""),
        "t5 with a charsmap": unigram(
            charsmap_of(RULES), arch="nomic-bert-moe", add_space_prefix=True,
            remove_extra_whitespaces=True, add_bos_token=True,
        ),
        "t5 with a prefix": unigram(charsmap_of(RULES), add_space_prefix=True),
        "bert": bert(),
        "bert with capitals": bert() | {"tokenizer.ggml.normalizer.lowercase": False},
    }  # fmt: skip
    recorded = {
        name: {"metadata": header, **record(folder, header)}
        for name, header in vocabularies.items()
    }
    byte_level = {}
    for pre in SPLITTERS:
        done = record(folder, bytes_header | {"tokenizer.ggml.pre": pre})
        byte_level[pre] = {key: done[key] for key in ("plain", "special")}
    whole = {"metadata": bytes_header, "pieces": done["pieces"], "eog": done["eog"]}
    data = {"texts": TEXTS, "vocabularies": recorded, "bytes": whole, "pre": byte_level}
    packed = gzip.compress(json.dumps(data, separators=(",", ":")).encode(), mtime=0)
    OUT.write_bytes(packed)
    print(f"{OUT}: {len(packed)} bytes")


if __name__ == "__main__":
    main()
