"""Scans over cut dimensions: every piece goes on from the total of all pieces before it, and of no other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from combinators.graphs.graph import Graph
from combinators.index_space.box import Box
from combinators.operations.shaped import Shaped
from tapestry_jax.planning.geometry.layout import Cut
from tapestry_jax.planning.geometry.time_axis import in_space, in_time, label, ring_of, turns_of
from tapestry_jax.planning.proof.folds import kept_pieces
from tapestry_jax.planning.proof.holdings import Holding, OfDevice, Start, Total, Value
from tapestry_jax.planning.proof.needs import Cuts
from tapestry_jax.planning.proof.outside import check_alike, check_end
from tapestry_jax.planning.proof.pieces import box_of, piece_of
from tapestry_jax.planning.proof.site import Site, refuse
from tapestry_jax.planning.scheduling.schedule import Finish, Region, Run


def check_scan(shaped: Shaped, cuts: Cuts, site: Site, path: str) -> None:
    """The pieces of the scanned dimension are in order, and devices pass on totals of one piece of all else.

    Raises:
      PlanError: naming the dimension, or two boxes whose totals would meet.
    """
    over = shaped.operation.over
    assert over is not None
    cut = cuts[over]
    if cut.striped or any(ring_of(axis) is not None for axis in cut.axes):
        refuse(path, f"scans pieces of `{over}` {'in stripes' if cut.striped else 'in a ring'}, out of their order")
    if cut.window is not None:
        refuse(path, f"scans indices of `{over}` twice", f"a device takes {cut.extent} indices of its {cut.block}")
    loops = in_time(cut.axes)
    if cut.axes != (*in_space(cut.axes), *loops):
        refuse(path, f"goes on from turn to turn over `{over}`, while its next device has the next piece")
    site.check_together(kept_pieces(shaped, cuts, site, (over,)), in_space(cut.axes), path, "passes totals on")


def after_turn(
    shaped: Shaped, step: Run, before: Sequence[Holding], value: Value, site: Site
) -> tuple[list[Holding], bool]:
    """The totals after a turn, and whether its results leave out the devices before.

    Args:
      shaped: the scan.
      step: that runs it.
      before: the totals that it goes on from.
      value: its first result.
      site: of the step.

    Raises:
      PlanError: where it goes on from other totals, in another order or in other pieces than they were made, or from
        nothing where devices come before.
    """
    over, node, path = shaped.operation.over, value.ref.node, step.path
    assert over is not None
    cut = dict(step.cuts)[over]
    if len(before) != len(shaped.state):
        refuse(path, f"goes on from {len(before)} leaves of a total that has {len(shaped.state)}")
    found: list[Holding] = []
    own = False
    for leaf, total in enumerate(before):
        if not isinstance(total, Total) or (total.node, total.leaf, total.after) != (node, leaf, False):
            refuse(path, f"goes on from what is not leaf {leaf} of its total", f"got {total}")
        if (total.loop,) != in_time(cut.axes):
            refuse(path, f"goes on over `{over}` in {label(total.loop)}, where it is cut over ({', '.join(cut.axes)})")
        _check_direction(shaped, cut, total, path)
        # A loop that begins with the identity leaves out the devices before, where there are any.
        left_out = total.own and bool(site.mesh.real(in_space(cut.axes)))
        if left_out and not total.ends:
            axis = site.mesh.real(in_space(cut.axes))[-1]
            box = box_of([piece_of(cut, shaped.sizes[over], site.mesh)], {axis: 1}, site.mesh)
            refuse(path, f"begins anew on every device along `{axis}`", f"on {axis}=1 it takes {box} of `{over}` first")
        if total.cuts is not None:
            check_alike(path, "goes on", step.cuts, total.cuts, shaped, site)
        own = own or left_out
        found.append(replace(total, own=left_out, after=True, cuts=step.cuts))
    return found, own


def _check_direction(shaped: Shaped, cut: Cut, total: Total, path: str) -> None:
    backwards = shaped.operation.reverse
    if total.backwards == backwards:
        return
    count = turns_of(total.loop)
    first, last = (Box((turn * cut.block,), ((turn + 1) * cut.block,)) for turn in (0, count - 1))
    ways = [f"{a} of `{shaped.operation.over}` before {b}" for a, b in ((first, last), (last, first))]
    refuse(
        path,
        "goes on from turn to turn in the wrong direction",
        f"takes {ways[total.backwards]}, not {ways[backwards]}",
    )


def entering_totals(step: Region, starts: Sequence[Holding], graph: Graph) -> list[Holding]:
    """What the scans of a loop find before its first turn, from what the loop is given.

    Raises:
      PlanError: for the start of another scan.
    """
    found: list[Holding] = []
    wanted = _leaves(step)
    for place, (node, leaf) in enumerate(wanted):
        path = graph.nodes[node].path
        start = starts[place] if place < len(starts) else None
        if start is not None and (not isinstance(start, Start) or (start.node, start.leaf) != (node, leaf)):
            refuse(step.path, f"begins `{path}` with another total than that of the devices before", f"got {start}")
        cuts = start.cuts if start is not None else None
        found.append(Total(node, leaf, step.axis, start is None, False, step.reverse, step.ends, cuts, path))
    if len(starts) > len(wanted):
        refuse(step.path, f"is given {len(starts)} totals for scans that have {len(wanted)}")
    return found


def leaving_totals(step: Region, made: Sequence[Holding], graph: Graph) -> list[Holding]:
    """What the totals after the last turn are: in a pass for totals alone, those of the device.

    Raises:
      PlanError: where a turn hands on something else.
    """
    found: list[Holding] = []
    for (node, leaf), total in zip(_leaves(step), made, strict=True):
        path = graph.nodes[node].path
        if not isinstance(total, Total) or (total.node, total.leaf, total.loop, total.after) != (
            node,
            leaf,
            step.axis,
            True,
        ):
            refuse(step.path, f"hands on what is not leaf {leaf} of the total of `{path}`", f"got {total}")
        found.append(OfDevice(node, leaf, total.cuts or (), path) if total.own else total)
    return found


def begun(shaped: Shaped, step: Finish, totals: Sequence[Holding], site: Site) -> list[Holding]:
    """What the devices before come to, from the totals of each.

    Raises:
      PlanError: where these are not the totals of whole devices, or of other pieces than the step names.
    """
    wanted = [OfDevice(step.node, leaf) for leaf in range(len(shaped.state))]
    found = [total for total in totals if isinstance(total, OfDevice)]
    if list(totals) != wanted or len(found) != len(wanted):
        refuse(step.path, "passes on what are not the totals of devices", *(f"got {total}" for total in totals[:2]))
    for total in found:
        check_end(step, total.cuts, shaped, site)
    return [Start(step.node, total.leaf, total.cuts, step.path) for total in found]


def _leaves(step: Region) -> list[tuple[int, int]]:
    return [(node, leaf) for node, leaves in step.scans for leaf in range(leaves)]
