"""From a function of values to its graph."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import jax

from combinators.errors import GraphError, message, spelt
from combinators.graphs.graph import Graph
from combinators.index_space.naming import AxisVariable
from combinators.index_space.tensor_type import TensorType, type_of
from combinators.recording.current import recording
from combinators.recording.trace import Trace
from combinators.recording.value import Value


def trace_function(
    function: Callable[..., Any], arguments: Sequence[Any], argument_names: Sequence[str], name: str
) -> Graph:
    """Trace `function` on pytrees of `TensorType` (or of what `type_of` takes) and return its graph.

    Raises:
      GraphError: when the function returns something that is not a value of the program.
    """
    program = Trace()
    paths, in_tree = jax.tree_util.tree_flatten_with_path(tuple(arguments), is_leaf=_is_type)
    leaves: list[Value] = []
    labels = [label_of(argument_names[int(path[0].idx)], path[1:]) for path, _ in paths]
    check_labels(labels, name)
    for label, (_, leaf) in zip(labels, paths, strict=True):
        kind = type_of(leaf, f"argument `{label}` of `{name}`")
        axes = tuple(
            axis if axis is not None else AxisVariable(f"axis {i} of `{label}`") for i, axis in enumerate(kind.names)
        )
        leaves.append(program.input(label, axes, kind.shape, kind.dtype))
    with recording(program):
        result = _run(function, jax.tree.unflatten(in_tree, leaves), name)
    out_paths, out_tree = jax.tree_util.tree_flatten_with_path(result, is_leaf=lambda leaf: isinstance(leaf, Value))
    outputs: list[tuple[str, Value]] = []
    for path, leaf in out_paths:
        label = label_of("y", path)
        if not isinstance(leaf, Value):
            raise GraphError(
                message(
                    f"`{name}` returns something that is not a value of the program, at `{label}`",
                    f"got {type(leaf).__name__}: {spelt(leaf)}",
                    remedy="Return values computed from the arguments; a constant comes in as an argument.",
                )
            )
        outputs.append((label, leaf))
    if not outputs:
        raise GraphError(message(f"`{name}` returns nothing", remedy="Return at least one value."))
    return program.finish(outputs, in_tree, out_tree, name)


def _run(function: Callable[..., Any], values: Sequence[Any], name: str) -> Any:
    try:
        return function(*values)
    except RecursionError:
        # Not chained: a thousand frames of one pattern say nothing more.
        raise _too_deep(name) from None
    except TypeError as error:
        # Primitives of JAX refuse what is no array without asking for `__jax_array__`.
        if f"{Value.__module__}.{Value.__qualname__}" not in str(error):
            raise
        raise GraphError(
            message(
                f"`{name}` calls a function of arrays on a value of the program",
                str(error).splitlines()[0],
                remedy="Make it a leaf: tp.Map(jax.lax.exp)(x), or give it a signature.",
            )
        ) from error


def _too_deep(name: str) -> GraphError:
    return GraphError(
        message(
            f"`{name}` calls programs inside programs deeper than Python allows",
            f"its recursion limit is {sys.getrecursionlimit()} calls; a program inside another takes about five",
            remedy="Call one program after the other, or repeat one with tp.iterate; arrows compose at any depth.",
        )
    )


def _is_type(leaf: Any) -> bool:
    return isinstance(leaf, TensorType)


def keys_of(path: Sequence[Any]) -> list[str]:
    """The keys of a path of JAX's trees as texts."""
    keys = [str(getattr(entry, "key", getattr(entry, "idx", getattr(entry, "name", entry)))) for entry in path]
    # Containers of one array, such as the parameters of flax, keep it in a `value`.
    return keys[:-1] if len(keys) > 1 and keys[-1] == "value" else keys


def label_of(root: str, path: Sequence[Any]) -> str:
    """What a leaf is called: that of which it is a part, and its keys."""
    return "/".join([root, *keys_of(path)])


def check_labels(labels: Sequence[str], name: str) -> None:
    """Refuse two inputs of one name: neither a plan nor a user could say which is meant.

    Raises:
      GraphError: naming the first such name.
    """
    again = [label for label, count in Counter(labels).items() if count > 1]
    if again:
        raise GraphError(
            message(
                f"two arguments of `{name}` are called `{again[0]}`",
                "keys are joined by `/`, so a key with a `/` in it may stand for two",
                remedy="Call one of the keys otherwise.",
            )
        )
