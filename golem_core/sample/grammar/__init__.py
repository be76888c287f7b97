"""Answers held to a grammar: GBNF, JSON schemas, or expressions put together by hand.

grammar = Grammar.compile('root ::= "yes" | "no"')        # or Grammar.of_schema({...})
vocabulary = Vocabulary.of(tokenizer)                     # once a model
matcher = Matcher(grammar, vocabulary)                    # one an answer
matcher.allows(token); matcher.mask(); matcher.accept(token); matcher.may_end
"""

from golem_core.sample.grammar._matcher import Matcher, Vocabulary
from golem_core.sample.grammar.errors import GrammarError, GrammarLimit, SchemaError
from golem_core.sample.grammar.expressions import Expression, Rule, Token, alt, seq, text, until
from golem_core.sample.grammar.gbnf import parse
from golem_core.sample.grammar.grammar import Grammar

__all__ = [
    "Expression",
    "Grammar",
    "GrammarError",
    "GrammarLimit",
    "Matcher",
    "Rule",
    "SchemaError",
    "Token",
    "Vocabulary",
    "alt",
    "parse",
    "seq",
    "text",
    "until",
]
