"""What a lowered program sends, and how often its loops turn, read from its jaxpr."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Any

from combinators.errors import PlanError, message
from combinators.frozen import dataclass
from combinators.kernels.jaxprs import programs_inside

Context = tuple[int, ...]
"""How often the loops around something turn, the outermost first."""

UNKNOWN_TURNS = -1
"""Of a loop that ends by a condition."""

_REDUCED = {"psum": "sum", "psum2": "sum", "psum_invariant": "sum", "pmax": "max", "pmin": "min"}
_GATHERS = ("all_gather", "all_gather_invariant")
# What names mesh axes and sends nothing.
_LOCAL = frozenset(("axis_index", "pvary", "pcast"))


@dataclass(frozen=True)
class Sent:
    """One collective.

    Attributes:
      kind: `sum`, `max`, `min`, `gather`, `scatter`, `exchange`, `permute`; or `slice`, of what is alike.
      axes: mesh axes of more than one device, the outermost first.
      dims: axes of the array: gathered, scattered, sliced, or split and put together.
      pairs: of a permutation, senders and receivers, counted along `axes`.
      strip: of a permutation, first and last place of what is sent, axis by axis, where that is a plain slice.
      path: of the step that it belongs to.
      context: of the loops around it.
      block: of a slice, how many cells each device keeps.
    """

    kind: str
    axes: tuple[str, ...]
    dims: tuple[int, ...]
    pairs: tuple[tuple[int, int], ...]
    strip: tuple[tuple[int, int], ...]
    path: str
    context: Context
    block: int = 0

    def __str__(self) -> str:
        pairs = f" of {list(self.pairs)}" if self.kind == "permute" else ""
        dims = f" at axis {' and '.join(map(str, self.dims))}" if self.dims else ""
        return f"{self.kind} over ({', '.join(self.axes)}){pairs}{dims}"


@dataclass(frozen=True)
class Lowered:
    """What was read.

    Attributes:
      inputs: of every operand the mesh axes of each of its axes, and its local shape.
      outputs: the same of every result.
      sent: by path and context, in order.
      contexts: of every path, those in which it computes something.
    """

    inputs: tuple[tuple[tuple[tuple[str, ...], ...], tuple[int, ...]], ...]
    outputs: tuple[tuple[tuple[tuple[str, ...], ...], tuple[int, ...]], ...]
    sent: dict[tuple[str, Context], list[Sent]]
    contexts: dict[str, set[Context]]


def lowered(closed: Any, paths: Set[str], counts: Mapping[str, int], rings: Set[str] = frozenset()) -> Lowered:
    """Read a traced program that holds one `shard_map`.

    Args:
      closed: its jaxpr.
      paths: of the steps that are looked for.
      counts: how many devices the mesh axes have.
      rings: those of the steps that are rings, in whose last turns others stand.

    Raises:
      PlanError: where there is no `shard_map`, or several, or something in it that sends and is not known.
    """
    found = [equation for equation in _everything(closed.jaxpr) if equation.primitive.name == "shard_map"]
    if len(found) != 1:
        remedy = "Pass what plan.compile() traces to."
        raise PlanError(message(f"a lowered program is one `shard_map`, and {len(found)} were found", remedy=remedy))
    (equation,) = found
    body = equation.params["jaxpr"]
    body = getattr(body, "jaxpr", body)
    reader = _Reader(paths, counts, {}, {}, rings)
    reader.read(body, "", "", ())
    return Lowered(
        tuple(_laid(spec, atom, counts) for spec, atom in zip(equation.params["in_specs"], body.invars, strict=True)),
        tuple(_laid(spec, atom, counts) for spec, atom in zip(equation.params["out_specs"], body.outvars, strict=True)),
        reader.sent,
        reader.contexts,
    )


def _everything(jaxpr: Any) -> Iterator[Any]:
    for equation in jaxpr.eqns:
        yield equation
        if equation.primitive.name != "shard_map":
            for inner in programs_inside(equation):
                yield from _everything(getattr(inner, "jaxpr", inner))


def _laid(spec: Any, atom: Any, counts: Mapping[str, int]) -> tuple[tuple[tuple[str, ...], ...], tuple[int, ...]]:
    listed = [() if part is None else (part,) if isinstance(part, str) else tuple(part) for part in spec]
    shape = tuple(atom.aval.shape)
    listed += [()] * (len(shape) - len(listed))
    return tuple(tuple(axis for axis in part if counts.get(axis, 0) > 1) for part in listed), shape


@dataclass(frozen=True)
class _Reader:
    paths: Set[str]
    counts: Mapping[str, int]
    sent: dict[tuple[str, Context], list[Sent]]
    contexts: dict[str, set[Context]]
    rings: Set[str] = frozenset()

    def read(self, jaxpr: Any, base: str, around: str, context: Context) -> None:
        """Read the equations of a jaxpr; scopes inside of a loop begin anew."""
        slices = {each.outvars[0]: each for each in jaxpr.eqns if each.primitive.name == "slice"}
        for equation in jaxpr.eqns:
            scope = _joined(base, str(equation.source_info.name_stack))
            path = self._known(scope) or around
            inner = list(programs_inside(equation))
            if equation.primitive.name in ("scan", "while"):
                turns = equation.params.get("length", UNKNOWN_TURNS)
                for program in inner:
                    self.read(getattr(program, "jaxpr", program), "", path, (*context, turns))
                continue
            for program in inner:
                self.read(getattr(program, "jaxpr", program), scope, around, context)
            self.contexts.setdefault(path, set()).add(context)
            self._send(equation, path, context, slices)

    def _known(self, scope: str) -> str:
        """The step that a scope is inside of: kernels have scopes of their own."""
        found = scope
        while found and found not in self.paths:
            found = found.rpartition("/")[0]
        # The last turn of a ring is no loop: steps in it have the scope of the ring around their own.
        inside = self._known(scope[len(found) + 1 :]) if found in self.rings else ""
        return inside or found

    def _send(self, equation: Any, path: str, context: Context, slices: Mapping[Any, Any]) -> None:
        kind = _kind(equation, path)
        if kind is None or all(0 in atom.aval.shape for atom in equation.outvars):
            return
        params = equation.params
        named = params.get("axes") or params.get("axis_name")
        named = (named,) if isinstance(named, str) else tuple(named)
        axes = tuple(axis for axis in named if self.counts.get(axis, 0) > 1)
        if not axes:
            return
        dims = tuple(
            int(params[name])
            for name in (
                *(("axis",) if kind == "slice" else ()),
                "all_gather_dimension",
                "scatter_dimension",
                "split_axis",
                "concat_axis",
            )
            if name in params
        )
        pairs = tuple((int(here), int(there)) for here, there in params.get("perm", ()))
        cut = slices.get(equation.invars[0]) if kind == "permute" else None
        limits = zip(cut.params["start_indices"], cut.params["limit_indices"], strict=True) if cut is not None else ()
        strip = tuple((int(low), int(high)) for low, high in limits)
        if params.get("axis_index_groups") is not None:
            kind = f"grouped {kind}"
        for _ in equation.outvars:
            made = Sent(kind, axes, dims, pairs, strip, path, context, params.get("block", 0))
            self.sent.setdefault((path, context), []).append(made)


def _kind(equation: Any, path: str) -> str | None:
    name = equation.primitive.name
    if name in _REDUCED:
        return _REDUCED[name]
    if name in _GATHERS:
        return "gather"
    if name in ("reduce_scatter", "all_to_all", "ppermute"):
        return {"reduce_scatter": "scatter", "all_to_all": "exchange", "ppermute": "permute"}[name]
    if name == "slice_alike":
        return "slice"
    if name not in _LOCAL and ("axis_name" in equation.params or "axis_index_groups" in equation.params):
        raise PlanError(
            message(f"`{path}` is lowered to `{name}`, which may send", remedy="Say in shards/lowered what it sends.")
        )
    return None


def _joined(base: str, scope: str) -> str:
    return f"{base}/{scope}" if base and scope else base or scope
