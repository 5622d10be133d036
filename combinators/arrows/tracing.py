"""From arrows and functions to graphs, and from graphs back to functions of arrays."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax

from combinators.arrows.part import Holder, Part
from combinators.errors import GraphError, message, spelt
from combinators.graphs.evaluate import as_array, run_leaves
from combinators.graphs.graph import Graph
from combinators.index_space.tensor_type import TensorType, type_of
from combinators.index_space.usable import check_usable
from combinators.kernels.kernel import short_name
from combinators.recording.current import current_trace
from combinators.recording.function import trace_function
from combinators.recording.value import as_value
from combinators.settings import chosen

if TYPE_CHECKING:
    from combinators.arrows.arrow import Arrow


def trace(function: Arrow[Any, Any] | Callable[..., Any], *arguments: Any) -> Graph:
    """Trace a program to its abstract expression graph.

    Args:
      function: an arrow, a `tp.program`, a module of `tp.nnx`, or a function of values.
      arguments: for each parameter an array, a `jax.ShapeDtypeStruct`, a `tp.TensorType`, a module that holds
        parameters, or a pytree of these. Nothing is computed.

    Returns:
      The graph. Arrays that an arrow holds (parameters, bound operands) are its first arguments. Where variables of
      modules are written, the result is a pair, behind what the program returns what was written: of a module its
      `nnx.State`, of other programs a dictionary of these by argument.

    Raises:
      GraphError: for arguments that are not arrays, or a function that returns something else than values.
      SignatureError: where sizes or ranks do not fit.
      CompositionError: where axis names do not.

    Example:
      >>> import jax.numpy as jnp
      >>> from combinators import TensorType
      >>> from combinators import einsum
      >>> def scores(x, w):
      ...     y = einsum("s e, e d -> s d")(x, w)
      ...     return einsum("q d, k d -> q k")(y, y.rename(seq="keys"))
      >>> graph = trace(scores, TensorType({"seq": 4, "embed": 3}), TensorType({"embed": 3, "head": 2}))
      >>> print(graph.type_of(graph.outputs[0][1]))
      float32(seq=4, keys=4)
    """
    return _traced(function, arguments)[0]


def _traced(function: Any, arguments: Sequence[Any]) -> tuple[Graph, tuple[int, ...]]:
    """The graph, and which of the arrow's holders it writes."""
    named = getattr(function, "name", None)
    name = str(named or (short_name(function) if hasattr(function, "__name__") else "program"))
    convert = getattr(function, "__tapestry_arrow__", None)
    target: Any = convert() if convert is not None else function
    if not callable(target):
        raise GraphError(
            message(
                "only programs can be traced",
                f"got {type(function).__name__}: {spelt(function)}",
                remedy="Pass an arrow, a tp.program, a module of tp.nnx, or a function of values.",
            )
        )
    holders = target.holders() if isinstance(target, Part) else []
    names = _distinct([*(holder.held_name for holder in holders), *_parameter_names(target, len(arguments))])
    split = [_split(argument) for argument in arguments]
    specs = [*(holder.held_types() for holder in holders), *(leaves for leaves, _, _ in split)]
    writers: list[int] = []

    def run(*values: Any) -> Any:
        held, given = values[: len(holders)], values[len(holders) :]
        program = current_trace()
        assert program is not None
        for holder, leaves in zip(holders, held, strict=True):
            program.provide(holder, leaves)
        rebuilt = [rebuild(leaves) for (_, rebuild, _), leaves in zip(split, given, strict=True)]
        # Where an arrow has no body of its own nobody could write `w[...]` of a variable.
        result = target.apply_top(*map(as_value, rebuilt)) if isinstance(target, Part) else target(*rebuilt)
        written: dict[str, Any] = {}
        for at, (holder, leaves) in enumerate(zip(holders, held, strict=True)):
            if program.held(holder) is not leaves:
                writers.append(at)
                written[names[at]] = holder.written(leaves, program.held(holder), result)
        for label, (_, _, wrote), made, leaves in zip(names[len(holders) :], split, rebuilt, given, strict=True):
            if (found := wrote(made, leaves, result)) is not None:
                written[label] = found
        if not written:
            return result
        return result, written[names[0]] if isinstance(target, Holder) else written

    graph = trace_function(run, specs, names, name)
    return graph, tuple(writers)


def call_on_arrays(arrow: Arrow[Any, Any], args: Sequence[Any]) -> Any:
    """Run an arrow on arrays: traced once per types, then a jitted function."""
    graph, writers, arrays = _graph_of(arrow, args)
    result = run_leaves(graph, arrays)
    if not writers:
        return result
    result, written = result
    holders = arrow.holders()
    parts = [written] if isinstance(arrow, Holder) else list(written.values())
    for at, part in zip(writers, parts, strict=True):
        holders[at].store(part)
    return result


def graph_of(arrow: Arrow[Any, Any], args: Sequence[Any]) -> tuple[Graph, list[Any]]:
    """The graph of an arrow for arrays, traced once per types, and its inputs: what the arrow holds, then these."""
    graph, _, arrays = _graph_of(arrow, args)
    return graph, arrays


def _graph_of(arrow: Arrow[Any, Any], args: Sequence[Any]) -> tuple[Graph, tuple[int, ...], list[Any]]:
    held = [holder.held() for holder in arrow.holders()]
    inputs = (*held, *args)
    leaves, tree = jax.tree.flatten(inputs)
    check_usable([f"operand {number}" for number in range(len(leaves))], leaves, arrow.name)
    # Whether there are doubles decides what a double of NumPy is.
    key = (tree, chosen(), tuple(_type_key(leaf, arrow.name) for leaf in leaves))
    known = arrow.graphs
    found = known.get(key)
    if found is None:
        # Arrays may be JAX tracers here (under grad or vmap): only their types are looked at.
        types = jax.tree.map(lambda leaf: type_of(leaf, f"an argument of `{arrow.name}`"), tuple(args))
        found = known[key] = _traced(arrow, types)
    graph, writers = found
    return graph, writers, [as_array(leaf, node.results[0]) for node, leaf in zip(graph.inputs, leaves, strict=True)]


def _type_key(leaf: Any, name: str) -> Any:
    try:
        return leaf.shape, leaf.dtype
    except AttributeError:
        kind = type_of(leaf, f"an argument of `{name}`")
        return kind.shape, kind.dtype


def _split(argument: Any) -> tuple[Any, Callable[[Any], Any], Callable[[Any, Any, Any], Any]]:
    """An argument's arrays, how to put values in their place, and what was written to what was made of them."""
    splitter = getattr(argument, "__tapestry_split__", None)
    return splitter() if splitter is not None else (argument, lambda leaves: leaves, lambda made, leaves, result: None)


def _parameter_names(target: Any, count: int) -> list[str]:
    function = getattr(target, "function", target)
    if not isinstance(target, Part) or function is not target:
        try:
            parameters = [
                p.name
                for p in inspect.signature(function).parameters.values()
                if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
            ]
        except (TypeError, ValueError):
            parameters = []
        if len(parameters) >= count:
            return parameters[:count]
    return ["x"] if count == 1 else [f"x{i}" for i in range(count)]


def _distinct(names: list[str]) -> list[str]:
    counts = Counter(names)
    return [name if counts[name] == 1 else f"{name}_{i}" for i, name in enumerate(names)]


__all__ = ["Holder", "TensorType", "call_on_arrays", "trace"]
