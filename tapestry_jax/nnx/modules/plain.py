"""Layers of other libraries inside of a module: their calls on values of a program are lifted on the spot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from types import FunctionType
from typing import Any

import jax
from flax import nnx

from combinators.errors import GraphError, message
from combinators.recording.function import keys_of
from combinators.recording.value import Value
from tapestry_jax.nnx.modules.written import held_by

Path = tuple[Any, ...]
_PLACE = "_tapestry_place"


def lend(plain: Mapping[Path, Any], ours: Iterable[Path]) -> None:
    """Let plain modules inside of a module of ours take values of a program.

    Those that hold modules of ours run as they are written, and their parts are what takes values.

    Args:
      plain: the modules by path, made for one trace; nobody else holds them.
      ours: where modules of ours lie.
    """
    around = {path[:length] for path in ours for length in range(len(path) + 1)}
    for path, part in plain.items():
        if path not in around and callable(part):
            object.__setattr__(part, _PLACE, path)
            object.__setattr__(part, "__class__", _lent(type(part)))


@lru_cache(maxsize=1024)
def _lent(kind: type) -> type:
    """The same class, whose methods lift what they compute when they meet values of a program."""
    bases = kind.__mro__[: kind.__mro__.index(nnx.Module)]
    own = {name: found for base in reversed(bases) for name, found in vars(base).items() if _is_method(name, found)}
    told = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
    return type(kind)(kind.__name__, (kind,), {**told, **{name: _lifted(name, found) for name, found in own.items()}})


def _is_method(name: str, found: Any) -> bool:
    return isinstance(found, FunctionType) and (name == "__call__" or not name.startswith("_"))


def _lifted(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **options: Any) -> Any:
        if not _meets_values(self, args, options):
            return plain(self, *args, **options)
        return _lift(self, name, plain, args, options)

    method.__name__, method.__doc__ = name, plain.__doc__
    return method


def _meets_values(module: Any, args: Sequence[Any], options: Mapping[str, Any]) -> bool:
    given = any(isinstance(leaf, Value) for leaf in jax.tree.leaves((args, options), is_leaf=_is_value))
    return given or any(isinstance(leaf, Value) for leaf in jax.tree.leaves(nnx.state(module)))


def _lift(module: Any, name: str, plain: Callable[..., Any], args: Any, options: Any) -> Any:
    graphdef, state = nnx.split(module)
    found, tree = jax.tree_util.tree_flatten_with_path((state, args, options), is_leaf=_is_value)
    values = [(path, leaf) for path, leaf in found if isinstance(leaf, Value)]

    def call(*arrays: Any) -> Any:
        given = iter(arrays)
        leaves = [next(given) if isinstance(leaf, Value) else leaf for _, leaf in found]
        held, rest, told = jax.tree.unflatten(tree, leaves)
        made = with_scopes(nnx.merge(graphdef, held))
        before, own, counts = nnx.graphdef(made), _held(made), _counts((*rest, *told.values()))
        old = [held_by(leaf) for leaf in own]
        result = plain(made, *rest, **told)
        _check_kept(module, before, made, own)
        _check_uncounted(module, counts, _counts((*rest, *told.values())))
        new = [held_by(leaf) for leaf in _held(made)]
        return result, {at: after for at, after in enumerate(new) if after is not old[at]}

    # The rules of lifting are loaded by the first module that holds a plain layer.
    from tapestry_jax.lifting.callables.scopes import with_scopes
    from tapestry_jax.lifting.onto import lift_onto

    place = [str(part) for part in vars(module)[_PLACE]]
    called = ["/".join(["params", *place, *keys_of(path[1:])]) if path[0].idx == 0 else "x" for path, _ in values]
    scope = "/".join([*place, *([] if name == "__call__" else [name])])
    result, written = lift_onto(call, [leaf for _, leaf in values], called, scope)
    variables = _held(module)
    for at, new in written.items():
        variables[at].set_raw_value(new)
    return result


def _counts(given: Iterable[Any]) -> list[Any]:
    """How many keys were drawn from streams among the arguments of a call."""
    streams = [leaf for leaf in given if isinstance(leaf, nnx.Rngs | nnx.RngStream)]
    return [count for stream in streams for count in jax.tree.leaves(nnx.state(stream, nnx.RngCount))]


def _check_uncounted(module: Any, before: Sequence[Any], after: Sequence[Any]) -> None:
    """Refuse a call that drew from streams of random keys that no module holds: what modules hold is written."""
    if all(one is other for one, other in zip(before, after, strict=True)):
        return
    place = ".".join(str(part) for part in vars(module)[_PLACE])
    raise GraphError(
        message(
            f"a call of `{place}`, a {type(module).__name__}, draws from nnx.Rngs that it is given",
            "the forward pass is a pure program, traced once for all calls: every call would draw the same keys",
            remedy="Let the forward pass take a random key, and hand that on: rngs=key.",
        )
    )


def _check_kept(module: Any, before: Any, after: Any, held: Sequence[Any]) -> None:
    """Refuse a call that left a module another than it was: what it holds beside variables, such as a counter."""
    if nnx.graphdef(after) == before and all(
        isinstance(new, nnx.Variable) or new is old for new, old in zip(_held(after), held, strict=True)
    ):
        return
    place = ".".join(str(part) for part in vars(module)[_PLACE])
    raise GraphError(
        message(
            f"a call of `{place}`, a {type(module).__name__}, sets or adds an attribute of it, or sows a value",
            "its program is lifted alone, so the next call would not see that, and it would be lost",
            remedy="Set attributes in __init__, and return what changes; to look at a value, use tp.named.",
        )
    )


def _held(module: Any) -> list[Any]:
    return [leaf for _, leaf in nnx.to_flat_state(nnx.state(module))]


def _is_value(leaf: Any) -> bool:
    return isinstance(leaf, Value)
