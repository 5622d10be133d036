"""Programs drawn as sentences, which print, are read again, and know what they are in plain jnp.

float32(a=4, b=3): softmax b; cumsum a; spread c=2; sum b
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast, final

import jax.numpy as jnp
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from combinators.arrows.arrow import Arrow, identity
from combinators.arrows.tracing import trace
from combinators.errors import message, spelt
from combinators.graphs.graph import Graph
from combinators.index_space.tensor_type import TensorType
from laws.errors import LawError, whole_number
from laws.strategies.words import WORDS, after

Step = tuple[str, str | None, int | None]
"""A word, the dimension it is about, and the size that it gives a new one."""

_HEAD = re.compile(r"\s*(\w+)\(([^)]*)\)\s*:(.*)", re.DOTALL)
_STEP = re.compile(r"(\w+)(?:\s+(\w+)(?:=(\d+))?)?")
_NEW = ("c", "d", "e", "f")


@final
@dataclass(frozen=True)
class Sentence:
    """A program of one tensor.

    Attributes:
      start: the type that it takes; every axis has a name.
      steps: what is done, in order.
    """

    start: TensorType
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        said = [word + (f" {dim}" if dim else "") + (f"={size}" if size else "") for word, dim, size in self.steps]
        return f"{self.start}: {'; '.join(said)}"

    @property
    def arrow(self) -> Arrow[Any, Any]:
        """The program as a composition of arrows."""
        found: Arrow[Any, Any] = identity
        for names, (word, dim, size) in self._walk():
            names = (*names, dim) if WORDS[word].does == "new" and dim else names
            step = WORDS[word].arrow(names, names.index(dim) if dim else 0, size or 0)
            found = step if found is identity else found >> step
        return found

    @property
    def graph(self) -> Graph:
        """The program traced at its type."""
        return trace(self.arrow, self.start)

    @property
    def end(self) -> TensorType:
        """The type of the result."""
        return self.graph.type_of(self.graph.outputs[0][1])

    def in_jnp(self, x: Any) -> Any:
        """The same in plain jnp, by code that knows no arrows."""
        x = jnp.asarray(x)
        for names, (word, dim, size) in self._walk():
            axis = names.index(dim) if dim in names else 0
            x = WORDS[word].in_jnp(x, axis, size or 0)
        return x

    def _walk(self) -> Iterator[tuple[tuple[str, ...], Step]]:
        names = tuple(str(name) for name in self.start.names)
        for step in self.steps:
            yield names, step
            names = after(step[0], names, step[1])


def parse(text: str) -> Sentence:
    """Read a sentence.

    Args:
      text: such as `float32(a=4, b=3): softmax b; spread c=2`, as sentences print.

    Raises:
      LawError: when it cannot be read, or a word or dimension is unknown.

    Example:
      >>> import jax.numpy as jnp
      >>> sentence = parse("float32(a=2, b=2): cumsum a; sum b")
      >>> sentence.arrow(jnp.ones((2, 2))).tolist(), sentence.in_jnp(jnp.ones((2, 2))).tolist()
      ([2.0, 4.0], [2.0, 4.0])
    """
    head = _HEAD.fullmatch(text) if isinstance(cast("Any", text), str) else None
    if head is None:
        raise _unreadable(text, "it does not begin with a type", "Begin with a type, such as `float32(a=4, b=3):`.")
    dtype, dims, body = head.groups()
    pairs = [dim.split("=") for dim in dims.replace(" ", "").split(",") if dim]
    if not all(len(pair) == 2 and pair[1].isdigit() for pair in pairs):
        raise _unreadable(text, f"`{dims}` are no sizes", "Give every axis a name and a size, as in `a=4`.")
    start = TensorType([(name, int(size)) for name, size in pairs], dtype)
    names = tuple(name for name, _ in pairs)
    steps: list[Step] = []
    for part in filter(None, (part.strip() for part in body.split(";"))):
        steps.append(_step(text, part, names))
        names = after(steps[-1][0], names, steps[-1][1])
    return Sentence(start, tuple(steps))


def graphs(
    most: int = 4, shapes: tuple[Mapping[str, int], ...] = ({"a": 4, "b": 3}, {"a": 5, "b": 8})
) -> SearchStrategy[Sentence]:
    """Draw well-typed programs of one tensor.

    Args:
      most: largest number of words.
      shapes: sizes to begin with.

    Returns:
      A strategy of sentences: `sentence.graph`, `sentence.arrow`, and `sentence.in_jnp` to compare with.

    Raises:
      LawError: when `most` is no number of words, or `shapes` are no sizes.
    """
    whole_number("laws.graphs: most", most, least=0)
    given: Any = shapes
    if not isinstance(given, list | tuple) or not given or not all(isinstance(sizes, Mapping) for sizes in given):
        raise LawError(
            message(
                "laws.graphs: `shapes` are no sizes to begin with.",
                "expected mappings of dimensions to sizes, one or more",
                f"got      {spelt(shapes)}",
                remedy="Pass ({'a': 4, 'b': 3},).",
            )
        )
    starts = [TensorType(dict(sizes)) for sizes in shapes]
    return st.sampled_from(starts).flatmap(lambda start: _sentences(start, most, True))


def arrows(type_in: TensorType, type_out: TensorType, most: int = 3) -> SearchStrategy[Sentence]:
    """Draw programs from one type to another.

    Args:
      type_in: float type of the operand; every axis has a name.
      type_out: type of the result, of the same dtype. Dimensions that it lacks are folded, and new ones come in.
      most: largest number of further words.

    Returns:
      A strategy of sentences; `sentence.arrow` is the arrow, `str(sentence)` what it does.

    Raises:
      LawError: when an axis has no name, the dtypes differ, or an argument is no type.
    """
    for kind in cast("tuple[Any, Any]", (type_in, type_out)):
        if not isinstance(kind, TensorType):
            raise LawError(
                message(
                    "laws.arrows: programs go from one tp.TensorType to another.",
                    f"got {type(kind).__name__}: {spelt(kind)}",
                    remedy="Pass types with names, such as tp.TensorType({'a': 4, 'b': 3}).",
                )
            )
    whole_number("laws.arrows: most", most, least=0)
    named = all(name is not None for name in (*type_in.names, *type_out.names))
    if not named or type_in.dtype != type_out.dtype or not jnp.issubdtype(type_in.dtype, jnp.floating):
        raise LawError(
            message(
                "laws.arrows: no program is known between these types.",
                f"from {type_in}",
                f"to   {type_out}",
                remedy="Name every axis, and give both types one float dtype.",
            )
        )
    sizes_in, sizes_out = _sizes(type_in), _sizes(type_out)
    gone = [name for name in sizes_in if sizes_out.get(name) != sizes_in[name]]
    new = [name for name in sizes_out if sizes_in.get(name) != sizes_out[name]]
    return _between(type_in, type_out, tuple(gone), tuple(new), most)


@st.composite
def _sentences(draw: DrawFn, start: TensorType, most: int, may_change: bool) -> Sentence:
    steps: list[Step] = []
    names = tuple(str(name) for name in start.names)
    words = [name for name, word in WORDS.items() if may_change or word.does == "keep"]
    for _ in range(draw(st.integers(0, most))):
        step = _drawn(draw, draw(st.sampled_from(words)), names)
        if step is not None:
            steps.append(step)
            names = after(step[0], names, step[1])
    return Sentence(start, tuple(steps))


def _drawn(draw: DrawFn, word: str, names: tuple[str, ...]) -> Step | None:
    """A step of a word, or None where it has no place: nothing is folded away to a scalar and then scanned."""
    if not WORDS[word].takes:
        return (word, None, None) if names or word != "turn" else None
    if WORDS[word].does == "new":
        free = [name for name in _NEW if name not in names]
        return (word, free[0], draw(st.integers(1, 3))) if free else None
    return (word, draw(st.sampled_from(names)), None) if names else None


@st.composite
def _between(
    draw: DrawFn, start: TensorType, end: TensorType, gone: tuple[str, ...], new: tuple[str, ...], most: int
) -> Sentence:
    folds = [name for name, word in WORDS.items() if word.does == "fold"]
    said: list[Step] = list(draw(_sentences(start, most, False)).steps)
    said += [(draw(st.sampled_from(folds)), dim, None) for dim in draw(st.permutations(gone))]
    sizes = _sizes(end)
    said += [("spread", dim, sizes[dim]) for dim in draw(st.permutations(new))]
    names = tuple(str(name) for name in start.names)
    for word, dim, _ in said:
        names = after(word, names, dim)
    # Bring the axes into order: fold nothing, only turn and name anew what `turn` cannot reach.
    return Sentence(start, (*said, *_ordering(names, tuple(sizes), sizes)))


def _ordering(names: tuple[str, ...], wanted: tuple[str, ...], sizes: Mapping[str, int]) -> list[Step]:
    for turns in range(max(1, len(names))):
        if names[turns:] + names[:turns] == wanted:
            return [("turn", None, None)] * turns
    # A dimension in the wrong place goes and comes again, at the end.
    moved = next(name for name, place in zip(names, wanted, strict=True) if name != place)
    rest = tuple(name for name in names if name != moved)
    return [("mean", moved, None), ("spread", moved, sizes[moved]), *_ordering((*rest, moved), wanted, sizes)]


def _sizes(type: TensorType) -> dict[str, int]:
    return {str(name): size for name, size in zip(type.names, type.shape, strict=True)}


def _step(text: str, part: str, names: tuple[str, ...]) -> Step:
    found = _STEP.fullmatch(part)
    if found is None or found[1] not in WORDS:
        raise _unreadable(text, f"`{part}` is no step", f"The words are {', '.join(WORDS)}.")
    word, dim, size = found[1], found[2], found[3]
    kind = WORDS[word]
    if kind.takes != (dim is not None) or (kind.does == "new") != (size is not None):
        raise _unreadable(text, f"`{part}` says too much or too little", "Write `tanh`, `softmax b`, or `spread c=2`.")
    if dim is not None and (dim in names) == (kind.does == "new"):
        raise _unreadable(text, f"`{part}`: the axes here are {', '.join(names) or 'none'}", "Name one of these.")
    return word, dim, None if size is None else int(size)


def _unreadable(text: Any, why: str, remedy: str) -> LawError:
    return LawError(message(f"laws.parse: cannot read {spelt(text, 120)}.", why, remedy=remedy))
