"""Programs compute what they computed when they were traced, or are refused: a plan runs later than its program.

A kernel may read what no copy keeps: an entry of a list, an attribute, a variable of a module, a variable that a
method of a local class reads. Of `for i in range(3): state[0] = i; x = tp.Map(lambda a: a + state[0])(x)` a plan would
add 2 three times. So what such an operation computes is written down when it is traced, as the programs of its kernel
and of the functions around it, and held against what it computes when a program of it is made. Only what has changed
is traced again. A kernel that changes what it reads by itself, to count its calls, is left as it is.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from combinators.errors import KernelError, message
from combinators.frozen import dataclass
from combinators.kernels.fingerprint import fingerprint
from combinators.kernels.settled import read_by_name
from combinators.merging.blocks import combine_blocks, identity_block, present_block
from combinators.operations.dense import as_dense
from combinators.operations.operation import TRACED, Operation
from combinators.operations.results import Struct
from combinators.operations.shaped import Shaped, block_structs, shape

_ADDRESS = re.compile(r"0x[0-9a-f]+")
_RULES = ("custom_jvp_call", "custom_vjp_call")


@dataclass(frozen=True)
class Written:
    """An operation as it was.

    Attributes:
      operation: the operation itself: what another one computes, that was made of it, is not told here.
      operands: their types.
      structure: of what it holds; None where that cannot be told.
      programs: what its functions compute.
    """

    operation: Operation
    operands: tuple[Struct, ...]
    structure: str | None
    programs: tuple[str, ...]


def written(operation: Operation, operands: Sequence[Struct]) -> Written | None:
    """What an operation computes on operands of these types; None where it changes what it reads by itself."""
    kinds, structure = tuple(operands), _structure(operation)
    found = Written(operation, kinds, structure, _programs(shape(operation, kinds), kinds))
    if structure is not None and _structure(operation) != structure:
        return None
    operation.known[TRACED] = found
    return found


def check_operation(operation: Operation, was: Written, path: str) -> None:
    """Refuse an operation that would compute something else than when it was traced.

    Args:
      operation: the operation.
      was: what it computed then.
      path: where it stands in its program.

    Raises:
      KernelError: when it would.
    """
    if was.operation is not operation or was.structure == _structure(operation) is not None:
        return
    if was.programs != _programs(shape(operation, was.operands), was.operands):
        raise KernelError(
            message(
                f"the kernel of `{operation.name}` reads what has changed since the program was traced",
                f"operation {path}: {operation.signature}",
                "expected what it computed then; got another program of it now",
                remedy="Give each leaf what it reads: by functools.partial, a default argument `i=i`, a field of a "
                "frozen dataclass, or as an operand.",
            )
        )


def _structure(operation: Operation) -> str | None:
    parts = operation.kernel, operation.present, operation.dense, operation.monoid
    try:
        return fingerprint((parts, read_by_name(*parts)))
    except KernelError:
        return None


def _programs(shaped: Shaped, operands: Sequence[Struct]) -> tuple[str, ...]:
    """What the kernel and the functions around it compute."""
    operation, state = shaped.operation, list(shaped.state)
    blocks = block_structs(operation.signature, operands, shaped.sizes)
    found = [_meaning(operation.kernel, blocks)]
    found += [_meaning(as_dense(entry).kernel, blocks) for entry in operation.dense]
    monoid = operation.monoid
    if monoid is None:
        return tuple(found)
    tree, carrier = shaped.state_tree, shaped.carrier

    def merged(left: list[Any], right: list[Any]) -> Any:
        return combine_blocks(monoid, tree, carrier, left, right), identity_block(monoid, tree, carrier, left)

    def presented(leaves: list[Any]) -> Any:
        return present_block(operation.present, tree, carrier, shaped.result_names, leaves)

    return (*found, _meaning(merged, (state, state)), _meaning(presented, (state,)))


def _meaning(function: Callable[..., Any], types: Sequence[Any]) -> str:
    """The program of a function, and that of its gradient where it brings rules of its own.

    What cannot be traced is told by its error.
    """
    try:
        # The lambda keeps JAX from answering from a cache.
        text = _text(jax.make_jaxpr(lambda *operands: function(*operands))(*types))
        return text + _gradient(function, types) if any(rule in text for rule in _RULES) else text
    except Exception as error:  # noqa: BLE001 - a kernel for another platform, a function without a gradient
        return f"{type(error).__name__}: {error}"


def _gradient(function: Callable[..., Any], types: Sequence[Any]) -> str:
    leaves, tree = jax.tree.flatten(tuple(types))
    moving = [jnp.issubdtype(leaf.dtype, jnp.inexact) for leaf in leaves]

    def pulled(*blocks: Any) -> Any:
        def run(*moved: Any) -> list[Any]:
            rest = iter(moved)
            full = [next(rest) if moves else block for moves, block in zip(moving, blocks, strict=True)]
            found = jax.tree.leaves(function(*jax.tree.unflatten(tree, full)))
            return [leaf for leaf in found if jnp.issubdtype(leaf.dtype, jnp.inexact)]

        made, pull = jax.vjp(run, *(block for moves, block in zip(moving, blocks, strict=True) if moves))
        return pull(made)

    return _text(jax.make_jaxpr(pulled)(*leaves))


def _text(closed: Any) -> str:
    held = [hashlib.sha256(np.asarray(each).tobytes()).hexdigest() for each in closed.consts]
    return _ADDRESS.sub("", f"{closed} {held}")
