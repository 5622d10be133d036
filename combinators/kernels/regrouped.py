"""Which axes of two shapes hold the same cells: what a reshape merges and splits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def same_cells(own: Sequence[int], out: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """The shortest runs of axes, without those of size 1, that hold the same cells on both sides."""
    left, right = ([a for a, size in enumerate(shape) if size != 1] for shape in (own, out))
    if 0 in own or 0 in out:
        yield left, right
        return
    while left or right:
        one, other = [left.pop(0)], [right.pop(0)]
        p, q = own[one[0]], out[other[0]]
        while p != q:
            if p < q:
                one.append(left.pop(0))
                p *= own[one[-1]]
            else:
                other.append(right.pop(0))
                q *= out[other[-1]]
        yield one, other
