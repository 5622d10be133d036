"""What an operation computes, as a text: all that a plan may run of it, traced.

A name tells nothing of a function whose module was edited since, and code nothing of what it reads. What was traced
tells all that runs: a kernel that reads another global, a list that has changed or a file comes to another program.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from combinators.graphs.graph import Graph
from combinators.graphs.nodes import Apply, Loop
from combinators.kernels.jaxprs import is_literal, programs_inside
from combinators.operations.dense import as_dense
from combinators.operations.shaped import Shaped, block_structs
from combinators.operations.states import cell_of
from tapestry_jax.streaming.cached.code import NoKeyError, code_of
from tapestry_jax.streaming.known import text_of

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
    for function, types in _functions(graph.shaped(index), operands):
        digest.update(_traced(function, types).encode())
    # Functions may take another way for blocks of other sizes.
    digest.update(code_of((operation.kernel, operation.dense, operation.monoid, operation.present)).encode())
    return digest.hexdigest()


def _functions(shaped: Shaped, operands: Sequence[Any]) -> Iterator[tuple[Callable[..., Any], Sequence[Any]]]:
    """All that may run of an operation, with the types that it is run on."""
    operation, monoid = shaped.operation, shaped.operation.monoid
    blocks = block_structs(operation.signature, operands, shaped.sizes)
    yield operation.kernel, blocks
    for entry in map(as_dense, operation.dense):
        yield entry.kernel, blocks
    if monoid is None:
        return
    cell = cell_of(shaped.carrier, shaped.state, shaped.state_tree)
    yield lambda left, right: (monoid.merge(left, right), monoid.identity_for(cell)), (cell, cell)
    if monoid.inverse is not None:
        yield monoid.inverse, (cell,)
    frame = monoid.frame
    if frame is not None:
        yield lambda state: frame.fold([state, state]), (cell,)
    if operation.present is not None:
        yield operation.present, (cell,)


def _traced(function: Callable[..., Any], types: Sequence[Any]) -> str:
    try:
        # A function of its own each time: JAX remembers what it has traced of one that it knows.
        closed = jax.make_jaxpr(lambda *arrays: function(*arrays))(*types)
    except Exception as error:
        raise NoKeyError(str(error)) from error
    if closed.effects:
        raise NoKeyError(f"it has effects: {closed.effects}")
    digest = hashlib.sha256(text_of(closed).encode())
    for array in _arrays(closed.jaxpr):
        digest.update(f"{array.dtype} {array.shape} ".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _arrays(jaxpr: Any) -> Iterator[np.ndarray]:
    """Arrays inside of a program, which its text leaves out or cuts short."""
    for equation in jaxpr.eqns:
        if equation.primitive.name in _CALLS_OUT:
            raise NoKeyError(f"it calls {equation.primitive.name}")
        yield from (np.asarray(atom.val) for atom in equation.invars if is_literal(atom))
        yield from (value for value in equation.params.values() if isinstance(value, np.ndarray))
        for inner in programs_inside(equation):
            yield from map(np.asarray, getattr(inner, "consts", ()))
            yield from _arrays(getattr(inner, "jaxpr", inner))
