"""Blocks that are lost, computed again from what they were made of, and taken where the checksum is the same."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from combinators.errors import PlanError, TapestryError, first_line, message, spelt
from tapestry_jax.fabric.arrays import Pieces
from tapestry_jax.fabric.blocks.files import checksum
from tapestry_jax.fabric.catalogue import reads, writes
from tapestry_jax.fabric.drafts import discard, sync, told
from tapestry_jax.fabric.errors import FabricError
from tapestry_jax.fabric.moving.copying import moved
from tapestry_jax.fabric.moving.files import open_source
from tapestry_jax.fabric.moving.reading import damages
from tapestry_jax.fabric.opened import Opened
from tapestry_jax.fabric.programs.applying import compute
from tapestry_jax.fabric.programs.program import Program, read_plan, read_program, stored_graph
from tapestry_jax.fabric.programs.streaming import Asked, Streamed, run_streamed
from tapestry_jax.fabric.streams.sources import FabricSource
from tapestry_jax.fabric.tensors.boxes import Box, Piece, pieces, shape_of, shown, slices
from tapestry_jax.fabric.tensors.records import Block, Operation, Version, damaged, number_from_row
from tapestry_jax.plan import Plan
from tapestry_jax.storage.boxes import check_box
from tapestry_jax.storage.files.pieces import read as read_stored
from tapestry_jax.storage.protocols import Stored

_DEEPEST = 16
"""Generations that are gone back, as far as the catalogue remembers them."""


class Recovery:
    """One recovery: what was computed on the way is computed once.

    Args:
      opened: the fabric.
      function: the program, where no file could hold it.
    """

    def __init__(self, opened: Opened, function: Any = None) -> None:
        self._opened, self._function = opened, function
        self._results: dict[tuple[int, int], Any] = {}
        self._pinned: list[int] = []
        self._streams: list[tuple[Streamed, list[str]]] = []

    def close(self) -> None:
        """Let go of what was computed on the way."""
        for streamed, outputs in self._streams:
            streamed.close()
            for name in outputs:
                writes.drop_pending(self._opened.catalogue, name)
        self._opened.unpin(self._pinned)

    def recover(self, name: str, version: Version, depth: int = 0) -> tuple[Box, ...]:
        """Make a version whole again; the boxes of the blocks that were lost.

        Raises:
          FabricError: where nobody knows how a block was made, what it was made of is gone, or other bytes come out.
        """
        lost = damages(self._opened, version)
        for piece in lost:
            self._restore(name, version, piece, depth)
        return tuple(piece.block for piece in lost)

    def _restore(self, name: str, version: Version, piece: Piece, depth: int) -> None:
        opened, kind = self._opened, version.kind
        block = reads.block(opened.catalogue, version.number, piece.position)
        where = f"recover {name!r}, block {shown(piece.block, kind.type.names)}"
        if block is None:
            return
        if block.made is None:
            told_ = "it was written from memory, or by more copies than are remembered"
            raise FabricError(message(f"{where}: nobody knows how it was made", told_, remedy=_RESTORE))
        array = np.zeros(shape_of(piece.block), kind.type.dtype)
        for number, output in block.made:
            array = self._after(array, version, (piece, block), number, output, where, depth)
        if block.checksum and checksum(np.ascontiguousarray(array)) != block.checksum:
            told_ = "its checksum differs: it was computed on another machine, mesh or release, or what it read changed"
            raise FabricError(message(f"{where}: other bytes came out than were lost", told_, remedy=_RESTORE))
        with told(name, kind, piece):
            file, _ = opened.blocks.put(array, kind)
        sync(opened, name)
        self._replace(version, piece, block, file)

    def _replace(self, version: Version, piece: Piece, block: Block, file: str) -> None:
        """Let every version that had the file have the new one."""
        opened, new = self._opened, Block(file, block.checksum, block.made)
        try:
            with opened.catalogue.writing():
                if block.file is None:
                    writes.replace_dropped(opened.catalogue, version.number, piece.position, new)
                else:
                    writes.replace_file(opened.catalogue, block, new)
        except BaseException:
            discard(opened, [file])
            raise
        if block.file is not None:
            opened.blocks.remove([block.file])
        discard(opened, [file])

    def _after(
        self, array: Any, version: Version, at: tuple[Piece, Block], number: int, output: int, where: str, depth: int
    ) -> np.ndarray[Any, Any]:
        """What a block is after an operation."""
        piece, block = at
        operation = reads.operation(self._opened.catalogue, number)
        if operation is None or depth >= _DEEPEST:
            raise FabricError(message(f"{where}: how it was made is no longer remembered", remedy=_RESTORE))
        match operation.kind:
            case "load":
                return self._loaded(operation, piece, block, version, where)
            case "apply":
                return np.asarray(self._applied(operation, output, where, depth)(piece.block), version.kind.type.dtype)
            case "copy":
                return self._copied(array, operation, piece, version, where, depth)
            case _:
                raise damaged("an operation is of no kind that is known", f"{spelt(operation.kind, 40)}")

    def _loaded(
        self, operation: Operation, piece: Piece, block: Block, version: Version, where: str
    ) -> np.ndarray[Any, Any]:
        said = operation.detail
        path = str(said.get("path"))
        # A catalogue may come from anybody: what it says is no reason to ask other machines.
        if "://" in path:
            remedy = "Load it again: fabric.load(name, address, overwrite=True)."
            raise FabricError(
                message(f"{where}: it came from {spelt(path, 200)}, which is not asked again", remedy=remedy)
            )
        names = version.kind.type.names if any(version.kind.type.names) else None
        found, now = open_source(path, said.get("tensor"), said.get("format"), names)
        try:
            if now is not None and now.detail["fingerprint"] == said.get("fingerprint"):
                return read_stored(found, piece.block)
            # A copy of the file, or one that has lost other parts, holds the same bytes here.
            if (array := _same(found, piece.block, block)) is not None:
                return array
            told_ = f"{spelt(path, 200)} is another file by now"
            raise FabricError(message(f"{where}: what it was loaded from changed", told_, remedy=_RESTORE))
        finally:
            found.close()

    def _applied(self, operation: Operation, output: int, where: str, depth: int) -> Any:
        key = operation.number, output
        if key not in self._results:
            versions = [self._input(number, where, depth) for number in operation.inputs]
            names = [f"version {version.number}" for version in versions]
            program = self._program(operation, names, versions, where)
            plan = self._plan(operation, program, where)
            results = self._computed(operation, plan, program, (names, versions))
            self._results |= {(operation.number, at): result for at, result in enumerate(results)}
        if key not in self._results:
            raise damaged("an operation has no such output", f"{output}")
        return self._results[key]

    def _computed(
        self, operation: Operation, plan: Plan | None, program: Program, inputs: tuple[list[str], list[Version]]
    ) -> list[Any]:
        """What gives a box of each output."""
        dims = operation.detail.get("streamed")
        if plan is None or not isinstance(dims, list):
            return [Pieces(array) for array in compute(self._opened, *inputs, program, plan)]
        # Names that nobody else has: what is written there is never named, and goes with the recovery.
        outputs = [
            f"tapestry/{self._opened.blocks.session}/{operation.number}/{n}" for n in range(len(program.results))
        ]
        streamed = run_streamed(self._opened, plan, Asked(dims), inputs, outputs)
        self._streams.append((streamed, outputs))
        return [_reader(result) for result in streamed.results]

    def _copied(
        self, array: Any, operation: Operation, piece: Piece, version: Version, where: str, depth: int
    ) -> np.ndarray[Any, Any]:
        try:
            start, into = (_box(operation.detail[side]) for side in ("from", "to"))
            order = tuple(number_from_row(axis) for axis in operation.detail["order"])
        except (KeyError, TypeError, ValueError) as error:
            raise damaged("a copy has no boxes", f"{json.dumps(operation.detail)[:80]}") from error
        if len(operation.inputs) != 1 or sorted(order) != list(range(version.kind.type.ndim)):
            raise damaged("a copy has no source, or no order of its axes", f"{operation.inputs}, {order!s:.80}")
        source = self._input(operation.inputs[0], where, depth)
        start, into = check_box(start, source.kind.type.shape, where), check_box(into, version.kind.type.shape, where)
        called = f"version {source.number}"
        read = moved(self._opened, (called, source), (start, into), order, version.kind.type.dtype, where)
        for part in pieces(into, version.kind.type.shape, version.kind.chunks):
            if part.position == piece.position:
                array[slices(part.part, piece.block)] = np.asarray(read(part.part))
        return array

    def _input(self, number: int, where: str, depth: int) -> Version:
        """A version that was read, whole: what of it is lost or was dropped is recovered first."""
        with self._opened.catalogue.writing():
            version = reads.version(self._opened.catalogue, number)
            if version is not None and number not in self._pinned:
                writes.pin(self._opened.catalogue, self._opened.blocks.session, [number])
                self._pinned.append(number)
        if version is None:
            told_ = f"version {number} is no longer remembered"
            raise FabricError(message(f"{where}: what it was made of is gone", told_, remedy=_RESTORE))
        self.recover(f"version {number}", version, depth + 1)
        return version

    def _program(self, operation: Operation, names: Sequence[str], versions: Sequence[Version], where: str) -> Program:
        text = None if operation.graph is None else reads.graph_text(self._opened.catalogue, operation.graph)
        function = self._function if text is None else stored_graph(text, self._opened.allow)
        if function is None:
            told_ = f"it was made by {operation.detail.get('function')!r:.200}"
            remedy = "Pass it: fabric.recover(name, function)."
            raise FabricError(message(f"{where}: no file could hold the program", told_, remedy=remedy))
        program = read_program(function, names, [version.kind.type for version in versions], where)
        if program.graph.key != operation.graph:
            remedy = f"Pass {operation.detail.get('function')!r:.200}, as it was."
            raise FabricError(message(f"{where}: this is another program than made it", remedy=remedy))
        return program

    def _plan(self, operation: Operation, program: Program, where: str) -> Plan | None:
        """The plan that was used, on the mesh of this fabric; without devices for it, the one that is used today."""
        text = operation.detail.get("plan")
        if not isinstance(text, str):
            return None
        try:
            return Plan.from_json(text, program.graph, self._opened.mesh)
        except PlanError:
            return read_plan(None, program.graph, self._opened.mesh, (), where)
        except TapestryError as error:
            raise damaged("a plan cannot be read", first_line(error)) from error


_RESTORE = "Restore a snapshot, or make the tensor anew."


def _same(source: Stored, box: Box, block: Block) -> np.ndarray[Any, Any] | None:
    """What is stored in a box, where that is what a block was loaded as; None where it is not, or nobody can tell."""
    if not block.checksum or block.made is None or len(block.made) != 1:
        return None
    try:
        array = read_stored(source, box)
    except TapestryError:
        return None
    return array if checksum(np.ascontiguousarray(array)) == block.checksum else None


def _reader(result: Any) -> Any:
    """What gives a box of a result of a stream."""
    if isinstance(result, FabricSource):
        return lambda box: read_stored(result, box)
    return lambda box: np.asarray(result)[(*slices(box), ...)]


def _box(found: Any) -> Box:
    return tuple((number_from_row(start), number_from_row(stop)) for start, stop in found)
