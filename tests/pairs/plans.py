"""Plans drawn at random: all that may stand in one, wherever it may stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import tapestry_jax as tp
from combinators.graphs.graph import Graph
from combinators.graphs.nodes import Apply, Loop
from laws.strategies.plans import dimensions
from laws.strategies.plans import iterated as in_loops
from tapestry_jax.planning.entries.items import Chunks, Halo, Ring, Striped

MESHES: tuple[dict[str, int], ...] = (
    *[{"data": 2, "model": 4}, {"data": 2, "model": 3}, {"data": 3}, {"data": 2, "model": 2}] * 2,
    {"data": 2, "model": 4},
    {"data": 4, "model": 2},
    {"data": 8},
    {"data": 3},
    {"data": 3, "model": 1},
    {"data": 1, "model": 3},
    {"data": 2, "model": 3},
    {"data": 1},
    {"data": 5},
    {"data": 2},
    {"data": 2, "model": 2},
    {"data": 2, "model": 2, "stage": 2},
    {"data": 1, "model": 1},
)
MORE_MESHES: tuple[dict[str, int], ...] = (
    *MESHES,
    {"data": 2, "model": 2, "stage": 2},
    {"data": 3, "model": 2, "stage": 1},
    {"data": 1, "model": 2, "stage": 3},
    {"data": 5, "model": 1},
    {"data": 8, "model": 1},
    {"data": 1, "model": 7},
)
"""Of the second edition."""
CHUNKS = ({"count": 1}, {"count": 2}, {"count": 3}, {"count": 4}, {"size": 1}, {"size": 2}, {"size": 3})


@dataclass(frozen=True)
class Placing:
    """What `tp.plan` is given, as text and data: stored, printed, and made smaller.

    Attributes:
      mesh: sizes of the mesh axes.
      entries: for every dimension its items: a mesh axis, or a call such as `ring(data)`, `chunks(count=2)`.
      ops: exceptions by path, each for one dimension.
      inputs: layouts of inputs.
      outputs: layouts of outputs.
      fsdp: the mesh axis over which parameters are stored.
      accumulate: the dtype of carriers.
      remat: whether what is repeated is computed again backwards, and what of it is kept.
    """

    mesh: dict[str, int]
    entries: dict[str, tuple[Any, ...]] = field(default_factory=dict[str, Any])
    ops: dict[str, dict[str, Any]] = field(default_factory=dict[str, Any])
    inputs: dict[str, dict[str, Any]] = field(default_factory=dict[str, Any])
    outputs: dict[str, dict[str, Any]] = field(default_factory=dict[str, Any])
    fsdp: str | None = None
    accumulate: str | None = None
    remat: bool | str = False

    def plan(self, graph: Graph, mesh: Any = None) -> tp.Plan:
        """The plan; PlanError where it is refused."""
        plan = tp.plan(
            graph,
            mesh or tp.mesh(**self.mesh),
            self.entries,
            ops=self.ops,
            inputs=self.inputs,
            outputs=self.outputs,
            accumulate=self.accumulate,
            remat=self.remat,
        )
        return tp.fsdp(plan, self.fsdp, smallest=1) if self.fsdp is not None else plan

    def smaller(self) -> list[Placing]:
        """The same with one thing left out, all such."""
        found = [replace(self, fsdp=None)] if self.fsdp else []
        found += [replace(self, accumulate=None)] if self.accumulate else []
        found += [replace(self, remat=False)] if self.remat else []
        for part in ("ops", "inputs", "outputs"):
            given = getattr(self, part)
            found += [replace(self, **{part: {k: v for k, v in given.items() if k != key}}) for key in given]
        for dim, items in self.entries.items():
            found.append(replace(self, entries={k: v for k, v in self.entries.items() if k != dim}))
            for place in range(len(items)):
                rest = (*items[:place], *items[place + 1 :])
                if rest:
                    found.append(replace(self, entries={**self.entries, dim: rest}))
        return found

    def __str__(self) -> str:
        parts = [f"tp.mesh({', '.join(f'{k}={v}' for k, v in self.mesh.items())})", _shown(self.entries)]
        parts += [f"{name}={getattr(self, name)}" for name in ("ops", "inputs", "outputs") if getattr(self, name)]
        parts += [f"{name}={getattr(self, name)!r}" for name in ("fsdp", "accumulate", "remat") if getattr(self, name)]
        return ", ".join(parts)


def _shown(entries: dict[str, tuple[Any, ...]]) -> str:
    return "{" + ", ".join(f"{dim!r}: ({', '.join(map(_item, items))},)" for dim, items in entries.items()) + "}"


def _item(item: Any) -> str:
    return repr(item) if isinstance(item, str) else f"tp.{item}"


def draw_placing(seed: str, graph: Graph, dtype: Any, edition: int = 1) -> Placing:
    """Draw what a plan says about a graph; much of it may be refused."""
    rng = Random(seed)
    mesh = dict(rng.choice(MESHES if edition == 1 else MORE_MESHES))
    axes, dims = list(mesh), dimensions(graph)
    entries = _entries(rng, axes, dims, in_loops(graph), _layered(graph))
    placing = Placing(mesh, entries)
    if rng.random() < 0.25:
        placing = replace(placing, ops=_exceptions(rng, graph, axes, dims))
    if rng.random() < 0.3:
        given = {node.name: node.results[0] for node in graph.inputs}
        placing = replace(placing, inputs=_layouts(rng, mesh, given))
    if rng.random() < 0.25:
        made = {name: graph.type_of(ref) for name, ref in graph.outputs}
        placing = replace(placing, outputs=_layouts(rng, mesh, made))
    if rng.random() < 0.08:
        placing = replace(placing, fsdp=rng.choice(axes))
    wider = {"bfloat16": ("float32",), "float32": ("float64",)}.get(str(dtype))
    if wider and rng.random() < 0.5:
        placing = replace(placing, accumulate=rng.choice(wider))
    if any(isinstance(node, Loop) for node in graph.nodes) and rng.random() < 0.4:
        placing = replace(placing, remat=rng.choice((True, "dots", "dots_with_no_batch_dims")))
    return placing if edition == 1 else _later(rng, placing, graph, dims)


def _later(rng: Random, placing: Placing, graph: Graph, dims: list[str]) -> Placing:
    """What plans of the second edition say as well: tuples of axes in layouts, and any item in exceptions."""
    axes = list(placing.mesh)
    given = {node.name: node.results[0] for node in graph.inputs}
    made = {name: graph.type_of(ref) for name, ref in graph.outputs}
    if len(axes) > 1 and rng.random() < 0.2:
        part = rng.choice(("inputs", "outputs"))
        known = {name: kind for name, kind in (given if part == "inputs" else made).items() if any(kind.names)}
        if known:
            name = rng.choice(list(known))
            dim = rng.choice([each for each in known[name].names if each is not None])
            several = tuple(rng.sample(axes, 2))
            whole = known[name].shape[known[name].names.index(dim)] % (
                placing.mesh[several[0]] * placing.mesh[several[1]]
            )
            item = tp.padded(*several) if whole or rng.random() < 0.3 else several
            placing = replace(placing, **{part: {**getattr(placing, part), name: {dim: item}}})
    paths = sorted({node.path for node in graph.nodes if isinstance(node, Apply | Loop)})
    if paths and dims and rng.random() < 0.15:
        axis = rng.choice(axes)
        others = (tp.striped(axis), tp.ring(axis), (axis, tp.halo(2)), tp.chunks(size=1), tuple(axes))
        placing = replace(placing, ops={**placing.ops, rng.choice(paths): {rng.choice(dims): rng.choice(others)}})
    if (layers := _layered(graph)) and rng.random() < 0.4:
        # A pipeline, and little beside it that would be refused.
        flows = rng.choice([dim for dim in dims if dim not in layers] or dims)
        stage, *rest = rng.sample(axes, len(axes))
        kept = {dim: (axis,) for dim, axis in zip(rng.sample(dims, len(dims)), rest, strict=False) if dim not in layers}
        before = kept.pop(flows, ())
        entries = {**kept, rng.choice(layers): (stage,), flows: (*before, tp.chunks(rng.choice((2, 3, 4))))}
        placing = replace(placing, entries=entries, ops={}, inputs={})
    return placing


def _layered(graph: Graph) -> list[str]:
    """The names along which loops take slices."""
    found = [node.over for node in graph.nodes if isinstance(node, Loop) and getattr(node, "over", None)]
    inner = [name for node in graph.nodes if isinstance(node, Loop) for name in _layered(node.body)]
    return [*found, *inner]


def _entries(
    rng: Random, axes: list[str], names: list[str], iterated: list[str], layers: list[str]
) -> dict[str, tuple[Any, ...]]:
    """Items for dimensions: `names` of all, `iterated` of those in loops, `layers` of those that loops turn over."""
    if not names:
        return {}
    cut: dict[str, list[str]] = {}
    for axis in rng.sample(axes, len(axes)):
        for _ in range(rng.choice((0, 1, 1, 1, 2))):
            cut.setdefault(rng.choice(names), []).append(axis)
    items: dict[str, list[Any]] = {}
    for dim, own in cut.items():
        own = list(dict.fromkeys(own))
        items[dim] = [tp.striped(*own)] if rng.random() < 0.2 else list(own)
    for dim in rng.sample(names, min(rng.choice((0, 0, 0, 1, 1, 2)), len(names))):
        used = [axis for other, own in cut.items() if other != dim for axis in own if axis not in cut.get(dim, ())]
        if used or rng.random() < 0.1:
            items.setdefault(dim, []).append(tp.ring(rng.choice(used or axes)))
    for dim in rng.sample(names, min(rng.choice((0, 0, 1, 1, 1, 2, 3)), len(names))):
        items.setdefault(dim, []).append(tp.chunks(**rng.choice(CHUNKS)))
    deep = [dim for dim, own in items.items() if dim in iterated and not any(isinstance(i, Striped) for i in own)]
    if rng.random() < 0.05:
        items.setdefault(rng.choice(names), []).append(tp.halo(rng.randint(1, 4)))
    elif deep and rng.random() < 0.5:
        items[rng.choice(deep)].append(tp.halo(rng.randint(1, 4)))
    if layers and rng.random() < 0.5:
        # Stages of a pipeline, through which something flows in chunks.
        free = [axis for axis in axes if not any(axis in own for own in cut.values())]
        items[rng.choice(layers)] = [rng.choice(free or axes)]
        items.setdefault(rng.choice(names), []).append(tp.chunks(**rng.choice(CHUNKS)))
    order = rng.sample(list(items), len(items))
    return {dim: tuple(sorted(items[dim], key=_rank)) for dim in order}


def _rank(item: Any) -> int:
    """Mesh axes, ring, chunks, halo: the order in which a plan takes them."""
    return next((rank for rank, kind in enumerate((Ring, Chunks, Halo), 1) if isinstance(item, kind)), 0)


def _exceptions(rng: Random, graph: Graph, axes: list[str], dims: list[str]) -> dict[str, dict[str, Any]]:
    paths = sorted({node.path for node in graph.nodes if isinstance(node, Apply | Loop)})
    if not paths or not dims:
        return {}
    found: dict[str, dict[str, Any]] = {}
    for _ in range(rng.randint(1, 2)):
        item = rng.choice((None, None, rng.choice(axes), (rng.choice(axes), tp.chunks(2))))
        found[rng.choice(paths)] = {rng.choice(dims): item}
    return found


def _layouts(rng: Random, mesh: dict[str, int], types: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    axes = list(mesh)
    for name, kind in types.items():
        own = [dim for dim in kind.names if dim is not None]
        if own and rng.random() < 0.6:
            left = rng.sample(axes, len(axes))
            cut = {dim: left.pop() for dim in rng.sample(own, len(own)) if left and rng.random() < 0.6}
            # Sizes that do not divide are stored in padded pieces by name, and those that do may be.
            sizes = dict(zip(kind.names, kind.shape, strict=True))
            plain = {dim: sizes[dim] % mesh[axis] == 0 and rng.random() < 0.8 for dim, axis in cut.items()}
            found[name] = {dim: axis if plain[dim] else tp.padded(axis) for dim, axis in cut.items()}
    return found


def _stored(rng: Random, axis: str) -> Any:
    """Sizes that do not divide are stored in padded pieces where that is asked for."""
    return tp.padded(axis) if rng.random() < 0.6 else axis


def repaired(
    placing: Placing, graph: Graph, seed: str, attempts: int = 4
) -> tuple[Placing, tp.Plan | None, Sequence[str]]:
    """Leave out one thing after the other until the plan is accepted; also what it was refused for."""
    rng = Random(f"{seed}/repair")
    refusals: list[str] = []
    candidates = [placing]
    for _ in range(attempts):
        for candidate in candidates:
            try:
                return candidate, candidate.plan(graph), refusals
            except tp.PlanError as error:
                refusals.append(str(error))
        placing = rng.choice(candidates)
        candidates = placing.smaller()
        if not candidates:
            break
        rng.shuffle(candidates)
    return placing, None, refusals
