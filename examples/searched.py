"""What `tp.search` finds for a program, beside a plan that was written by hand."""

from __future__ import annotations

import tapestry_jax as tp

MEASURED = "measured"
NONE = "none"


def found_beside(by_hand: tp.Plan, name: str) -> list[str]:
    """Lines that say what search would have chosen.

    Args:
      by_hand: the plan of the program.
      name: of a machine, such as `h100:1x8`; or `measured`: the devices of the plan's mesh, timed now.

    Raises:
      SystemExit: for an unknown machine, or a mesh that does not fill it.
    """
    machine = tp.machines.measure(by_hand.mesh) if name == MEASURED else name
    try:
        found = tp.search(by_hand.graph, by_hand.mesh, machine, grad=True)
    except tp.TapestryError as error:
        raise SystemExit(f"error: {error}") from error
    before, after = (plan.cost(machine, grad=True) for plan in (by_hand, found))
    placed = ", ".join(f"{dim}: {shown(items)}" for dim, items in found.entries if items) or "nothing is cut"
    excepted = sorted({path.split("/")[0] for path, _ in found.ops})
    return [
        f"by hand, a step takes {before.seconds:.3g} s on {before.machine} by plan.cost;"
        f" tp.search finds {after.seconds:.3g} s:",
        f"  {placed}" + (f"; exceptions in {', '.join(excepted)}" if excepted else ""),
    ]


def shown(items: object) -> str:
    """Mesh axes, rings and chunks as they are written."""
    return " ".join(map(str, items)) if isinstance(items, tuple) else str(items)
