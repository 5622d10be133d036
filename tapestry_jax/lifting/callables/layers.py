"""Parameters of equal layers as one: how they are called, and trees that come apart and together again."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from combinators.arguments import read_mapping, read_name
from combinators.errors import GraphError, message, spelt
from combinators.graphs.graph import Graph
from combinators.recording.function import label_of

_NUMBER = re.compile(r"(\d+)")
_RANGE = re.compile(r"(\d+):(\d+)(?::(\d+))?")


def stacked_label(labels: Sequence[str]) -> str | None:
    """What the parameters of several layers are called together, `params/blocks/0:12/kernel`; None where nothing tells.

    They differ in one number, which goes up by steps of one size, and are parts of one argument.
    """
    parts = [_NUMBER.split(label) for label in labels]
    if any(map(_RANGE.search, labels)):
        return None  # of two ranges in one path nothing tells which one is layers
    if len({len(part) for part in parts}) != 1:
        return None
    places = [at for at in range(len(parts[0])) if len({part[at] for part in parts}) > 1]
    if len(places) != 1 or places[0] % 2 == 0 or "/" not in "".join(parts[0][: places[0]]):
        return None
    told = [part[places[0]] for part in parts]
    numbers = [int(number) for number in told]
    step = numbers[1] - numbers[0]
    if step < 1 or numbers != [*range(numbers[0], numbers[0] + step * len(numbers), step)]:
        return None
    if any(str(number) != text for number, text in zip(numbers, told, strict=True)):
        return None
    own = f"{numbers[0]}:{numbers[-1] + 1}" + (f":{step}" if step > 1 else "")
    return "".join([*parts[0][: places[0]], own, *parts[0][places[0] + 1 :]])


def layers_of(label: str) -> list[str] | None:
    """The parameters that `params/blocks/0:12/kernel` is; None for one that is none of several layers."""
    found = _RANGE.search(label)
    if found is None:
        return None
    start, stop, step = int(found[1]), int(found[2]), int(found[3] or 1)
    return [f"{label[: found.start()]}{number}{label[found.end() :]}" for number in range(start, stop, step)]


def stack_layers(graph: Graph, tree: Any, argument: str | None = None) -> dict[str, Any]:
    """What a graph that was lifted with `stack=` takes in the place of the parameters of a function.

    It copies the parameters of layers, so it is called once: what is trained and stored is what it gives.

    Args:
      graph: of `tp.lift(..., stack="layer")`.
      tree: the parameters as the function takes them: arrays in any pytree, such as `nnx.state(model)`.
      argument: which one of the graph they are; needed where several have layers.

    Returns:
      Arrays by path: `blocks/0:12/up/kernel` has those of twelve layers along its first axis.

    Raises:
      GraphError: where the graph has no such argument, or the tree no such parameter.
    """
    if not isinstance(graph, Graph):  # pyright: ignore[reportUnnecessaryIsInstance]
        got = f"got {type(graph).__name__}: {spelt(graph)}"
        remedy = 'Lift with tp.lift(..., stack="layer").'
        raise GraphError(message("tp.stack_layers takes a graph first", got, remedy=remedy))
    labels = [node.name for node in graph.inputs]
    roots = sorted({label.partition("/")[0] for label in labels if layers_of(label) is not None})
    if (argument not in roots) if argument is not None else len(roots) != 1:
        told = f"has stacked layers in {', '.join(map(repr, roots))}" if roots else "has no stacked layers"
        raise GraphError(
            message(
                f"tp.stack_layers cannot tell which argument of `{graph.name}` these parameters are",
                f"the graph {told}, got argument={spelt(argument, 60)}",
                remedy=f'Say which: argument="{roots[0]}".' if roots else 'Lift with tp.lift(..., stack="layer").',
            )
        )
    root = argument if argument is not None else roots[0]
    flat, _ = jax.tree_util.tree_flatten_with_path(tree)
    known = {label_of(root, path): leaf for path, leaf in flat}
    # A parameter that the tree has is itself, whatever its path looks like.
    stacked = {label: None if label in known else layers_of(label) for label in labels if label.startswith(f"{root}/")}
    wanted = {label: listed or [label] for label, listed in stacked.items()}
    missing = [own for listed in wanted.values() for own in listed if own not in known]
    if missing:
        raise _missing("tp.stack_layers", missing, known)
    return {
        label.removeprefix(f"{root}/"): jnp.stack([known[own] for own in listed])
        if stacked[label] is not None
        else known[listed[0]]
        for label, listed in wanted.items()
    }


def unstack_layers(arrays: Mapping[str, Any], like: Any) -> Any:
    """The tree that `stack_layers` made these arrays of.

    Args:
      arrays: by path, as `stack_layers` gives them, or what has their paths, such as their gradients.
      like: a tree of the structure of that one; its leaves are not read.

    Returns:
      A tree as `like`; each leaf of a layer has the shape of its array without the first axis.

    Raises:
      GraphError: where the tree has a leaf that the arrays have not.
    """
    flat, tree = jax.tree_util.tree_flatten_with_path(like)
    told = [label_of("", path).removeprefix("/") for path, _ in flat]
    known: dict[str, Any] = {}
    for path, array in read_mapping(arrays, "arrays of tp.unstack_layers").items():
        read_name(path, "a path in the arrays of tp.unstack_layers")
        layers = None if path in told else layers_of(path)
        known |= {path: array} if layers is None else {own: array[at] for at, own in enumerate(layers)}
    missing = [label for label in told if label not in known]
    if missing:
        raise _missing("tp.unstack_layers", missing, known)
    return jax.tree.unflatten(tree, [known[label] for label in told])


def _missing(name: str, missing: Sequence[str], known: Mapping[str, Any]) -> GraphError:
    return GraphError(
        message(
            f"{name} finds no {', '.join(map(repr, missing[:8]))}"
            + (f", and {len(missing) - 8} more" if len(missing) > 8 else ""),
            f"there are {', '.join(list(known)[:8]) or 'none'}" + (", ..." if len(known) > 8 else ""),
            remedy="Pass the parameters of the model that was lifted, in a tree of the same structure.",
        )
    )
