"""The outputs of a job: which sinks are filled, where they lie, and what a run leaves in the program's structure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from combinators.frozen import dataclass
from tapestry_jax.storage.creating import create
from tapestry_jax.storage.protocols import Creates, Sink, Stored
from tapestry_jax.streaming.fits.budget import Store, Writes
from tapestry_jax.streaming.kept.origins import place_of
from tapestry_jax.streaming.moving.held import Held
from tapestry_jax.streaming.moving.sinks import chunks_made, closed_on_errors, true_cells
from tapestry_jax.streaming.moving.spilling import Spill
from tapestry_jax.streaming.parts import Split


@dataclass(frozen=True, eq=False)
class Outputs:
    """The outputs of a job.

    Attributes:
      split: passes over what is stored.
      sinks: where outputs go, by position; the others are returned as arrays.
      also: where else what passes make goes, by slot.
    """

    split: Split
    sinks: Mapping[int, Creates]
    also: Mapping[int, Creates] = field(default_factory=dict[int, Creates])

    @property
    def filled(self) -> tuple[int, ...]:
        """The slots of outputs that go to sinks: that passes make, and that are whole on the devices and have one."""
        made = (slot for slot in self.split.written if slot in {*self.split.outputs})
        return tuple(dict.fromkeys((*made, *(self.split.outputs[n] for n in self.sinks))))

    @property
    def spill(self) -> Spill:
        """Where values between passes go that nobody keeps: memory, and files of a cache."""
        return Spill(lambda slot, again: self.opened([slot], again=again)[slot], lambda _: None)

    @property
    def held(self) -> list[int]:
        """The slots of what passes make and no file takes: it stays in memory, or in the folder of the job."""
        files = {self.split.outputs[number] for number in self.sinks} | ({*self.also} - {*self.split.outputs})
        return [slot for slot in self.split.written if slot not in files]

    def places(self) -> dict[str, str]:
        """Where its sinks lie, by the names of outputs."""
        names = [name for name, _ in self.split.schedule.graph.outputs]
        return {names[n]: str(each.where) for n, each in self.sinks.items()}

    def stores(self, folder: Path | None) -> dict[int, list[Writes]]:
        """Where what passes make goes, by slot, and what writing boxes of it takes beside the buffers.

        Args:
          folder: of the job, where lies what has no sink; in memory where it has none.
        """
        found = dict[int, list[Writes]]()
        given: list[tuple[int, Creates]] = [(self.split.outputs[number], each) for number, each in self.sinks.items()]
        given += [*self.also.items()]
        if folder is not None:
            given += [(slot, create(place_of(self.split, slot, folder))) for slot in self.held]
        for slot, each in given:
            kind = self.split.schedule.slots[slot].type
            made = kind.shape, chunks_made(self.split, slot), np.dtype(kind.dtype)
            found.setdefault(slot, []).append(partial(store_of, each, *made))
        return found

    def opened(self, slots: Iterable[int], folder: Path | None = None, again: bool = False) -> dict[int, list[Sink]]:
        """The sinks of values that passes make, by slot.

        Args:
          slots: the values.
          folder: of the job, where lies what has no sink; in memory where it has none.
          again: whether they were begun before.
        """
        found = dict[int, list[Sink]]()
        with closed_on_errors(found):
            for slot in slots:
                chosen = [
                    self.sinks[n] for n, output in enumerate(self.split.outputs) if output == slot and n in self.sinks
                ]
                if not chosen and folder is not None:
                    chosen = [create(place_of(self.split, slot, folder), overwrite=True)]
                kind, found[slot] = self.split.schedule.slots[slot].type, []
                names = kind.names if any(kind.names) else None
                if not chosen and (slot in self.split.outputs or slot not in self.also):
                    found[slot].append(Held(kind))
                for each in (*chosen, *([self.also[slot]] if slot in self.also else ())):
                    made = each.again if again else each.make
                    # What goes on has the chunks that it was begun with.
                    is_new = each.has_chunks and not again
                    chunks = chunks_made(self.split, slot) if is_new else None
                    found[slot].append(made(kind.shape, kind.dtype, names, chunks))
        return found

    def result(self, values: Mapping[int, Any], stored: Mapping[int, Sequence[Stored]]) -> Any:
        """The outputs in the structure of the program's result."""
        return jax.tree.unflatten(self.split.schedule.graph.out_tree, self.leaves(values, stored))

    def leaves(self, values: Mapping[int, Any], stored: Mapping[int, Sequence[Stored]]) -> list[Any]:
        """The outputs: of values on the devices or the host the true cells, and what is stored."""
        schedule = self.split.schedule
        leaves: list[Any] = []
        filed = {slot: iter(several) for slot, several in stored.items()}
        for number, slot in enumerate(self.split.outputs):
            if number in self.sinks:
                leaves.append(next(filed[slot]))  # in the order of `opened`
            elif slot in values:
                leaves.append(true_cells(values[slot], schedule.slots[slot].type.shape))
            else:
                leaves.append(whole(stored[slot][0]))
        return leaves


def store_of(
    each: Creates, shape: Sequence[int], chunks: Sequence[int], dtype: np.dtype[Any], sizes: tuple[int, ...]
) -> Store:
    """What is written to, and what writing boxes of such sizes takes beside the buffers."""
    return Store(str(each.where), each.beside(shape, chunks, dtype, sizes))


def whole(source: Stored) -> Any:
    """All of what is stored, as an array."""
    array = np.empty(source.shape, source.dtype)
    source.read(tuple((0, size) for size in source.shape), array).result()
    return array
