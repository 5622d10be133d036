"""What `forward` writes into its module would be lost, so writing is refused where it happens."""

from __future__ import annotations

from typing import Any, NoReturn

import jax
from flax import nnx

from combinators.errors import GraphError, message

_GUARDED = "_tapestry_guarded"
_HOOK = "on_set_value"


def guard(module: Any) -> None:
    """Make a module that stands for values of a program refuse to be written.

    Args:
      module: made for one trace; nobody else holds it or its variables.
    """
    for path, part in nnx.iter_modules(module):
        object.__setattr__(part, _GUARDED, ".".join(map(str, path)))
    for path, variable in nnx.iter_graph(module):
        if isinstance(variable, nnx.Variable):
            variable.set_metadata(_HOOK, _refuser(".".join(map(str, path))))
        if isinstance(variable, nnx.RngCount):  # read by drawing alone, before anything is drawn
            variable.set_metadata("on_get_value", _drawing_refuser(".".join(map(str, path[:-1]))))


def check_unguarded(module: Any, name: str) -> None:
    """Refuse an attribute of a module that stands for values of a program.

    Raises:
      GraphError: when it does.
    """
    if _GUARDED in vars(module):
        above = vars(module)[_GUARDED]
        _refuse(f"{above}.{name}" if above else name)


def check_unwritten(module: Any, values: Any) -> None:
    """Compare the variables of a module with the values that they were given.

    Args:
      module: that `guard` saw before the forward pass.
      values: what its variables stood for then.

    Raises:
      GraphError: when there are others now.
    """
    after, before = jax.tree.leaves(nnx.state(module)), jax.tree.leaves(values)
    if len(after) != len(before) or any(a is not b for a, b in zip(after, before, strict=True)):
        known = {id(leaf) for leaf in before}
        paths = (path for path, leaf in nnx.to_flat_state(nnx.state(module)) if id(leaf.get_raw_value()) not in known)
        _refuse(".".join(map(str, next(paths, ("a variable",)))))


def _refuser(path: str) -> Any:
    def refuse(variable: Any, value: Any) -> NoReturn:
        del variable, value
        _refuse(path)

    return refuse


def _drawing_refuser(path: str) -> Any:
    def refuse(variable: Any, value: Any) -> NoReturn:
        del variable, value
        raise GraphError(
            message(
                f"the forward pass draws a key from `{path}`, which would count it",
                "it is a pure program, traced once for all calls: every call would draw the same key",
                remedy=f"Pass a number of the call, such as the step: tp.random.fold_in(self.{path}.key[...], step)."
                + _of_a_part(path),
            )
        )

    return refuse


def _refuse(path: str) -> NoReturn:
    name = path.rpartition(".")[2]
    raise GraphError(
        message(
            f"the forward pass writes `{path}` of its module",
            "it is a pure program, traced once for all calls and planned onto devices: what it writes would be lost",
            remedy=f"Return the new value beside the result, and store it where the module is called: "
            f"y, {name} = model(x); model.{path}[...] = {name}. To look at a value, use tp.named." + _of_a_part(path),
        )
    )


def _of_a_part(path: str) -> str:
    """What else helps where a part may be a plain layer of Flax, into which its user does not write."""
    return " Where a plain layer of Flax does it, call model.eval(), or take that of tp.nnx." if "." in path else ""
