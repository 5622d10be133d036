"""What stands between blocks: pieces from other pieces, states merged, other names, and the iterations of one turn."""

from __future__ import annotations

from combinators.operations.shaped import shape
from tapestry_jax.shards.parts import Merge, Move, Next, Piece, View
from tapestry_jax.shards.proof.blocks import fold_of
from tapestry_jax.shards.proof.site import Site, refuse


def prove_move(site: Site, step: Move) -> None:
    """Every device finds all that it wants, on devices that are in the same turn.

    Raises:
      PlanError: with the boxes on a device where something is missing.
    """
    source, result = site.piece(step.source, step.path), site.make(step.result, step.path)
    kept = (source.value, source.partial, source.substep) == (result.value, result.partial, result.substep)
    if not kept:
        refuse(
            step.path, "moves a piece to one of something else", f"{site.told(step.source)}, {site.told(step.result)}"
        )
    kinds = site.kinds
    for name in step.over:
        if name not in kinds:
            refuse(step.path, f"looks along `{name}`, which is neither a mesh axis nor a loop")
        if kinds[name].kind != "axis" and (name not in source.loops or name in result.loops):
            refuse(step.path, f"puts the turns of `{name}` together where it has not just ended")
        axes = [number for number, own in enumerate(source.box) if name in own.coordinates]
        if len(axes) > 1:
            refuse(step.path, f"brings together along `{name}` what moves along it on axes {axes}")
    _check_loops(site, step, source, result)
    site.check_together(
        source.box, [name for name in step.over if kinds[name].kind == "axis"], step.path, "moves pieces"
    )
    for name, value in source.only:
        if name not in step.over and (name, value) not in result.only:
            refuse(step.path, f"takes on all devices what `{name}`={value} alone holds")
    site.check_reach(source, result.box, step.over, result.only, step.path, "moves cells that are not there")


def _check_loops(site: Site, step: Move, source: Piece, result: Piece) -> None:
    """A loop that the result is no longer in has been put together, or has made the same in every turn."""
    moved = {name for own in source.box for name in own.coordinates} | set(source.partial)
    for loop in source.loops:
        if loop not in result.loops and loop not in step.over and loop in moved and site.counts[loop] > 1:
            refuse(step.path, f"takes a piece out of the turns of `{loop}`, and does not say of which")


def prove_merge(site: Site, step: Merge) -> None:
    """States are merged over what they are in pieces over, once, of the same piece of all else, in order.

    Raises:
      PlanError: naming a coordinate.
    """
    sources = [site.piece(number, step.path) for number in step.sources]
    block = fold_of(site, sources, step.path)
    runs = site.shared.operations[block.runs]
    reads = tuple(site.value(site.program.pieces[read.piece]).type.struct for read in block.reads)
    monoid = shape(runs, reads).operation.monoid
    if len(step.results) != len(sources) or len(set(step.over)) < len(step.over) or not step.over:
        refuse(step.path, f"merges {len(sources)} leaves to {len(step.results)}, along ({', '.join(step.over)})")
    axes = [name for name in step.over if name in site.kinds and site.kinds[name].kind == "axis"]
    for number, source in zip(step.results, sources, strict=True):
        made = site.make(number, step.path)
        for name in step.over:
            if name not in source.partial:
                refuse(step.path, f"merges along `{name}`, where the states are copies of one, or merged already")
            if any(name in own.coordinates for own in source.box):
                refuse(step.path, f"merges along `{name}`, along which devices hold different cells")
        left = tuple(name for name in source.partial if name not in step.over)
        if monoid is None or (not monoid.commutative and (*left, *step.over) != source.partial):
            told = f"pieces lie along ({', '.join(source.partial)}), merged along ({', '.join(step.over)})"
            refuse(step.path, "merges pieces that are no neighbours, or in another order than their monoid needs", told)
        loops = tuple(loop for loop in source.loops if loop not in step.over)
        kept = (made.value, made.box, made.loops, made.substep, made.only)
        if made.partial != left or kept != (source.value, source.box, loops, source.substep, source.only):
            told = f"in pieces along ({', '.join(left)}), in loops ({', '.join(loops)}), and of the same box"
            refuse(step.path, "merges states to something else than one of them", f"expected {told}")
        site.check_together(source.box, axes, step.path, "merges states")
        apart = [name for name in left if set(site.kinds[name].along) & set(axes)]
        if apart:
            refuse(step.path, f"merges states along ({', '.join(axes)}), in different turns of `{apart[0]}`")


def prove_view(site: Site, step: View) -> None:
    """The same box of the same cells, under other names.

    Raises:
      PlanError: for other names, types or boxes.
    """
    source, result = site.piece(step.source, step.path), site.make(step.result, step.path)
    before, after, names = site.value(source).type, site.value(result).type, dict(step.names)
    wanted = tuple(names.get(name, name) if name is not None else None for name in before.names)
    if before.struct != after.struct or source.partial or site.value(result).state:
        refuse(step.path, "renames a tensor to one of another type", f"{before}, then {after}")
    if any(
        new is not None and old is not None and new != got
        for old, new, got in zip(before.names, wanted, after.names, strict=True)
    ):
        refuse(step.path, "renames axes otherwise than it says", f"{before.names} to {after.names}, by {step.names}")
    kept = (source.box, source.loops, source.substep, source.only, source.partial)
    if kept != (result.box, result.loops, result.substep, result.only, result.partial):
        refuse(step.path, "renames a piece to another box")


def prove_next(site: Site, step: Next) -> None:
    """Within a turn, an iteration takes what the one before has handed on.

    Raises:
      PlanError: for another tensor, another iteration, or cells that are not there.
    """
    path = (
        site.told(step.result).removeprefix("of ").strip("`") if 0 <= step.result < len(site.program.pieces) else "next"
    )
    source, result = site.piece(step.source, path), site.make(step.result, path)
    outputs = [site.program.pieces[piece].value for _, piece in site.program.outputs]
    inputs = site.program.takes
    places = [number for number, value in enumerate(outputs) if value == source.value]
    if not any(number < len(inputs) and inputs[number] == result.value for number in places):
        refuse(path, "takes what the iteration before does not hand on", f"got {site.told(step.source)}")
    kept = (source.loops, source.partial, source.only) == (result.loops, (), ())
    if result.substep != source.substep + 1 or not kept or site.value(result).state:
        refuse(path, f"goes from iteration {source.substep} of a turn to iteration {result.substep}")
    site.check_reach(source, result.box, (), (), path, "takes cells that the iteration before does not have")
