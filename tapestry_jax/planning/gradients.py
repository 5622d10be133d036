"""Which values a gradient flows through: what tells which backward collectives there are."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import jax
import numpy as np
from jax.extend import core

from combinators.execute import run_whole
from combinators.graph import Graph
from combinators.operation import Operation
from combinators.shaped import shape

Struct = jax.ShapeDtypeStruct


def is_inexact(dtype: Any) -> bool:
    """Whether values of this dtype have derivatives."""
    return jax.dtypes.issubdtype(dtype, np.inexact)


def dependence(graph: Graph, node: int) -> tuple[tuple[bool, ...], ...]:
    """For each operand and result of an operation, whether the derivative of the result by the operand can differ from 0."""
    shaped = graph.shaped(node)
    operands = graph.nodes[node].operands
    return _dependence(shaped.operation, tuple(graph.type_of(ref).struct for ref in operands))


@lru_cache(maxsize=4096)
def _dependence(operation: Operation, structs: tuple[Struct, ...]) -> tuple[tuple[bool, ...], ...]:
    shaped = shape(operation, structs)
    smooth = [i for i, struct in enumerate(structs) if is_inexact(struct.dtype)]
    rows = [[False] * len(shaped.results) for _ in structs]
    if smooth:

        def tangents(primals: list[Any], directions: list[Any]) -> list[Any]:
            def run(*chosen: Any) -> list[Any]:
                arrays = list(primals)
                for position, value in zip(smooth, chosen, strict=True):
                    arrays[position] = value
                return [leaf for leaf in run_whole(shaped, arrays) if is_inexact(leaf.dtype)]

            return jax.jvp(run, [primals[i] for i in smooth], directions)[1]

        primals = list(structs)
        jaxpr = jax.make_jaxpr(tangents)(primals, [structs[i] for i in smooth]).jaxpr
        sources = jaxpr.invars[len(structs) :]
        results = [j for j, result in enumerate(shaped.results) if is_inexact(result.dtype)]
        for number, position in enumerate(smooth):
            reached = _reached(jaxpr, {sources[number]})
            for out, j in zip(jaxpr.outvars, results, strict=True):
                rows[position][j] = not isinstance(out, core.Literal) and out in reached
    return tuple(map(tuple, rows))


def _reached(jaxpr: Any, sources: set[Any]) -> set[Any]:
    """The variables that depend on `sources`, inner programs included."""
    reached = set(sources)
    for equation in jaxpr.eqns:
        touched = [not isinstance(v, core.Literal) and v in reached for v in equation.invars]
        if not any(touched):
            continue
        inner = _inner(equation)
        if inner is None or len(inner.invars) != len(equation.invars):
            reached.update(equation.outvars)
            continue
        inside = _reached(inner, {v for v, hit in zip(inner.invars, touched, strict=True) if hit})
        reached.update(
            out
            for out, source in zip(equation.outvars, inner.outvars, strict=True)
            if not isinstance(source, core.Literal) and source in inside
        )
    return reached


def _inner(equation: Any) -> Any:
    """The program of a plain call; None for loops and conditions, which are taken as touching everything."""
    if equation.primitive.name not in (
        "jit",
        "pjit",
        "closed_call",
        "core_call",
        "custom_jvp_call",
        "remat",
        "checkpoint",
    ):
        return None
    inner = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
    return getattr(inner, "jaxpr", inner)


def differentiated(graph: Graph, grad: bool | int | Sequence[int]) -> tuple[int, ...]:
    """The positions of the inputs that a gradient is taken for: all inexact ones, or those of the given arguments."""
    smooth = [i for i, node in enumerate(graph.inputs) if is_inexact(node.results[0].dtype)]
    if grad is True:
        return tuple(smooth)
    if grad is False:
        return ()
    wanted = {grad} if isinstance(grad, int) else set(grad)
    arguments = jax.tree.unflatten(graph.in_tree, list(range(len(graph.inputs))))
    chosen = {i for number, argument in enumerate(arguments) if number in wanted for i in jax.tree.leaves(argument)}
    return tuple(i for i in smooth if i in chosen)
