"""Dimensions that axes turn out to be: classes that unite, and never with what they have to be told apart from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations


class Dim:
    """A dimension of a lifted function.

    Two are apart where a tensor or an operation has both: they stay two, whatever else they meet.

    Args:
      key: where it comes from: axes with one key may share a name, such as those of equal layers.
      hint: a readable name.
      name: what a user calls it; it sticks.
    """

    def __init__(self, key: tuple[object, ...], hint: str, name: str | None = None) -> None:
        self.key, self.hint, self.name = key, hint, name
        self._parent: Dim | None = None
        self.apart: set[Dim] = set()
        self.others: list[Dim] = []

    def find(self) -> Dim:
        """What stands for its class."""
        root = self
        while root._parent is not None:
            root = root._parent
        node = self
        while node._parent is not None and node._parent is not root:
            node._parent, node = root, node._parent
        return root

    def is_apart(self, other: Dim) -> bool:
        """Whether the two may not be one."""
        left, right = self.find(), other.find()
        return right in left.apart or (left.name is not None and right.name is not None and left.name != right.name)


def unite(left: Dim, right: Dim) -> bool:
    """Make two dimensions one, the first one's origin staying; False where they have to stay apart."""
    left, right = left.find(), right.find()
    if left is right:
        return True
    if left.is_apart(right):
        return False
    if right.name is not None and left.name is None:
        left, right = right, left
    right._parent = left  # pyright: ignore[reportPrivateUsage]
    for other in right.apart:
        other.apart.discard(right)
        other.apart.add(left)
    left.apart |= right.apart
    left.others += right.others
    right.apart = set()
    return True


def tell_apart(dims: Iterable[Dim | None]) -> None:
    """Keep these dimensions of one tensor, or of one operation, apart."""
    roots = dict.fromkeys(dim.find() for dim in dims if dim is not None)
    for left, right in combinations(roots, 2):
        left.apart.add(right)
        right.apart.add(left)


def another(dim: Dim, taken: Sequence[Dim]) -> Dim:
    """A dimension that stands for `dim` where that is taken: the keys of a sequence beside its queries.

    The same one wherever that is possible, so that equal layers have equal dimensions.
    """
    root, used = dim.find(), {other.find() for other in taken}
    for other in root.others:
        if other.find() not in used and other.find() is not root:
            return other
    number = len(root.others) + 1
    made = Dim((*root.key, "other", number), f"{root.name or root.hint}_{number}")
    root.others.append(made)
    tell_apart((root, made))
    return made


def labels(dims: Iterable[Dim]) -> dict[Dim, str]:
    """A name for each class: the user's, else its hint; numbered where another has it that it must not share with.

    Classes of one key share a name unless a tensor or an operation has both.
    """
    roots = list(dict.fromkeys(dim.find() for dim in dims))
    given = {root: root.name for root in roots if root.name is not None}
    owners: dict[str, tuple[object, ...] | None] = dict.fromkeys(given.values())
    for root in roots:
        if root in given:
            continue
        near = {given[other] for other in (o.find() for o in root.apart) if other in given}
        number, label = 0, root.hint
        while label in near or (label in owners and owners[label] != root.key):
            number += 1
            label = f"{root.hint}_{number}"
        given[root] = label
        owners[label] = root.key
    return given
