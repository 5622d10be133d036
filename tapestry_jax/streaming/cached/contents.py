"""What an operation computes, as a key for what is cached: all that a plan may run of it, traced, and its code."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import jax

from combinators.graphs.computed import functions_of, program_text
from combinators.graphs.graph import Graph
from combinators.graphs.nodes import Apply, Loop
from combinators.kernels.jaxprs import programs_inside
from tapestry_jax.streaming.cached.code import NoKeyError, code_of

_CALLS_OUT = frozenset({"pure_callback", "io_callback", "debug_callback", "debug_print", "ffi_call"})
"""What may give something else each time it runs."""


def content(graph: Graph, index: int) -> str:
    """What a node computes; that of a loop is what its body does.

    Raises:
      NoKeyError: where it calls out of JAX, or cannot be traced by itself.
    """
    node = graph.nodes[index]
    if isinstance(node, Loop):
        return " ".join(content(node.body, inner) for inner in range(len(node.body.nodes)))
    if not isinstance(node, Apply):
        return ""
    operands = [graph.type_of(ref).struct for ref in node.operands]
    operation = node.operation
    digest = hashlib.sha256()
    for function, types in functions_of(graph.shaped(index), operands):
        digest.update(_traced(function, types).encode())
    # Functions may take another way for blocks of other sizes.
    digest.update(code_of((operation.kernel, operation.dense, operation.monoid, operation.present)).encode())
    return digest.hexdigest()


def _traced(function: Callable[..., Any], types: Sequence[Any]) -> str:
    try:
        # A function of its own each time: JAX remembers what it has traced of one that it knows.
        closed = jax.make_jaxpr(lambda *arrays: function(*arrays))(*types)
    except Exception as error:
        raise NoKeyError(str(error)) from error
    if closed.effects:
        raise NoKeyError(f"it has effects: {closed.effects}")
    _check_calls(closed.jaxpr)
    return program_text(closed)


def _check_calls(jaxpr: Any) -> None:
    for equation in jaxpr.eqns:
        if equation.primitive.name in _CALLS_OUT:
            raise NoKeyError(f"it calls {equation.primitive.name}")
        for inner in programs_inside(equation):
            _check_calls(getattr(inner, "jaxpr", inner))
