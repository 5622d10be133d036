"""Between a run and what is kept of it: arrays by names and of sizes that do not depend on chunks and devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from combinators.errors import FormatError, message
from tapestry_jax.planning.scheduling.schedule import Slot
from tapestry_jax.storage.protocols import Array
from tapestry_jax.streaming import position as running
from tapestry_jax.streaming.errors import StreamError
from tapestry_jax.streaming.frozen.state import Frozen, Position
from tapestry_jax.streaming.kept.edges import edges, turns_at
from tapestry_jax.streaming.kept.origins import origins
from tapestry_jax.streaming.moving.held import fetched
from tapestry_jax.streaming.parts import Ending, Pass, Split, made_on_devices
from tapestry_jax.streaming.turn import Programs, extra

_EDGES = "edges"


def freeze(split: Split, snapshot: running.Snapshot) -> tuple[Position, dict[str, Array]]:
    """What is kept of a stream between two turns."""
    part = split.parts[snapshot.position.part]
    assert isinstance(part, Pass)
    names, slots = origins(split), split.schedule.slots
    arrays = {_EDGES: edges(split, part, snapshot.position.turns)}
    later = _read_later(split, snapshot.position.part)
    for slot, array in snapshot.values.items():
        if slot in later:
            arrays[f"value/{names[slot]}"] = _true(fetched(array), slots[slot])
    for number, (slot, array) in enumerate(zip(_carried(part), snapshot.state, strict=False)):
        arrays[f"state/{number}"] = _true(fetched(array), slot)
    cells = int(arrays[_EDGES][:, 3].max(initial=0))
    return Position(split.passes.index(part), cells), arrays


def thaw(split: Split, programs: Programs, frozen: Frozen, folder: Path) -> running.Stopped:
    """Where a run begins that goes on from a state, perhaps with other chunks and devices.

    Raises:
      FormatError: for a state of something else.
      StreamError: where its chunks do not end where the state stands, or its devices share the work out otherwise.
    """
    numbers = [at for at, part in enumerate(split.parts) if isinstance(part, Pass)]
    if not numbers or not frozen.arrays:
        # It was stopped before anything was kept: what stands before the first pass is done again, too.
        return running.Stopped(running.Position(), {})
    found = frozen.arrays.get(_EDGES, np.empty((0, 4), np.int64))
    if frozen.position.step >= len(numbers) or found.dtype != np.int64 or found.shape[1:] != (4,):
        told = f"got pass {frozen.position.step + 1} of {len(numbers)}, edges {found.dtype.name} {found.shape}"
        remedy = "Name another folder to begin anew."
        raise FormatError(message(f"the state in {folder} is none of this job.", told, remedy=remedy))
    number = numbers[frozen.position.step]
    part = split.parts[number]
    assert isinstance(part, Pass)
    turns = turns_at(split, part, found) if _EDGES in frozen.arrays else 0
    if turns is None:
        raise _elsewhere(split, part, frozen, folder)
    names, slots = origins(split), split.schedule.slots
    arrays: dict[str, Array] = {}
    made = _made_before(split, number)
    if turns == part.turns:
        made |= {each.value for each in part.still} & _read_later(split, number)
    wanted = {f"value/{slot}": (f"value/{names[slot]}", slots[slot]) for slot in made}
    carried = any(name.startswith("state/") for name in frozen.arrays)
    if carried:
        wanted |= {f"state/{leaf}": (f"state/{leaf}", slot) for leaf, slot in enumerate(_carried(part))}
    for name, (kept, slot) in wanted.items():
        arrays[name] = _padded(frozen.arrays, kept, slot, programs, folder)
    return running.Stopped(running.Position(number, turns if carried or not _carried(part) else 0), arrays)


def behind_last(split: Split, state: Sequence[Array]) -> dict[str, Array]:
    """What the one pass carries behind its last turn, for a state that others go on from.

    Args:
      split: its passes.
      state: as the devices hold it.
    """
    slots = _carried(split.passes[0])
    return {f"last/{n}": _true(array, slot) for n, (array, slot) in enumerate(zip(state, slots, strict=True))}


def older_state(split: Split, programs: Programs, arrays: Mapping[str, Array], folder: Path) -> list[Array]:
    """What `behind_last` has kept, as the devices of this plan hold it.

    Raises:
      StreamError: where they share the work out otherwise.
    """
    slots = enumerate(_carried(split.passes[0]))
    return [_padded(arrays, f"last/{n}", slot, programs, folder) for n, slot in slots]


def _carried(part: Pass) -> list[Slot]:
    """What the turns of a pass hand on, as its body has it."""
    body, region = part.region.body, part.region
    return [body.slots[slot] for slot in body.outputs[: region.folded + region.scanned]]


def _read_later(split: Split, number: int) -> set[int]:
    """What this part and those behind it read, and the outputs."""
    return {slot for slot, last in split.last_use.items() if last >= number}


def _made_before(split: Split, number: int) -> set[int]:
    """What parts before this one have made on the devices, and this one or a later one reads.

    A repetition that has not ended has no results yet.
    """
    done = (part for part in split.parts[:number] if not isinstance(part, Ending) or part.behind <= number)
    made = {slot for part in done for slot in made_on_devices(part)}
    return (made - {*split.written}) & _read_later(split, number)


def _is_plain(slot: Slot) -> bool:
    """Whether devices hold pieces of the one array, each cell once: then its true cells are all that counts."""
    cuts = [cut for cut in slot.layout.cuts if cut is not None]
    return not extra(slot) and not any(cut.window is not None or cut.striped for cut in cuts)


def _true(array: Array, slot: Slot) -> Array:
    return np.array(array[tuple(map(slice, slot.type.shape))] if _is_plain(slot) else array)


def _padded(arrays: Mapping[str, Array], name: str, slot: Slot, programs: Programs, folder: Path) -> Array:
    """An array as the devices of this plan hold it."""
    shape, array = programs.shape(slot), arrays.get(name)
    expected = slot.type.shape if _is_plain(slot) else shape
    if array is None or array.shape != expected or array.dtype != slot.type.dtype:
        got = "nothing" if array is None else f"{array.dtype.name} {array.shape}"
        raise StreamError(
            message(
                f"the job in {folder} was begun with devices that share the work out otherwise.",
                f"{name}: expected {slot.type.dtype} {tuple(expected)}",
                f"got {got}",
                remedy="Go on with as many devices along the streamed dimension as before, or begin anew elsewhere.",
            )
        )
    behind = [(0, size - own) for size, own in zip(shape, array.shape, strict=True)]
    return np.pad(array, behind, mode="edge") if any(more for _, more in behind) and array.size else array


def _elsewhere(split: Split, part: Pass, frozen: Frozen, folder: Path) -> StreamError:
    done = frozen.position.cells
    return StreamError(
        message(
            f"the job in {folder} cannot go on in these chunks.",
            f"pass {split.passes.index(part) + 1} of {len(split.passes)} stands at cell {done} of `{part.dim}`",
            f"no turn of {part.turns}, of {part.block} cells each on a device, ends there",
            remedy=f"Choose a size of chunks that divides {done}, or the one it was begun with.",
        )
    )
