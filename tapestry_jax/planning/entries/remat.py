"""What the backward pass computes again: what users write, read and checked, and which parts of a program it means."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

import jax

from combinators.arguments import read_name
from combinators.errors import PlanError, message, spelt
from combinators.frozen import dataclass
from combinators.graphs import walk
from combinators.graphs.graph import Graph
from combinators.graphs.nodes import Loop
from combinators.graphs.scopes import above, is_inside

Remat = tuple[tuple[str, bool | str], ...]
"""Scope, and whether what it means is computed again, or which results are kept; `""` is the program.

A name in a scope may be a pattern, as file names are: `decoder/layer_*`.
"""

KEPT: Mapping[str, Any] = {
    "dots": jax.checkpoint_policies.dots_saveable,
    "dots_with_no_batch_dims": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
}
"""What may be kept of a turn that is computed again, and JAX's word for it: which primitives give such values."""


RINGS = "rings_again"
"""That nothing is kept, and what came round a ring is sent round once more: the one thing sent that may be large."""


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


@dataclass(frozen=True)
class Units:
    """What of a program may be computed again.

    Attributes:
      loops: paths of everything that is repeated.
      scopes: the scopes around operations outside of these loops, and their own paths.
      numbered: of them those that stand beside others of the same name but for a number at its end, such as
        `decoder/3`, and hold no loop.
    """

    loops: tuple[str, ...]
    scopes: frozenset[str]
    numbered: frozenset[str]

    @staticmethod
    def of(graph: Graph) -> Units:
        """The units of a graph."""
        # A loop that ends by a condition has no backward pass.
        loops = tuple(place.path for place, node in walk.places(graph) if isinstance(node, Loop) and not node.until)
        paths = [place.path for place, _ in walk.operations(graph) if place.graph is graph]
        around = {scope for path in paths for scope in above(path)}
        alike: dict[str, set[str]] = defaultdict(set)
        for scope in around:
            alike[_NUMBER.sub("", scope)].add(scope)
        several = {scope for found in alike.values() if len(found) > 1 for scope in found}
        numbered = {scope for scope in several if not any(is_inside(loop, scope) for loop in loops)}
        return Units(loops, frozenset({*around, *paths}), frozenset(numbered))

    def around(self, path: str, scope: str) -> str | None:
        """The unit that holds an operation, where `scope` is what was written; None where it stands in none.

        It is the outermost numbered part of the scope. A scope that has neither such parts nor loops is one itself,
        and so is a numbered one.
        """
        whole = "/".join(path.split("/")[: scope.count("/") + 1]) if scope else ""
        if whole in self.numbered:
            return whole
        parts = [part for part in (*above(path), path) if part in self.numbered and is_inside(part, whole)]
        if parts:
            return parts[0]
        divided = any(is_inside(part, whole) for part in (*self.loops, *self.numbered))
        return whole if whole and not divided else None

    def means(self, scope: str) -> bool:
        """Whether a scope names anything that can be computed again."""
        if any(_holds(scope, loop) for loop in self.loops):
            return True
        named = (part for part in self.scopes if _holds(scope, part))
        return (bool(scope) and any(named)) or any(_holds(scope, part) for part in self.numbered)


_NUMBER = re.compile(r"_?[0-9]+$")


def recomputable(graph: Graph) -> tuple[str, ...]:
    """Scopes whose layers may be computed again, each by itself: loops, and what numbered parts stand in.

    Parts that stand in no scope are named by a pattern, or by the whole program where it has no loops.
    """
    units = Units.of(graph)
    loops = [node.path for node in graph.nodes if isinstance(node, Loop) and node.length > 1 and not node.until]
    outermost = (part for part in units.numbered if units.numbered.isdisjoint(above(part)))
    around = (
        "/".join(part.split("/")[:-1]) or (f"{_NUMBER.sub('', part)}*" if units.loops else "") for part in outermost
    )
    return tuple(dict.fromkeys((*loops, *sorted(around))))


def check_remat(graph: Graph, remat: Remat) -> None:
    """Every scope means something that can be computed again.

    Raises:
      PlanError: where one does not.
    """
    if not remat:
        return
    units = Units.of(graph)
    for scope, _ in remat:
        if not units.means(scope):
            raise PlanError(
                message(
                    f"remat[{scope!r}] names nothing that is repeated, and no scope outside of loops"
                    if scope
                    else "remat: nothing is repeated or numbered",
                    f"repeated are: {_listed(units.loops)}",
                    f"numbered scopes are: {_listed(sorted(units.numbered, key=_in_order))}",
                    remedy="Give the path of a tp.stack, tp.iterate or feedback, or of a scope around it or outside of "
                    "loops, such as that of one layer; layers that stand one by one may also go into a tp.nnx.Stack.",
                )
            )


def wanted_remat(path: str, remat: Remat) -> tuple[str | None, bool | str]:
    """The scope that says most about a path, and what it says: the longest, and of equally long ones the plainest."""
    found = [(scope, chosen) for scope, chosen in remat if _holds(scope, path)]
    return max(found, key=lambda pair: _rank(pair[0]), default=(None, False))


def _rank(scope: str) -> tuple[int, bool, int]:
    return scope.count("/") + 1 if scope else 0, not _is_pattern(scope), len(scope)


def _holds(scope: str, path: str) -> bool:
    """Whether a scope, or a pattern of scopes, is around a path or is it."""
    if not _is_pattern(scope):
        return is_inside(path, scope)
    patterns, names = scope.split("/"), path.split("/")
    return len(names) >= len(patterns) and all(map(fnmatchcase, names, patterns))


def _is_pattern(scope: str) -> bool:
    return any(sign in scope for sign in "*?[")


def _listed(paths: Iterable[str]) -> str:
    return ", ".join([*paths][:12]) or "none"


def _in_order(scope: str) -> tuple[str, int]:
    return _NUMBER.sub("", scope), int(f"0{scope[len(scope.rstrip('0123456789')) :]}")


def _read_choice(where: str, given: Any) -> bool | str:
    if isinstance(given, str) and given == "nothing":
        return True
    if isinstance(given, bool) or (isinstance(given, str) and given in (*KEPT, RINGS)):
        return given
    raise _no_choice(where, given)


def _read_scope(scope: Any) -> str:
    return "" if isinstance(scope, str) and not scope else read_name(scope, "a path in remat=", PlanError)


def _no_choice(where: str, given: Any) -> PlanError:
    return PlanError(
        message(
            f"{where} does not say what is computed again",
            f"got {type(given).__name__}: {spelt(given)}",
            f"what can be kept is {', '.join(repr(name) for name in ('nothing', *KEPT))}",
            f"{RINGS!r} keeps nothing either, and sends round rings again",
            remedy='Write True, False or what is kept, for the program or by path: remat={"decoder": True}.',
        )
    )
