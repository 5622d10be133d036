"""What is lifted comes apart: arrays that become inputs, and a function of these alone."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from combinators.errors import GraphError, message
from combinators.frozen import dataclass
from combinators.index_space.tensor_type import TensorType, is_key
from combinators.kernels.kernel import short_name
from combinators.recording.function import keys_of

Rebuild = Callable[[Any], Any]


@dataclass(frozen=True)
class Source:
    """A function apart from what it holds.

    Attributes:
      name: of the graph.
      held: the pytree of arrays that the function itself holds; None where it holds none.
      call: `(held, *arguments)` to results; arguments are as users pass them.
    """

    name: str
    held: Any
    call: Callable[..., Any]


def source_of(function: Any) -> Source:
    """Take apart what is to be lifted: a function, an nnx module, a linen one, or a callable pytree.

    Raises:
      GraphError: when it cannot be called, or is the class of what can be.
    """
    if isinstance(function, type) and any("__call__" in vars(base) for base in function.__mro__):
        raise GraphError(
            message(
                "tp.lift takes a function or a module, and this is the class of one",
                f"got the class {function.__name__}",
                remedy=f"Make one first: tp.lift({function.__name__}(...), x).",
            )
        )
    if is_nnx(function) and callable(function):
        held, rebuild = split_nnx(function)
        return Source(_label(function), held, lambda state, *args: _called(rebuild, state, args))
    if is_linen(function):
        return Source(_label(function), None, lambda _, *args: _applied(function, args))
    if not callable(function):
        raise GraphError(
            message(
                "tp.lift takes a function or a module",
                f"got {type(function).__name__}, which cannot be called: {repr(function).splitlines()[0]:.80}",
                remedy="Pass what is called on arrays: tp.lift(function, x), tp.lift(model, x).",
            )
        )
    leaves, tree = jax.tree.flatten(function)
    if len(leaves) == 1 and leaves[0] is function:
        return Source(_name(function), None, lambda _, *args: function(*args))
    held, rebuild = split_tree(leaves, tree)
    return Source(_label(function), held, lambda arrays, *args: rebuild(arrays)(*args))


def split_argument(argument: Any) -> tuple[Any, Rebuild]:
    """An argument's arrays, and how to put others in their place; what is no array stays as it is.

    Numbers are arrays as they are to `jax.jit`, but in modules, where they are options.
    """
    if is_nnx(argument):
        return split_nnx(argument)
    leaves, tree = jax.tree.flatten(argument, is_leaf=is_type)
    if not callable(argument) and all(
        _is_spec(leaf) or isinstance(leaf, bool | int | float | complex) for leaf in leaves
    ):
        return argument, lambda values: values
    return split_tree(leaves, tree)


def split_tree(leaves: Sequence[Any], tree: Any) -> tuple[Any, Rebuild]:
    """The arrays of a pytree, None in the place of all else; and the pytree with others in their place."""
    held = jax.tree.unflatten(tree, [leaf if _is_spec(leaf) else None for leaf in leaves])

    def rebuild(values: Any) -> Any:
        given = iter(jax.tree.leaves(values))
        return jax.tree.unflatten(tree, [next(given) if _is_spec(leaf) else leaf for leaf in leaves])

    return held, rebuild


def is_linen(thing: Any) -> bool:
    """Whether it is applied to variables that it has made, as modules of `flax.linen` are."""
    return callable(getattr(thing, "apply", None)) and callable(getattr(thing, "init", None))


def is_nnx(thing: Any) -> bool:
    """Whether it is a module of `flax.nnx`, which is not imported for that."""
    nnx: Any = sys.modules.get("flax.nnx")
    return nnx is not None and isinstance(thing, nnx.Module)


def split_nnx(module: Any) -> tuple[Any, Rebuild]:
    """The state of an nnx module, and the module with another one."""
    nnx: Any = sys.modules["flax.nnx"]
    graphdef, state = nnx.split(module)
    tree = jax.tree.structure(state)
    return state, lambda values: nnx.merge(graphdef, jax.tree.unflatten(tree, jax.tree.leaves(values)))


def _applied(module: Any, args: Sequence[Any]) -> Any:
    """Call a linen module on its variables and arguments.

    Raises:
      GraphError: when the first of them is no variables: linen's own error is one of an array.
    """
    if not args or not isinstance(args[0], Mapping):
        raise GraphError(
            message(
                f"`{_label(module)}` holds no arrays: its variables are the first argument",
                f"got {_described(args[0]) if args else 'no argument'} in their place",
                remedy="Write tp.lift(model, model.init(key, x), x); jax.eval_shape(model.init, key, x) will do.",
            )
        )
    return module.apply(*args)


def _called(rebuild: Rebuild, state: Any, args: Sequence[Any]) -> Any:
    module = rebuild(state)
    return watched(lambda *args: module(*args), (module, *args), args)


def watched(call: Callable[..., Any], held: Any, args: Sequence[Any]) -> Any:
    """Call a function, and refuse what it writes to the nnx modules in `held` and does not return."""
    modules = [leaf for leaf in jax.tree.leaves(held, is_leaf=is_nnx) if is_nnx(leaf)]
    before = [check_points(module) for module in modules]
    result = call(*args)
    for module, points in zip(modules, before, strict=True):
        check_unwritten(module, [*points, *jax.tree.leaves(result)], len(points))
    return result


def check_points(module: Any) -> list[Any]:
    """The variables of an nnx module as they are now."""
    nnx: Any = sys.modules["flax.nnx"]
    return jax.tree.leaves(nnx.state(module))


def check_unwritten(module: Any, before: Sequence[Any], count: int) -> None:
    """Refuse a call that changed the variables of a module: what it wrote would be lost.

    Args:
      module: after the call.
      before: what its variables may hold: what they held, and what is returned.
      count: how many variables it had.

    Raises:
      GraphError: naming the first one.
    """
    nnx: Any = sys.modules["flax.nnx"]
    flat = jax.tree_util.tree_flatten_with_path(nnx.state(module))[0]
    known = {id(leaf) for leaf in before}
    for path, leaf in flat:
        if id(leaf) not in known or len(flat) != count:
            written = ".".join(keys_of(path))
            raise GraphError(
                message(
                    f"the call writes `{written}` of a module, which a graph would lose",
                    f"got {type(module).__name__}",
                    remedy="Call model.eval() first, or lift a function that returns what it writes.",
                )
            )


def is_type(leaf: Any) -> bool:
    """Whether it is a type with names, which is a leaf."""
    return isinstance(leaf, TensorType)


def struct_of(leaf: Any, kind: TensorType) -> jax.ShapeDtypeStruct:
    """What the function is traced with: keys as they are, else the type of the input."""
    dtype = getattr(leaf, "dtype", None)
    if dtype is not None and is_key(dtype):
        return jax.ShapeDtypeStruct(leaf.shape, dtype)
    return kind.struct


def _is_spec(leaf: Any) -> bool:
    if isinstance(leaf, TensorType):
        return True
    shape, dtype = getattr(leaf, "shape", None), getattr(leaf, "dtype", None)
    return isinstance(shape, tuple) and dtype is not None and not isinstance(leaf, type | np.dtype)


def _name(function: Any) -> str:
    return str(short_name(function)) if hasattr(function, "__name__") else type(function).__name__


def _described(thing: Any) -> str:
    return "an array" if _is_spec(thing) else f"{type(thing).__name__}: {thing!r:.80}"


def _label(module: Any) -> str:
    return type(module).__name__
