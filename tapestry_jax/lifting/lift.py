"""An ordinary JAX function to the same graph that `tp.trace` gives of one made of leaves."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax

from combinators.arguments import read_dimension, read_flag
from combinators.errors import GraphError, message, spelt
from combinators.graphs.graph import Graph
from combinators.index_space.naming import AxisName, AxisVariable
from combinators.index_space.tensor_type import TensorType, is_key, type_of
from combinators.recording.current import recording
from combinators.recording.function import check_labels, label_of
from combinators.recording.trace import Trace
from tapestry_jax.lifting.assign import Assigner
from tapestry_jax.lifting.callables.arguments import Source, is_type, source_of, split_argument, struct_of
from tapestry_jax.lifting.callables.concrete import numbers_told
from tapestry_jax.lifting.callables.inputs import Input, check_free_of, no_layers, stacked_inputs
from tapestry_jax.lifting.callables.layers import stacked_label
from tapestry_jax.lifting.callables.names import Names, check_free, read_names
from tapestry_jax.lifting.callables.written import Watch, check_counts, decide, modules_of
from tapestry_jax.lifting.dims import labels
from tapestry_jax.lifting.emit import Emitter
from tapestry_jax.lifting.finding.attention import with_attention
from tapestry_jax.lifting.finding.fuse import fuse
from tapestry_jax.lifting.finding.repeats import with_stacks
from tapestry_jax.lifting.finding.unmerged import unmerged
from tapestry_jax.lifting.rules.keys import impl_of
from tapestry_jax.lifting.rules.unknown import unknown
from tapestry_jax.lifting.table import RULES, THROUGH
from tapestry_jax.lifting.values import Steps, Values
from tapestry_jax.lifting.walk import Walk


def lift(
    function: Any,
    *specs: Any,
    names: str | Mapping[str, Any] | None = None,
    state: bool = False,
    stack: str | None = None,
    maps: bool = False,
) -> Graph:
    """The graph of a JAX function that knows nothing of this library, from its jaxpr.

    Axes that have to agree are one dimension: what a product contracts, what a sum adds cell by cell. An axis can be
    cut where the rule of every primitive on its way proves it; what no rule knows is an operation on whole tensors,
    which `graph.opaque()` lists with the line that it was written in.

    Args:
      function: takes arrays in any pytrees; or a module of `flax.nnx`, whose state becomes the first argument of the
        graph, `params`; a linen module, which is applied to `variables, *arguments`; or a callable pytree, such as a
        module of equinox, whose arrays become the first argument.
      specs: for each parameter an array, a `jax.ShapeDtypeStruct`, a `tp.TensorType`, or a pytree of these; nothing is
        computed. What is no array in it stays as it is.
      names: of axes: `{"x": "batch seq embed"}`, where `*` stands for any part of an input's name, `_` for an axis that
        stays open and `...` for several; or a signature for the arguments, `"batch seq, seq embed -> batch embed"`.
      state: whether what the call writes to modules is a second result, `(result, written)`: batch statistics, counts
        of random numbers. It is the `nnx.State` of the variables that are written, for `nnx.update(model, written)`;
        where modules are among the arguments, a dictionary of these by the name of the argument, the lifted one's
        under `params`. Of a linen module all collections but `params`, as `mutable=` gives them.
      stack: what to call the dimension of equal layers that follow each other: they become one loop, and their
        parameters one input each, with that dimension in front. `tp.stack_layers(graph, params)` makes what the graph
        then takes in their place, `tp.unstack_layers` brings it back.
      maps: whether loops whose turns hand nothing on, as those of `jax.lax.map`, are taken all at once, as `jax.vmap`
        takes them, so that a plan can cut them. What holds one turn at a time again is the plan: `tp.chunks(size=1)`.
        A loop stays one where turns take different branches of a `cond`, draw numbers from keys that are not
        Threefry's, or do what `jax.vmap` takes one by one or not at all, such as some callbacks.

    Returns:
      The graph; it takes what `function` takes, behind what it holds, and None in the place of what is no array.

    Raises:
      GraphError: for what cannot be called, or not with so many arguments, two inputs of one name, side effects, what
        is written to modules and not returned, random keys among the results, names that do not fit, no layers to
        stack, or what cannot be traced since it asks for numbers. What is wrong without lifting raises what it raises.
      KernelError: when the function holds a large array.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> def mlp(x, w1, w2):
      ...     return jax.nn.relu(x @ w1) @ w2
      >>> x, w1, w2 = jnp.ones((8, 4)), jnp.ones((4, 6)), jnp.ones((6, 2))
      >>> graph = lift(mlp, x, w1, w2, names="batch embed, embed mlp, mlp out")
      >>> print(graph)
      mlp: y = dot_general_1
      x              input                                                   float32(batch=8, embed=4)
      w1             input                                                   float32(embed=4, mlp=6)
      w2             input                                                   float32(mlp=6, out=2)
      dot_general    batch embed, embed mlp -> batch mlp; fold embed by Sum  float32(batch=8, mlp=6)
      relu           batch mlp -> batch mlp                                  float32(batch=8, mlp=6)
      dot_general_1  batch mlp, mlp out -> batch out; fold mlp by Sum        float32(batch=8, out=2)
    """
    stack = None if stack is None else read_dimension(stack, "stack= of tp.lift")
    state, maps = read_flag(state, "state= of tp.lift"), read_flag(maps, "maps= of tp.lift")
    source = source_of(function)
    _check_arguments(function, source, len(specs))
    split = [split_argument(spec) for spec in specs]
    arguments = _argument_names(function, source, len(specs))
    given = [source.held] * (source.held is not None) + [leaves for leaves, _ in split]
    roots = ["params"] * (source.held is not None) + arguments
    paths, in_tree = jax.tree_util.tree_flatten_with_path(tuple(given), is_leaf=is_type)
    told = [label_of(roots[path[0].idx], path[1:]) for path, _ in paths]
    check_labels(told, source.name)
    types = [
        type_of(leaf, f"argument `{label}` of `{source.name}`") for label, (_, leaf) in zip(told, paths, strict=True)
    ]
    structs = [struct_of(leaf, kind) for (_, leaf), kind in zip(paths, types, strict=True)]
    out: list[tuple[list[str], Any]] = []
    counts, opened, decided = list[str](), list[str](), dict[str, bool]()

    def flat(*words: Any) -> list[Any]:
        leaves = [_as(leaf, struct) for leaf, struct in zip(words, structs, strict=True)]
        full = jax.tree.unflatten(in_tree, leaves)
        held, rest = (full[0], full[1:]) if source.held is not None else (None, full)
        args = [rebuild(leaf) for (_, rebuild), leaf in zip(split, rest, strict=True)]
        made = source.rebuild(held)
        watch = Watch(modules_of(made, args, arguments), source.name, state and not source.is_linen, decided)
        result = source.call(made, args, state)
        if undecided := watch.open():
            opened[:] = undecided
            return list(undecided.values())
        result, counts[:] = watch.after(result)
        found, tree = jax.tree_util.tree_flatten_with_path(result)
        out.append(([label_of("y", path) for path, _ in found], tree))
        return [_words(leaf, label, source) for (_, leaf), label in zip(found, out[-1][0], strict=True)]

    flat_types = [kind.struct for kind in types]
    with numbers_told(source.name, told):
        closed = jax.make_jaxpr(flat)(*flat_types)
    while not out:
        decided |= decide(closed.jaxpr, opened, told)
        closed = jax.make_jaxpr(partial(flat))(*flat_types)  # another function, which JAX has not traced yet
    outputs, out_tree = out[-1]
    if not outputs:
        raise GraphError(message(f"`{source.name}` returns nothing", remedy="Return at least one array."))
    wanted = read_names(names, arguments)
    wanted.check(told)
    graph = _graph(closed, told, types, outputs, (in_tree, out_tree), source.name, wanted, stack, maps)
    check_counts(graph, counts)
    return graph


def _graph(
    closed: Any,
    inputs: Sequence[str],
    types: Sequence[TensorType],
    outputs: Sequence[str],
    trees: tuple[Any, Any],
    name: str,
    wanted: Names,
    stack: str | None,
    maps: bool,
) -> Graph:
    values = Values()
    listed = [Input(values.new(k.shape, k.dtype), label, k) for label, k in zip(inputs, types, strict=True)]
    steps = _unfused(closed, values, [told.value for told in listed], name, maps)
    in_tree, out_tree = trees
    if stack is not None:
        check_free_of(stack, listed, wanted)
        steps, groups = with_stacks(
            steps, values, lambda group: stacked_label([inputs[at] for at in group]) is not None
        )
        if not groups:
            raise no_layers(name, stack)
        listed, in_tree = stacked_inputs(listed, groups, in_tree, stack)
    steps = fuse(steps)
    assigner = Assigner(values)
    _name_inputs(assigner, listed, wanted)
    assigned = assigner.run(steps)
    shapes = [values.shapes[value] for value in steps.outputs]
    taken = {dim.find().name for dims in assigner.named.values() for dim in dims if dim is not None}
    _name_results(assigner, steps.outputs, shapes, wanted, taken)
    called = labels(assigner.dims)
    program = Trace()
    axes: list[tuple[AxisName, ...]] = [
        tuple(
            kept or (called[dim.find()] if dim is not None else AxisVariable(f"axis {at} of `{told.label}`"))
            for at, (dim, kept) in enumerate(zip(assigner.named[told.value], told.kind.names, strict=True))
        )
        for told in listed
    ]
    leaves = [
        program.input(told.label, own, told.kind.shape, told.kind.dtype) for told, own in zip(listed, axes, strict=True)
    ]
    order = dict(zip((told.value for told in listed), leaves, strict=True))
    with recording(program):
        found = Emitter(called, assigner.named).run(program, assigned, [order[value] for value in steps.inputs])
    return program.finish(list(zip(outputs, found, strict=True)), in_tree, out_tree, name)


def steps_of(closed: Any, values: Values, numbers: Sequence[int]) -> Steps:
    """The equations of a jaxpr as steps, on these values."""
    return fuse(_unfused(closed, values, numbers, ""))


def _unfused(closed: Any, values: Values, numbers: Sequence[int], root: str, maps: bool = False) -> Steps:
    walk = Walk(RULES, unknown, values, THROUGH)
    walk.root, walk.maps = root, maps  # what scopes begin with that say all of it
    steps = walk.finish(numbers, walk.run(closed.jaxpr, closed.consts, numbers))
    return with_attention(unmerged(steps, values), values)


def _name_inputs(assigner: Assigner, inputs: Sequence[Input], wanted: Names) -> None:
    """Dimensions for the axes of inputs: users' names first; those of arguments come before those of parameters."""
    users: dict[str, Any] = {}
    for told in sorted(inputs, key=lambda told: "/" in told.label):
        kind, extra = told.kind, told.first is not None
        stem, hint = stem_of(told.path)
        named: list[Any] = []
        for axis, (own, user, size) in enumerate(zip(kind.names, told.names(wanted), kind.shape, strict=True), -extra):
            name = user or own
            if name is not None and name not in users:
                users[name] = assigner.new((name,), name, name)
            made = users[name] if name is not None else None
            if made is None and size != 1:
                made = assigner.new((stem, axis), f"{hint}_{axis}")
            named.append(made)
        assigner.give(told.value, tuple(named))


def _name_results(
    assigner: Assigner, outputs: Sequence[int], shapes: Sequence[Sequence[int]], wanted: Names, taken: set[str | None]
) -> None:
    for at, (value, given) in enumerate(zip(outputs, wanted.of_results(shapes), strict=True)):
        for axis, (dim, name) in enumerate(zip(assigner.named[value], given, strict=True)):
            if dim is None or name is None or dim.find().name == name:
                continue
            check_free(name, dim.find().name, f"axis {axis} of result {at}", taken)
            dim.find().name = name
            taken.add(name)


def stem_of(label: str) -> tuple[str, str]:
    """What equal parameters of equal layers have in common, and a readable name: of the module that has them."""
    parts = [part for part in label.split("/") if not part.isdigit()]
    stem = "/".join("".join(c for c in part if not c.isdigit()) for part in parts)
    module = parts[-2] if len(parts) > 2 else parts[-1]
    kept = "".join(c if c.isalnum() or c == "_" else "_" for c in module)
    return stem, kept if kept.isidentifier() else "axis"


def _check_arguments(function: Any, source: Source, count: int) -> None:
    """Refuse another number of arguments than the function takes, where that can be told."""
    told = _signature(function, source)
    if told is None:
        return
    try:
        told.bind(*range(count))
    except TypeError as error:
        raise GraphError(
            message(
                f"`{source.name}` cannot be called with what tp.lift was given",
                f"it takes {told}, got {count} argument{'s' * (count != 1)}: {error}",
                remedy="Pass one for each; say by keyword before: functools.partial(function, training=False).",
            )
        ) from None


def _argument_names(function: Any, source: Source, count: int) -> list[str]:
    if source.is_linen:
        return ["variables", *_numbered(count - 1)] if count else []
    told = _signature(function, source)
    listed = () if told is None else told.parameters.values()
    found = [p.name for p in listed if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return found[:count] if len(found) >= count else _numbered(count)


def _signature(function: Any, source: Source) -> inspect.Signature | None:
    try:
        return inspect.signature(source.rebuild(None).apply if source.is_linen else function)
    except (TypeError, ValueError):
        return None


def _numbered(count: int) -> list[str]:
    return ["x"] if count == 1 else [f"x{i}" for i in range(count)]


def _as(leaf: Any, struct: jax.ShapeDtypeStruct) -> Any:
    if leaf.dtype == struct.dtype:
        return leaf
    return jax.random.wrap_key_data(leaf, impl=impl_of(struct))


def _words(leaf: Any, label: str, source: Source) -> Any:
    if not hasattr(leaf, "dtype") and not isinstance(leaf, bool | int | float | complex):
        raise GraphError(
            message(
                f"`{source.name}` returns something that is not an array, at `{label}`",
                f"got {type(leaf).__name__}: {spelt(leaf)}",
                remedy="Return arrays alone.",
            )
        )
    if is_key(getattr(leaf, "dtype", None)):
        raise GraphError(
            message(
                f"`{source.name}` returns random keys, at `{label}`",
                "in a graph they are words",
                remedy="Return jax.random.key_data(key), and make keys of it: jax.random.wrap_key_data(words).",
            )
        )
    return leaf
