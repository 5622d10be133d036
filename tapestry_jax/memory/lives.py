"""From a program to its blocks of memory: when each buffer is written first and read last, and which share a place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import fields
from functools import cached_property
from operator import attrgetter

from tapestry_jax.memory.blocks import Block, joined, lent, moved
from tapestry_jax.memory.buffers import Buffers
from tapestry_jax.memory.program import BRANCH, COSTLY, LOOP, UPDATE, Node, Program

_ELSEWHERE = frozenset(("apart", "turns"))
"""What reads other elements of an operand than that which it writes."""
_SAID = attrgetter(*(each.name for each in fields(Node) if each.name not in ("path", "backward", "name", "bodies")))
"""All that says how long the values of an operation live, but for its bodies."""


def blocks_of(program: Program) -> list[Block]:
    """The blocks of temporaries: neither the inputs of the program nor its outputs are there."""
    outputs = {number for number in program.outputs if number is not None}
    found = Lives(program, outputs, free=outputs, known=Bodies())
    found.host()
    return joined(lent(found.blocks(0)[0], found.places()))


class Bodies:
    """The blocks inside of loops and branches, found once for those that are alike, such as those of equal layers."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._of: dict[int, int] = {}
        self._known: dict[Hashable, tuple[Node, int, list[Block], int]] = {}

    def inside(self, node: Node, tick: int) -> tuple[list[Block], int]:
        """The blocks of one turn, or of all branches one after the other, and the tick after them."""
        if node.kind not in (LOOP, BRANCH):
            return [], tick
        key = node.kind, node.held, node.carries, tuple(map(self._number, node.bodies))
        known = self._known.get(key)
        if known is None:
            blocks, after = _inside(node, tick, self)
            self._known[key] = node, tick, blocks, after
            return blocks, after
        like, began, blocks, after = known
        return moved(blocks, tick - began, dict(_pairs(like, node))), after + tick - began

    def _number(self, program: Program) -> int:
        """The same for programs that are alike, but for where their operations come from."""
        if id(program) not in self._of:
            nodes = tuple((*_SAID(node), *map(self._number, node.bodies)) for node in program.nodes)
            # Types are written once: values of one type are one object, which lives as long as its program.
            key = tuple(map(id, program.values)), program.inputs, nodes, program.outputs
            self._of[id(program)] = self._numbers.setdefault(key, len(self._numbers))
        return self._of[id(program)]


def _pairs(node: Node, other: Node) -> Iterator[tuple[int, Node]]:
    """The nodes inside of one, by their identity, and those of another that is alike."""
    for own, its in zip(node.bodies, other.bodies, strict=True):
        for one, two in zip(own.nodes, its.nodes, strict=True):
            yield id(one), two
            yield from _pairs(one, two)


def _turn(node: Node, body: Program, tick: int, known: Bodies) -> tuple[list[Block], int]:
    """The blocks inside of one turn of a loop, without its operands and without what the loop gives."""
    carried = [out for out in body.outputs[: node.carries] if out is not None]
    found = Lives(body, carried, free=(), known=known)
    # The new value takes the place of the old one where nobody reads that any more.
    pairs = zip(body.inputs[node.held :], body.outputs[: node.carries], strict=False)
    found.overwrite({new: old for old, new in pairs if new is not None})
    # What turns give is written where all turns' lies; what is computed is computed there.
    found.write(out for out in body.outputs[node.carries :] if out is not None)
    return found.blocks(tick)


class Lives:
    """How long the buffers of a program live, in its order."""

    def __init__(self, program: Program, wanted: Iterable[int], free: Iterable[int], known: Bodies) -> None:
        self.known = known
        self.program, self.buffers = program, Buffers(program, wanted)
        self.made = {result: at for at, node in enumerate(program.nodes) for result in node.results}
        self.last: dict[int, int] = {}
        self.readers = Counter[int]()
        for at in self.buffers.run:
            for buffer in self.buffers.read(at):
                self.last[buffer] = at
                self.readers[buffer] += 1
        for out in program.outputs:
            for buffer in self.buffers.of(out) if out is not None else ():
                self.last[buffer] = len(program.nodes)
        self.free = set(program.inputs)
        self.place: dict[int, int] = {}
        self.ticks: list[tuple[int, int]] = []
        for number in free:
            self.free |= self.buffers.of(number)

    def overwrite(self, places: dict[int, int]) -> None:
        """Results that may take the place of inputs: they do where the input is read for the last time by then."""
        for new, old in places.items():
            for buffer in self.buffers.of(new) & self.made.keys():
                at = self.made[buffer]
                # A product still reads the old value while it writes the new one.
                if self.last.get(old, -1) < at + _in_place(self.program.nodes[at]):
                    self.free.add(buffer)

    def write(self, results: Iterable[int]) -> None:
        """Results that are written elsewhere as soon as they are made; then nobody else keeps them alive."""
        for number in results:
            for buffer in self.buffers.of(number):
                uses = [at for at in self.buffers.run if buffer in self.buffers.read(at)]
                if buffer in self.made and buffer not in self.free:
                    self.last[buffer] = max([self.made[buffer], *uses])

    def host(self) -> None:
        """What becomes an output cell by cell lies where the output will."""
        for at in reversed(self.buffers.run):
            node = self.program.nodes[at]
            places = {result: self.program.values[result].bytes for result in node.results if result in self.free}
            if not places:
                continue
            held = {*self._held(node).values()}
            for buffer in sorted(self.buffers.read(at)):
                size = self.program.values[buffer].bytes
                if self.last.get(buffer) != at or buffer in self.free or buffer not in self.made:
                    continue
                if not (self._gives(buffer, node) or buffer in held):
                    continue
                taken = next((result for result, room in places.items() if room == size), None)
                if taken is not None:
                    del places[taken]
                    self.free.add(buffer)
                    self.place[buffer] = self.place.get(taken, taken)

    def blocks(self, tick: int) -> tuple[list[Block], int]:
        """The blocks, those of loops and branches too, when the first operation runs at `tick`; the tick after all."""
        begun: dict[int, tuple[int, Node]] = {}
        over: dict[int, int] = {}
        kept: dict[int, int] = {}
        inner: list[Block] = []
        for at in self.buffers.run:
            tick = self._until(at, tick)
            node = self.program.nodes[at]
            self.ticks.append((tick, tick))
            found, after = self.known.inside(node, tick + 1)
            inner += found
            ending = [buffer for buffer in self.buffers.read(at) if self.last[buffer] == at and buffer in begun]
            held = self._held(node)
            for buffer in filter(self._counts, node.results):
                begun[buffer] = tick, node
                if held.get(buffer) in ending:
                    kept[buffer] = held[buffer]
                    continue
                size = self._bytes(buffer)
                under = next((each for each in ending if self._bytes(each) == size and self._gives(each, node)), None)
                if under is not None:
                    ending.remove(under)
                    over[buffer] = under
            self.ticks[-1], tick = (tick, after - 1), after
        tick = self._until(len(self.program.nodes), tick)
        self.ticks.append((tick, tick))
        return [*inner, *self._own(begun, kept, over)], tick

    def _until(self, at: int, tick: int) -> int:
        """The tick of an operation, if what is before it and was not looked at is only computed later."""
        ahead = tick + at - len(self.ticks)
        self.ticks += [(each, each) for each in range(tick, ahead)]
        return ahead

    def _own(self, begun: dict[int, tuple[int, Node]], kept: dict[int, int], over: dict[int, int]) -> Iterator[Block]:
        """The blocks of values by where they begin, are updated in place, and may be written over another one."""
        first: dict[int, int] = {}
        groups: dict[int, list[int]] = {}
        for buffer in begun:
            first[buffer] = first[kept[buffer]] if buffer in kept else buffer
            groups.setdefault(first[buffer], []).append(buffer)
        blocks: dict[int, Block] = {}
        for root, group in groups.items():
            end = max(self.ticks[self.last[buffer]][1] for buffer in group)
            (start, maker), under = begun[root], over.get(root)
            below = None if under is None else blocks.get(first[under])
            freed = self.ticks[self.last[root]][1]
            blocks[root] = Block(start, end, self.program.values[root], maker, below, freed, len(group) > 1)
        # The order in which compilers look at them where nothing else decides.
        order = self.order
        for root in sorted(blocks, key=lambda root: order.get(self.made[root], len(order))):
            yield blocks[root]

    def _held(self, node: Node) -> dict[int, int]:
        """For results that lie where an operand does, its buffer: what is updated, what a loop hands on or fills."""
        match node.kind:
            case int(kind) if kind == UPDATE:
                pairs = zip(node.results[:1], node.operands[:1], strict=True)
            case int(kind) if kind == LOOP:
                handed = node.operands[node.held : node.held + node.carries]
                filled = node.operands[len(node.operands) - node.places :]
                pairs = zip(node.results, (*handed, *filled), strict=False)
            case _:
                return {}
        roots = ((result, self.buffers.of(operand)) for result, operand in pairs)
        single = ((result, next(iter(found))) for result, found in roots if len(found) == 1)
        return {result: buffer for result, buffer in single if self._bytes(result) == self._bytes(buffer)}

    def _gives(self, buffer: int, node: Node) -> bool:
        """Whether an operation may write its result over an operand.

        What is sorted is written over, if nobody else reads it, and if it does not come from a product by a reshape.
        """
        alone = self.readers[buffer] == 1 and not self.program.nodes[self.made[buffer]].merged
        return (node.kind <= COSTLY and node.library not in _ELSEWHERE) or (node.library == "sorts" and alone)

    def _counts(self, number: int) -> bool:
        return number in self.buffers.own and number not in self.free and number in self.last

    def _bytes(self, number: int) -> int:
        return self.program.values[number].bytes

    @cached_property
    def order(self) -> dict[int, int]:
        """Operations by their places, and where each comes as outputs ask for them."""
        return {at: place for place, at in enumerate(_post_order(self.program, self.made))}

    def places(self) -> list[tuple[int, int]]:
        """The bytes of outputs, and when they are written: the smallest first, of alike ones the last."""
        until: dict[int, int] = {}
        for number in self.program.outputs:
            for buffer in self.buffers.of(number) & self.made.keys() if number is not None else ():
                until[buffer] = self.ticks[self.made[buffer]][0]
        for buffer, output in self.place.items():
            if output in until:
                until[output] = min(until[output], self.ticks[self.made[buffer]][0])
        asked = sorted(until, key=lambda output: (self._bytes(output), -self.order[self.made[output]]))
        return [(self._bytes(output), until[output]) for output in asked]


def _post_order(program: Program, made: dict[int, int]) -> Iterator[int]:
    """The places of operations, each behind those that its operands come from, as outputs ask for them."""
    opened: set[int] = set()
    seen: set[int] = set()
    todo = [made[out] for out in reversed(program.outputs) if out in made]
    while todo:
        at = todo[-1]
        if at not in opened:
            opened.add(at)
            before = [made[number] for number in reversed(program.nodes[at].operands) if number in made]
            todo += [each for each in before if each not in opened]
            continue
        todo.pop()
        if at not in seen:
            seen.add(at)
            yield at


def _in_place(node: Node) -> bool:
    """Whether results may lie where operands of their size have been: cell by cell, sorted, or carried by a loop."""
    return node.kind in (LOOP, UPDATE) or node.kind <= 2 or node.library == "sorts"


def _inside(node: Node, tick: int, known: Bodies) -> tuple[list[Block], int]:
    """The blocks of one turn, or of all branches one after the other."""
    if node.kind == LOOP:
        return _turn(node, node.bodies[0], tick, known)
    made: list[Block] = []
    for body in node.bodies:
        outputs = {number for number in body.outputs if number is not None}
        found = Lives(body, outputs, free=outputs, known=known)
        found.host()
        blocks, tick = found.blocks(tick)
        made += lent(blocks, found.places())
    return made, tick
