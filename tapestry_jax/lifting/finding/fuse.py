"""Chains that act cell by cell become one step where they have one reader, and a step an operation of the graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from combinators.index_space.axis import Axis, Term
from combinators.index_space.operand import Operand
from combinators.index_space.signature import Signature
from combinators.operations.operation import Operation
from tapestry_jax.lifting.kernels.cells import Cells, Instruction, Program
from tapestry_jax.lifting.values import CellStep, Dims, LoopStep, Step, Steps, needed, operands_of

CHEAP = 16
"""Instructions of a program without operands that are computed again by every reader: masks, positions."""


def fuse(steps: Steps) -> Steps:
    """The steps with each program that one other program reads put into it; unread ones are dropped.

    What only moves axes, and what is made of coordinates alone in few instructions, is put into every program that
    reads it.
    """
    fused = _once(steps)
    # What several steps read that have become one has one reader now, such as a mean that a variance is computed from.
    return fused if len(fused.steps) == len(steps.steps) else fuse(fused)


def _once(steps: Steps) -> Steps:
    readers = _readers(steps)
    made: dict[int, CellStep] = {}
    same: dict[int, int] = {}
    kept: list[Step] = []
    for step in steps.steps:
        if isinstance(step, CellStep):
            step = _merged(replace(step, operands=[(same.get(v, v), dims) for v, dims in step.operands]), made, readers)
            if len(step.results) == 1:
                made[step.results[0][0]] = step
            if _is_copy(step):
                same[step.results[0][0]] = step.operands[0][0]
                continue
        else:
            step = replace(step, operands=[same.get(v, v) for v in step.operands])
        kept.append(replace(step, body=fuse(step.body)) if isinstance(step, LoopStep) else step)
    outputs = [same.get(value, value) for value in steps.outputs]
    return replace(steps, steps=needed(kept, outputs), outputs=outputs)


def operation_of(step: CellStep) -> Operation:
    """The map that a program is; dimensions that no operand has are told by their coordinates."""
    carried = {dim for _, dims in step.operands for dim in dims}
    told = [*step.coordinates, *(d for d in range(len(step.sizes)) if d not in carried and d not in step.coordinates)]
    reads = tuple(dims for _, dims in step.operands)
    writes = tuple(dims for _, dims in step.results)
    kernel = Cells(step.program, reads, tuple(told), writes, len(step.sizes), len(told) - len(step.coordinates))
    signature = Signature(
        (*map(_operand, reads), *(Operand(coordinate=_name(dim)) for dim in told)), tuple(map(_operand, writes))
    )
    sizes = tuple(sorted((_name(dim), step.sizes[dim]) for dim in told if dim not in carried))
    return Operation(signature, kernel, sizes=sizes, name=step.name)


def _readers(steps: Steps) -> Counter[int]:
    """How many steps read each value; outputs count twice, since they are never put away."""
    counts: Counter[int] = Counter()
    for step in steps.steps:
        counts.update(set(operands_of(step)))
    counts.update(dict.fromkeys(steps.outputs, 2))
    return counts


def _merged(step: CellStep, made: dict[int, CellStep], readers: Counter[int]) -> CellStep:
    """The step with what it alone reads put into it."""
    merger = _Merger(step.sizes)
    registers = [merger.read(value, dims, made, readers) for value, dims in step.operands]
    registers += [merger.coordinate(dim) for dim in step.coordinates]
    outputs = merger.run(step.program, registers)
    operands, coordinates, program = merger.finish(outputs)
    name = step.name if step.program.instructions else merger.name or step.name
    return replace(step, name=name, operands=operands, coordinates=coordinates, program=program)


class _Merger:
    """Puts programs one after the other; registers are symbols until their number is known."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = sizes
        self._operands: dict[tuple[int, Dims], object] = {}
        self._coordinates: dict[int, object] = {}
        self._instructions: list[tuple[Instruction, list[object]]] = []
        self._made: dict[tuple[int, Dims], Any] = {}
        self.name = ""

    def read(self, value: int, dims: Dims, made: dict[int, CellStep], readers: Counter[int]) -> Any:
        """The register, or number, of a value whose axes are these dimensions."""
        producer = made.get(value)
        if producer is None or not (readers[value] == 1 or _is_free(producer)):
            return self._operands.setdefault((value, dims), _Register())
        if (value, dims) not in self._made:
            own = producer.results[0][1]
            at = {i: o for i, o in zip(own, dims, strict=True) if i is not None and o is not None}
            registers: list[Any] = [
                self._operands.setdefault((v, tuple(None if d is None else at[d] for d in inner)), _Register())
                for v, inner in producer.operands
            ]
            registers += [self.coordinate(at[d]) for d in producer.coordinates]
            self._made[value, dims] = self.run(producer.program, registers)[0]
            self.name = self.name or producer.name
        return self._made[value, dims]

    def coordinate(self, dim: int) -> object:
        """The register of the coordinates along a dimension."""
        return self._coordinates.setdefault(dim, _Register())

    def run(self, program: Program, registers: Sequence[Any]) -> list[Any]:
        """Append a program; returns the registers, or numbers, of its outputs."""
        known = list(registers)
        for instruction in program.instructions:
            inputs = [known[at] if type(at) is int else at for at in instruction.inputs]
            outs = [_Register() for _ in range(instruction.count)]
            self._instructions.append((instruction, [*inputs, None, *outs]))
            known.extend(outs)
        return [known[at] if type(at) is int else at for at in program.outputs]

    def finish(self, outputs: Sequence[Any]) -> tuple[list[tuple[int, Dims]], list[int], Program]:
        """Operands, coordinates and the program, all registers numbered."""
        coordinates = sorted(self._coordinates)
        order: list[object] = [*self._operands.values(), *(self._coordinates[dim] for dim in coordinates)]
        numbers: dict[int, int] = {id(register): at for at, register in enumerate(order)}

        def numbered(symbol: Any) -> Any:
            return numbers[id(symbol)] if isinstance(symbol, _Register) else symbol

        instructions: list[Instruction] = []
        for instruction, symbols in self._instructions:
            cut = len(instruction.inputs)
            inputs = tuple(numbered(symbol) for symbol in symbols[:cut])
            instructions.append(Instruction(instruction.primitive, instruction.params, inputs, instruction.rule))
            for out in symbols[cut + 1 :]:
                numbers[id(out)] = len(numbers)
        program = Program(tuple(instructions), tuple(map(numbered, outputs)))
        return list(self._operands), coordinates, program


class _Register:
    """A register whose number is not known yet."""


def _is_free(step: CellStep) -> bool:
    """Whether computing it again costs nothing that counts."""
    return not step.program.instructions or (not step.operands and len(step.program.instructions) <= CHEAP)


def _is_copy(step: CellStep) -> bool:
    """Whether it gives its operand as it is: axes that were moved there and back."""
    if step.program.instructions or len(step.operands) != 1 or len(step.results) != 1:
        return False
    return step.program.outputs == (0,) and step.operands[0][1] == step.results[0][1]


def _operand(dims: Dims) -> Operand:
    return Operand(tuple(Axis("one") if d is None else Axis("affine", (Term(_name(d)),)) for d in dims))


def _name(dim: int) -> str:
    return f"d{dim}"
