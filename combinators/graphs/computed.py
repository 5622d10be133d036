"""What an operation computes, as a text: the programs of all that may run of it.

A name tells nothing of a function whose module was edited since, and code nothing of what it reads. What was traced
tells all that runs: a kernel that reads another global, a list that has changed or a file comes to another program.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from combinators.kernels.jaxprs import is_literal, programs_inside
from combinators.operations.dense import as_dense
from combinators.operations.shaped import Shaped, block_structs
from combinators.operations.states import cell_of

_ADDRESS = re.compile(r"0x[0-9a-f]+")


def functions_of(shaped: Shaped, operands: Sequence[Any]) -> Iterator[tuple[Callable[..., Any], Sequence[Any]]]:
    """All that may run of an operation, with the types that it is run on: its kernels, and what merges and presents.

    Args:
      shaped: the operation at given sizes.
      operands: the types of its operands.
    """
    operation, monoid = shaped.operation, shaped.operation.monoid
    blocks = block_structs(operation.signature, operands, shaped.sizes)
    yield operation.kernel, blocks
    for entry in map(as_dense, operation.dense):
        yield entry.kernel, blocks
    if monoid is None:
        return
    cell = cell_of(shaped.carrier, shaped.state, shaped.state_tree)
    yield lambda left, right: (monoid.merge(left, right), monoid.identity_for(cell)), (cell, cell)
    if monoid.inverse is not None:
        yield monoid.inverse, (cell,)
    frame = monoid.frame
    if frame is not None:
        yield lambda state: frame.fold([state, state]), (cell,)
    if operation.present is not None:
        yield operation.present, (cell,)


def program_text(closed: Any) -> str:
    """What was traced, with its constants; equal for functions that compute the same only.

    Args:
      closed: a closed jaxpr. Where objects lie in memory is left out, as in the names of derivatives.
    """
    digest = hashlib.sha256()
    for array in (*map(np.asarray, closed.consts), *_arrays(closed.jaxpr)):
        digest.update(f"{array.dtype} {array.shape} ".encode())
        digest.update(array.tobytes())
    return f"{_ADDRESS.sub('', str(closed))} {digest.hexdigest()}"


def _arrays(jaxpr: Any) -> Iterator[np.ndarray]:
    """Arrays inside of a program, which its text leaves out or cuts short."""
    for equation in jaxpr.eqns:
        yield from (np.asarray(atom.val) for atom in equation.invars if is_literal(atom))
        yield from (value for value in equation.params.values() if isinstance(value, np.ndarray))
        for inner in programs_inside(equation):
            yield from map(np.asarray, getattr(inner, "consts", ()))
            yield from _arrays(getattr(inner, "jaxpr", inner))
