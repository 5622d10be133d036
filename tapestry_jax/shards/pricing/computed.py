"""What blocks compute and move between a device and its memory, by the counts and the roofline of plans."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property

from combinators.frozen import dataclass
from combinators.operations.dense import blocked
from combinators.operations.shaped import Shaped, shape
from tapestry_jax.machines.machine import Machine
from tapestry_jax.planning.folding.merges import local_sizes
from tapestry_jax.planning.geometry.layout import Cut
from tapestry_jax.planning.pricing.cost import OperationCost
from tapestry_jax.planning.pricing.counting.counts import Counts
from tapestry_jax.planning.pricing.marginal import Part, block_counts
from tapestry_jax.planning.pricing.roofline import block_bytes, inner_bytes, roofline, runs_as_one, stays
from tapestry_jax.shards.parts import Block, Coordinate, Merge, Move, Present, Program, Repeat, Shared, Step, Take, View
from tapestry_jax.shards.pricing.cuts import bytes_of, cuts_of
from tapestry_jax.shards.pricing.live import reads_of, results_of


@dataclass(frozen=True)
class Priced:
    """One family of blocks.

    Attributes:
      shaped: its operation at the sizes of the program.
      operands: types of its whole operands.
      cuts: of its dimensions.
      counts: of one block.
      reads: bytes of one block's operands.
    """

    shaped: Shaped
    operands: tuple[object, ...]
    cuts: dict[str, Cut]
    counts: Counts
    reads: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Reading:
    """A program with who makes and reads every piece, and what its blocks count.

    Attributes:
      shared: as in the graph.
      program: itself.
      machine: where it runs.
      live: the pieces that anybody needs.
      repeat: the loop whose body it is, if it is one.
    """

    shared: Shared
    program: Program
    machine: Machine
    live: frozenset[int]
    repeat: Repeat | None = None

    @cached_property
    def counted(self) -> Mapping[int, Priced]:
        """The families of blocks, by the number of their step."""
        steps = enumerate(self.program.steps)
        return {number: self._counted(step) for number, step in steps if isinstance(step, Block) and self.needs(step)}

    def _counted(self, block: Block) -> Priced:
        values, pieces = self.program.values, self.program.pieces
        operands = tuple(values[pieces[read.piece].value].type.struct for read in block.reads)
        shaped = shape(self.shared.operations[block.runs], operands)
        cuts = cuts_of(self.shared, block)
        is_state = any(values[pieces[piece].value].state for piece in block.results)
        presents = shaped.operation.present is not None or shaped.operation.dense or shaped.operation.kind != "reduce"
        cut = blocked(shaped.operation, frozenset(cuts)) if shaped.operation.dense else frozenset[str]()
        part = Part("state" if is_state and presents else "result", cut, self.machine.platform)
        key = shaped.operation, operands, tuple(sorted(local_sizes(shaped, cuts).items()))
        counts = block_counts(key[0], key[1], part, key[2])
        return Priced(shaped, operands, cuts, counts, block_bytes(*key))

    @cached_property
    def _makers(self) -> dict[int, int]:
        blocks = ((number, step) for number, step in enumerate(self.program.steps) if number in self.counted)
        return {piece: number for number, step in blocks for piece in results_of(step)}

    @cached_property
    def _readers(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for number, step in enumerate(self.program.steps):
            if self.needs(step) and not isinstance(step, View):
                for piece in dict.fromkeys(map(self.base, reads_of(step))):
                    found.setdefault(piece, []).append(number)
        return found

    def base(self, piece: int) -> int:
        """The piece of which another is a view: the same cells under other names."""
        while piece in self._views:
            piece = self._views[piece]
        return piece

    @cached_property
    def _views(self) -> dict[int, int]:
        return {step.result: step.source for step in self.program.steps if isinstance(step, View)}

    @cached_property
    def _outputs(self) -> frozenset[int]:
        return frozenset(self.base(piece) for _, piece in self.program.outputs)

    def needs(self, step: Step) -> bool:
        """Whether anybody needs what a step makes."""
        return not self.live.isdisjoint(results_of(step))

    def is_constant(self, piece: int) -> bool:
        """Whether a piece is, in another layout, what the loop around captures: the same in all turns."""
        taken, repeat = self._taken(piece), self.repeat
        return taken is not None and repeat is not None and taken >= repeat.carries + len(repeat.axes)

    def is_slice(self, piece: int) -> bool:
        """Whether a piece is, in another layout, what the loop around hands each turn of its own."""
        taken, repeat = self._taken(piece), self.repeat
        return taken is not None and repeat is not None and 0 <= taken - repeat.carries < len(repeat.axes)

    def _taken(self, piece: int) -> int | None:
        """Which argument a piece is moved from, if it is."""
        while (piece := self.base(piece)) in self._moved:
            piece = self._moved[piece]
        return self._takes.get(piece)

    @cached_property
    def _takes(self) -> dict[int, int]:
        takes = [step.result for step in self.program.steps if isinstance(step, Take)]
        return {piece: number for number, piece in enumerate(takes)}

    @cached_property
    def _moved(self) -> dict[int, int]:
        return {step.result: step.source for step in self.program.steps if isinstance(step, Move)}

    def is_fused(self, piece: int) -> bool:
        """Whether a piece stays inside of a kernel: made and read by two operations that XLA runs as one."""
        maker, readers = self._makers.get(piece), self._readers.get(piece, ())
        if maker is None or piece in self._outputs or len(readers) != 1:
            return False
        reader, made_by = self.program.steps[readers[0]], self.program.steps[maker]
        assert isinstance(made_by, Block)
        if not isinstance(reader, Block) or reader.loops != made_by.loops:
            return False
        made, read = self.counted[maker].counts, self.counted[readers[0]].counts
        place = made_by.results.index(piece)
        head = made.heads[place] if place < len(made.heads) else "apart"
        return runs_as_one(self.machine.platform, head, read.heads, read.reads)

    def stays(self, piece: int, loops: Sequence[str]) -> bool:
        """Whether a piece that is written stays on the chip until it is read."""
        if piece in self._outputs or piece not in self._computed:
            return False
        readers = [self.program.steps[number] for number in self._readers.get(piece, ())]
        # What leaves a loop lies in memory.
        around = {self.program.pieces[made].loops for step in readers for made in results_of(step)}
        is_near = around <= {tuple(loops)} and self.program.pieces[piece].loops == tuple(loops)
        return is_near and stays(self.machine, bytes_of(self.program, self.program.pieces[piece]))

    @cached_property
    def _computed(self) -> frozenset[int]:
        """The pieces that operations leave, presented where they are folds."""
        blocks = (self.program.steps[number] for number in self.counted)
        return frozenset(piece for step in blocks if isinstance(step, Block) for piece in self.written(step))

    def written(self, block: Block) -> tuple[int, ...]:
        """The pieces that an operation writes: of a fold that no loop goes on with, what it is presented as."""
        made = block.results
        while True:
            step = self._folded.get(made[0]) if made else None
            if step is None or any(self.program.pieces[piece].loops != block.loops for piece in step.results):
                return made
            made = step.results

    @cached_property
    def _folded(self) -> dict[int, Merge | Present]:
        steps = (step for step in self.program.steps if isinstance(step, Merge | Present) and step.sources)
        return {step.sources[0]: step for step in steps}

    def cost(self, number: int, block: Block, times: int) -> OperationCost:
        """One family of blocks on one device, in all its turns."""
        known, machine = self.counted[number], self.machine
        moved, near = inner_bytes(machine, known.counts), 0.0
        for place, (often, size) in enumerate(zip(known.counts.reads, known.reads, strict=True)):
            piece = self.base(block.reads[place].piece) if place < len(block.reads) else None
            if piece is not None and self.is_fused(piece):
                continue
            if piece is not None and self.stays(piece, block.loops):
                near += often * size
            else:
                moved += often * size
        for piece in self.written(block):
            if self.is_fused(piece):
                continue
            size = bytes_of(self.program, self.program.pieces[piece])
            if self.stays(piece, block.loops):
                near += size
            else:
                moved += size
        took = roofline(machine, known.counts, moved, near)
        flops = times * known.counts.flops
        return OperationCost(block.path, times, flops, times * moved, times * took.total, 0.0, 0.0, took.limit)


def turns_of_loop(loop: Coordinate, counts: Mapping[str, int]) -> int:
    """How often a loop turns; the last stage of a pipeline begins that much later than the first."""
    return loop.count + (math.prod(counts[axis] for axis in loop.along) - 1 if loop.kind == "pipeline" else 0)
