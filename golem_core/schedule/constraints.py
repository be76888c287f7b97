"""Grammars for the answers of a model: compiled when a request comes, kept for the next one.

The vocabulary is read when the first request asks for a grammar, never before: a server that
nobody asks for one does not pay for it.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from typing import Any

from golem_core.sample import ParamError, SamplerParams
from golem_core.sample.grammar import Grammar, GrammarError, Matcher, SchemaError, Vocabulary

_KEPT = 32  # grammars


class Constraints:
    """The vocabulary and the latest grammars of one model. Any thread may call ``matcher``.

    ends: tokens that end an answer. vocabularies: how often the vocabulary was read, 0 or 1.
    """

    def __init__(self, tokenizer: Any, ends: frozenset[int]):
        self.vocabularies = 0
        self._tokenizer = tokenizer
        self._ends = ends
        self._lock = threading.Lock()
        self._vocabulary: Vocabulary | None = None
        self._grammars: OrderedDict[tuple[Any, ...], Grammar] = OrderedDict()

    def matcher(self, params: SamplerParams, grammar: Grammar | None) -> Matcher | None:
        """The matcher of an answer, None when it is free. grammar: stands for what params ask.

        Raises ParamError.
        """
        if grammar is None and not params.constrained:
            return None
        try:
            if grammar is None:
                grammar = self._compiled(params)
            return Matcher(grammar, self._read())
        except SchemaError as error:
            text = f"Field 'json_schema': \"json_schema\": {error}"
            raise ParamError("json_schema", text) from None
        except GrammarError as error:
            text = f"Failed to initialize samplers: failed to parse grammar: {error}"
            raise ParamError("grammar", text) from None

    def _read(self) -> Vocabulary:
        with self._lock:
            if self._vocabulary is None:
                self._vocabulary = Vocabulary.of(self._tokenizer, self._ends)
                self.vocabularies += 1
            return self._vocabulary

    def _compiled(self, params: SamplerParams) -> Grammar:
        try:
            asked = params.grammar or json.dumps(params.json_schema)
        except RecursionError:
            raise SchemaError("", "#", "the schema is nested too deeply") from None
        key = (bool(params.grammar), asked, params.grammar_after)
        with self._lock:
            grammar = self._grammars.get(key)
            if grammar is not None:
                self._grammars.move_to_end(key)
                return grammar
        if params.grammar:
            grammar = Grammar.compile(params.grammar)
        else:
            grammar = Grammar.of_schema(params.json_schema)
        if params.grammar_after is not None:
            grammar = grammar.after(params.grammar_after)
        with self._lock:
            self._grammars[key] = grammar
            while len(self._grammars) > _KEPT:
                self._grammars.popitem(last=False)
        return grammar
