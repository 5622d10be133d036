"""Proposing the signature of an unknown kernel, from what it does to poisoned operands."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import jax.numpy as jnp
import numpy as np
from jax import lax

from combinators import monoids
from combinators.errors import KernelError
from combinators.monoid import Monoid
from combinators.tensor_type import TensorType, type_of
from tapestry_jax.inference.inferred import Inferred
from tapestry_jax.inference.probe import Probe, small_integers
from tapestry_jax.inference.relation import Relation, read_relation

Place = tuple[int, int]
"""An operand, or a result, and one of its axes."""

_FOLDS = (monoids.Sum, monoids.Max, monoids.Min, monoids.Prod, monoids.Any, monoids.All)
_SCANS: tuple[tuple[Monoid, Callable[..., Any]], ...] = (
    (monoids.Sum, lax.cumsum),
    (monoids.Prod, lax.cumprod),
    (monoids.Max, lax.cummax),
    (monoids.Min, lax.cummin),
)
_LETTERS = "ijklmnopqrstuvwxyzabcdefgh"


def infer(function: Callable[..., Any], specs: Sequence[Any], *, name: str | None = None) -> Inferred:
    """Propose the signature of a kernel, by changing its operands slab by slab and looking at what answers.

    Floats are changed to NaN and to other numbers, integers and booleans to others. An axis that a result follows cell
    by cell is a map dimension, or a window; what no result follows is tried as a fold, by slicing it in two and merging
    the results with each monoid that ships for numbers; what stays is whole. Every proposed dimension is then cut, so
    that a kernel that knows its coordinates or its size is found. It is a proposal still: test it with
    `tp.laws.assert_lawful(found.arrow, specs)`.

    Args:
      function: operands -> array, or a tuple of arrays; an ordinary JAX function.
      specs: types of the operands: `tp.TensorType`, `jax.ShapeDtypeStruct` or arrays, whose numbers are not looked at.
        Sizes from 3 to 8, all different where possible, tell most.
      name: what the proposal and errors call the kernel.

    Returns:
      The proposal; `found.arrow` is the leaf, `found.untold` what could not be told.

    Raises:
      KernelError: when the kernel cannot run on such operands.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> left, right = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((4, 5), (5, 3)))
      >>> print(infer(jnp.matmul, [left, right]))
      matmul: reduce "i k, k j -> i j", Sum
    """
    types = [type_of(spec, f"operand {number} of tp.infer") for number, spec in enumerate(specs)]
    called = name or getattr(function, "__name__", type(function).__name__)
    search = _Search(function, types, Probe(function, types, called))
    search.follow()
    search.check_cuts()
    search.find_scan()
    search.find_folds()
    return search.proposal()


@final
@dataclass
class _Search:
    """What is known of a kernel so far; filled step by step."""

    function: Callable[..., Any]
    types: Sequence[TensorType]
    probe: Probe
    followed: dict[Place, tuple[Place, Relation]] = field(default_factory=dict)
    folded: dict[Place, str] = field(default_factory=dict)
    monoid: Monoid | None = None
    over: Place | None = None
    reverse: bool = False
    untold: list[str] = field(default_factory=list)
    running: dict[Place, str] = field(default_factory=dict)
    unread: set[Place] = field(default_factory=set)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Of the results."""
        return [result.shape for result in self.probe.results[0]]

    def places(self) -> Iterator[Place]:
        """All axes of all operands."""
        for operand, kind in enumerate(self.types):
            yield from ((operand, axis) for axis in range(kind.ndim))

    def follow(self) -> None:
        """Find for every axis of an operand the axis of a result that follows it."""
        for place in self.places():
            operand, axis = place
            if self.types[operand].shape[axis] < 2:
                self.untold.append(f"{self._say(place)} has {self.types[operand].shape[axis]} cells, too few to tell")
                continue
            answers = self.probe.answers(*place)
            relations = {
                (result, at): read_relation(matrix)
                for result, found in enumerate(answers)
                for at, matrix in enumerate(found)
            }
            if not any(matrix.any() for found in answers for matrix in found):
                self.untold.append(f"nothing answers to {self._say(place)}: it may not be read at all")
                self.unread.add(place)
            followers = [(at, r) for at, r in relations.items() if r.kind in ("same", "window")]
            if followers:
                # Where two axes of the result follow, the nearer relation counts.
                self.followed[place] = min(followers, key=lambda pair: (pair[1].kind != "same", pair[0]))
            for at, relation in relations.items():
                if relation.kind in ("before", "behind") and not followers:
                    self.over, self.reverse = place, relation.kind == "behind"
                    self.running[place] = f"{self._say(place)} is read up to each cell of {self._say(at, 'result')}"
                if relation.kind == "other" and not followers:
                    self.untold.append(f"{self._say(place)} answers in no pattern that a signature has")
        self._drop_repeated()

    def _drop_repeated(self) -> None:
        """One operand never carries a dimension twice."""
        for operand in range(len(self.types)):
            seen: dict[Place, Place] = {}
            for place in [p for p in self.followed if p[0] == operand]:
                at = self.followed[place][0]
                if at in seen:
                    self.untold.append(f"{self._say(seen[at])} and {self._say(place)} run together, as on a diagonal")
                    self.followed.pop(seen[at], None)
                    self.followed.pop(place)
                else:
                    seen[at] = place

    def check_cuts(self) -> None:
        """Cut every followed dimension, and keep it only where the piece is the piece of the whole."""
        for at in sorted({at for at, _ in self.followed.values()}):
            size = self.shapes[at[0]][at[1]]
            followers = {place: relation for place, (end, relation) in self.followed.items() if end == at}
            # Results side by side share a dimension where all of them follow.
            if size >= 2 and all(self._is_cut(at, followers, span) for span in ((0, size // 2), (size // 2, size))):
                continue
            self.untold.append(
                f"{self._say(at, 'result')} is read cell by cell, but a piece of it is not the piece of the whole: "
                "the kernel may know its size or its coordinates (pass them as `@`)"
            )
            for place in followers:
                self.followed.pop(place)

    def _is_cut(self, at: Place, followers: dict[Place, Relation], span: tuple[int, int]) -> bool:
        for operands, results in zip(self.probe.operands, self.probe.results, strict=True):
            cut = list(operands)
            for (operand, axis), relation in followers.items():
                low, high = relation.span(*span)
                cut[operand] = _sliced(cut[operand], axis, low, high)
            try:
                pieces = self.probe.run(cut)
            except KernelError:
                return False
            wanted = [_sliced(r, at[1], *span) if n == at[0] else r for n, r in enumerate(results)]
            for number, other in self._beside(at):
                wanted[number] = _sliced(results[number], other, *span)
            if not all(_close(piece, want) for piece, want in zip(pieces, wanted, strict=True)):
                return False
        return True

    def _beside(self, at: Place) -> list[Place]:
        """The axes of other results that follow the same axes."""
        size = self.shapes[at[0]][at[1]]
        return [
            (number, at[1])
            for number, shape in enumerate(self.shapes)
            if number != at[0] and len(shape) > at[1] and shape[at[1]] == size
        ]

    def find_scan(self) -> None:
        """Compare with the running totals of each monoid that has one."""
        if self.over is None:
            return
        operand, axis = self.over
        alone = len(self.types) == 1 and len(self.shapes) == 1
        for monoid, scan in _SCANS if alone else ():
            if all(
                _close(r[0], np.asarray(scan(jnp.asarray(o[operand]), axis=axis, reverse=self.reverse)))
                for o, r in zip(self.probe.operands, self.probe.results, strict=True)
            ):
                self.monoid = monoid
                self.running.clear()
                return
        self.untold += [f"{why}: a scan, of a monoid that was not found" for why in self.running.values()]
        self.over = None

    def find_folds(self) -> None:
        """Slice what nothing follows in two, alone or with an axis of the same size, and merge the results."""
        if self.over is not None:
            return
        exact = small_integers(self.types)
        letters = iter("kpqrst")
        for place in self.places():
            known = place in self.followed or place in self.folded or place in self.unread
            if known or self.types[place[0]].shape[place[1]] < 2:
                continue
            for group in self._groups(place):
                monoid = self._folds(exact, group)
                if monoid is None or (self.monoid is not None and monoid != self.monoid):
                    continue
                self.monoid = monoid
                letter = next(letters)
                self.folded |= dict.fromkeys(group, letter)
                break
            else:
                if place not in self.running:
                    self.untold.append(
                        f"{self._say(place)} is whole, as far as {', '.join(str(m.name) for m in _FOLDS)} can tell"
                    )

    def _groups(self, place: Place) -> Iterator[tuple[Place, ...]]:
        size = self.types[place[0]].shape[place[1]]
        free = [
            p
            for p in self.places()
            if p != place
            and p not in self.followed
            and p not in self.folded
            and p not in self.unread
            and self.types[p[0]].shape[p[1]] == size
            and p[0] != place[0]
        ]
        yield (place,)
        for count in range(1, len(self.types)):
            for others in itertools.combinations(free, count):
                if len({p[0] for p in others}) == count:
                    yield (place, *others)

    def _folds(self, operands: Sequence[Any], group: Sequence[Place]) -> Monoid | None:
        """The monoid that merges the results of two pieces to the result of the whole."""
        size = self.types[group[0][0]].shape[group[0][1]]
        whole = self.probe.run(operands)
        pieces: list[list[Any]] = []
        for span in ((0, size - size // 2), (size - size // 2, size), (0, 1), (1, size)):
            cut = list(operands)
            for operand, axis in group:
                cut[operand] = _sliced(cut[operand], axis, *span)
            try:
                pieces.append(self.probe.run(cut))
            except KernelError:
                return None
        for monoid in _FOLDS:
            merged = [_merged(monoid, pieces[i], pieces[i + 1]) for i in (0, 2)]
            if all(m is not None and all(map(_close, m, whole)) for m in merged):
                return monoid
        return None

    def proposal(self) -> Inferred:
        """Write down what was found."""
        names = _Names(self)
        operands = [" ".join(names.operand(operand)) for operand in range(len(self.types))]
        results = [" ".join(names.result(number)) for number in range(len(self.shapes))]
        over = None if self.over is None else names.of_scan
        signature = f"{', '.join(operands)} -> {', '.join(results)}"
        return Inferred(
            self.function,
            signature,
            self.monoid,
            over,
            self.reverse,
            tuple(names.sizes.items()),
            tuple(dict.fromkeys(self.untold)),
            self.probe.name,
        )

    def _say(self, place: Place, what: str = "operand") -> str:
        return f"axis {place[1]} of {what} {place[0]}"


@final
class _Names:
    """Names for dimensions: letters in the order of the results; those that tensors bring where they agree."""

    def __init__(self, search: _Search) -> None:
        self._search, self.sizes = search, dict[str, int]()
        taken: set[str] = set(search.folded.values())
        self._letters = (letter for letter in _LETTERS if letter not in taken)
        self._windows: dict[Place, str] = {}
        self._results: dict[Place, str] = {}
        self._wholes: dict[Place, str] = {}
        self.of_scan = ""
        self._name_results()
        self._name_wholes()

    def operand(self, operand: int) -> Iterator[str]:
        """The axes of an operand as the signature writes them."""
        for axis in range(self._search.types[operand].ndim):
            place = (operand, axis)
            if place in self._search.followed:
                at, relation = self._search.followed[place]
                yield relation.term(self._results[at], self._windows.get(place, ""))
            elif place in self._search.folded:
                yield self._search.folded[place]
            else:
                yield self.of_scan if place == self._search.over else f"[{self._wholes[place]}]"

    def result(self, number: int) -> Iterator[str]:
        """The axes of a result as the signature writes them."""
        mapped = {at for at, _ in self._search.followed.values()}
        for axis in range(len(self._search.shapes[number])):
            name = self._results[number, axis]
            is_map = (number, axis) in mapped or any(
                (other, axis) in mapped and self._results[other, axis] == name for other in range(number)
            )
            yield name if is_map or name == self.of_scan else f"[{name}]"

    def _name_results(self) -> None:
        search = self._search
        for number, shape in enumerate(search.shapes):
            for axis, size in enumerate(shape):
                first = (0, axis)
                if number and axis < len(search.shapes[0]) and search.shapes[0][axis] == size:
                    self._results[number, axis] = self._results[first]
                    continue
                self._results[number, axis] = next(self._letters)
        if search.over is not None:
            # A scan keeps the places of its axes.
            self.of_scan = self._results[0, search.over[1]]

    def _name_wholes(self) -> None:
        """A whole axis takes the name of a result axis of its size that follows nothing; the rest have their own."""
        search = self._search
        mapped = {at for at, _ in search.followed.values()}
        free = [at for at in self._results if at not in mapped and self._results[at] != self.of_scan]
        windows: dict[int, list[Place]] = {}
        for place, (_, relation) in search.followed.items():
            if relation.width > 1:
                windows.setdefault(relation.width, []).append(place)
        for place in search.places():
            if place in search.followed or place in search.folded or place == search.over:
                continue
            size = search.types[place[0]].shape[place[1]]
            window = next((p for p in windows.get(size, []) if p not in self._windows and p[0] != place[0]), None)
            follower = next((at for at in free if search.shapes[at[0]][at[1]] == size), None)
            if window is not None:
                self._wholes[place] = self._windows[window] = next(self._letters)
            elif follower is not None:
                free.remove(follower)
                self._wholes[place] = self._results[follower]
            else:
                self._wholes[place] = next(self._letters)
        for place, (_, relation) in search.followed.items():
            if relation.width > 1 and place not in self._windows:
                self._windows[place] = next(self._letters)
                self.sizes[self._windows[place]] = relation.width


def _sliced(array: Any, axis: int, low: int, high: int) -> Any:
    return array[(slice(None),) * axis + (slice(low, high),)]


def _close(a: Any, b: Any) -> bool:
    if np.shape(a) != np.shape(b):
        return False
    return bool(np.allclose(np.asarray(a, complex), np.asarray(b, complex), rtol=1e-4, atol=1e-5, equal_nan=True))


def _merged(monoid: Monoid, left: Sequence[Any], right: Sequence[Any]) -> list[Any] | None:
    if any(np.shape(a) != np.shape(b) for a, b in zip(left, right, strict=True)):
        return None
    is_logical = monoid in (monoids.Any, monoids.All)
    if any((np.asarray(leaf).dtype == bool) != is_logical for leaf in left):
        return None
    return [np.asarray(monoid.merge(jnp.asarray(a), jnp.asarray(b))) for a, b in zip(left, right, strict=True)]
