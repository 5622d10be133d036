"""Running a graph unplanned: the meaning that every plan has to reproduce."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from combinators.errors import GraphError, SignatureError, message
from combinators.graphs.nodes import Apply, Input, Loop, Ref, Rename, needed_nodes
from combinators.graphs.walk import operations
from combinators.index_space.tensor_type import TensorType, type_of, words_of
from combinators.index_space.usable import check_together, check_usable
from combinators.kernels.named_apart import name_apart
from combinators.operations.operation import Operation
from combinators.operations.ready import run_whole

if TYPE_CHECKING:
    from combinators.graphs.graph import Graph

# Here, so that what a program's instructions are called does not depend on whether something was planned before.
name_apart()

_STACKED = re.compile(r"\d+:\d+")
"""How an input is called that is one for several layers: `params/blocks/0:12/kernel`."""


def evaluate(graph: Graph, inputs: Sequence[Any]) -> list[Any]:
    """Compute the outputs of a graph from the flat list of its inputs; any JAX values, traced ones too."""
    needed = needed_nodes(graph)
    values: dict[Ref, Any] = {}
    remaining = iter(inputs)
    for index, node in enumerate(graph.nodes):
        if isinstance(node, Input):
            outputs = [next(remaining)]
        elif index not in needed:
            continue
        else:
            operands = [values[ref] for ref in node.operands]
            match node:
                case Apply():
                    with jax.named_scope(node.path):
                        outputs = run_whole(graph.shaped(index), operands)
                case Rename():
                    outputs = operands
                case Loop():
                    outputs = run_loop(node, operands, evaluate)
        values.update({Ref(index, number): output for number, output in enumerate(outputs)})
    return [values[ref] for _, ref in graph.outputs]


def run_loop(node: Loop, operands: Sequence[Any], run_body: Any) -> list[Any]:
    """Run a loop node by `lax.scan`, or until its carry says so; `run_body(graph, inputs)` runs the body once."""
    carries = list(operands[: node.carries])
    stacked = [
        jnp.moveaxis(value, axis, 0)
        for value, axis in zip(operands[node.carries : node.carries + len(node.axes)], node.axes, strict=True)
    ]
    constants = list(operands[node.carries + len(node.axes) :])

    def step(carry: list[Any], slices: list[Any]) -> tuple[list[Any], list[Any]]:
        outputs = run_body(node.body, [*carry, *slices, *constants])
        return outputs[: node.carries], outputs[node.carries :]

    if node.until:
        # Few programs have such loops.
        from combinators.numerics.until import run_until

        return run_until(lambda carry: step(carry, [])[0], carries, node.length, node.path)
    # Not at the top: a library that is imported need not load it.
    from combinators.equations.scanned import scan

    final, outputs = scan(step, carries, stacked, length=node.length)
    return [*final, *outputs]


def call_graph(graph: Graph, args: Sequence[Any]) -> Any:
    """Run a graph on the arguments it was traced for; checks names, sizes and dtypes first."""
    return run_leaves(graph, check_arguments(graph, args))


def run_leaves(graph: Graph, leaves: Sequence[Any]) -> Any:
    """Run a graph on arrays that are known to fit.

    Raises:
      GraphError: when they lie on different devices.
    """
    try:
        results = compiled(graph)(*leaves)
    except ValueError:
        check_together([node.name for node in graph.inputs], leaves, graph.name)
        raise
    return jax.tree.unflatten(graph.out_tree, results)


def compiled(graph: Graph) -> Any:
    """The jitted flat function of a graph, made once."""
    known = graph.__dict__.get("_compiled")
    if known is None:

        def run(*inputs: Any) -> list[Any]:
            check_unchanged(graph)
            return evaluate(graph, inputs)

        run.__name__ = graph.name if graph.name.isidentifier() else "program"
        known = graph.__dict__["_compiled"] = jax.jit(run)
    return known


def check_unchanged(graph: Graph) -> None:
    """Refuse a graph whose kernels read what has changed since it was traced (`combinators.graphs.unchanged`).

    Raises:
      KernelError: for the first operation that would compute something else than then.
    """
    for place, node in operations(graph):
        if node.written is not None:
            check_as_traced(node.operation, node.written, place.path)


def check_as_traced(operation: Operation, written: Any, path: str) -> None:
    """Refuse one such operation; `written` says what it computed, and is None where nobody wrote it down.

    Raises:
      KernelError: where it would compute something else than when it was traced.
    """
    if written is not None:
        # Few kernels read what can change.
        from combinators.graphs.unchanged import check_operation

        check_operation(operation, written, path)


def check_arguments(graph: Graph, args: Sequence[Any]) -> list[Any]:
    """Flatten arguments and hold them against the graph's inputs.

    Raises:
      GraphError: for a wrong number or structure of arguments, or something that is not an array.
      SignatureError: for a wrong rank, size or dtype; all bad leaves at once.
    """
    leaves, inputs = flatten_arguments(graph, args), graph.inputs
    check_usable([node.name for node in inputs], leaves, graph.name)
    wrong: list[str] = []
    for node, leaf in zip(inputs, leaves, strict=True):
        got = type_of(leaf, f"argument `{node.name}` of `{graph.name}`")
        if not _fits(node.results[0], got, leaf):
            wrong.append(f"{node.name}: expected {node.results[0]}, got {got}")
    if wrong:
        raise SignatureError(
            message(
                f"`{graph.name}` was traced for other arguments",
                *wrong,
                remedy="Pass arrays of these sizes and dtypes, or trace again for the new ones.",
            )
        )
    return [as_array(leaf, node.results[0]) for node, leaf in zip(inputs, leaves, strict=True)]


def flatten_arguments(graph: Graph, args: Sequence[Any]) -> list[Any]:
    """The leaves of arguments that have the structure that the graph was traced with.

    Containers of another kind with the same keys will do: a dictionary for a `flax.nnx.State`.

    Raises:
      GraphError: for a wrong number or structure of arguments.
    """
    leaves, tree = jax.tree.flatten(tuple(args))
    leaves = [words_of(leaf) for leaf in leaves]
    if tree == graph.in_tree:
        return leaves
    inputs = graph.inputs
    if len(leaves) != len(inputs):
        other = _no_arrays(args)
        raise GraphError(
            message(
                f"`{graph.name}` takes {len(inputs)} arrays, got {len(leaves)}",
                "inputs: " + ", ".join(f"{node.name} {node.results[0]}" for node in inputs[:8]),
                *_counts(graph, args),
                *([f"no arrays: {', '.join(other[:8])}"] if other else []),
                remedy=_remedy(len(leaves), len(inputs), [node.name for node in inputs], len(other)),
            )
        )
    expected = _keys(jax.tree.unflatten(graph.in_tree, leaves))
    for node, wanted, got in zip(inputs, expected, _keys(tuple(args)), strict=True):
        if wanted != got:
            raise GraphError(
                message(
                    f"the arguments of `{graph.name}` have another structure than it was traced with",
                    f"at the input `{node.name}`: expected the place {'/'.join(wanted)}, got {'/'.join(got)}",
                    remedy="Pass containers with the same keys, in the same places.",
                )
            )
    return leaves


def _remedy(got: int, wanted: int, names: Sequence[str], other: int) -> str:
    if other and got - other <= wanted:
        return "Pass None in the place of what is no array, as equinox.filter(model, equinox.is_array) does."
    if got > wanted and any(_STACKED.search(name) for name in names):
        return "Its layers are stacked: pass tp.stack_layers(graph, params) in the place of params."
    return "Pass the arguments that it was traced with."


def _no_arrays(args: Sequence[Any]) -> list[str]:
    """The leaves that are no arrays, such as the functions and options of a module that is a pytree, by their paths."""
    paths = zip(_keys(tuple(args)), jax.tree.leaves(tuple(args)), strict=True)
    return [f"{'/'.join(path)} {type(leaf).__name__}" for path, leaf in paths if not hasattr(leaf, "dtype")]


def _counts(graph: Graph, args: Sequence[Any]) -> tuple[str, ...]:
    """How many arrays each argument holds, where that is not one each."""
    expected, got = (
        [child.num_leaves for child in graph.in_tree.children()],
        [len(jax.tree.leaves(arg)) for arg in args],
    )
    if set(expected) == {1}:
        return ()
    told = [" and ".join(map(str, counts)) or "none" for counts in (expected, got)]
    return (f"arrays in each argument: expected {told[0]}, got {told[1]}",)


def _keys(tree: Any) -> list[tuple[str, ...]]:
    """The keys that lead to each leaf; flax wraps leaves in a `value`."""
    found: list[tuple[str, ...]] = []
    for path, _ in jax.tree_util.tree_flatten_with_path(tree)[0]:
        keys = [str(getattr(e, "key", getattr(e, "idx", getattr(e, "name", e)))) for e in path]
        found.append(tuple(keys[:-1] if len(keys) > 1 and keys[-1] == "value" else keys))
    return found


def as_array(leaf: Any, kind: TensorType) -> Any:
    """The leaf with the dtype of the graph's input: Python numbers would stay weakly typed and change dtypes inside."""
    return jnp.asarray(leaf, kind.dtype) if isinstance(leaf, bool | int | float | complex) else words_of(leaf)


def takes_on(number: Any, dtype: Any) -> bool:
    """Whether a weakly typed number becomes this dtype without a loss: 3 becomes 3.0, and 3.5 does not become 3."""
    return bool(jnp.result_type(number, dtype) == dtype)


def _fits(expected: TensorType, got: TensorType, leaf: Any) -> bool:
    is_number = isinstance(leaf, bool | int | float | complex)
    return expected.shape == got.shape and (
        takes_on(leaf, expected.dtype) if is_number else expected.dtype == got.dtype
    )
