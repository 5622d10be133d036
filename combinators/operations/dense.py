"""Kernels that stand ready for special cases: for blocks that are whole, for a platform, for certain dtypes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, cast

import jax
import jax.numpy as jnp
import numpy as np

from combinators.errors import KernelError, message, spelt
from combinators.kernels.immutable import Immutable
from combinators.kernels.kernel import short_name

if TYPE_CHECKING:
    from combinators.operations.operation import Operation

Struct = jax.ShapeDtypeStruct
PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
"""What programs are lowered for, as lowering names it."""


@dataclass(frozen=True)
class Dense(Immutable):
    """A kernel and when it may stand in for the operation's own; the first of a list that may is used.

    Args:
      kernel: operand blocks to the presented result at once, or to a state block.
      platforms: as lowering names them (`"cpu"`, `"cuda"`, `"rocm"`, `"tpu"`); None is any. Plans alone choose by
        platform; an unplanned program runs the same kernels everywhere.
      dtypes: every floating operand is of one of these; None is any.
      whole: dimensions of the signature that are uncut in the block. What gives a result needs its fold dimensions
        uncut in any case, and the one that is scanned. By default that is all, and for a map every dimension.
      gives: `"result"`, or `"state"`: a state block, which stands in where the fold is cut, over the mesh, in rings and
        in chunks.
      takes: a further condition: types of the blocks to whether the kernel takes them. Where it has a method
        `why_not`, of the same types to a text, `explain` says why the kernel was passed over.

    Raises:
      KernelError: for conditions that cannot be read.

    Laws: map.dense, on the whole and on every piece for which it may stand in.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from combinators import Map
      >>> fast = Dense(jnp.sin, platforms=("tpu",), dtypes=(jnp.bfloat16,), whole=("c",))
      >>> Map(jnp.sin, "r c -> r c", dense=[fast])(jnp.zeros((1, 2))).tolist()
      [[0.0, 0.0]]
    """

    kernel: Callable[..., Any]
    _: KW_ONLY
    platforms: tuple[str, ...] | None = None
    dtypes: tuple[Any, ...] | None = None
    whole: tuple[str, ...] | None = None
    gives: Literal["result", "state"] = "result"
    takes: Callable[..., bool] | None = None

    def __post_init__(self) -> None:
        where = f"tp.Dense({short_name(self.kernel)})"
        for name in ("platforms", "dtypes", "whole"):
            given = getattr(self, name)
            if given is not None:
                object.__setattr__(self, name, _names(name, given, where))
        if self.takes is not None and not callable(self.takes):
            raise _refused(f"{where} takes {spelt(self.takes, 40)}", "Pass a function of the blocks' types, or None.")
        strange = [name for name in self.platforms or () if name not in (*PLATFORMS, "gpu")]
        if strange:
            raise _refused(
                f"{where} names the platform {spelt(strange[0], 40)}", f"Write some of {', '.join(PLATFORMS)}."
            )
        if not isinstance(self.gives, str) or self.gives not in ("result", "state"):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise _refused(f"{where} gives {spelt(self.gives, 40)}", 'Write gives="result" or gives="state".')
        if "gpu" in (self.platforms or ()):
            raise _refused(f"{where} names the platform `gpu`", 'Write "cuda" or "rocm", or both.')

    def __call__(self, *blocks: Any) -> Any:
        """What the kernel gives."""
        return self.kernel(*blocks)

    def needs_whole(self, operation: Operation) -> frozenset[str]:
        """The dimensions that must be uncut."""
        signature = operation.signature
        folds = signature.fold_dims if self.gives == "result" else ()
        if self.gives == "result" and operation.over is not None:
            folds = (operation.over,)
        named = self.whole
        if named is None:
            named = signature.dims if operation.kind == "map" else ()
        return frozenset((*folds, *named))

    def may_run(self, operation: Operation, blocks: Sequence[Any], cut: Collection[str]) -> bool:
        """Whether all conditions but that of the platform hold; `blocks` are arrays or their types."""
        return not self.why_not(operation, blocks, cut)

    def why_not(self, operation: Operation, blocks: Sequence[Any], cut: Collection[str]) -> str:
        """The first condition, but that of the platform, that does not hold; empty where all do."""
        missed = sorted(self.needs_whole(operation) & set(cut))
        if missed:
            return f"`{missed[0]}` is cut"
        kinds = [block.dtype for block in blocks if jnp.issubdtype(block.dtype, jnp.inexact)]
        strange = [] if self.dtypes is None else [kind.name for kind in kinds if kind.name not in self.dtypes]
        if strange:
            return f"it takes {' and '.join(self.dtypes or ())}, not {strange[0]}"
        structs = [Struct(block.shape, block.dtype) for block in blocks]
        if self.takes is None or self.takes(*structs):
            return ""
        told = getattr(self.takes, "why_not", None)
        return str(told(*structs)) if callable(told) else "its condition does not hold"


def as_dense(entry: Callable[..., Any]) -> Dense:
    """An entry of `dense=` with its conditions; a bare function has none."""
    return entry if isinstance(entry, Dense) else Dense(entry)


def stands_for(entry: Any, kernel: Any) -> bool | None:
    """Whether a dense kernel computes what `kernel` does, as its method `stands_for` says.

    A condition that holds a kernel asks about that one.

    Returns:
      None where nobody says: for dense kernels without the method, and for kernels that they do not know.
    """
    parts = (entry.kernel, getattr(entry.takes, "kernel", None)) if isinstance(entry, Dense) else (entry,)
    told = [part.stands_for(bare(kernel)) for part in map(bare, parts) if hasattr(part, "stands_for")]
    return False if False in told else None if None in told or not told else True


def knows_its_kernel(entry: Any) -> bool:
    """Whether a dense kernel says for which kernels it stands."""
    return hasattr(bare(entry.kernel if isinstance(entry, Dense) else entry), "stands_for")


def bare(kernel: Any) -> Any:
    """What a kernel computes that does so in another dtype."""
    return getattr(kernel, "bare", kernel)


def blocked(operation: Operation, cut: frozenset[str]) -> frozenset[str]:
    """The fewest dimensions that, were they cut, would leave the same `dense` kernels as `cut` does.

    Which dimensions are cut matters to kernels that stand ready for whole ones, and not to others: operations whose
    cuts differ in nothing else run the same.
    """
    needs = [as_dense(entry).needs_whole(operation) for entry in operation.dense]
    missed = [bool(need & cut) for need in needs]
    found = frozenset[str]()
    for dim in sorted({dim for need in needs for dim in need}):
        # A dimension blocks a kernel that is to be blocked, and none that may run.
        hits = [dim in need for need in needs]
        fits = all(out or not hit for hit, out in zip(hits, missed, strict=True))
        if fits and any(hit and not need & found for hit, need in zip(hits, needs, strict=True)):
            found |= {dim}
    return found


def candidates(
    operation: Operation, blocks: Sequence[Any], cut: Collection[str], gives: str, by_platform: bool
) -> list[Dense]:
    """The kernels that may run, up to the first that does so on any platform.

    Args:
      operation: with `dense` kernels.
      blocks: operand blocks, or their types.
      cut: the dimensions that are cut.
      gives: `result` or `state`.
      by_platform: whether kernels for a platform count.
    """
    found: list[Dense] = []
    for entry in map(as_dense, operation.dense):
        if entry.gives != gives or (entry.platforms is not None and not by_platform):
            continue
        if entry.may_run(operation, blocks, cut):
            found.append(entry)
            if entry.platforms is None:
                break
    return found


def running(operation: Operation, blocks: Sequence[Any], cut: Collection[str], gives: str) -> str:
    """The names of the kernels that stand in, by platform; empty where the operation's own kernel runs alone."""
    found = candidates(operation, blocks, cut, gives, by_platform=True)
    special = [f"{short_name(entry.kernel)} on {', '.join(entry.platforms)}" for entry in found if entry.platforms]
    general = [short_name(entry.kernel) for entry in found if entry.platforms is None]
    if special:
        general = [f"else {general[0] if general else 'its own'}"]
    return ", ".join([*special, *general])


def passed_over(operation: Operation, blocks: Sequence[Any], cut: Collection[str], gives: str) -> str:
    """Which kernels that can say why would have been preferred to those that run, and why they do not."""
    told: list[str] = []
    for entry in map(as_dense, operation.dense):
        why = entry.why_not(operation, blocks, cut) if entry.gives == gives else ""
        if why and hasattr(entry.takes, "why_not"):
            on = f" on {', '.join(entry.platforms)}" if entry.platforms else ""
            told.append(f"not {short_name(entry.kernel)}{on}: {why}")
        if entry.gives == gives and not why and entry.platforms is None:
            break
    return "; ".join(told)


def for_platforms(operation: Operation, platforms: Sequence[str]) -> Operation:
    """The operation with the kernels that run on some of these platforms; what runs on all needs no choice."""
    kept: list[Callable[..., Any]] = []
    for entry in operation.dense:
        if not isinstance(entry, Dense) or entry.platforms is None:
            kept.append(entry)
            continue
        common = tuple(platform for platform in entry.platforms if platform in platforms)
        if common:
            kept.append(replace(entry, platforms=None if set(platforms) <= set(common) else common))
    return operation if tuple(kept) == operation.dense else replace(operation, dense=tuple(kept))


def _names(label: str, given: Any, where: str) -> tuple[str, ...]:
    listed: Any = tuple(given) if isinstance(given, tuple | list) else (given,)
    if label == "dtypes":
        try:
            found = [jnp.dtype(dtype) for dtype in listed]
            if all(jnp.issubdtype(dtype, np.number) or dtype == np.bool_ for dtype in found):
                return tuple(dtype.name for dtype in found)
            raise TypeError(listed)
        except (TypeError, ValueError):
            raise _refused(
                f"{where}: dtypes={spelt(given, 60)} names no dtype", "Write dtypes=(jnp.bfloat16,)."
            ) from None
    if not all(isinstance(name, str) for name in listed):
        raise _refused(f"{where}: {label}={spelt(given, 60)} holds no names", f"Write a tuple of strings for {label}=.")
    return cast("tuple[str, ...]", listed)


def _refused(headline: str, remedy: str) -> KernelError:
    return KernelError(message(headline, remedy=remedy))
