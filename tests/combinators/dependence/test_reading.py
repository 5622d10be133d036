"""Which cells are read, followed through operations, is what NumPy reads."""

from __future__ import annotations

import random

import numpy as np
import pytest

from combinators.dependence.reading import itself, places, read_by, read_through, spelt_reading
from combinators.index_space.signature import Signature

A, B, SIZE = {"a": (0, 1, 4)}, {"b": (0, 1, 3)}, {"a": 4, "b": 3, "k": 2, "h": 2, "d": 2}


def axis(text: str):
    return Signature.parse(f"{text} -> ").operands[0].axes[0]


def cells(reading, shape):
    """For each cell of a tensor those that it reads, form by form."""
    found = {}
    for index in np.ndindex(*shape):
        found[index] = set()
        for digits, offset in reading:
            steps = (times * (index[number] // low % count) for (number, low, count), times in digits)
            found[index].add(offset + sum(steps))
    return found


@pytest.mark.parametrize(
    ("text", "spelt"),
    [
        ("a", "`a`"),
        ("(2*a+1)", "`2*a+1`"),
        ("(-a+3)", "`-a+3`"),
        ("(a+[k]-1)", "`a-1`, `a`"),
        ("(a+[b])", "`a`, `a+1`, `a+2`"),
    ],
)
def test_what_an_axis_says_of_itself(text, spelt):
    reading = read_by(axis(text), A, SIZE)
    assert reading is not None
    assert spelt_reading(reading, A) == spelt


def test_many_forms_are_shortened_and_too_many_are_none():
    many = read_by(axis("(2*k+1)"), {}, {"k": 9})
    assert many is not None and spelt_reading(many, {}) == "`1`, `3`, `5`, ..."
    assert read_by(axis("(a+[k])"), A, {"a": 4, "k": 10**6}) is None


def test_compositions_are_digits_and_come_together_again():
    split = Signature.parse("(h d) -> h d")
    parts = read_through(itself(0, 4), split.operands[0].axes, (4,), places(split.results[0].axes, SIZE), SIZE)
    assert cells(parts, (2, 2)) == {(h, d): {2 * h + d} for h in range(2) for d in range(2)}
    joined = Signature.parse("h d -> (h d)")
    whole = read_through(parts, joined.operands[0].axes, (2, 2), places(joined.results[0].axes, SIZE), SIZE)
    assert whole == itself(0, 4)


@pytest.mark.parametrize(
    ("text", "reason"),
    [("[c] -> [c]", "takes `[c]` whole"), ("(h d) -> h d", "cuts through what was put together, at `(h d)`")],
)
def test_what_cannot_be_told_says_why(text, reason):
    signature, sizes = Signature.parse(text), {"c": 12, "h": 4, "d": 3}
    digit = frozenset({((((0, 1, 2), 1),), 0)})  # the position modulo 2, of an axis of 4 times 3
    found = read_through(digit, signature.operands[0].axes, (12,), places(signature.results[0].axes, sizes), sizes)
    assert found == reason


def chain(draw):
    """Signatures over one axis, one after the other, and the array of what is read."""
    size = draw.choice([12, 24])
    read = np.arange(size)[:, None]  # cells of the tensor, and the forms by which each reads
    steps = []
    for _ in range(draw.randint(1, 4)):
        size = len(read)
        stride, window, reverse = draw.randint(1, 2), draw.randint(1, 2), draw.random() < 0.4
        start = draw.randint(0, 1)
        count = (size - start - window) // stride + 1
        if count < 1:
            break
        last = start + stride * (count - 1)
        text = f"({-stride}*t+[k]+{last}) -> t" if reverse else f"({stride}*t+[k]+{start}) -> t"
        at = [last - stride * i if reverse else start + stride * i for i in range(count)]
        read = np.stack([np.concatenate([read[i + k] for k in range(window)]) for i in at])
        steps.append((text, {"t": count, "k": window}, size))
    return steps, read


@pytest.mark.parametrize("seed", range(40))
def test_chains_of_windows_strides_and_reversals_read_what_numpy_does(seed):
    steps, read = chain(random.Random(seed))
    reading = itself(0, steps[0][2])
    for text, sizes, size in steps:
        signature = Signature.parse(text)
        at = places(signature.results[0].axes, sizes)
        reading = read_through(reading, signature.operands[0].axes, (size,), at, sizes)
        assert not isinstance(reading, str)
    assert cells(reading, (len(read),)) == {(i,): set(map(int, row)) for i, row in enumerate(read)}


@pytest.mark.parametrize("seed", range(200))
def test_digits_of_compositions_are_true_or_none(seed):
    draw = random.Random(seed)
    sizes = {name: draw.randint(1, 4) for name in "pqr"}
    total = sizes["p"] * sizes["q"] * sizes["r"]
    divisor = draw.choice([d for d in range(1, total + 1) if total % d == 0])
    count = draw.choice([c for c in range(1, total // divisor + 1) if total // divisor % c == 0])
    signature = Signature.parse("(p q r) -> p q r")
    digit = frozenset({((((0, divisor, count), 1),), 0)} if count > 1 else {((), 0)})
    at = places(signature.results[0].axes, sizes)
    found = read_through(digit, signature.operands[0].axes, (total,), at, sizes)
    if not isinstance(found, str):
        shape = tuple(sizes.values())
        told = {index: {int(np.ravel_multi_index(index, shape)) // divisor % count} for index in np.ndindex(*shape)}
        assert cells(found, shape) == told
    else:
        # Only what does not end where a dimension does is not told.
        ends = {sizes["r"], sizes["r"] * sizes["q"], total, 1}
        assert not {divisor, divisor * count} <= ends
