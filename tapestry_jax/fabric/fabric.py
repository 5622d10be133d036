"""`tp.Fabric`: named tensors whose placement nobody has to know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import Any

import jax
import numpy as np

from combinators.arguments import read_flag, read_function, read_list, read_name
from combinators.errors import spelt
from combinators.index_space.tensor_type import TensorType, type_of
from tapestry_jax.fabric import naming
from tapestry_jax.fabric.arrays import array_of
from tapestry_jax.fabric.catalogue import reads
from tapestry_jax.fabric.described import Described, describe
from tapestry_jax.fabric.drafts import Draft, commit, kind_of
from tapestry_jax.fabric.errors import FabricError
from tapestry_jax.fabric.moving import copying, files, reading, writing
from tapestry_jax.fabric.moving.reading import damages
from tapestry_jax.fabric.opened import open_fabric
from tapestry_jax.fabric.placing import check_bits, read_layout, read_places, sharding_of
from tapestry_jax.fabric.programs import applying
from tapestry_jax.fabric.programs.recovering import Recovery
from tapestry_jax.fabric.streams.saved import export_whole
from tapestry_jax.fabric.streams.sinks import FabricCreation
from tapestry_jax.fabric.streams.sources import FabricSource
from tapestry_jax.fabric.tensors.boxes import Box, read_chunks
from tapestry_jax.fabric.tensors.names import read_tensor_name
from tapestry_jax.fabric.tensors.records import Kind
from tapestry_jax.storage.saving import is_saved


class Fabric:
    """Named tensors, in files or in memory, on one device or on a mesh.

    What a name stands for changes in one step, or not at all: in a process that is killed, on a disk that is full, and
    with other processes on the same fabric. Whoever reads sees a tensor as it was at one moment.

    Args:
      path: a folder, made where it is not there; None keeps all in memory.
      mesh: on whose devices arrays lie and programs run; None for one device.
      allow: packages that stored programs may name, for `recover`, as `tp.Graph.from_json` takes them.

    Raises:
      FabricError: for a folder that is none of a fabric's.
      FormatError: for a catalogue that was damaged, or is of a newer release.

    Example:
      >>> import numpy as np
      >>> import tapestry_jax as tp
      >>> with tp.Fabric(None) as fabric:
      ...     fabric.load("x", np.arange(6.0, dtype=np.float32), names=("row",))
      ...     fabric.allocate("y", tp.TensorType({"row": 8}))
      ...     fabric.copy("x", {"row": slice(0, 3)}, "y", {"row": slice(5, 8)})
      ...     fabric.apply(tp.fold(tp.aggregators.Sum(), "row -> "), "y", out="z")
      ...     list(fabric), fabric.read("y").tolist(), float(fabric.array("z"))
      (['x', 'y', 'z'], [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 2.0], 3.0)
    """

    def __init__(self, path: str | PathLike[str] | None, mesh: Any = None, *, allow: Sequence[str] = ()) -> None:
        self._opened = open_fabric(
            path,
            mesh,
            [
                read_name(each, "a package in allow= of tp.Fabric", FabricError)
                for each in read_list(allow, "allow= of tp.Fabric", FabricError)
            ],
        )

    def allocate(
        self, name: str, type: Any, *, layout: Any = None, chunks: Any = None, overwrite: bool = False
    ) -> None:
        """Make a tensor of zeros, which take no room until they are written.

        Args:
          name: letters, digits, `_`, `-` and `.`, with `/` between parts.
          type: a `tp.TensorType`, or what has a shape and a dtype.
          layout: mesh axes by dimension, such as `{"batch": "data"}`.
          chunks: the sizes of its blocks, which are read, written and checked as a whole; by default about 8 MiB.
          overwrite: whether a tensor of this name is replaced.

        Raises:
          FabricError: for a name that cannot be or is taken, a layout or chunks that cannot be.
          GraphError: for what is no type.
        """
        where = f"allocate {read_tensor_name(name)!r}"
        kind = type if isinstance(type, TensorType) else type_of(type, where)
        if self._opened.blocks.keeps_whole:
            check_bits(kind.dtype, where)
        made = kind_of(self._opened, kind, read_chunks(chunks, kind, where), self._layout(layout, kind, where))
        commit(self._opened, {name: Draft(made, {})}, read_flag(overwrite, "overwrite="), None, where)

    def load(
        self,
        name: str,
        source: Any,
        tensor: str | None = None,
        *,
        format: str | None = None,
        names: Any = None,
        layout: Any = None,
        overwrite: bool = False,
    ) -> None:
        """Bring in a tensor: of a file or address as `tp.open` reads it, something stored, or an array.

        Args:
          name: of the tensor here.
          source: a path, an address, a `Stored`, or an array.
          tensor: which one, where the file holds several.
          format: what the suffix does not say.
          names: what the axes are called; by default what is stored, if that says.
          layout: mesh axes by dimension.
          overwrite: whether a tensor of this name is replaced.

        Raises:
          FabricError: for a name that cannot be or is taken, or a disk that is full.
          FormatError: for what storage cannot read.
        """
        flag = read_flag(overwrite, "overwrite=")
        files.load(self._opened, read_tensor_name(name), source, tensor, format, names, layout, flag)

    def export(
        self,
        name: str,
        path: str | PathLike[str],
        *,
        format: str | None = None,
        chunks: tuple[int, ...] | None = None,
        overwrite: bool = False,
    ) -> None:
        """Write a tensor to a file, as `tp.create` makes it; or as `save` of storage does, under its own name.

        Raises:
          FabricError: where it is not there, or blocks of it are lost.
          FormatError: for what storage cannot write.
        """
        export = export_whole if is_saved(path, format) else files.export
        export(self._opened, name, path, format, chunks, read_flag(overwrite, "overwrite="))

    def copy(
        self,
        source: str,
        source_box: Any,
        target: str,
        target_box: Any = None,
        *,
        cast: bool = False,
        rename: Mapping[str, str] | None = None,
    ) -> None:
        """Copy a box of one tensor into a box of another, or of the same: as it was before.

        Args:
          source: the name of what is read.
          source_box: slices by the names of axes, `{"batch": slice(0, 8)}`, or in order; None for all of it.
          target: the name of what is written.
          target_box: as large; axes go by their names, wherever they stand.
          cast: whether values are converted where the dtypes differ, towards zero for integers; a value that is out of
            the other dtype's range is refused.
          rename: names of the source's axes, where the target calls them otherwise.

        Raises:
          FabricError: for tensors that are not there; axes, boxes or dtypes that do not fit; a full disk.
        """
        copying.copy(self._opened, source, source_box, target, target_box, read_flag(cast, "cast="), rename)

    def write(self, name: str, array: Any, box: Any = None) -> None:
        """Write an array of the host or of devices into a box of a tensor.

        Raises:
          FabricError: where it is not there, or the array has another shape or dtype.
        """
        writing.write(self._opened, name, array, box)

    def read(self, name: str, box: Any = None, *, cast: Any = None) -> np.ndarray[Any, Any]:
        """A box of a tensor as an array of NumPy, checked against its checksums.

        Args:
          name: of the tensor.
          box: as in `copy`; None for all of it.
          cast: a dtype to convert to, as in `copy`.

        Raises:
          FabricError: where it is not there, or a block of it is lost.
        """
        return reading.read(self._opened, name, box, cast)

    def array(self, name: str, layout: Any = None) -> jax.Array:
        """A tensor as an array of JAX on the mesh: each device reads what it holds.

        Args:
          name: of the tensor.
          layout: mesh axes by dimension; by default the tensor's own. An axis that they do not divide lies over as
            many of them as do.

        Returns:
          An array of its own: it may be donated, and later writes do not change it.

        Raises:
          FabricError: where it is not there, blocks are lost, or it has 64 bits and JAX has them off.
        """
        with self._opened.pinned([name]) as (version,):
            kind = version.kind
            if layout is not None:
                kind = Kind(kind.type, kind.chunks, self._layout(layout, kind.type, f"array {name!r}"))
            return array_of(self._opened, name, version, sharding_of(kind, self._opened.mesh))

    def apply(
        self,
        function: Any,
        *inputs: str,
        out: str | Sequence[str],
        plan: Any = None,
        over: Any = None,
        parameters: str | None = None,
        memory: Any = None,
        checkpoint: Any = None,
        overwrite: bool = False,
    ) -> None:
        """Run a program on tensors. All of its outputs get their names in one moment; how they came to be is kept.

        Args:
          function: an arrow, a `tp.program`, a module of `tp.nnx`, a function of values, or a graph.
          inputs: the names of its arguments, in order.
          out: the name of its result, or of each of them.
          plan: entries as `tp.plan` takes them, or a plan; by default dimensions go where the inputs have them.
          over: entries as `tp.stream` takes them, `{"row": tp.chunks(size=4096)}`: inputs are read, and outputs
            written, piece by piece, so that they need not fit into memory.
          parameters: of a module, or an arrow with arrays of its own: the arrays are kept as `parameters/...`, and are
            inputs of the program. Tensors of these names that hold the same stay as they are.
          memory: bytes that the stream may need, as `tp.stream` takes them; `over=` may be left out then.
          checkpoint: a folder of this stream's own: the same call goes on from there where it was killed.
          overwrite: whether tensors of these names are replaced; they may be inputs.

        Raises:
          FabricError: for names that are not there, or taken; a program that takes others; blocks that are lost.
          TapestryError: where the program cannot be traced or planned.
        """
        how = applying.How(plan, over, parameters, memory, checkpoint)
        applying.apply(self._opened, function, inputs, out, how, read_flag(overwrite, "overwrite="))

    def check(self, name: str) -> tuple[Box, ...]:
        """The boxes of the blocks of a tensor that are lost or damaged; all of it is read."""
        with self._opened.pinned([name]) as (version,):
            return tuple(piece.block for piece in damages(self._opened, version))

    def recover(self, name: str, function: Any = None) -> tuple[Box, ...]:
        """Compute the blocks of a tensor that are lost again, from what it was made of.

        Args:
          name: of the tensor.
          function: the program that was applied, where no file could hold it, such as a lambda.

        Returns:
          The boxes of the blocks that were lost; each is again what it was, by its checksum.

        Raises:
          FabricError: where nobody knows how a block was made, what it was made of is gone, or other bytes come out.
        """
        if function is not None:
            read_function(function, f"the program that made {spelt(name, 40)}", FabricError)
        recovery = Recovery(self._opened, function)
        try:
            with self._opened.pinned([name]) as (version,):
                return recovery.recover(name, version)
        finally:
            recovery.close()

    def open(self, name: str) -> FabricSource:
        """A tensor as something stored, which `tp.stream` and `tp.trace` take; it stays as it is until `close`."""
        return FabricSource.pinned(self._opened, name)

    def create(self, name: str, *, layout: Mapping[str, Any] | None = None, overwrite: bool = False) -> FabricCreation:
        """A name for a tensor that will be made box by box, such as a sink of `tp.stream`.

        A name that is taken is refused when it is made: a job that has finished finds its own result there.

        Raises:
          FabricError: for a name that cannot be.
        """
        read_tensor_name(name)
        flag = read_flag(overwrite, "overwrite=")
        places = read_places(layout, f"create {name!r}")
        return FabricCreation(self._opened, name, places, flag)

    def list(self) -> tuple[str, ...]:
        """The names of all tensors, sorted."""
        return reads.names(self._opened.catalogue)

    def describe(self, name: str) -> Described:
        """What is known of a tensor: type, version, blocks, layout, how it was made; `print` shows it.

        Raises:
          FabricError: where it is not there.
        """
        return describe(self._opened, name)

    def delete(self, name: str) -> None:
        """Let a name stand for nothing; its blocks go, unless a snapshot or a reader has them.

        Raises:
          FabricError: where it is not there.
        """
        naming.delete(self._opened, name)

    def snapshot(self, name: str) -> None:
        """Keep all tensors as they are now, under a name. It copies nothing.

        Raises:
          FabricError: for a name that cannot be, or is taken.
        """
        naming.keep(self._opened, name)

    def snapshots(self) -> tuple[str, ...]:
        """The names of all snapshots, the oldest first."""
        return reads.snapshots(self._opened.catalogue)

    def restore(self, snapshot: str, *names: str) -> None:
        """Let names stand for what they stood for, in one step.

        Args:
          snapshot: which.
          names: of tensors; by default all, and tensors that came later are gone.

        Raises:
          FabricError: where there is no such snapshot, or it does not have a name.
        """
        naming.restore(self._opened, snapshot, names)

    def forget(self, snapshot: str) -> None:
        """Keep a snapshot no longer.

        Raises:
          FabricError: where there is none of this name.
        """
        naming.forget(self._opened, snapshot)

    def close(self) -> None:
        """Let the fabric go; in memory its tensors go with it."""
        self._opened.close()

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and reads.current(self._opened.catalogue, name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self.list())

    def __len__(self) -> int:
        return len(reads.names(self._opened.catalogue))

    def __enter__(self) -> Fabric:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Fabric({self._opened.where})"

    def _layout(self, asked: Any, kind: TensorType, where: str) -> Any:
        return read_layout(asked, kind, self._opened.mesh, where)
