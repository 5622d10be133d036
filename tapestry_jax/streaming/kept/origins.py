"""Names of what a stream has computed that another plan of the same graph knows as well.

The number of a slot depends on the mesh: layouts are changed on one that are not on another. Which pass or operation
has made a value first does not.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from tapestry_jax.planning.scheduling.schedule import Convert, Finish, Run
from tapestry_jax.streaming.parts import Ending, Pass, Split


def origins(split: Split) -> dict[int, str]:
    """The name of every value that a part has made, by slot; one of another layout has the name of what it was."""
    if "origins" not in split.known:
        split.known["origins"] = _origins(split)
    return split.known["origins"]


def _origins(split: Split) -> dict[int, str]:
    schedule = split.schedule
    names = {slot: f"input-{number}" for number, slot in enumerate(schedule.inputs)}
    passes = 0
    for part in split.parts:
        if isinstance(part, Pass):
            names |= {slot: f"pass-{passes}-{number}" for number, slot in enumerate(part.region.results)}
            passes += 1
            continue
        if isinstance(part, Ending):
            for number, (_, later) in enumerate(part.results):
                names[later] = f"{part.scope}Repeat-loop-{part.path}-{number}"
            continue
        for step in part.part.steps:
            if isinstance(step, Convert):
                if step.source in names:
                    names[step.result] = names[step.source]
                continue
            who = f"node-{step.node}" if isinstance(step, Run | Finish) else f"loop-{step.path}"
            for number, slot in enumerate(step.results):
                names[slot] = f"{part.scope}{type(step).__name__}-{who}-{number}"
    return names


def place_of(split: Split, slot: int, folder: Path) -> Path:
    """Where a value that passes make and no sink takes lies in the folder of a job."""
    return folder / file_for(origins(split)[slot], split.schedule.slots[slot].type.dtype)


def file_for(name: str, dtype: Any) -> str:
    """The name of a file in the folder of a job: what NumPy's format has no name for is stored as Zarr has it."""
    return f"{name}.{'npy' if dtype.kind in 'biufc' else 'zarr'}"


def outline(split: Split) -> str:
    """What its passes are, whatever their chunks and devices: who goes on from a state has the same."""
    lines: list[str] = []
    for number, part in enumerate(split.passes):
        region = part.region
        way = "backwards" if region.reverse else "forwards"
        kept = f"folds {list(region.folds)} scans {list(region.scans)} results {len(region.results)}"
        made = [region.results.index(each.value) for each in part.made if each.value in region.results]
        if region.body.graph is not split.schedule.graph:
            # Of a repetition: how many of its turns a pass takes at once is nowhere else.
            kept += f" steps {sum(isinstance(step, Run) for step in region.body.steps)}"
        lines.append(f"pass {number} over {part.dim} {way} {kept} made {made}")
    return "; ".join(lines) if len(lines) == 1 else f"{len(lines)} passes {_short(lines)}"


def _short(lines: list[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
