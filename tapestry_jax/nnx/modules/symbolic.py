"""Modules come apart into typed parameters, and together again with values of a program in their place."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
from flax import nnx

from combinators.arrows.program import Program
from combinators.errors import GraphError, message
from combinators.index_space.signature import Signature
from combinators.index_space.tensor_type import TensorType, type_of
from combinators.recording.value import Value
from tapestry_jax.nnx.modules.plain import lend
from tapestry_jax.nnx.modules.written import check_complete, guard, held_by, written_state

if TYPE_CHECKING:
    from tapestry_jax.nnx.modules.module import Module

_LEADING = ("batch", "seq")
_SCOPE = "_tapestry_scope"


def split(module: Module) -> tuple[nnx.State[Any, Any], Callable[[Any], Module], Callable[[Module, Any, Any], Any]]:
    """Take a module apart.

    Returns:
      The types of its variables, a state whose flattening order is that of `nnx.state`, and how to rebuild the module
      from values in their place; and of what was rebuilt, these values, and what the program gives, the state of what
      was written, or None.
    """
    graphdef, state = nnx.split(module)

    def written(made: Module, values: Any, result: Any) -> Any:
        return written_state(state, values, check_complete(made, values), result)

    return state_types(module, state), lambda values: merge(graphdef, state, values), written


def merge(graphdef: Any, state: Any, values: Any) -> Module:
    """The module with `values` for its variables; the modules inside know the scopes of their operations.

    Args:
      graphdef: of the module.
      state: of the module; only its tree is used.
      values: a pytree with as many leaves.
    """
    symbolic = jax.tree.unflatten(jax.tree.structure(state), jax.tree.leaves(values))
    module: Any = nnx.merge(graphdef, symbolic)
    parts = guard(module)
    inside = {path: part for path, part in parts.items() if _is_ours(part)}
    lend({path: part for path, part in parts.items() if path not in inside}, inside)
    for path, part in inside.items():
        above = next((path[:at] for at in range(len(path) - 1, 0, -1) if path[:at] in inside), ())
        object.__setattr__(part, _SCOPE, "/".join(map(str, path[len(above) :])))
    return module


def state_types(module: Module, state: Any = None) -> nnx.State[Any, Any]:
    """For every variable its type, with the dimension names that it carries.

    Args:
      module: whose variables they are.
      state: of the module, where it is known.

    Raises:
      GraphError: when a variable carries another number of names than it has axes.
    """
    state = nnx.state(module) if state is None else state
    flat, types = list(nnx.to_flat_state(state)), list[TensorType]()
    named = [leaf.get_metadata().get("dims") if isinstance(leaf, nnx.Variable) else None for _, leaf in flat]
    parts = {} if all(named) else dict(nnx.iter_modules(module))  # a walk over all that the module holds
    for (path, leaf), told in zip(flat, named, strict=True):
        names = _declared(parts.get(path[:-1]), path[-1]) if told is None else told
        kind = type_of(held_by(leaf), f"`{'.'.join(map(str, path))}` of a {type(module).__name__}")
        _check_dims(names, kind.shape, path)
        types.append(TensorType.make(names or kind.names, kind.shape, kind.dtype))
    return jax.tree.unflatten(jax.tree.structure(state), types)


def is_symbolic(module: Module) -> bool:
    """Whether the variables of the module are values of a program."""
    return _SCOPE in vars(module) or any(isinstance(leaf, Value) for leaf in jax.tree.leaves(nnx.state(module)))


def scope_of(module: Module) -> str:
    """The scope of its operations below that of the module around it; empty for the outermost."""
    return vars(module).get(_SCOPE, "")


def program_of(module: Module, values: Sequence[Any], name: str) -> Program:
    """The forward pass as a program with the signature that the module declares."""
    text = module.signature
    signature = None if text is None else _given(module.forward, _expanded(text, values), len(values))
    program = Program(module.forward, signature)
    program.name = name or label(module)
    return program


def label(module: Module) -> str:
    """What paths and errors call a module that is no attribute of another: its class."""
    name = type(module).__name__
    spaced = "".join(f"_{c.lower()}" if c.isupper() and not name[i - 1].isupper() else c for i, c in enumerate(name))
    return spaced.lower().strip("_")


def _expanded(text: str, values: Sequence[Any]) -> Signature:
    """The signature with up to two leading dimensions named, where the ranks of the values tell how many there are."""
    signature = Signature.parse(text)
    names = [name for name in _LEADING if name not in signature.dims]
    for operand, value in zip(signature.operands, values, strict=False):
        if operand.ellipsis and isinstance(value, Value):
            lead = value.ndim - len(operand.axes)
            if 0 <= lead <= len(names):
                return Signature.parse(text.replace("...", " ".join(names[:lead])))
    return signature


def _given(forward: Callable[..., Any], signature: Signature, count: int) -> Signature:
    """The signature without scalars at its end that are not given, where the forward pass does without them."""
    left = signature.operands[count:]
    if not left or any(operand.axes or operand.ellipsis for operand in left):
        return signature
    try:
        inspect.signature(forward).bind(*range(count))
    except TypeError:
        return signature
    return replace(signature, operands=signature.operands[:count])


def _check_dims(names: Any, shape: tuple[int, ...], path: Sequence[Any]) -> None:
    if names is None or (isinstance(names, tuple | list) and len(names) == len(shape)):
        return
    raise GraphError(
        message(
            f"`{'.'.join(map(str, path))}` has {len(shape)} axes, and dims={names!r} names another number of them",
            f"got shape {shape}",
            remedy="Give a tuple with one name for each axis; where nnx.vmap adds one: "
            'nnx.vmap(make, transform_metadata={nnx.PARTITION_NAME: "layer", "dims": "layer"}).',
        )
    )


def _declared(module: Any, name: Any) -> tuple[str, ...] | None:
    return dict(getattr(module, "declared_dims", ())).get(name)


def _is_ours(part: Any) -> bool:
    # By what makes it an arrow, since the class itself is written with this module.
    return hasattr(part, "__tapestry_arrow__")
