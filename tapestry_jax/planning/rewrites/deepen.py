"""Deep halos: an iteration of which one exchange of the overlap, or one loop over chunks, serves several turns.

`tp.halo(depth=n)` makes a body of `n` turns in a row out of the body of a loop, and a loop of one turn out of the
remainder of its length. That is all: what is widened inside (`planning/scheduling/widen.py`) then needs one exchange.
Between two turns stands a barrier, for otherwise XLA fuses them and computes what they share again and again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from jax import lax

from combinators.errors import PlanError, message
from combinators.graphs.graph import Graph
from combinators.graphs.nodes import Apply, Input, Loop, Node, Ref, move_refs
from combinators.leaves.map import Map
from combinators.operations.dense import Dense
from tapestry_jax.planning.entries.items import Chunks, Halo, Ring
from tapestry_jax.planning.entries.placement import Placer, why_whole
from tapestry_jax.planning.entries.read import Entries

# XLA for CPUs drops barriers before it fuses. Where several values go from turn to turn, the kernel of each turn would
# then hold all turns before it. A barrier that holds costs some microseconds, so that only one in four does.
FUSED_TURNS = 4


def is_barrier(node: Node) -> bool:
    """Whether a node only keeps two turns apart."""
    return isinstance(node, Apply) and node.operation.kernel is lax.optimization_barrier


def deepened(graph: Graph, placer: Placer) -> Graph:
    """The graph whose loops take as many turns at once as the plan's halos say; results stay the same.

    Raises:
      PlanError: for a halo of a dimension that is not cut, or whose windows no loop reads; for two depths in a loop, a
        depth larger than its length, or a loop that takes slices.
    """
    scopes: list[tuple[str, Entries]] = [("", placer.entries), *placer.ops]
    wanted = [
        (scope, dim, items)
        for scope, entries in scopes
        for dim, items in entries
        if any(isinstance(item, Halo) for item in items)
    ]
    if not wanted:
        return graph
    for scope, dim, items in wanted:
        where = f"ops[{scope!r}]" if scope else "the plan"
        if not any(isinstance(item, str | Chunks) for item in items) or any(isinstance(item, Ring) for item in items):
            raise PlanError(
                message(
                    f"{where} gives `{dim}` a halo, but cuts it neither over mesh axes nor in chunks",
                    f"got ({', '.join(map(str, items))})",
                    remedy=f'Name one before it, as in {{"{dim}": ("data", tp.halo(depth=8))}}.',
                )
            )
    read: set[tuple[str, str]] = set()
    deep = _deepened(graph, placer, "", read)
    for scope, dim, _ in wanted:
        inside = [name for path, name in read if path == scope or path.startswith(f"{scope}/" if scope else "")]
        if dim not in inside:
            raise PlanError(
                message(
                    f"the plan gives `{dim}` a halo, but no loop reads windows of it",
                    f"loops read windows of: {', '.join(sorted(set(inside))) or 'nothing'}",
                    remedy="Leave the halo out, or iterate a step that reads neighbours: tp.iterate(step, 32).",
                )
            )
    return deep


def stands_for(graph: Graph, deep: Graph) -> dict[int, int]:
    """The nodes of a graph that nodes of what `deepened` made of it stand for.

    Of a loop whose turns are taken several at once the remainder stands for all: what is before it is no value of the
    graph.
    """
    found, at = dict[int, int](), -1
    for index, node in enumerate(graph.nodes):
        at += 1
        rest = deep.nodes[at + 1] if at + 1 < len(deep.nodes) else None
        if isinstance(node, Loop) and isinstance(rest, Loop) and rest.path == node.path:
            at += 1
        found[at] = index
    return found


def _deepened(graph: Graph, placer: Placer, prefix: str, read: set[tuple[str, str]]) -> Graph:
    """Every loop in turn; `read` collects path and name of the dimensions with halos whose windows loops read."""
    moved: dict[int, int] = {}
    nodes: list[Node] = []
    for index, node in enumerate(graph.nodes):
        placed = move_refs(node, moved)
        if isinstance(placed, Loop):
            path = f"{prefix}{placed.path}/"
            placed = replace(placed, body=_deepened(placed.body, placer, path, read))
            nodes.extend(_turns_at_once(placed, len(nodes), placer, path, read))
        else:
            nodes.append(placed)
        moved[index] = len(nodes) - 1
    pairs = [
        tuple((name, Ref(moved[ref.node], ref.output)) for name, ref in each) for each in (graph.outputs, graph.named)
    ]
    return replace(graph, nodes=tuple(nodes), outputs=pairs[0], named=pairs[1])


def _turns_at_once(loop: Loop, place: int, placer: Placer, prefix: str, read: set[tuple[str, str]]) -> list[Node]:
    """The loop of full turns and the one of the remainder, the first of them at position `place`."""
    depths: dict[str, int] = {}
    for path, name, depth, is_cut in _windows(loop.body, placer, prefix):
        read.add((path, name))
        if is_cut:
            depths[name] = depth
    depth = max(depths.values(), default=1)
    _check(loop, prefix, depths, depth)
    if depth == 1:
        return [loop]
    full, rest = divmod(loop.length, depth)
    nodes: list[Node] = [replace(loop, body=_unrolled(loop.body, loop.carries, depth), length=full)]
    if rest:
        carried = tuple(Ref(place, number) for number in range(loop.carries))
        body = _unrolled(loop.body, loop.carries, rest)
        nodes.append(replace(loop, body=body, length=1, operands=carried + loop.operands[loop.carries :]))
    return nodes


def _windows(body: Graph, placer: Placer, prefix: str) -> Iterator[tuple[str, str, int, bool]]:
    """Path and name of every dimension with a halo that an operation reads windows of; its depth; whether it is cut."""
    for index, node in enumerate(body.nodes):
        if not isinstance(node, Apply):
            continue
        shaped = body.shaped(index)
        axes = [axis for operand in shaped.signature.operands for axis in operand.axes if axis.is_window]
        for dim, name in node.names:
            depth = placer.halo(name, prefix + node.path)
            if depth is not None and any(dim in axis.names for axis in axes) and why_whole(shaped, dim) is None:
                is_cut = placer.is_divided(name, prefix + node.path)
                yield prefix + node.path, name, depth, is_cut


def _check(loop: Loop, prefix: str, depths: dict[str, int], depth: int) -> None:
    path = prefix.rstrip("/")
    listed = ", ".join(f"`{name}` {each}" for name, each in depths.items())
    if len(set(depths.values())) > 1:
        raise PlanError(
            message(
                f"`{path}` has halos of several depths",
                listed,
                remedy="Give all dimensions of one loop the same depth.",
            )
        )
    if depth > loop.length:
        raise PlanError(
            message(
                f"`{path}` turns {loop.length} times, fewer than one halo serves",
                f"depth {listed}",
                remedy=f"Give a depth of at most {loop.length}." if loop.length else "Leave the halo out.",
            )
        )
    if depth > 1 and loop.until:
        raise PlanError(
            message(
                f"`{path}` ends when a condition holds, so its turns cannot be taken {depth} at once",
                f"depth {listed}",
                remedy=f"Write tp.halo(depth=1), or ask every {depth} turns: tp.iterate(step, {depth}) inside of it.",
            )
        )
    if depth > 1 and (loop.axes or len(loop.results) > loop.carries):
        raise PlanError(
            message(
                f"`{path}` takes slices along `{loop.over}`, so its turns cannot be taken {depth} at once",
                f"depth {listed}",
                remedy="Write tp.halo(depth=1), or pass what is sliced as constants of a tp.iterate.",
            )
        )


def _unrolled(body: Graph, carries: int, turns: int) -> Graph:
    """A body that does what `turns` turns of `body` do."""
    inputs = [index for index, node in enumerate(body.nodes) if isinstance(node, Input)]
    nodes: list[Node] = [body.nodes[index] for index in inputs]
    carry = [Ref(number, 0) for number in range(carries)]
    for turn in range(turns):
        starts = [*carry, *(Ref(number, 0) for number in range(carries, len(inputs)))]
        moved = {Ref(index, 0): start for index, start in zip(inputs, starts, strict=True)}
        for index, node in enumerate(body.nodes):
            if not isinstance(node, Input):
                moved |= {Ref(index, output): Ref(len(nodes), output) for output in range(len(node.results))}
                nodes.append(replace(node, operands=tuple(moved[ref] for ref in node.operands)))
        carry = [moved[ref] for _, ref in body.outputs]
        if turn + 1 < turns:
            is_firm = carries > 1 and (turn + 1) % FUSED_TURNS == 0
            carry = [_apart(nodes, ref, is_firm=is_firm) for ref in carry]
    outputs = tuple((name, ref) for (name, _), ref in zip(body.outputs, carry, strict=True))
    return replace(body, nodes=tuple(nodes), outputs=outputs, named=())


def _apart(nodes: list[Node], ref: Ref, *, is_firm: bool) -> Ref:
    """The value behind a barrier, which is placed where the value is made; a firm one holds on CPUs as well."""
    source, kind = nodes[ref.node], nodes[ref.node].results[ref.output]
    if not isinstance(source, Apply) or not kind.ndim or None in kind.names:
        return ref
    # It imports much of JAX, and few plans need it.
    from combinators.numerics.apart import apart_on_cpu

    local = " ".join(f"d{axis}" for axis in range(kind.ndim))
    on_cpu = Dense(apart_on_cpu, platforms=("cpu",), whole=()) if is_firm else None
    operation = Map(lax.optimization_barrier, f"{local} -> {local}", name="barrier", dense=on_cpu).operation
    names = tuple((f"d{axis}", str(name)) for axis, name in enumerate(kind.names))
    nodes.append(Apply(operation, (ref,), names, (kind,), source.path))
    return Ref(len(nodes) - 1, 0)
