"""What is lifted comes apart: arrays that become inputs, and a function of these alone."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MethodType
from typing import Any, cast

import jax
import numpy as np

from combinators.errors import GraphError, message, spelt
from combinators.frozen import dataclass
from combinators.index_space.tensor_type import TensorType, is_key
from combinators.kernels.kernel import short_name
from tapestry_jax.lifting.callables.scopes import with_scopes

Rebuild = Callable[[Any], Any]


@dataclass(frozen=True)
class Source:
    """A function apart from what it holds.

    Attributes:
      name: of the graph.
      held: the pytree of arrays that the function itself holds; None where it holds none.
      rebuild: what it holds to what is called on arguments as users pass them; for a bound method the module.
      options: keywords of every call.
      method: of what is rebuilt that is called; None for its call.
      is_linen: whether it is applied to variables.
    """

    name: str
    held: Any
    rebuild: Callable[[Any], Any]
    options: Mapping[str, Any]
    method: str | None = None
    is_linen: bool = False

    def call(self, made: Any, args: Sequence[Any], writes: bool = False) -> Any:
        """The results; of a linen module whose collections are written these and what it writes."""
        if self.is_linen:
            return _applied(made, self.options, writes, args)
        called = made if self.method is None else getattr(made, self.method)
        return called(*args, **self.options)


def source_of(function: Any) -> Source:
    """Take apart what is to be lifted: a function, an nnx module, a linen one, or a callable pytree.

    What is said by keyword before, by `functools.partial`, and methods of nnx modules, are looked into: the arrays of
    their modules are inputs.

    Raises:
      GraphError: when it cannot be called, or is the class of what can be.
    """
    if isinstance(function, partial):
        told = cast("partial[Any]", function)
        if not told.args and (is_nnx(told.func) or is_linen(told.func) or _is_method(told.func)):
            return replace(source_of(told.func), options=told.keywords)
    if _is_method(function):
        owner: Any = cast("MethodType", function).__self__
        held, rebuild = split_nnx(owner)
        return Source(_label(owner), held, rebuild, {}, cast("MethodType", function).__name__)
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
        return Source(_label(function), held, rebuild, {})
    if is_linen(function):
        return Source(_label(function), None, lambda _: function, {}, is_linen=True)
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
        return Source(_name(function), None, lambda _: function, {})
    held, rebuild = split_tree(leaves, tree)
    return Source(_label(function), held, rebuild, {})


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


def _is_method(thing: Any) -> bool:
    """Whether it is a method of an nnx module."""
    return isinstance(thing, MethodType) and is_nnx(thing.__self__)


def split_nnx(module: Any) -> tuple[Any, Rebuild]:
    """The state of an nnx module, and the module with another one."""
    nnx: Any = sys.modules["flax.nnx"]
    graphdef, state = nnx.split(module)
    tree = jax.tree.structure(state)
    return state, lambda values: with_scopes(nnx.merge(graphdef, jax.tree.unflatten(tree, jax.tree.leaves(values))))


def _applied(module: Any, options: Mapping[str, Any], writes: bool, args: Sequence[Any]) -> Any:
    """Call a linen module on its variables and arguments.

    Args:
      module: of `flax.linen`.
      options: keywords of the call.
      writes: whether the collections beside `params` may be written; they are a further result then.
      args: variables, then arguments.

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
    if writes:
        return module.apply(*args, **{"mutable": _written_collections(args[0]), **options})
    errors: Any = sys.modules.get("flax.errors")
    try:
        return module.apply(*args, **options)
    except getattr(errors, "ModifyScopeVariableError", ()) as error:
        raise GraphError(
            message(
                f"`{_label(module)}` writes to a collection that is not mutable",
                str(error).splitlines()[0],
                remedy="Take what it writes as a second result: tp.lift(..., state=True); or call it as in evaluation.",
            )
        ) from error


def _written_collections(variables: Mapping[str, Any]) -> list[str]:
    """The collections of a linen module that its calls may write: all but its parameters."""
    return [collection for collection in variables if collection != "params"]


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
    return "an array" if _is_spec(thing) else f"{type(thing).__name__}: {spelt(thing)}"


def _label(module: Any) -> str:
    return type(module).__name__
