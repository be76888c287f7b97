"""Damaged input by the hundred thousand: ``python -m tests.fuzz TARGET --cases N --seed S``.

A target is a module of this package with ``prepare(folder)``, which returns a `harness.Case`.
"""
