"""The most that is alive at once in a program: buffers from where they are made to where they are last read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from combinators.frozen import dataclass
from tapestry_jax.memory.buffers import Buffers
from tapestry_jax.memory.program import BRANCH, LOOP, UPDATE, Node, Program


@dataclass(frozen=True)
class Live:
    """One buffer that is alive at the peak.

    Attributes:
      bytes: of one device.
      type: dtype and shape of its piece, such as `bfloat16[96,1,2048,12288]`.
      path: of the operation that makes it.
      backward: whether the gradient makes it.
    """

    bytes: int
    type: str
    path: str
    backward: bool


@dataclass(frozen=True)
class Peak:
    """The most that is alive at once.

    Attributes:
      bytes: of all buffers.
      live: the buffers, in the order in which they are made.
    """

    bytes: int = 0
    live: tuple[Live, ...] = ()


def peak(program: Program) -> Peak:
    """The peak of temporaries: neither the inputs of the program nor its outputs are counted."""
    outputs = {number for number in program.outputs if number is not None}
    found = _Pass(program, outputs, free=outputs)
    found.host()
    found.lend()
    return found.peak()


def _turn(node: Node, body: Program) -> Peak:
    """The peak inside of one turn of a loop, without its operands and without what the loop gives."""
    carried = [out for out in body.outputs[: node.carries] if out is not None]
    found = _Pass(body, carried, free=())
    # The new value takes the place of the old one where nobody reads that any more.
    pairs = zip(body.inputs[node.held :], body.outputs[: node.carries], strict=False)
    found.overwrite({new: old for old, new in pairs if new is not None})
    # What turns give is written where all turns' lies; what is computed is computed there.
    found.write(out for out in body.outputs[node.carries :] if out is not None)
    return found.peak()


class _Pass:
    """One way through a program in its order."""

    def __init__(self, program: Program, wanted: Iterable[int], free: Iterable[int]) -> None:
        self.program, self.buffers = program, Buffers(program, wanted)
        self.makers = {result: node for node in program.nodes for result in node.results}
        self.last: dict[int, int] = {}
        for at, node in enumerate(program.nodes):
            for buffer in self.buffers.read(node):
                self.last[buffer] = at
        for out in program.outputs:
            for buffer in self.buffers.of(out) if out is not None else ():
                self.last[buffer] = len(program.nodes)
        self.free = set(program.inputs)
        self.place: dict[int, int] = {}
        for number in free:
            self.free |= self.buffers.of(number)

    def overwrite(self, places: dict[int, int]) -> None:
        """Results that may take the place of inputs: they do where the input is read for the last time by then."""
        made = {result: at for at, node in enumerate(self.program.nodes) for result in node.results}
        for new, old in places.items():
            for buffer in self.buffers.of(new) & made.keys():
                at = made[buffer]
                # A product still reads the old value while it writes the new one.
                if self.last.get(old, -1) < at + _in_place(self.program.nodes[at]):
                    self.free.add(buffer)

    def write(self, results: Iterable[int]) -> None:
        """Results that are written elsewhere as soon as they are made; then nobody else keeps them alive."""
        for number in results:
            for buffer in self.buffers.of(number):
                uses = [at for at, node in enumerate(self.program.nodes) if buffer in self.buffers.read(node)]
                made = next((at for at, node in enumerate(self.program.nodes) if buffer in node.results), None)
                if made is not None and buffer not in self.free:
                    self.last[buffer] = max([made, *uses])

    def host(self) -> None:
        """What becomes an output cell by cell lies where the output will."""
        for at, node in reversed([*enumerate(self.program.nodes)]):
            if not _in_place(node):
                continue
            places = {result: self.program.values[result].bytes for result in node.results if result in self.free}
            for buffer in sorted(self.buffers.read(node)):
                size = self.program.values[buffer].bytes
                if self.last.get(buffer) != at or buffer in self.free:
                    continue
                taken = next((result for result, room in places.items() if room == size), None)
                if taken is not None:
                    del places[taken]
                    self.free.add(buffer)
                    self.place[buffer] = self.place.get(taken, taken)

    def lend(self) -> None:
        """Until an output is written, its place is there for what is gone by then, the largest first."""
        made = {result: at for at, node in enumerate(self.program.nodes) for result in node.results}
        until: dict[int, int] = {}
        for number in self.program.outputs:
            for buffer in self.buffers.of(number) & made.keys() if number is not None else ():
                until[buffer] = min(until.get(buffer, made[buffer]), made[buffer])
        for buffer, output in self.place.items():
            if output in until:
                until[output] = min(until[output], made[buffer])
        taken: dict[int, list[tuple[int, int]]] = {output: [] for output in until}
        size = {number: self.program.values[number].bytes for number in made}
        lent = [number for number in made if number in self.buffers.own and number in self.last]
        for buffer in sorted((number for number in lent if number not in self.free), key=lambda number: -size[number]):
            start, end = made[buffer], self.last[buffer]
            for output in sorted(until, key=lambda number: size[number]):
                if size[output] < size[buffer] or until[output] <= end:
                    continue
                if all(end < other or start > last for other, last in taken[output]):
                    taken[output].append((start, end))
                    self.free.add(buffer)
                    break

    def peak(self) -> Peak:
        values, ends = self.program.values, defaultdict[int, list[int]](list)
        for buffer, at in self.last.items():
            ends[at].append(buffer)
        alive: dict[int, int] = {}
        best, current, kept, inner_best = 0, 0, tuple[int, ...](), Peak()
        for at, node in enumerate(self.program.nodes):
            made = [r for r in node.results if r in self.buffers.own and r not in self.free and r in self.last]
            ending = [b for b in ends[at] if b in alive]
            inner = _inside(node)
            reused = self._reused(node, made, ending, alive)
            for buffer in made:
                alive[buffer] = values[buffer].bytes
                current += alive[buffer]
            # What is overwritten in place is not there twice.
            if current - reused + inner.bytes > best:
                best, kept, inner_best = current - reused + inner.bytes, tuple(alive), inner
            for buffer in ending:
                if buffer in alive:
                    current -= alive.pop(buffer)
        return Peak(best, (*(self._live(buffer) for buffer in kept if values[buffer].bytes), *inner_best.live))

    def _reused(self, node: Node, made: list[int], ending: list[int], alive: dict[int, int]) -> int:
        """Bytes of operands that end here and whose place the results take."""
        free = [alive[buffer] for buffer in ending]
        total = 0
        for buffer in made:
            size = self.program.values[buffer].bytes
            if size in free and _in_place(node):
                free.remove(size)
                total += size
        return total

    def _live(self, buffer: int) -> Live:
        value, node = self.program.values[buffer], self.makers.get(buffer)
        return Live(value.bytes, value.text, node.path if node else "", node.backward if node else False)


def _in_place(node: Node) -> bool:
    """Whether results may lie where operands of their size have been: cell by cell, or carried by a loop."""
    return node.kind in (LOOP, UPDATE) or node.kind <= 2


def _inside(node: Node) -> Peak:
    match node.kind:
        case int(kind) if kind == LOOP:
            return _turn(node, node.bodies[0])
        case int(kind) if kind == BRANCH:
            return max((peak(body) for body in node.bodies), key=lambda found: found.bytes)
        case _:
            return Peak()
