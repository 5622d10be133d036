"""Programs compute what they computed when they were traced, or are refused: a plan runs later than its program.

A kernel may read what no copy keeps: an entry of a list, an attribute, a variable of a module, a variable that a
method of a local class reads. Of `for i in range(3): state[0] = i; x = tp.Map(lambda a: a + state[0])(x)` a plan would
add 2 three times. So what such an operation computes is written down when it is traced, as the programs of its kernel
and of the functions around it, and held against what it computes when a program of it is made. Only what has changed
is traced again. A kernel that changes what it reads by itself, to count its calls, is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp

from combinators.errors import KernelError, message
from combinators.frozen import dataclass
from combinators.graphs.computed import functions_of, program_text
from combinators.kernels.fingerprint import fingerprint
from combinators.kernels.settled import read_by_name
from combinators.operations.operation import TRACED, Operation
from combinators.operations.results import Struct
from combinators.operations.shaped import shape
from combinators.settings import settings, under

_RULES = ("custom_jvp_call", "custom_vjp_call")


@dataclass(frozen=True)
class Written:
    """An operation as it was.

    Attributes:
      operation: the operation itself: what another one computes, that was made of it, is not told here.
      operands: their types.
      structure: of what it holds; None where that cannot be told.
      programs: what its functions compute.
      settings: of JAX, under which they were traced.
    """

    operation: Operation
    operands: tuple[Struct, ...]
    structure: str | None
    programs: tuple[str, ...]
    settings: Mapping[str, Any]


def written(operation: Operation, operands: Sequence[Struct]) -> Written | None:
    """What an operation computes on operands of these types; None where it changes what it reads by itself."""
    kinds, structure = tuple(operands), _structure(operation)
    chosen = settings()
    found = Written(operation, kinds, structure, _programs(operation, kinds, chosen), chosen)
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
    # Inside of a `shard_map`, where plans are traced, JAX refuses what it takes elsewhere; another thread is outside.
    with ThreadPoolExecutor(1) as outside:
        programs = outside.submit(_programs, operation, was.operands, was.settings).result()
    if was.programs != programs:
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


def _programs(operation: Operation, operands: Sequence[Struct], chosen: Mapping[str, Any]) -> tuple[str, ...]:
    # Under other settings of JAX a program is another one: those are the caller's to choose, and no change of it.
    with under(chosen):
        shaped = shape(operation, tuple(operands))
        return tuple(_meaning(function, types) for function, types in functions_of(shaped, operands))


def _meaning(function: Callable[..., Any], types: Sequence[Any]) -> str:
    """The program of a function, and that of its gradient where it brings rules of its own.

    What cannot be traced is told by its error.
    """
    try:
        # The lambda keeps JAX from answering from a cache.
        text = program_text(jax.make_jaxpr(lambda *operands: function(*operands))(*types))
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

    return program_text(jax.make_jaxpr(pulled)(*leaves))
