"""The program again, from its blocks alone: sizes from their boxes, wires from what they read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from combinators.errors import PlanError, message
from combinators.graphs.graph import Graph
from combinators.graphs.nodes import Apply, Input, Loop, Node, Ref, Rename
from combinators.index_space.tensor_type import TensorType
from tapestry_jax.shards.parts import Block, Present, Program, Ranges, Repeat, Shared, Take, View
from tapestry_jax.shards.ranges import Range


def abstract(shared: Shared, program: Program) -> Graph:
    """The abstract expression graph of which these blocks are pieces.

    Every tensor is as large as the boxes in which it is made. Every operation stands once, whatever devices, turns
    and iterations run it, and reads the tensors of which its blocks read pieces.

    Args:
      shared: coordinates and operations.
      program: the blocks.

    Raises:
      PlanError: where blocks of one operation disagree, or nothing makes what they read.
    """
    return _Reader(shared, program).graph()


class _Reader:
    """Collects the nodes of one program, in the order of its tensors."""

    def __init__(self, shared: Shared, program: Program) -> None:
        self._shared, self._program, self._counts = shared, program, shared.counts
        self._made: dict[int, tuple[int, ...]] = {}
        self._nodes: dict[int, Node] = {}
        self._wires: dict[int, tuple[int, ...]] = {}
        self._types: dict[int, TensorType] = {}
        self._between: dict[int, tuple[int, ...]] = {}

    def graph(self) -> Graph:
        """The graph."""
        program = self._program
        self._measure()
        for step in program.steps:
            match step:
                case Take(name, result):
                    value = program.pieces[result].value
                    self._put((value,), (), Input(name, (self._type(value),)), name)
                case View(path, source, result, names):
                    value, read = program.pieces[result].value, program.pieces[source].value
                    kind = self._type(value)
                    self._put((value,), (read,), Rename((), names, (kind,), program.values[value].path), path)
                case Block():
                    self._block(step)
                case Repeat():
                    self._repeat(step)
                case _:
                    pass
        return self._assembled()

    def _block(self, step: Block) -> None:
        values = self._program.values
        kinds = tuple(self._type(value) for value in step.makes)
        if not step.makes:
            _refuse(step.path, "makes no tensor")
        operation = self._shared.operations[step.operation]
        node = Apply(operation, (), step.names, kinds, values[step.makes[0]].path)
        self._put(step.makes, tuple(self._program.pieces[read.piece].value for read in step.reads), node, step.path)

    def _repeat(self, step: Repeat) -> None:
        reads = tuple(self._program.pieces[piece].value for piece in step.operands)
        body = abstract(self._shared, step.body)
        length = step.first + step.turns * step.depth if step.stage is None else step.stage.limit[1]
        known = self._nodes.get(step.makes[0]) if step.makes else None
        if step.first:
            # It goes on where another one has ended, which says what the loop reads.
            if not isinstance(known, Loop) or known.body != body or known.length != step.first:
                _refuse(step.path, f"goes on with iteration {step.first}, where no loop of the same body has ended")
            del self._nodes[step.makes[0]]
            reads = self._wires.pop(step.makes[0])[: step.carries] + reads[step.carries :]
        kinds = tuple(self._type(value) for value in step.makes)
        path = self._program.values[step.makes[0]].path if step.makes else step.path
        node = Loop(body, length, step.over, (), step.carries, step.axes, kinds, path, step.until)
        self._put(step.makes, reads, node, step.path)

    def _put(self, makes: tuple[int, ...], reads: tuple[int, ...], node: Node, path: str) -> None:
        first = makes[0]
        if first in self._nodes and (self._nodes[first], self._wires[first]) != (node, reads):
            _refuse(path, "is said to be two operations", f"reads {self._wires[first]}, then {reads}")
        self._nodes[first], self._wires[first] = node, reads
        for output, value in enumerate(makes):
            self._made[value] = (first, output)

    def _measure(self) -> None:
        """The boxes in which every tensor is made."""
        makers: dict[int, list[Ranges]] = {}
        for step in self._program.steps:
            match step:
                case Take(_, result) | View(_, _, result, _):
                    results: Sequence[int] = (result,)
                case Block(results=results) | Present(results=results) | Repeat(results=results):
                    pass
                case _:
                    continue
            for piece in results:
                box = self._program.pieces[piece].box
                # What a loop takes in with an overlap says what its first operation reads, not how large it is.
                if all(own.offset == 0 and own.stride == own.width for own in box):
                    makers.setdefault(self._program.pieces[piece].value, []).append(box)
        for value, boxes in makers.items():
            self._types[value] = self._measured(value, boxes)

    def _measured(self, value: int, boxes: Sequence[Ranges]) -> TensorType:
        known = self._program.values[value].type
        shape = [max(self._end(box[axis]) for box in boxes) for axis in range(len(boxes[0]))]
        return TensorType.make(known.names, shape, known.dtype)

    def _end(self, own: Range) -> int:
        """Where the cells of a range end, at the last place along every coordinate; what the axis wraps, left out."""
        last = own.start({name: self._counts[name] - 1 for name, step in own.steps if step > 0}) + own.count
        end = min(last, own.limit[1] - (own.after if own.wraps else 0))
        return own.offset + own.stride * (end - 1) + own.width if end > 0 else 0

    def _type(self, value: int) -> TensorType:
        return self._types.get(value, self._program.values[value].type)

    def _assembled(self) -> Graph:
        program = self._program
        order = sorted(self._nodes)
        place = {first: number for number, first in enumerate(order)}

        def ref(value: int, path: str) -> Ref:
            if value not in self._made:
                _refuse(path, "reads what nothing makes", f"`{program.values[value].path}`")
            first, output = self._made[value]
            return Ref(place[first], output)

        nodes: list[Node] = []
        for first in order:
            node = self._nodes[first]
            operands = tuple(ref(value, node.path) for value in self._wires[first])
            if isinstance(node, Input):
                nodes.append(node)
            elif isinstance(node, Apply):
                nodes.append(Apply(node.operation, operands, node.names, node.results, node.path))
            elif isinstance(node, Rename):
                nodes.append(Rename(operands, node.names, node.results, node.path))
            else:
                axes, kinds = node.axes, node.results
                wiring = operands, node.carries, axes, kinds
                nodes.append(Loop(node.body, node.length, node.over, *wiring, node.path, node.until))
        outputs = tuple((name, ref(program.pieces[piece].value, f"output {name}")) for name, piece in program.outputs)
        named = tuple((name, ref(value, name)) for name, value in program.named if value in self._made)
        trees = program.in_tree, program.out_tree
        return Graph(tuple(nodes), outputs, named, *trees, program.name, program.suggested)


def _refuse(path: str, what: str, *lines: str) -> NoReturn:
    raise PlanError(message(f"`{path}` {what}", *lines, remedy="Write the sharded graph again: plan.shards()."))
