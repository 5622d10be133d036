"""Blocks: their index boxes cover, they read and make what these project to, and states become results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from combinators.errors import TapestryError
from combinators.index_space.axis import Axis
from combinators.operations.execute import axis_modes
from combinators.operations.operation import Operation
from combinators.operations.shaped import Shaped, shape
from combinators.operations.widening import is_enabled, widened
from tapestry_jax.shards.parts import Block, Piece, Present
from tapestry_jax.shards.proof.axes import (
    bounds_fault,
    counted,
    cover_fault,
    holds_all,
    order_fault,
    projection_fault,
    reaches_outside,
)
from tapestry_jax.shards.proof.site import Site, refuse
from tapestry_jax.shards.ranges import Range, whole


def prove_block(site: Site, step: Block) -> None:
    """An operation is computed once at every index, from what its indices read.

    Raises:
      PlanError: naming the operation, and boxes.
    """
    shaped = _shaped(site, step)
    dims = dict(step.box)
    _check_cover(site, step, shaped, dims)
    _check_reads(site, step, shaped)
    folded = _folded(site, step, shaped, dims)
    _check_chain(site, step, shaped, dims)
    if folded:
        _make_state(site, step, shaped, folded)
    else:
        _make_results(site, step, shaped)


def prove_present(site: Site, step: Present) -> None:
    """What a fold gives is what its whole state presents, cell by cell.

    Raises:
      PlanError: for a state that is still in pieces, or another result.
    """
    sources = [site.piece(number, step.path) for number in step.sources]
    block = fold_of(site, sources, step.path)
    shaped = _shaped(site, block)
    for piece in sources:
        if piece.partial:
            refuse(step.path, f"presents a state that is still in pieces along ({', '.join(piece.partial)})")
    if len(step.results) != len(block.makes):
        refuse(step.path, f"presents {len(step.results)} of {len(block.makes)} results")
    held: dict[str, Range] = {}
    for piece, names in zip(sources, shaped.carrier, strict=True):
        held.update(zip(names, piece.box, strict=True))
    for number, value, axes in zip(step.results, block.makes, shaped.result_axes, strict=True):
        made = site.make(number, step.path)
        place = (made.value, made.partial, made.substep, made.loops)
        if place != (value, (), block.substep, sources[0].loops) or site.value(made).state:
            refuse(step.path, "presents something else than its fold defines", site.told(number))
        box = tuple(_of_state(axis, own, held) for axis, own in zip(axes, made.box, strict=True))
        source = replace(made, box=box, only=sources[0].only)
        site.check_reach(source, made.box, (), made.only, step.path, "presents cells that its state does not have")
        for place, (own, size) in enumerate(zip(made.box, site.value(made).type.shape, strict=True)):
            fault = holds_all(own, size, counted(site.counts, (own,)), ())
            if fault is not None:
                refuse(step.path, f"does not present all cells along axis {place}", fault)


def fold_of(site: Site, sources: Sequence[Piece], path: str) -> Block:
    """The block whose state some pieces are, leaf by leaf."""
    first = sources[0] if sources else None
    block = site.folds.get((first.value, first.substep)) if first is not None else None
    if block is None:
        refuse(path, "takes what is no state of a fold")
    values = [site.program.pieces[number].value for number in block.results]
    if [piece.value for piece in sources] != values or len({piece.substep for piece in sources}) > 1:
        refuse(path, "takes other leaves of a state than its fold makes", f"tensors {[p.value for p in sources]}")
    return block


def _of_state(axis: Axis, own: Range, held: dict[str, Range]) -> Range:
    name = axis.name or (f"~{axis.whole_name}" if axis.whole_name is not None else None)
    return held.get(name or "", own)


def _shaped(site: Site, step: Block) -> Shaped:
    """The operation that runs, on tensors of the sizes that the table says; it is the one that the program applies."""
    operations, values = site.shared.operations, site.program.values
    if not (0 <= step.operation < len(operations) and 0 <= step.runs < len(operations)):
        refuse(step.path, "runs an operation that there is not")
    program, runs = operations[step.operation], operations[step.runs]
    pieces = [site.piece(read.piece, step.path) for read in step.reads]
    structs = tuple(site.value(piece).type.struct for piece in pieces)
    try:
        known, shaped = shape(program, structs), shape(runs, structs)
        if not _is_same(program, runs, structs, shaped):
            refuse(step.path, "runs another operation than the program applies", f"{runs}, not {program}")
    except TapestryError as error:
        refuse(step.path, "reads tensors that its operation does not take", str(error).splitlines()[0])
    made = [values[number].type.struct for number in step.makes if 0 <= number < len(values)]
    if made != list(known.results) or made != list(shaped.results):
        got = ", ".join(f"{each.dtype}{list(each.shape)}" for each in made)
        wanted = ", ".join(f"{each.dtype}{list(each.shape)}" for each in known.results)
        refuse(step.path, "makes tensors of other types than its operation gives", f"expected {wanted}", f"got {got}")
    return shaped


def _is_same(program: Operation, runs: Operation, structs: Sequence[object], shaped: Shaped) -> bool:
    plain = replace(runs, dense=())
    if plain == replace(program, dense=()):
        return set(runs.dense) <= set(program.dense)
    for dtype in {leaf.dtype for leaf in shaped.state}:
        if is_enabled(dtype):
            try:
                wide = widened(program, tuple(structs), dtype.name)  # pyright: ignore[reportArgumentType]
            except TapestryError:
                continue
            if replace(wide, dense=()) == plain:
                return True
    return False


def _check_cover(site: Site, step: Block, shaped: Shaped, dims: dict[str, Range]) -> None:
    sizes, signature = shaped.sizes, shaped.signature
    if set(dims) != set(sizes) or len(dims) != len(step.box):
        refuse(step.path, "has an index box of other dimensions", f"expected {list(sizes)}", f"got {list(dims)}")
    site.check_scope(list(dims.values()), step.loops, step.path)
    for operand in signature.operands:
        around = dims.get(operand.coordinate or "")
        if around is not None and around.wraps and (around.before or around.after):
            refuse(step.path, f"reads coordinates of `{operand.coordinate}` around its ends, where they say nothing")
    owner: dict[str, str] = {}
    for dim, own in dims.items():
        if (own.offset, own.stride, own.width) != (0, 1, 1) or own.before < 0 or own.after < 0:
            refuse(step.path, f"has an index box that skips indices of `{dim}`")
        fault = cover_fault(own, sizes[dim], counted(site.counts, (own,)))
        if fault is not None:
            refuse(step.path, f"does not cover its index space exactly along `{dim}`", fault)
        for name in own.coordinates:
            # Without an index of the one, none of the other is left out.
            if name in owner and sizes[dim] and sizes[owner[name]]:
                told = f"`{owner[name]}` and `{dim}` both move along `{name}`: [{own.count}:{2 * own.count}] of `{dim}`"
                refuse(
                    step.path, "does not cover its index space exactly", f"{told} never meets the first of the other"
                )
            owner[name] = dim
        if own.coordinates and signature.role(dim) == "whole":
            refuse(step.path, f"cuts `{dim}`, which it needs as a whole", f"signature {signature}")


def _check_reads(site: Site, step: Block, shaped: Shaped) -> None:
    listed = zip(shaped.signature.operands, axis_modes(shaped), strict=True)
    operands = [(operand, modes) for operand, modes in listed if operand.coordinate is None]
    if len(step.reads) != len(operands):
        refuse(step.path, f"reads {len(step.reads)} operands of its {len(operands)}")
    for number, (read, (operand, modes)) in enumerate(zip(step.reads, operands, strict=True)):
        piece = site.piece(read.piece, step.path)
        sizes = site.value(piece).type.shape
        if len(read.box) != len(sizes) or len(operand.axes) != len(sizes):
            refuse(step.path, f"reads {len(read.box)} axes of operand {number}, which has {len(sizes)}")
        _check_place(step, piece, number)
        for axis, mode, own, size in zip(operand.axes, modes, read.box, sizes, strict=True):
            fault = bounds_fault(own, size) or _answered(axis, mode, own, size, dict(step.box))
            fault = fault or _projected(site, step, axis, own, size, shaped)
            if fault is not None:
                refuse(step.path, f"reads another box of operand {number} than its index box projects to", fault)
        site.check_scope(read.box, step.loops, step.path)
        site.check_reach(piece, read.box, (), (), step.path, f"reads cells of operand {number} that it does not hold")


def _answered(axis: Axis, mode: str, own: Range, size: int, dims: dict[str, Range]) -> str | None:
    """What is wrong with how cells outside of the tensor are answered: as the operation's boundary says."""
    around = any(dims[name].wraps and (dims[name].before or dims[name].after) for name in axis.names if name in dims)
    if around and axis.is_window and mode != "periodic":
        return f"axis `{axis}` is read around its ends, and its boundary is {mode!r}"
    wanted = mode if axis.is_window else "periodic" if around else "valid"
    if own.mode != wanted and reaches_outside(own, size):
        return f"axis `{axis}` is answered by {own.mode!r} outside, its boundary is {wanted!r}"
    return None


def _check_place(step: Block, piece: Piece, number: int) -> None:
    """An operand is whole, of this iteration, and there in every turn in which it is read."""
    if piece.partial:
        refuse(step.path, f"reads operand {number}, which is still in pieces along ({', '.join(piece.partial)})")
    if not set(piece.loops) <= set(step.loops):
        missing = sorted(set(piece.loops) - set(step.loops))
        refuse(step.path, f"reads operand {number} outside of the loop `{missing[0]}`, in which it is made")


def _projected(
    site: Site, step: Block, axis: Axis, own: Range, size: int, shaped: Shaped, is_made: bool = False
) -> str | None:
    names = [name for name in axis.names if name in shaped.sizes]
    if len(names) < len(axis.names):
        # An axis of the cell itself, which the signature does not name.
        return None if own == whole(size) else f"axis `{axis}` belongs to the cell and is whole, the box says {own}"
    dims = tuple((name, range_) for name, range_ in step.box if name in names)
    sizes = tuple((name, shaped.sizes[name]) for name in names)
    counts = counted(site.counts, (own, *(each for _, each in dims)))
    return projection_fault(axis, own, dims, sizes, size, counts, is_made)


def _folded(site: Site, step: Block, shaped: Shaped, dims: dict[str, Range]) -> tuple[str, ...]:
    """The coordinates over which a fold is in pieces, those of a dimension outermost first."""
    if shaped.operation.monoid is None or shaped.operation.over is not None:
        return ()
    monoid, found = shaped.operation.monoid, list[str]()
    for place, dim in enumerate(shaped.signature.fold_dims):
        own = dims[dim]
        if own.before or own.after:
            refuse(step.path, f"folds indices of `{dim}` twice", f"{own.before} before its block, {own.after} behind")
        if not own.coordinates:
            continue
        if not monoid.commutative and (fault := "a dimension further in" if place else _disorder(site, own)):
            refuse(step.path, f"folds pieces of `{dim}` out of their order, which its monoid needs", fault)
        found += _ordered(own)
    return tuple(found)


def _ordered(own: Range) -> list[str]:
    return [name for name, _ in sorted(own.steps, key=lambda pair: -abs(pair[1]))]


def _disorder(site: Site, own: Range) -> str | None:
    """What keeps pieces from coming in their order; None where nothing does."""
    if own.deal or own.before or own.after:
        return f"cells are {'dealt' if own.deal else 'those of neighbours too'}"
    for name in own.coordinates:
        if site.kinds[name].kind == "ring":
            return f"they go round `{name}`"
    return order_fault(own, tuple(_ordered(own)), counted(site.counts, (own,)))


def _check_chain(site: Site, step: Block, shaped: Shaped, dims: dict[str, Range]) -> None:
    over = shaped.operation.over
    wanted = tuple(_ordered(dims[over])) if over is not None else ()
    if step.chain != wanted:
        told = f"expected ({', '.join(wanted)})", f"got ({', '.join(step.chain)})"
        refuse(step.path, "goes on from blocks in another order than its scan", *told)
    if over is not None and wanted and (fault := _disorder(site, dims[over])):
        refuse(step.path, f"scans pieces of `{over}` out of their order", fault)


def _make_state(site: Site, step: Block, shaped: Shaped, folded: tuple[str, ...]) -> None:
    dims = dict(step.box)
    if len(step.results) != len(shaped.state):
        refuse(step.path, f"makes {len(step.results)} leaves of a state of {len(shaped.state)}")
    for number, leaf, names in zip(step.results, shaped.state, shaped.carrier, strict=True):
        made = site.make(number, step.path)
        value = site.value(made)
        if not value.state or value.type.struct != leaf:
            refuse(step.path, "stores a leaf of its state as something else", f"{value.type}, not {leaf}")
        if made.partial != folded:
            told = f"expected ({', '.join(folded)})", f"got ({', '.join(made.partial)})"
            refuse(step.path, "makes a state in other pieces than it says", *told)
        _check_made(step, made)
        for name, own, size in zip(names, made.box, leaf.shape, strict=True):
            wanted = dims.get(name)
            if own != (wanted if wanted is not None else whole(size)):
                refuse(step.path, f"makes another box of its state along `{name}` than it says", f"{own}")
    first = site.program.pieces[step.results[0]]
    site.folds[(first.value, step.substep)] = step


def _make_results(site: Site, step: Block, shaped: Shaped) -> None:
    if len(step.results) != len(step.makes):
        refuse(step.path, f"makes {len(step.results)} of {len(step.makes)} results")
    carried = {name for axes in shaped.result_axes for axis in axes for name in axis.names}
    for dim, own in step.box:
        if own.coordinates and dim not in carried and shaped.signature.role(dim) != "fold":
            refuse(step.path, f"cuts `{dim}`, which no result carries: its blocks would write the same cells")
    for number, value, axes in zip(step.results, step.makes, shaped.result_axes, strict=True):
        made = site.make(number, step.path)
        if made.value != value or made.partial or site.value(made).state:
            refuse(step.path, "makes a piece of another tensor than it defines", site.told(number))
        _check_made(step, made)
        for axis, own, size in zip(axes, made.box, site.value(made).type.shape, strict=True):
            fault = _projected(site, step, axis, own, size, shaped, is_made=True)
            if reaches_outside(own, size) and not (own.wraps and own.mode == "periodic"):
                fault = f"it reaches outside of [0:{size}], and does not say that this is its other end"
            if fault is not None:
                refuse(step.path, "makes another box of a result than its index box projects to", fault)


def _check_made(step: Block, made: Piece) -> None:
    if made.loops != step.loops or made.substep != step.substep or made.only:
        told = f"loops {made.loops}, iteration {made.substep}, only {made.only}"
        refuse(step.path, "makes a piece elsewhere than it runs", told)
