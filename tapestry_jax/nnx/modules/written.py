"""What `forward` writes into variables: a further result of the program, which is stored where the module is called."""

from __future__ import annotations

from collections import deque
from functools import lru_cache
from types import FunctionType
from typing import Any, NoReturn

import jax
from flax import nnx

from combinators.errors import GraphError, message, spelt
from combinators.index_space.naming import AxisVariable, find, unify
from combinators.recording.renaming import give_way
from combinators.recording.value import Value
from tapestry_jax.nnx.modules.forgetting import refuse_forgetting
from tapestry_jax.nnx.modules.mattering import Auxiliary

_GUARDED = "_tapestry_guarded"
_HOLDERS = "_tapestry_holders"
_PATH = "_tapestry_path"
_ALL = object()
_CONTAINERS = (list, dict, set, deque)
# Most of what a module holds; of the others Flax asks more than Python does whether they are variables.
_PLAIN = frozenset({bool, int, float, str, type(None), type, FunctionType})


def guard(module: Any) -> dict[tuple[Any, ...], Any]:
    """Make the variables of a module take values of a program, and refuse attributes and what would be lost.

    Args:
      module: made for one trace; nobody else holds it or its variables.

    Returns:
      The modules inside, and itself, by path.
    """
    modules, holders = dict[tuple[Any, ...], Any](), list[tuple[str, Any]]()
    # A walk over all that a model holds is a tenth of what tracing it takes, so there is one.
    for path, part in nnx.iter_graph(module):
        if type(part) in _PLAIN:
            continue
        if isinstance(part, nnx.Variable):
            part.set_metadata(_PATH, ".".join(map(str, path)))
            object.__setattr__(part, "__class__", _written_kind(type(part)))
        elif isinstance(part, nnx.Module):
            modules[tuple(path)] = part
            above = ".".join(map(str, path))
            object.__setattr__(part, _GUARDED, above)
            holders += [(f"{above}.{name}", held) for name, held in vars(part).items() if isinstance(held, _CONTAINERS)]
    if holders:
        object.__setattr__(module, _HOLDERS, holders)
    return modules


def check_unguarded(module: Any, name: str) -> None:
    """Refuse an attribute of a module that stands for values of a program.

    Raises:
      GraphError: when it does.
    """
    if _GUARDED in vars(module):
        above = vars(module)[_GUARDED]
        _refuse_attribute(f"{above}.{name}" if above else name)


def check_complete(module: Any, values: Any) -> list[Value]:
    """What the variables of a module stand for after a forward pass.

    Args:
      module: that `guard` saw before the forward pass.
      values: what its variables stood for then.

    Raises:
      GraphError: when there are more of them, such as what was sown, or fewer.
    """
    for path, held in vars(module).get(_HOLDERS, ()):
        if _holds_values(held):
            _refuse_attribute(path.lstrip("."))
    flat, before = nnx.to_flat_state(nnx.state(module)), jax.tree.leaves(values)
    if len(flat) < len(before):
        raise GraphError(
            message(
                "the forward pass deletes a variable of its module",
                f"before  {len(before)} variables",
                f"after   {len(flat)}",
                remedy="Leave it, and do not read it: a plan gives back the variables that it was given.",
            )
        )
    if len(flat) != len(before):
        known = {id(leaf) for leaf in before}
        paths = (path for path, leaf in flat if id(held_by(leaf)) not in known)
        _refuse_attribute(".".join(map(str, next(paths, ("a variable",)))))
    return [held_by(leaf) for _, leaf in flat]


def _holds_values(container: Any) -> bool:
    """Whether a list, dict, set or deque holds values of a program, or such in it do."""
    left, seen = [container], set[int]()
    while left:
        found = left.pop()
        if isinstance(found, Value):
            return True
        if isinstance(found, (*_CONTAINERS, tuple)) and id(found) not in seen:
            seen.add(id(found))
            left += found.values() if isinstance(found, dict) else found
    return False


def held_by(leaf: Any) -> Any:
    """What a leaf of a module's state holds: layers may have arrays that are no variables, such as a mask."""
    return leaf.get_raw_value() if isinstance(leaf, nnx.Variable) else leaf


def written_state(state: Any, before: Any, after: Any, result: Any) -> nnx.State[Any, Any] | None:
    """The part of a state that a forward pass wrote, or None.

    Args:
      state: of the module; paths, classes and metadata of its variables.
      before: what its variables stood for, a pytree with as many leaves.
      after: the same after the forward pass.
      result: what the program gives.

    Raises:
      GraphError: when a cache was written beside what mixes positions of one call.
    """
    flat = nnx.to_flat_state(state)
    pairs = zip(flat, jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
    changed = [(path, variable, old, new) for (path, variable), old, new in pairs if new is not old]
    found = [(path, variable.replace(new)) for path, variable, _, new in changed]
    caches = [new for _, variable, _, new in changed if isinstance(variable, nnx.Cache)]
    if caches:
        said = [(old.ref, new.ref) for _, variable, old, new in changed if isinstance(variable, Auxiliary)]
        kept = [new for _, variable, _, new in changed if not isinstance(variable, Auxiliary)]
        given = [leaf.ref for leaf in (*jax.tree.leaves(result), *kept) if isinstance(leaf, Value)]
        refuse_forgetting(caches[0].trace.nodes, given, said)
    return nnx.from_flat_state(found) if found else None


def store(module: Any, written: Any) -> None:
    """Write arrays into the variables of a module, as Flax does: not from inside of a transformation around it."""
    variables: dict[Any, Any] = dict(nnx.to_flat_state(nnx.state(module)))
    holders = {path: part for path, part in nnx.iter_graph(module) if isinstance(part, nnx.Variable)}
    for path, new in nnx.to_flat_state(written):
        assert path in variables
        holders[path].set_raw_value(new.get_raw_value())


@lru_cache(maxsize=256)
def _written_kind(kind: Any) -> type:
    """The same class of variables, which looks at values of a program before it takes them."""
    if hasattr(kind, "_tapestry_plain"):
        return kind

    class Written(kind):  # pyright: ignore[reportUntypedBaseClass]
        __slots__ = ()
        _tapestry_plain = kind

        def get_value(self, *, index: Any = _ALL) -> Any:
            if isinstance(self.get_raw_value(), Value) and issubclass(kind, nnx.RngCount):
                _refuse_drawing(self.get_metadata()[_PATH])
            return super().get_value() if index is _ALL else super().get_value(index=index)

        def set_value(self, value: Any, *, index: Any = _ALL) -> None:
            old = self.get_raw_value()
            if not isinstance(old, Value):
                return super().set_value(value) if index is _ALL else super().set_value(value, index=index)
            if index is not _ALL and index is not ...:
                _refuse(self.get_metadata()[_PATH], f"got an index, {spelt(index, 60)}", "a part of it alone")
            return self.set_raw_value(value)

        def set_raw_value(self, value: Any, **options: Any) -> None:
            old = self.get_raw_value()
            if isinstance(old, Value):
                if isinstance(value, Value) and value.shape == old.shape and value.trace is old.trace:
                    value = give_way(value, old.axes)
                _check_new(self.get_metadata()[_PATH], old, value)
            super().set_raw_value(value, **options)

    Written.__name__, Written.__qualname__, Written.__module__ = kind.__name__, kind.__qualname__, kind.__module__
    return Written


def _check_new(path: str, old: Value, new: Any) -> None:
    if not isinstance(new, Value):
        _refuse(path, f"got {type(new).__name__}: {spelt(new)}", "what is no value of the program")
    if not old.trace.is_inside(new.trace):
        remedy = "Carry it through the loop, and write what comes out; layers in a tp.nnx.Stack may write their own."
        _refuse(path, f"got {new!r}", "inside of a loop that does not carry it", remedy)
    names = [(find(a), find(b)) for a, b in zip(old.axes, new.axes, strict=False)]
    fits = old.shape == new.shape and old.dtype == new.dtype
    if not fits or any(isinstance(a, str) and isinstance(b, str) and a != b for a, b in names):
        remedy = "Give it the type that it has: transpose, rename or x.astype(...)."
        _refuse(path, f"it is {old!r}, and gets {new!r}", "something of another type", remedy)
    for a, b in names:
        if isinstance(a, AxisVariable) or isinstance(b, AxisVariable):
            unify(a, b)


def _refuse(
    path: str, got: str, what: str, remedy: str = "Compute all of the new value, and write `[...]`."
) -> NoReturn:
    raise GraphError(message(f"the forward pass writes into `{path}` of its module {what}", got, remedy=remedy))


def _refuse_drawing(path: str) -> NoReturn:
    stream = path.rpartition(".")[0]
    raise GraphError(
        message(
            f"the forward pass draws a key from `{stream}`, by functions of arrays",
            "it is a program of values, traced once for all calls",
            remedy=f"Draw with tp.random: tp.random.fold_in(self.{stream}.key[...], step).",
        )
    )


def _refuse_attribute(path: str) -> NoReturn:
    name = path.rpartition(".")[2]
    raise GraphError(
        message(
            f"the forward pass writes `{path}` of its module, which is no variable that it has",
            "it is a pure program, traced once for all calls and planned onto devices: what it sets would be lost",
            remedy=f"Make a variable in __init__ and write its value, self.{name}[...] = {name}. To look at a value, "
            "use tp.named." + _of_a_part(path),
        )
    )


def _of_a_part(path: str) -> str:
    """What else helps where a part may be a plain layer of Flax, into which its user does not write."""
    return " Where a plain layer of Flax does it, call model.eval(), or take that of tp.nnx." if "." in path else ""
