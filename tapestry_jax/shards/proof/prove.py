"""The proof: step by step, every piece is made before it is read, and of what its box says."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from combinators.errors import PlanError
from tapestry_jax.shards.parts import Block, Merge, Move, Next, Present, Program, Repeat, Shared, Take, View
from tapestry_jax.shards.proof.axes import counted, holds_all
from tapestry_jax.shards.proof.blocks import prove_block, prove_present
from tapestry_jax.shards.proof.loops import prove_repeat
from tapestry_jax.shards.proof.moves import prove_merge, prove_move, prove_next, prove_view
from tapestry_jax.shards.proof.site import Site, refuse

MISFITS = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)


def prove(shared: Shared, program: Program) -> None:
    """Prove that the blocks compute the program that they are blocks of.

    The index boxes of every operation cover its index space, each index once. Every block reads the box to which its
    index box projects, and finds it on its device, in its turn. Boxes that are made do not overlap. States are merged
    once over everything that they are in pieces over, and in order where their monoid needs it. Nothing reads what is
    not made before. Everything lies in bounds, has the dtype of its tensor, and every output is held whole.

    Raises:
      PlanError: naming an operation and boxes, where one of these does not hold.
    """
    _check_coordinates(shared)
    site = Site(shared, program)
    _follow(site)
    _check_ends(site)


def _follow(site: Site) -> None:
    once: set[tuple[int, int]] = set()
    needed: dict[int, str] = {}
    loops: dict[tuple[int, int], tuple[int, list[int]]] = {}
    for step in site.program.steps:
        path = getattr(step, "path", getattr(step, "name", "next"))
        try:
            match step:
                case Take(name, result):
                    _take(site, name, result)
                case Block():
                    _check_once(site, step, once, needed)
                    prove_block(site, step)
                case Move():
                    prove_move(site, step)
                case Merge():
                    prove_merge(site, step)
                case Present():
                    prove_present(site, step)
                case View():
                    prove_view(site, step)
                case Next():
                    prove_next(site, step)
                case Repeat():
                    _check_next(site, step, loops)
                    prove_repeat(site, step, _follow)
        except PlanError:
            raise
        except MISFITS as error:
            refuse(path, "is written in parts that do not fit", f"{type(error).__name__}: {error}")
    for value, path in needed.items():
        for substep in range(site.depth):
            if (value, substep) not in once:
                refuse(path, f"is not computed in iteration {substep} of a turn of {site.depth}")
    idle = set(range(len(site.program.pieces))) - site.made
    if idle:
        refuse(site.program.name, f"has piece {min(idle)} ({site.told(min(idle))}), which no step makes")
    _check_outputs(site)


def _check_coordinates(shared: Shared) -> None:
    names = [each.name for each in shared.coordinates]
    if len(set(names)) < len(names) or any(each.count < (each.kind == "axis") for each in shared.coordinates):
        refuse("coordinates", "has a coordinate twice, or of no size", f"{names}")
    kinds = shared.kinds
    for each in shared.coordinates:
        if each.kind not in ("axis", "turns", "ring", "pipeline") or (each.kind in ("ring", "pipeline")) != bool(
            each.along
        ):
            refuse(each.name, f"is a coordinate of kind {each.kind!r}, along {each.along}")
        if any(name not in kinds or kinds[name].kind != "axis" for name in each.along):
            refuse(each.name, "goes along what is no mesh axis", f"{each.along}")
        if each.kind == "ring" and each.count != shared.counts[each.along[0]]:
            refuse(each.name, f"goes round {shared.counts[each.along[0]]} devices in {each.count} turns")


def _take(site: Site, name: str, result: int) -> None:
    piece = site.make(result, name)
    is_state = site.value(piece).state
    if piece.partial or (piece.only and not site.loops) or piece.substep or piece.loops != site.loops or is_state:
        refuse(name, "is taken in pieces of something else", f"loops {piece.loops}, expected {site.loops}")
    if any(site.program.pieces[other].value >= piece.value for other in _taken_before(site, result)):
        refuse(name, "is taken out of its order", "the order of arguments is that of the table of tensors, each once")
    if not site.loops:
        check_whole(site, result, name)


def _taken_before(site: Site, result: int) -> Iterator[int]:
    """The pieces of the arguments in front of one."""
    taken = (step.result for step in site.program.steps if isinstance(step, Take))
    return itertools.takewhile(lambda other: other != result, taken)


def _check_once(site: Site, step: Block, once: set[tuple[int, int]], needed: dict[int, str]) -> None:
    for value in step.makes:
        if (value, step.substep) in once:
            refuse(step.path, "is computed twice", f"iteration {step.substep}")
        once.add((value, step.substep))
        needed[value] = step.path


def _check_next(site: Site, step: Repeat, loops: dict[tuple[int, int], tuple[int, list[int]]]) -> None:
    """A loop goes on with the next iteration, and with what the one before has carried.

    It begins anew in every iteration of the loop around it, several of which may be one turn.
    """
    substeps = {site.program.pieces[piece].substep for piece in step.results}
    if len(substeps) > 1:
        refuse(step.path, "gives results in several iterations of the loop around it", f"{sorted(substeps)}")
    key = step.loop, min(substeps, default=0)
    ended, carried = loops.get(key, (0, []))
    if step.first != ended:
        told = f"expected iteration {ended}, got {step.first}"
        refuse(step.path, "begins with another iteration than the next one", told)
    given = [site.piece(number, step.path).value for number in step.operands[: step.carries]]
    if step.first and given != carried:
        told = f"expected tensors {carried}, got {given}"
        refuse(step.path, "goes on with something else than the iterations before it carry", told)
    results = [site.program.pieces[number].value for number in step.results[: step.carries]]
    loops[key] = step.first + step.turns * step.depth, results


def _check_outputs(site: Site) -> None:
    for name, number in site.program.outputs:
        piece = site.piece(number, f"output {name}")
        if piece.partial or (piece.only and not site.loops) or piece.substep != site.depth - 1:
            told = f"in pieces along {piece.partial}, on {piece.only}, iteration {piece.substep} of {site.depth}"
            refuse(f"output {name}", "is not complete", told)
        if site.value(piece).state:
            refuse(f"output {name}", "is a state, and no tensor of the program")


def _check_ends(site: Site) -> None:
    """What users see of a program is held whole, outside of all loops."""
    names: Sequence[str] = [name for name, _ in site.program.outputs]
    if len(set(names)) < len(names):
        refuse("program", "names an output twice", f"{names}")
    for name, number in site.program.outputs:
        piece = site.program.pieces[number]
        if piece.loops:
            refuse(f"output {name}", f"is held in the turns of `{piece.loops[0]}` alone")
        check_whole(site, number, f"output {name}")


def check_whole(site: Site, number: int, path: str) -> None:
    """Every cell of a tensor is held by some device.

    Raises:
      PlanError: with the first cells that are not.
    """
    piece = site.program.pieces[number]
    owner: dict[str, int] = {}
    for axis, (own, size) in enumerate(zip(piece.box, site.value(piece).type.shape, strict=True)):
        fault = holds_all(own, size, counted(site.counts, (own,)), tuple(sorted(piece.only)))
        if fault is not None:
            refuse(path, f"is not held whole along axis {axis}", fault)
        for name in own.coordinates:
            if name in owner and size:
                refuse(path, "is not held whole", f"axes {owner[name]} and {axis} both move along `{name}`")
            owner[name] = axis
