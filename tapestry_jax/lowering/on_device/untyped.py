"""Kernels that say nothing of the mesh, inside an SPMD program that checks over which axes values vary.

Calls of Pallas are such kernels: `shard_map` asks of each how its results vary, and those that libraries keep do not
say. Derivatives that somebody wrote are another, where a loop of theirs starts from a constant (`jnp.zeros`), since
nothing is known of their program before it runs. What one device computes of its own blocks needs no answer: it is
computed in a region that is not checked, forwards and backwards, between blocks and results that vary over all axes.
What merges states and presents them is somebody's code as well, and is treated as a kernel is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec

from combinators.frozen import dataclass
from combinators.merging.leafwise import leafwise
from combinators.merging.monoid import Monoid, side_by_side
from combinators.merging.parts import Wrapping
from combinators.operations.shaped import Shaped, has_written_states
from combinators.settings import chosen
from tapestry_jax.lowering.on_device.loops import with_varying_loops
from tapestry_jax.lowering.on_device.varying import vary, varying_axes

_COMPLAINT = "check_vma"


def where_types_are_missing(
    kernel: Callable[..., Any],
    axes: frozenset[str],
    *,
    is_written: bool = False,
    known: dict[Hashable, Any] | None = None,
) -> Callable[..., Any]:
    """The kernel; where JAX cannot tell how its results vary, or what it pulls back, they vary over `axes`.

    Args:
      kernel: blocks of one device to its results.
      axes: of the mesh; what is asked where none of them cuts is asked all the same.
      is_written: whether somebody wrote a derivative in it.
      known: what was found out about the operation so far, where that is kept: its derivative is traced to ask.
    """
    looped, apart = with_varying_loops(kernel, axes), _apart(kernel, axes)
    told: dict[Hashable, Any] = {} if known is None else known

    @functools.wraps(kernel, assigned=(), updated=())
    def run(*blocks: Any) -> Any:
        def pulls_back_apart_alone() -> bool:
            # Types say of which mesh they are. The kernel is kept, since another one might be at the same place.
            asked = "pulls back apart alone", id(kernel), axes, tuple(map(jax.typeof, blocks)), chosen()
            if asked not in told:
                # One that has no derivative in either way says so where it is taken.
                alone = not _is_derived(looped, blocks) and _is_derived(apart, _varied(blocks, axes))
                told[asked] = kernel, alone
            return told[asked][1]

        if is_written and axes and pulls_back_apart_alone():
            return apart(*_varied(blocks, axes))
        try:
            return kernel(*blocks)
        except (TypeError, ValueError) as error:
            if _COMPLAINT in str(error):
                return apart(*_varied(blocks, axes))
            if not axes:
                raise
        # A loop from a constant, or something that is told by `looped`. What is in such a loop and has a derivative of
        # its own, as JAX's `jax.nn.relu`, does not keep it where the loop is written anew.
        if not is_written and pulls_back_apart_alone():
            return apart(*_varied(blocks, axes))
        return looped(*blocks)

    return run


def states_on_device(shaped: Shaped) -> Shaped:
    """The operation, whose states are merged and presented where JAX cannot tell how what comes of them varies, too."""
    operation = shaped.operation
    if operation.present is None and operation.monoid is None:
        return shaped
    written = has_written_states(shaped)
    present = None if operation.present is None else OfStates(operation.present, written)
    monoid = None if operation.monoid is None else _on_device(operation.monoid, written)
    # A kernel that says by which monoid it folds says nothing of this one, which does the same.
    kernel = functools.update_wrapper(functools.partial(operation.kernel), operation.kernel, (), ())
    return replace(shaped, operation=replace(operation, kernel=kernel, present=present, monoid=monoid))


def _on_device(monoid: Monoid, is_written: bool) -> Monoid:
    if monoid.parts:
        parts = tuple(_on_device(part, is_written) for part in monoid.parts)
        return replace(side_by_side(parts, monoid.keys), name=monoid.name)
    combine = monoid.combine if monoid.native is not None else OfStates(leafwise(monoid.combine), is_written)
    return monoid if combine is monoid.combine else replace(monoid, combine=combine)


@dataclass(frozen=True)
class OfStates(Wrapping):
    """A function of states; where JAX cannot tell how its results vary, they vary as the states do.

    Args:
      function: of pytrees of arrays.
      is_written: whether somebody wrote a derivative in it.
    """

    function: Callable[..., Any]
    is_written: bool = False

    def __call__(self, *states: Any) -> Any:
        """What the function gives of the states of a cell."""
        leaves, tree = jax.tree.flatten(states)
        axes = frozenset[str]().union(*map(varying_axes, leaves))

        def run(*given: Any) -> Any:
            return self.function(*jax.tree.unflatten(tree, given))

        return where_types_are_missing(run, axes, is_written=self.is_written)(*leaves)

    def each(self, change: Callable[..., Any]) -> OfStates:
        """The same of a changed function."""
        return replace(self, function=change(self.function))


def _is_derived(kernel: Callable[..., Any], blocks: Sequence[Any]) -> bool:
    """Whether JAX can trace what a kernel pulls back."""
    smooth = [at for at, block in enumerate(blocks) if jnp.issubdtype(block.dtype, jnp.inexact)]

    def pulled(*given: Any) -> Any:
        def of_smooth(*moved: Any) -> list[Any]:
            every = dict(zip(smooth, moved, strict=True))
            leaves = jax.tree.leaves(kernel(*(every.get(at, block) for at, block in enumerate(given))))
            return [leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.inexact)]

        out, pull = jax.vjp(of_smooth, *(given[at] for at in smooth))
        return pull(out)

    try:
        jax.eval_shape(pulled, *blocks)
    except Exception:  # noqa: BLE001 - the author's derivative may raise in any way
        return False
    return True


def _apart(kernel: Callable[..., Any], axes: frozenset[str]) -> Callable[..., Any]:
    """The kernel, its derivative and those of this one, each in a region of its own."""

    def run(*blocks: Any) -> Any:
        leaves, tree = jax.tree.flatten(blocks)
        return _of_leaves(lambda *given: kernel(*jax.tree.unflatten(tree, given)), axes)(*leaves)

    return run


def _of_leaves(kernel: Callable[..., Any], axes: frozenset[str]) -> Callable[..., Any]:
    # How leaves make what pulls back: another object in each trace, which JAX would not take for the same.
    trees: list[Any] = []

    @jax.custom_vjp
    def run(*blocks: Any) -> Any:
        return _varied(_unchecked(kernel, blocks), axes)

    def forward(*blocks: Any) -> tuple[Any, Any]:
        smooth = [jnp.issubdtype(block.dtype, jnp.inexact) for block in blocks]

        def both(*given: Any) -> Any:
            def of_smooth(*moved: Any) -> Any:
                rest = iter(moved)
                return kernel(*(next(rest) if moves else block for moves, block in zip(smooth, given, strict=True)))

            out, pull = jax.vjp(of_smooth, *(block for moves, block in zip(smooth, given, strict=True) if moves))
            leaves, tree = jax.tree.flatten(pull)
            trees.append(tree)
            return out, leaves

        out, leaves = _apart(both, axes)(*blocks)
        # Integers have no derivative; which blocks they are the pulled gradients do not say.
        return out, (leaves, [None if moves else block for moves, block in zip(smooth, blocks, strict=True)])

    def backward(kept: Any, cotangents: Any) -> Any:
        leaves, fixed = kept
        pulled = iter(_apart(lambda held, given: jax.tree.unflatten(trees[-1], held)(given), axes)(leaves, cotangents))
        return tuple(next(pulled) if block is None else None for block in fixed)

    run.defvjp(forward, backward)
    return run


def _unchecked(function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """Call a function where what varies is not looked at."""

    def region(*given: Any) -> Any:
        # Values keep their types until something is computed of them, and Pallas interprets none that vary.
        return function(*jax.tree.map(lambda array: lax.squeeze(lax.expand_dims(array, (0,)), (0,)), given))

    whole = PartitionSpec()
    return jax.shard_map(region, in_specs=whole, out_specs=whole, check_vma=False)(*arguments)


def _varied(values: Any, axes: frozenset[str]) -> Any:
    return jax.tree.map(lambda value: vary(value, sorted(axes)), values)
