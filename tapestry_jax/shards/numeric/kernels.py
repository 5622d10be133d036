"""What an operation does with blocks, in NumPy: traced once for an operation and the shapes of its blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import jax
import numpy as np

from combinators.equations.evaluate import Run, evaluator
from combinators.frozen import dataclass
from combinators.index_space.axis import Axis
from combinators.merging.blocks import Axes
from combinators.operations.operation import Operation
from combinators.operations.ready import plain
from combinators.operations.results import Struct
from combinators.operations.shaped import Shaped, shape
from combinators.settings import remembered

Part = Callable[..., list[Any]]
"""Takes a `Shaped` and lists of leaves, gives leaves; a function of a module, since it is part of a key."""
_Kinds = tuple[tuple[tuple[tuple[int, ...], np.dtype[Any]], ...], ...]


@dataclass(frozen=True)
class Kernels:
    """The kernels of an operation on tensors of some types.

    Attributes:
      operation: what runs.
      operands: types of its operands, as a whole.
    """

    operation: Operation
    operands: tuple[Struct, ...]

    @property
    def shaped(self) -> Shaped:
        """The operation with its sizes, and with its own kernel alone."""
        return _known(self.operation, self.operands).shaped

    def run(self, part: Part, *leaves: Sequence[Any]) -> list[Any]:
        """What `part(shaped, *leaves)` gives, in NumPy.

        Args:
          part: such as `run_blocks` or `combine`.
          leaves: NumPy arrays, in lists.
        """
        kinds = tuple(tuple((each.shape, each.dtype) for each in listed) for listed in leaves)
        run = _traced(part, _known(self.operation, self.operands), kinds, bool(jax.config.read("jax_enable_x64")))
        # A product adds up in another order where a matrix lies in memory column by column.
        given = [np.asarray(each, order="C") for listed in leaves for each in listed]
        return [np.asarray(each) for each in run(given)]


@dataclass(frozen=True)
class _Sizeless:
    """An operation with what `execute` reads of it: all but sizes, so that programs of other sizes share kernels."""

    operation: Operation
    carrier: tuple[Axes, ...]
    state_tree: Any
    result_axes: tuple[tuple[Axis, ...], ...]
    result_tree: Any
    shaped: Shaped = field(compare=False)


@remembered(maxsize=4096)
def _known(operation: Operation, operands: tuple[Struct, ...]) -> _Sizeless:
    shaped = plain(shape(operation, operands))
    listed = shaped.carrier, shaped.state_tree, shaped.result_axes, shaped.result_tree
    return _Sizeless(shaped.operation, *listed, shaped)


@remembered(maxsize=16384)
def _traced(part: Part, known: _Sizeless, kinds: _Kinds, doubles: bool) -> Run:
    # What is traced depends on whether JAX has doubles, so that is part of the key.
    del doubles
    structs = [[jax.ShapeDtypeStruct(*kind) for kind in listed] for listed in kinds]
    return evaluator(jax.make_jaxpr(lambda *leaves: part(known.shaped, *leaves))(*structs))
