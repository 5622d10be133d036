"""Choosing the kernels that run: an operation made ready for what is cut of it, and for platforms."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from combinators.errors import KernelError, TapestryError, first_line, message
from combinators.operations.dense import Dense, as_dense, candidates, knows_its_kernel, stands_for
from combinators.operations.execute import axis_modes, present, read_operand, run_blocks
from combinators.operations.operation import Operation
from combinators.operations.outside import answering
from combinators.operations.results import Struct
from combinators.operations.shaped import Shaped, block_structs, shape
from combinators.settings import remembered

Finish = Callable[[list[Any]], list[Any]]
Leaves = Callable[..., list[Any]]


def run_whole(shaped: Shaped, arrays: Sequence[Any]) -> list[Any]:
    """Run an operation uncut on whole arrays; returns the leaves of its result."""
    fused = hasattr(shaped.operation.kernel, "beyond")
    shaped = answering(shaped, arrays)
    modes = axis_modes(shaped)
    remaining = iter(arrays)
    blocks: list[Any] = []
    for operand, operand_modes in zip(shaped.signature.operands, modes, strict=True):
        if operand.coordinate is not None:
            blocks.append(jnp.arange(shaped.sizes[operand.coordinate], dtype=jnp.int32))
        else:
            blocks.append(read_operand(operand, next(remaining), shaped.sizes, operand_modes, fused=fused))
    return _as_traced(shaped, blocks) if shaped.operation.dense else run_blocks(shaped, blocks)


def _as_traced(shaped: Shaped, blocks: Sequence[Any]) -> list[Any]:
    """What an operation with `dense` kernels gives, held against what its own kernel is known to give."""
    name = shaped.operation.name
    try:
        leaves = run_blocks(ready(shaped), blocks)
    except TapestryError:
        raise
    except Exception as error:
        told = f"{type(error).__name__}: {str(error).partition(chr(10))[0]:.200}"
        raise _not_alike(name, f"it raises {told}") from error
    found = [_told(leaf) for leaf in leaves]
    expected = [_told(leaf) for leaf in shaped.results]
    if found != expected:
        raise _not_alike(name, f"expected {', '.join(expected)}", f"got {', '.join(found) or 'nothing'}")
    return leaves


def _told(leaf: Any) -> str:
    dtype = getattr(leaf, "dtype", None)
    return f"{type(leaf).__name__}" if dtype is None else f"{dtype}{list(leaf.shape)}"


def _not_alike(name: str, *lines: str) -> KernelError:
    what = f"a kernel in dense= of `{name}` does not do what the operation's own does"
    return KernelError(
        message(what, *lines, remedy="Write it for the same blocks, shapes and dtypes, or leave it out.")
    )


def plain(shaped: Shaped) -> Shaped:
    """The operation with its own kernel alone, which JAX can differentiate in every way."""
    return replace(shaped, operation=replace(shaped.operation, dense=()))


def portable(shaped: Shaped) -> Shaped:
    """The operation without kernels that have conditions: what is left runs on every platform."""
    kept = tuple(entry for entry in shaped.operation.dense if not isinstance(entry, Dense))
    return replace(shaped, operation=replace(shaped.operation, dense=kept))


def ready(
    shaped: Shaped, cut: Collection[str] = (), *, by_platform: bool = False, finish: Finish | None = None
) -> Shaped:
    """The operation with the kernels that run where `cut` are the dimensions that are cut.

    Args:
      shaped: its `dense` kernels have conditions.
      cut: dimensions that are cut, over a mesh or in time.
      by_platform: whether a platform is chosen: the program then holds one kernel for each, and lowering takes one.
      finish: makes the leaves that kernels for several platforms give alike, such as in the mesh axes they vary over.

    Returns:
      The same with one state kernel as its kernel, and at most one dense kernel, without conditions.
    """
    operation = shaped.operation
    entries = [as_dense(entry) for entry in operation.dense]
    alike = finish if finish is not None else list[Any]

    def own(*blocks: Any) -> list[Any]:
        return jax.tree.leaves(operation.kernel(*blocks))

    def choose(gives: str, otherwise: Leaves) -> Leaves:
        def run(*blocks: Any) -> list[Any]:
            found = candidates(operation, blocks, cut, gives, by_platform)
            return _on_platform(found, otherwise, alike)(*blocks)

        return run

    kernel = operation.kernel
    if any(entry.gives == "state" for entry in entries):
        kernel = choose("state", own)
    dense: tuple[Callable[..., Any], ...] = ()
    results = [entry for entry in entries if entry.gives == "result"]
    if any(not entry.needs_whole(operation) & set(cut) for entry in results):

        def undivided(*blocks: Any) -> list[Any]:
            leaves = jax.tree.leaves(kernel(*blocks))
            return leaves if operation.kind == "map" else present(shaped, leaves)

        dense = (choose("result", undivided),)
    return replace(shaped, operation=replace(operation, kernel=kernel, dense=dense))


def _on_platform(found: Sequence[Dense], otherwise: Leaves, alike: Finish) -> Leaves:
    """One function that runs the first kernel for the platform it is lowered for."""

    def leaves_of(kernel: Callable[..., Any]) -> Leaves:
        return lambda *blocks: jax.tree.leaves(kernel(*blocks))

    general = next((leaves_of(entry.kernel) for entry in found if entry.platforms is None), otherwise)
    special: dict[str, Leaves] = {}
    for entry in found:
        for platform in entry.platforms or ():
            special.setdefault(platform, leaves_of(entry.kernel))
    if not special:
        return general

    def on(kernel: Leaves) -> Leaves:
        return lambda *blocks: alike(kernel(*blocks))

    branches = {platform: on(kernel) for platform, kernel in special.items()}
    return lambda *blocks: lax.platform_dependent(*blocks, default=on(general), **branches)


@remembered(maxsize=4096)
def check_dense(operation: Operation, operands: tuple[Struct, ...]) -> None:
    """Ask the conditions of dense kernels, and trace those that may run.

    Kernels for a platform may refuse to be traced without it: their types are compared where they can be.

    Args:
      operation: with `dense` kernels, or without.
      operands: types of its array operands.

    Raises:
      KernelError: for the first that gives something else, or raises.
    """
    shaped = shape(operation, operands)
    blocks = block_structs(shaped.signature, operands, shaped.sizes)
    for entry in map(as_dense, shaped.operation.dense):
        if knows_its_kernel(entry) and not stands_for(entry, shaped.operation.kernel):
            raise _unlike(shaped, "it was made for another kernel")
        try:
            found = None if entry.why_not(shaped.operation, blocks, ()) else _given(entry, blocks)
        except TapestryError:
            raise
        except Exception as error:
            raise _unlike(shaped, first_line(error)) from error
        expected = [_typed(leaf) for leaf in (shaped.state if entry.gives == "state" else shaped.results)]
        if found is not None and found != expected:
            raise _unlike(shaped, f"expected {', '.join(expected)}", f"got {', '.join(found) or 'nothing'}")


def _given(entry: Dense, blocks: Sequence[Struct]) -> list[str] | None:
    """What a kernel gives; None for one of a platform that cannot be traced here."""
    try:
        # The lambda lets functions through that cannot be hashed.
        return [_typed(leaf) for leaf in jax.tree.leaves(jax.eval_shape(lambda *given: entry.kernel(*given), *blocks))]
    except Exception:
        if entry.platforms is None:
            raise
        return None


def _typed(leaf: Any) -> str:
    return f"{leaf.dtype}{list(leaf.shape)}"


def _unlike(shaped: Shaped, *lines: str) -> KernelError:
    return KernelError(
        message(
            f"a kernel in dense= of `{shaped.operation.name}` does not do what the operation's own does",
            f"signature {shaped.signature}",
            *(line[:200] for line in lines),
            remedy="Write it for the same blocks, shapes and dtypes, or leave it out.",
        )
    )
