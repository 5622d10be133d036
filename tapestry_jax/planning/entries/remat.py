"""Which repetitions the backward pass computes again: what users write, read and checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax

from combinators.arguments import read_name
from combinators.errors import PlanError, message
from combinators.graphs import walk
from combinators.graphs.graph import Graph
from combinators.graphs.scopes import is_inside

Remat = tuple[tuple[str, bool | str], ...]
"""Scope, and whether its repetitions are computed again, or which results of theirs are kept; `""` is the program."""

KEPT: Mapping[str, Any] = {
    "dots": jax.checkpoint_policies.dots_saveable,
    "dots_with_no_batch_dims": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
}
"""What may be kept of a turn that is computed again, and JAX's word for it: which primitives give such values."""


def read_remat(remat: Any) -> Remat:
    """Normalise `choice | {scope: choice}`, where a choice is a bool or says what is kept.

    Raises:
      PlanError: for anything else.
    """
    if remat is None or remat is False:
        return ()
    if not isinstance(remat, Mapping):
        return (("", _read_choice("remat", remat)),)
    found: dict[Any, Any] = dict(remat)  # pyright: ignore[reportUnknownArgumentType]
    choices = {scope: _read_choice(f"remat[{scope!r}]", chosen) for scope, chosen in found.items()}
    return tuple((_read_scope(scope), chosen) for scope, chosen in choices.items())


def check_remat(graph: Graph, remat: Remat) -> None:
    """Every scope holds something that is repeated.

    Raises:
      PlanError: where one does not.
    """
    repeated = [place.path for place, _ in walk.loops(graph)] if remat else []
    for scope, _ in remat:
        if not any(is_inside(path, scope) for path in repeated):
            raise PlanError(
                message(
                    f"remat[{scope!r}] names nothing that is repeated" if scope else "remat: nothing is repeated",
                    f"repeated are: {', '.join(repeated[:12]) or 'none'}",
                    remedy="Give the path of a tp.stack, tp.iterate or feedback, or of a scope around it; layers that "
                    "stand one by one go into a tp.stack, or a tp.nnx.Stack.",
                )
            )


def wanted_remat(path: str, remat: Remat) -> tuple[str | None, bool | str]:
    """The longest scope that holds a path, and what it says."""
    found = [(scope, chosen) for scope, chosen in remat if is_inside(path, scope)]
    return max(found, key=lambda pair: len(pair[0]), default=(None, False))


def _read_choice(where: str, given: Any) -> bool | str:
    if isinstance(given, str) and given == "nothing":
        return True
    if isinstance(given, bool) or (isinstance(given, str) and given in KEPT):
        return given
    raise _no_choice(where, given)


def _read_scope(scope: Any) -> str:
    return "" if isinstance(scope, str) and not scope else read_name(scope, "a path in remat=", PlanError)


def _no_choice(where: str, given: Any) -> PlanError:
    return PlanError(
        message(
            f"{where} does not say what is computed again",
            f"got {type(given).__name__}: {given!r:.80}",
            f"what can be kept is {', '.join(repr(name) for name in ('nothing', *KEPT))}",
            remedy='Write True, False or what is kept, for the program or by path: remat={"decoder": True}.',
        )
    )
