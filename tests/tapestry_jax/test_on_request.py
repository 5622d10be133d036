"""What is loaded on request is what type checkers are told, and is asked for by methods of plans alone."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

from tapestry_jax import Plan, on_request

PLAN = Path(importlib.import_module(Plan.__module__).__file__ or "")


def told(module):
    """For every name that is imported for type checkers, where it lives."""
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    return {alias.name: f"{node.module}:{alias.name}" for node in block.body for alias in node.names}


def test_types_and_places_are_the_same():
    assert told(on_request) == on_request.PLACES
    for name, place in on_request.PLACES.items():
        module, _, inside = place.partition(":")
        assert getattr(on_request, name) is getattr(importlib.import_module(module), inside)


def test_plans_ask_for_all_of_it_and_import_nothing_late():
    tree = ast.parse(PLAN.read_text(encoding="utf-8"))
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    asked = {node.attr for node in attributes if isinstance(node.value, ast.Name) and node.value.id == "on_request"}
    assert asked == {*on_request.PLACES}
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    assert not [node for each in functions for node in ast.walk(each) if isinstance(node, ast.Import | ast.ImportFrom)]
