"""Scans over cut dimensions: every piece goes on from the total of all pieces before it, and of no other."""

from __future__ import annotations

from collections.abc import Sequence

from combinators.shaped import Shaped
from tapestry_jax.planning.proof.folds import kept_pieces
from tapestry_jax.planning.proof.holdings import Holding, OfDevice, OwnPrefix, Start, Total
from tapestry_jax.planning.proof.needs import Cuts
from tapestry_jax.planning.proof.site import Site, refuse
from tapestry_jax.planning.schedule import Region
from tapestry_jax.planning.time_axis import in_space, in_time, label, ring_of


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
    shaped: Shaped, cuts: Cuts, node: int, before: Sequence[Holding], path: str
) -> tuple[list[Holding], bool]:
    """The totals after a turn that goes on from others, and whether its results leave out the devices before.

    Raises:
      PlanError: where the scan does not go on from its own totals, leaf by leaf.
    """
    over = shaped.operation.over
    assert over is not None
    loops, own = in_time(cuts[over].axes), False
    found: list[Holding] = []
    if len(before) != len(shaped.state):
        refuse(path, f"goes on from {len(before)} leaves of a total that has {len(shaped.state)}")
    for leaf, total in enumerate(before):
        if not isinstance(total, Total) or (total.node, total.leaf, total.after) != (node, leaf, False):
            refuse(path, f"goes on from what is not leaf {leaf} of its total", f"got {total}")
        if (total.loop,) != loops:
            refuse(
                path, f"goes on over `{over}` in {label(total.loop)}", f"it is cut over ({', '.join(cuts[over].axes)})"
            )
        # A loop that begins with the identity leaves out the devices before, where there are any.
        own = own or (total.own and bool(in_space(cuts[over].axes)))
        found.append(Total(node, leaf, total.loop, own, after=True))
    return found, own


def entering_totals(step: Region, starts: Sequence[Holding]) -> list[Holding]:
    """What the scans of a loop find before its first turn, from what the loop is given.

    Raises:
      PlanError: for the start of another scan.
    """
    found: list[Holding] = []
    wanted = [(node, leaf) for node, leaves in step.scans for leaf in range(leaves)]
    for place, (node, leaf) in enumerate(wanted):
        if place < len(starts) and starts[place] != Start(node, leaf):
            refuse(step.path, f"begins the scan of node {node} with another total", f"got {starts[place]}")
        found.append(Total(node, leaf, step.axis, own=place >= len(starts), after=False))
    if len(starts) > len(wanted):
        refuse(step.path, f"is given {len(starts)} totals for scans that have {len(wanted)}")
    return found


def leaving_totals(step: Region, made: Sequence[Holding]) -> list[Holding]:
    """What the totals after the last turn are: in a pass for totals alone, those of the device.

    Raises:
      PlanError: where a turn hands on something else.
    """
    wanted = [(node, leaf) for node, leaves in step.scans for leaf in range(leaves)]
    found: list[Holding] = []
    for (node, leaf), total in zip(wanted, made, strict=True):
        same = isinstance(total, Total) and (total.node, total.leaf, total.loop) == (node, leaf, step.axis)
        if not same or not isinstance(total, Total) or not total.after:
            refuse(
                step.path,
                f"hands on to the next turn what is not leaf {leaf} of the total of node {node}",
                f"got {total}",
            )
        found.append(OfDevice(node, leaf) if total.own else total)
    return found


def begun(shaped: Shaped, node: int, totals: Sequence[Holding], path: str) -> list[Holding]:
    """What the devices before come to, from the totals of each.

    Raises:
      PlanError: where these are not the totals of whole devices.
    """
    if list(totals) != [OfDevice(node, leaf) for leaf in range(len(shaped.state))]:
        refuse(path, "passes on what are not the totals of devices", *(f"got {total}" for total in totals[:2]))
    return [Start(node, leaf) for leaf in range(len(shaped.state))]


def results_of(own: bool, node: int, results: Sequence[Holding]) -> list[Holding]:
    """The results of a scan: of no use where the devices before are left out."""
    return [OwnPrefix(node) for _ in results] if own else list(results)
