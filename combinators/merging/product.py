"""Products of monoids: several states that combine side by side."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, cast, final

from combinators.errors import GraphError, message
from combinators.frozen import dataclass
from combinators.merging.frame import Frame
from combinators.merging.monoid import Monoid, leafwise
from combinators.merging.parts import by_part


def product(*monoids: Monoid) -> Monoid:
    """Pair monoids: the state is a tuple with one state each.

    The product declares what all its parts declare. It has a frame where all parts have one of the same merge; anything
    else a lowering handles part by part, through `parts`.

    Args:
      monoids: one monoid or more.

    Returns:
      The product; its `parts` are the monoids.

    Raises:
      GraphError: when there is no monoid, or something is none.

    Laws: pairing: folding pairs gives the pair of the folds.
    """
    return product_of(monoids, None)


def struct(**monoids: Monoid) -> Monoid:
    """Pair monoids by name: the state is a dictionary with one state each.

    Args:
      monoids: one monoid or more.

    Returns:
      The product; its `parts` are the monoids and its `keys` their names.

    Raises:
      GraphError: when there is no monoid, or something is none.
    """
    # JAX flattens dictionaries by sorted key; with the parts in the same order, leaves and parts correspond.
    keys = tuple(sorted(monoids))
    return product_of(tuple(monoids[key] for key in keys), keys)


def product_of(parts: tuple[Monoid, ...], keys: tuple[str, ...] | None) -> Monoid:
    """`product`, or `struct` where the parts have keys: a product again of what is made of another's parts."""
    bad = [f"part {index} is {part!r}" for index, part in enumerate(parts) if not isinstance(cast("Any", part), Monoid)]
    if bad or not parts:
        details = bad or ["expected one monoid or more, got none"]
        raise GraphError(message("product: cannot be built.", *details, remedy="Pass monoids, such as `monoids.Sum`."))
    inverses = [part.inverse for part in parts if part.inverse is not None]
    names = [repr(part)[len("Monoid(") : -1] for part in parts]
    label = " & ".join(names) if keys is None else ", ".join(f"{k}={n}" for k, n in zip(keys, names, strict=True))
    return Monoid(
        SideBySide(tuple(IdentityOf(part) for part in parts), keys),
        SideBySide(tuple(leafwise(part.combine) for part in parts), keys),
        commutative=all(part.commutative for part in parts),
        idempotent=all(part.idempotent for part in parts),
        inverse=SideBySide(tuple(map(leafwise, inverses)), keys) if len(inverses) == len(parts) else None,
        frame=_frame([part.frame for part in parts], keys),
        name=label,
        parts=parts,
        keys=keys,
    )


def _frame(frames: list[Frame | None], keys: tuple[str, ...] | None) -> Frame | None:
    present = [frame for frame in frames if frame is not None]
    if len(present) < len(frames) or len({frame.merge for frame in present}) != 1:
        return None
    return Frame(
        SideBySide(tuple(frame.summary for frame in present), keys),
        present[0].merge,
        SideBySide(tuple(frame.at for frame in present), keys),
        SideBySide(tuple(frame.express for frame in present), keys),
        SideBySide(tuple(frame.restore for frame in present), keys),
    )


@final
@dataclass(frozen=True)
class SideBySide:
    """Apply the i-th function to the i-th parts of its arguments.

    Args:
      functions: one a part.
      keys: names of the parts where the arguments are dictionaries; None where they are tuples.
    """

    functions: tuple[Callable[..., Any], ...]
    keys: tuple[str, ...] | None

    def __call__(self, *args: Any) -> Any:
        """Return a tuple or a dictionary with one result a part."""
        return by_part(operator.call, self.functions, self.keys, *args)


@final
@dataclass(frozen=True)
class IdentityOf:
    """The identity of a monoid as a function of the cell's type."""

    monoid: Monoid

    def __call__(self, cell_type: Any) -> Any:
        """Return the identity's state."""
        return self.monoid.identity_for(cell_type)
