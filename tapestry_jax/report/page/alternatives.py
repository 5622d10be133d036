"""Other plans of the same program, beside the one that a page shows."""

from __future__ import annotations

from collections.abc import Sequence

from combinators.frozen import dataclass
from tapestry_jax.machines.machine import Machine
from tapestry_jax.planning.prediction.alive import alive_at_once
from tapestry_jax.planning.prediction.collectives import collectives
from tapestry_jax.planning.pricing.priced import price
from tapestry_jax.report.diff import Side, diff
from tapestry_jax.report.weighed import Candidate, Weighed

LISTED = 12
"""So many things are listed that a plan says otherwise."""


@dataclass(frozen=True)
class Alternative:
    """One plan.

    Attributes:
      name: what it is called.
      seconds: of one run; None without a machine, and of candidates that were priced otherwise than the page.
      alive: bytes of values that are alive at once on a device, by the schedule; None of candidates.
      collectives: how many are predicted; None of candidates.
      sent: bytes that they send, per device; None of candidates.
      otherwise: what was asked for otherwise than of the plan that is shown.
      more: how many operations, arguments and results lie otherwise.
      memory: bytes that a device needs, where a search weighed it.
      why: a search did not take it.
    """

    name: str
    seconds: float | None
    alive: int | None
    collectives: int | None
    sent: int | None
    otherwise: tuple[str, ...] = ()
    more: int = 0
    memory: int | None = None
    why: str = ""


def alternatives(
    own: Side,
    others: Sequence[Side],
    machine: Machine | None,
    grad: bool | int | Sequence[int] = False,
    weighed: Weighed | None = None,
) -> tuple[Alternative, ...]:
    """The plan that is shown, others, and the candidates of its search.

    Args:
      own: the plan.
      others: plans of the same program, on any mesh.
      machine: where all are priced; None for no prices.
      grad: as in `Plan.collectives`.
      weighed: beside the plan, by the search that found it; nothing of it is planned or priced again.

    Raises:
      PlanError: for a plan of another program, with the first operation that differs.
      MeshError: where the mesh of one does not fill the machine.
    """
    found = [_alternative("this plan", own, machine, grad)]
    for number, other in enumerate(others, start=1):
        said = diff(own, other, None, grad)
        asked = tuple(map(str, said.asked[:LISTED]))
        more = len(said.operations) + len(said.layouts)
        found.append(_alternative(f"plan {number}", other, machine, grad, asked, more))
    if weighed is not None:
        comparable = weighed.is_priced_like(machine, grad)
        for number, each in enumerate(weighed.candidates, start=1):
            found.append(_candidate(f"candidate {number}", each, "" if comparable else f", on {weighed}"))
    return tuple(found)


def _candidate(name: str, each: Candidate, where: str) -> Alternative:
    """A candidate; its seconds stand beside those of the page where both are of one machine."""
    listed, rest = each.otherwise[:LISTED], len(each.otherwise) - LISTED
    otherwise = (*listed, f"and {rest} more") if rest > 0 else listed
    seconds = None if where else each.seconds
    return Alternative(name, seconds, None, None, None, otherwise, memory=each.bytes, why=each.why + where)


def _alternative(
    name: str,
    side: Side,
    machine: Machine | None,
    grad: bool | int | Sequence[int],
    otherwise: tuple[str, ...] = (),
    more: int = 0,
) -> Alternative:
    seconds = None if machine is None else price(side.schedule, machine, grad).seconds
    found = collectives(side.schedule, grad)
    sent = sum(each.bytes * each.times for each in found)
    return Alternative(name, seconds, alive_at_once(side.schedule, grad), len(found), sent, otherwise, more)
