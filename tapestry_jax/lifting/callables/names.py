"""Names that users give to the axes of inputs: by input, by pattern, or as a signature."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, cast

from combinators.errors import GraphError, message, spelt
from combinators.frozen import dataclass

Axes = tuple[str | None, ...]


@dataclass(frozen=True)
class Names:
    """What `names=` of `tp.lift` says.

    Attributes:
      inputs: input, or pattern of inputs, and the names of its axes; None in the place of `_`.
      results: the names of the results' axes, in order; None where they are not given.
    """

    inputs: tuple[tuple[str, Axes], ...]
    results: tuple[Axes, ...] | None = None

    def of(self, label: str, shape: Sequence[int]) -> Axes:
        """The names for an input.

        Raises:
          GraphError: when they do not fit its axes.
        """
        for pattern, axes in self.inputs:
            if pattern == label or fnmatchcase(label, pattern):
                return _fitting(axes, len(shape), f"input `{label}`")
        return (None,) * len(shape)

    def of_results(self, shapes: Sequence[Sequence[int]]) -> list[Axes]:
        """The names for each result.

        Raises:
          GraphError: when they do not fit the results.
        """
        if self.results is None:
            return [(None,) * len(shape) for shape in shapes]
        if len(self.results) != len(shapes):
            raise GraphError(
                message(
                    f"names= of tp.lift names {len(self.results)} results, and there are {len(shapes)}",
                    remedy='Name every result behind the arrow, "_" where all is open: "batch seq -> batch, _".',
                )
            )
        open_ = ((None,), ("...",))
        return [
            (None,) * len(shape) if axes in open_ else _fitting(axes, len(shape), f"result {at}")
            for at, (axes, shape) in enumerate(zip(self.results, shapes, strict=True))
        ]

    def check(self, labels: Sequence[str]) -> None:
        """Refuse names for what is no input.

        Raises:
          GraphError: with all of them.
        """
        wrong = [p for p, _ in self.inputs if not any(p == label or fnmatchcase(label, p) for label in labels)]
        if wrong:
            listed = sorted(labels, key=lambda label: "/" in label)
            shown = ", ".join(listed[:8]) + (f", and {len(labels) - 8} more" if len(labels) > 8 else "")
            trees = [p for p in wrong if any(label.startswith(f"{p}/") for label in labels)]
            if trees == wrong:
                raise GraphError(
                    message(
                        f"names= of tp.lift names {', '.join(map(repr, wrong))}, which holds inputs and is none",
                        f"the inputs are {shown}",
                        remedy="Name what it holds, as listed; in a signature write `_` in its place.",
                    )
                )
            raise GraphError(
                message(
                    f"names= of tp.lift names {', '.join(map(repr, wrong))}, which is no input",
                    f"the inputs are {shown}",
                    remedy='Name inputs as they are listed; `*` stands for any part: {"params/*/kernel": "in out"}.',
                )
            )


def read_names(names: Any, arguments: Sequence[str]) -> Names:
    """Read `names=`: a mapping of inputs, or the text of a signature for the arguments.

    Raises:
      GraphError: for anything else.
    """
    if names is None:
        return Names(())
    if isinstance(names, str):
        left, arrow, right = names.partition("->")
        listed = [_axes(text, names) for text in left.split(",")]
        if len(listed) > len(arguments):
            raise GraphError(
                message(
                    f"names= of tp.lift names {len(listed)} arguments, and there are {len(arguments)}",
                    f"got {names!r}",
                    remedy='Name the arguments in order, separated by commas: "batch seq, seq embed".',
                )
            )
        results = tuple(_axes(text, names) for text in right.split(",")) if arrow else None
        told = [(name, axes) for name, axes in zip(arguments, listed, strict=False) if axes not in ((None,), ("...",))]
        return Names(tuple(told), results)
    if isinstance(names, Mapping):
        given = cast("Mapping[Any, Any]", names)
        return Names(tuple((str(key), _axes(value, names)) for key, value in given.items()))
    raise GraphError(
        message(
            "names= of tp.lift is no names",
            "expected a mapping from inputs to axes, or a signature",
            f"got {type(names).__name__}: {spelt(names)}",
            remedy='Write names={"x": "batch seq embed"}.',
        )
    )


def check_free(name: str, own: str | None, what: str, taken: Collection[str | None]) -> None:
    """Refuse a name for an axis that has another one, or that another dimension has.

    Raises:
      GraphError: for both.
    """
    if own is None and name not in taken:
        return
    raise GraphError(
        message(
            f"names= of tp.lift calls {what} `{name}`",
            f"it is the dimension `{own}`" if own is not None else f"`{name}` is another dimension",
            remedy=f"Call it `{own}`, or `_`." if own is not None else "Give it a name of its own, or `_`.",
        )
    )


def _axes(value: Any, names: Any) -> Axes:
    if not isinstance(value, str) and (isinstance(value, Mapping) or not isinstance(value, Iterable)):
        raise GraphError(
            message(
                "names= of tp.lift cannot be read",
                f"expected the names of axes, got {type(value).__name__}: {spelt(value)}",
                remedy='Write {"x": "batch seq embed"}; leave an input out whose axes stay open.',
            )
        )
    listed = cast("Sequence[Any]", value.split() if isinstance(value, str) else tuple(value))
    found = tuple(None if name in (None, "_") else str(name) for name in listed)
    wrong = [name for name in found if name is not None and not name.isidentifier() and name != "..."]
    known = [name for name in found if name is not None]
    twice = [name for name in known if known.count(name) > 1]
    if wrong or twice:
        problem = f"{wrong[0]!r} is no identifier" if wrong else f"`{twice[0]}` stands twice"
        raise GraphError(
            message(
                "names= of tp.lift cannot be read",
                problem,
                f"got {spelt(names, 120)}",
                remedy="Give every axis its own identifier, `_` to leave one open, or `...` for all others.",
            )
        )
    return found


def _fitting(axes: Axes, rank: int, what: str) -> Axes:
    if "..." in axes:
        at, rest = axes.index("..."), rank - len(axes) + 1
        if rest >= 0:
            return (*axes[:at], *(None,) * rest, *axes[at + 1 :])
    if len(axes) != rank:
        raise GraphError(
            message(
                f"names= of tp.lift gives {_counted(len(axes), 'name')} to {what}",
                f"it has {_counted(rank, 'axis', 'axes')}",
                remedy="Give one name for each axis, `_` for one that stays open, or `...` for several.",
            )
        )
    return axes


def _counted(count: int, one: str, many: str = "") -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"
