"""Settings: llama-server's defaults, aliases, clamps and refusals."""

import math
import struct

import numpy as np
import pytest

from golem_core.sample import ORDER, RANDOM_SEED, ParamError, SamplerParams
from golem_core.sample.params import NAMES

BIASES = "send {id or text: bias} or [[id or text, bias], …], where false bans"


def f32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def test_defaults_are_llama_servers_as_float32():
    params = SamplerParams()
    assert params.temperature == 0.800000011920929
    assert (params.top_k, params.top_p, params.min_p) == (40, f32(0.95), f32(0.05))
    assert params.samplers == ORDER
    assert (params.seed, params.repeat_last_n, params.min_keep) == (RANDOM_SEED, 64, 0)


def test_the_request_goes_over_the_file_over_the_defaults():
    file = {
        "general.sampling.temp": np.float32(0.6),
        "general.sampling.top_k": 20,
        "top_p": 0.9,
        "penalty_last_n": 32,
        "penalty_repeat": 1.1,
        "sequence": "top_k;temperature",
        "unknown": 1,
    }
    params = SamplerParams.resolve(file, {"top_k": 5, "temperature": None, "messages": []})
    assert params.top_k == 5
    assert params.temperature == f32(0.6)
    assert params.top_p == f32(0.9)
    assert (params.repeat_last_n, params.repeat_penalty) == (32, f32(1.1))
    assert params.samplers == ("top_k", "temperature")


@pytest.mark.parametrize(
    ("name", "sent", "kept"),
    [
        ("temperature", -1, 0),
        ("top_k", -5, 0),
        ("top_k", 10**12, 2**31 - 1),
        ("top_k", 3.0, 3),
        ("top_p", 1.5, 1),
        ("min_p", -0.5, 0),
        ("xtc_threshold", 2, 1),
        ("mirostat", 7, 2),
        ("dry_base", 0.5, 1.75),
        ("adaptive_target", 3, 1),
        ("typical_p", 5, 5),
        ("seed", -1, RANDOM_SEED),
        ("seed", 2**32, 0),
        ("seed", 2**32 + 7, 7),
    ],
)
def test_soft_limits_clamp(name, sent, kept):
    assert getattr(SamplerParams.resolve({}, {name: sent}), name) == kept


@pytest.mark.parametrize(
    ("name", "sent", "message"),
    [
        (
            "repeat_last_n",
            -1,
            "Field 'repeat_last_n': Value must be between 0 <= value <= 2147483647, but got -1",
        ),
        (
            "adaptive_decay",
            1,
            "Field 'adaptive_decay': Value must be between 0.000000 <= value <= 0.990000, "
            "but got 1.000000",
        ),
        (
            "min_keep",
            -2,
            "Field 'min_keep': Value must be between 0 <= value <= 2147483647, but got -2",
        ),
        ("temperature", "hot", "Field 'temperature': type must be number, but is string"),
        ("top_k", [1], "Field 'top_k': type must be number, but is array"),
        ("top_k", True, "Field 'top_k': type must be number, but is boolean"),
        ("ignore_eos", 1, "Field 'ignore_eos': type must be boolean, but is number"),
        ("seed", {}, "Field 'seed': type must be number, but is object"),
        ("seed", math.inf, "Field 'seed': Value must be finite, but got inf"),
        ("temperature", 1e40, "Field 'temperature': Value must be finite, but got inf"),
        ("top_p", math.nan, "Field 'top_p': Value must be finite, but got nan"),
        (
            "repeat_penalty",
            0,
            "Failed to initialize samplers: penalty_repeat must be finite and greater than 0",
        ),
        (
            "repeat_penalty",
            1e-45,
            "Failed to initialize samplers: penalty_repeat must be finite and greater than 0",
        ),
        (
            "frequency_penalty",
            math.inf,
            "Failed to initialize samplers: penalty_freq must be finite",
        ),
        (
            "presence_penalty",
            math.nan,
            "Failed to initialize samplers: penalty_present must be finite",
        ),
        (
            "dry_sequence_breakers",
            [],
            "Field 'dry_sequence_breakers': Error: dry_sequence_breakers must be a non-empty "
            "array of strings",
        ),
        ("samplers", 5, "Field 'samplers': type must be array, but is number"),
        (
            "samplers",
            ["top_k", "nope"],
            f"Field 'samplers': \"nope\" is none; the samplers are {', '.join(NAMES)}",
        ),
        (
            "samplers",
            ["top_k", 4],
            f"Field 'samplers': 4 is none; the samplers are {', '.join(NAMES)}",
        ),
        (
            "samplers",
            "kz",
            "Field 'samplers': \"z\" is none; the letters are e d s k y p m x t a, or send a list "
            "of names",
        ),
        ("top_k", 1.5, "Field 'top_k': Value must be a whole number, but got 1.5"),
        ("seed", 0.5, "Field 'seed': Value must be a whole number, but got 0.5"),
        ("temperature", 10**400, "Field 'temperature': Value must be finite, but got inf"),
        ("min_p", -(10**400), "Field 'min_p': Value must be finite, but got -inf"),
        (
            "min_keep",
            10**400,
            "Field 'min_keep': Value must be between 0 <= value <= 2147483647, but got "
            f"1{'0' * 59}…",
        ),
        ("logit_bias", "text", f"Field 'logit_bias': it is \"text\"; {BIASES}"),
        ("logit_bias", 3, f"Field 'logit_bias': it is 3; {BIASES}"),
        ("logit_bias", [4], f"Field 'logit_bias': 4 is no pair; {BIASES}"),
        ("logit_bias", ["x"], f"Field 'logit_bias': \"x\" is no pair; {BIASES}"),
        ("logit_bias", [[1]], f"Field 'logit_bias': [1] is no pair; {BIASES}"),
        ("logit_bias", {"7": "y"}, f"Field 'logit_bias': 7: the bias \"y\" is no number; {BIASES}"),
        ("logit_bias", [[8, True]], f"Field 'logit_bias': 8: the bias true is no number; {BIASES}"),
        ("logit_bias", {"9": 1e39}, "Field 'logit_bias': 9: the bias 1e+39 is out of range"),
        (
            "logit_bias",
            [[[], 1]],
            f"Field 'logit_bias': []: it is neither an id nor a text; {BIASES}",
        ),
        (
            "logit_bias",
            [[True, 1]],
            f"Field 'logit_bias': true: it is neither an id nor a text; {BIASES}",
        ),
        ("logit_bias", {"128": 1}, "Field 'logit_bias': 128: ids are 0 to 127"),
        ("logit_bias", [[-1, 1]], "Field 'logit_bias': -1: ids are 0 to 127"),
    ],
)
def test_hard_limits_and_wrong_types_are_refused_by_field(name, sent, message):
    with pytest.raises(ParamError) as error:
        SamplerParams.resolve({}, {name: sent}, tokenizer=Words())
    assert error.value.field == name
    assert str(error.value) == error.value.message == message


@pytest.mark.parametrize(
    ("sent", "chain"),
    [
        (["top_k", "TEMP", "top-p", "nucleus"], ("top_k", "temperature", "top_p", "top_p")),
        (["typ", "TypicalP", "minp"], ("typ_p", "typ_p", "min_p")),
        ("kpt", ("top_k", "top_p", "temperature")),
        ("edskypmxta", (*ORDER, "adaptive_p")),
        ([], ()),
    ],
)
def test_the_chains_order_is_read_from_names_or_letters(sent, chain):
    assert SamplerParams.resolve({}, {"samplers": sent}).samplers == chain


def test_a_file_may_name_samplers_that_are_not_known_yet():
    params = SamplerParams.resolve({"general.sampling.sequence": "top_k;newer;TEMP"}, {})
    assert params.samplers == ("top_k", "temperature")


class Words:
    n_vocab = 128

    def encode(self, text, *, add_special, parse_special):
        return [ord(c) for c in text]


@pytest.mark.parametrize(
    ("sent", "pairs"),
    [
        ([[5, 1.5], [6, False]], ((5, 1.5), (6, -math.inf))),
        ({"5": -100, "ab": 2}, ((5, -100), (97, 2), (98, 2))),
        ([["ab", 1], ["²", False]], ((97, 1), (98, 1), (178, -math.inf))),
        ([[5, 1], [5, 2]], ((5, 1), (5, 2))),
        ([], ()),
        ({}, ()),
    ],
)
def test_logit_biases_are_read_from_pairs_or_an_object(sent, pairs):
    assert SamplerParams.resolve({}, {"logit_bias": sent}, tokenizer=Words()).logit_bias == pairs


def test_biases_given_as_text_need_a_tokenizer():
    assert SamplerParams.resolve({}, {"logit_bias": {"3": 1}}).logit_bias == ((3, 1),)
    with pytest.raises(ParamError, match='"ab": a text, and there is no tokenizer'):
        SamplerParams.resolve({}, {"logit_bias": {"ab": 1}})


def test_more_breakers_than_are_read_are_refused_by_name():
    many = [str(i) for i in range(33)]
    assert (
        len(SamplerParams.resolve({}, {"dry_sequence_breakers": many[:32]}).dry_sequence_breakers)
        == 32
    )
    with pytest.raises(ParamError, match="33 breakers, at most 32"):
        SamplerParams.resolve({}, {"dry_sequence_breakers": many})
