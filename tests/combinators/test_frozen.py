"""Frozen dataclasses of ours against those of the standard library: the same in every respect."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import sys
from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar

import pytest

import combinators.frozen
from combinators.frozen import dataclass
from combinators.index_space.axis import Axis

STOCK, OURS = dataclasses.dataclass, dataclass


def nothing(make: Callable[..., Any]) -> Any:
    @make(frozen=True)
    class Case:
        """No field."""

    return Case


def one(make: Callable[..., Any]) -> Any:
    @make(frozen=True)
    class Case:
        """One field."""

        a: float

    return Case


def many(make: Callable[..., Any]) -> Any:
    @make(frozen=True)
    class Case:
        """Every kind of field that is made here."""

        KIND: ClassVar[int] = 3
        a: int
        b: str = "b"
        c: object = dataclasses.field(default=None, compare=False, repr=False)
        d: int = dataclasses.field(default=7, kw_only=True)
        e: int = dataclasses.field(default=8, hash=False)

        def __post_init__(self) -> None:
            if self.a == 13:
                raise ValueError("unlucky")

        @cached_property
        def twice(self) -> int:
            return 2 * self.a

    return Case


def wide(make: Callable[..., Any]) -> Any:
    @make(frozen=True)
    class Case:
        """So many fields that all are set at once; some are named as what the text is made of."""

        a: int
        b: str = "b"
        update: object = None
        e: int = dataclasses.field(default=7, kw_only=True)
        d: int = dataclasses.field(default=8, kw_only=True, hash=False)
        _1: int = 1
        _0: int = 0
        cls: str = "_2"
        given: float = 0.5

        def __post_init__(self) -> None:
            if self.a == 13:
                raise ValueError("unlucky")

    return Case


def by_identity(make: Callable[..., Any]) -> Any:
    @make(frozen=True, eq=False, repr=False)
    class Case:
        """Equal to itself alone."""

        a: int

    return Case


def own_identity(make: Callable[..., Any]) -> Any:
    @make(frozen=True, eq=False, repr=False)
    class Case:
        """Writes what it does not ask for."""

        a: float

        def __eq__(self, other: object) -> bool:
            return isinstance(other, type(self))

        def __hash__(self) -> int:
            return 3

        def __repr__(self) -> str:
            return "own"

    return Case


def awkward(make: Callable[..., Any]) -> Any:
    @make(frozen=True)
    class Case:
        """Fields that are called as things are in the text that all classes share."""

        a: int
        _1: object = "_0"
        _0: object = "_1"
        hash: int = 1
        other: int = 2
        _set: int = 3
        object: int = 4
        NotImplemented: int = 5

    return Case


def by_default(make: Callable[..., Any]) -> Any:
    @make(frozen=True)
    class Case:
        """A default for each: left to the standard library."""

        a: list[int] = dataclasses.field(default_factory=list)

    return Case


def own_equality(make: Callable[..., Any]) -> Any:
    @make(frozen=True)
    class Case:
        """Writes a method itself: left to the standard library."""

        a: int

        def __eq__(self, other: object) -> bool:
            return isinstance(other, type(self))

    return Case


def below(make: Callable[..., Any]) -> Any:
    @make(frozen=True)
    class Case(many(make)):
        """Inherits fields: left to the standard library."""

        f: int = 0

    return Case


CASES = [nothing, one, many, wide, by_identity, own_identity, awkward, by_default, own_equality, below]
CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}),
    ((1,), {}),
    ((float("nan"),), {}),
    ((1, "x"), {"d": 2}),
    ((1, "x", 5), {}),
    ((1, "x", 5), {"e": 9}),
    ((1, "x", 6), {"e": 9}),
    ((13,), {}),
    ((1,), {"z": 2}),
]


def outcome(run: Callable[[], Any]) -> Any:
    try:
        return run()
    except (TypeError, ValueError, AttributeError) as error:
        return type(error), str(error)


def seen(kind: Any) -> list[Any]:
    """All that can be told of the objects of a class, apart from where they lie."""
    made = [outcome(lambda args=args, more=more: kind(*args, **more)) for args, more in CALLS]
    objects = [item for item in made if isinstance(item, kind)]
    shown = [repr(item) if kind.__repr__ is not object.__repr__ else "" for item in objects]
    pairs = [[a == b for b in objects] for a in objects]
    hashes = [[outcome(lambda a=a, b=b: hash(a) == hash(b)) for b in objects] for a in objects]
    writes = [
        outcome(lambda item=item, name=name: setattr(item, name, 1))
        for item in objects
        for name in ("a", "twice", "other")
    ]
    deleted = [outcome(lambda item=item, name=name: delattr(item, name)) for item in objects for name in ("a", "other")]
    replaced = [outcome(lambda item=item: vars(dataclasses.replace(item, a=4))) for item in objects]
    parameters = list(inspect.signature(kind).parameters.values())
    fields = [(f.name, f.type, f.default, f.kw_only, f.compare) for f in dataclasses.fields(kind)]
    names = sorted(name for name in vars(kind) if name not in ("__firstlineno__", "__static_attributes__"))
    told = [kind.__match_args__, kind.__doc__, kind.__dataclass_params__.frozen, kind.__init__.__qualname__]
    errors = [item for item in made if not isinstance(item, kind)]
    return [shown, pairs, hashes, writes, deleted, replaced, [p.name for p in parameters], fields, names, told, errors]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_frozen_class_is_that_of_the_standard_library(case: Callable[..., Any]) -> None:
    ours, stock = seen(case(OURS)), seen(case(STOCK))
    assert ours == stock


def test_subclasses_refuse_as_well() -> None:
    for make in (OURS, STOCK):
        below = type("Below", (one(make),), {})(1.0)
        below.other = 2
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'a'"):
            below.a = 3


def test_objects_of_other_classes_are_not_equal() -> None:
    for make in (OURS, STOCK):
        first, second = one(make), one(make)
        assert first(1.0) != second(1.0) and first(1.0) == first(1.0)
        assert first(1.0) != type("Below", (first,), {})(1.0)


def test_only_plain_classes_are_made_here() -> None:
    made = [case(OURS).__setattr__.__code__.co_filename == combinators.frozen.__file__ for case in CASES]
    assert made == [True] * 7 + [False] * 3


def test_classes_of_as_many_fields_share_a_text() -> None:
    texts: list[object] = []
    sys.addaudithook(lambda event, args: texts.append(args) if event == "compile" and _is_watched else None)
    _is_watched = True
    for case in (many, many, one, one):
        case(OURS)
    _is_watched = False
    # From Python 3.13 on the standard library writes a text without methods for each class.
    assert [args for args in texts if args != (b"def __create_fn__():\n\n return ()", "<string>")] == []


def test_our_values_are_copied_and_pickled() -> None:
    axis = Axis("one")
    assert pickle.loads(pickle.dumps(axis)) == axis == copy.deepcopy(axis)


def test_changed_is_what_replace_makes() -> None:
    given = many(OURS)(1, "x", c=[3], d=4)
    same = combinators.frozen.changed(given, b="y", d=5)
    assert (same, vars(same), given.b) == (expected := dataclasses.replace(given, b="y", d=5), vars(expected), "x")
    assert same.c is given.c
