"""Schedules damaged at random: one field changed, or one cut wherever it stands."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from random import Random
from typing import Any

from tapestry_jax.planning.geometry.layout import Cut
from tapestry_jax.planning.scheduling.schedule import Finish, Schedule

KEPT = {"type", "graph", "mesh", "path", "enters"}
"""Fields that are no part of what is proved: names for people."""

Route = tuple[str | int, ...]


def damaged(schedule: Schedule, rng: Random) -> Schedule:
    """The schedule with one random change; it may happen to be the same."""
    cuts = sorted(_cuts(schedule), key=str)
    if cuts and rng.random() < 0.35:
        old = rng.choice(cuts)
        return replaced(schedule, old, _another_cut(old, cuts, rng))
    route, value = rng.choice(list(_fields(schedule, ())))
    return _put(schedule, route, _another(value, cuts, schedule, rng))


def ends_of(schedule: Schedule) -> list[Route]:
    """The ways to the cuts that the ends of folds and scans name, in loops too."""
    return [route for route, value in _fields(schedule, ()) if isinstance(value, Cut) and _stands_in(schedule, route)]


def with_end_damaged(schedule: Schedule, rng: Random) -> Schedule:
    """The schedule with one random change to a cut that the end of a fold or scan names; it may be the same."""
    route, cuts = rng.choice(ends_of(schedule)), sorted(_cuts(schedule), key=str)
    return _put(schedule, route, _another_cut(at(schedule, route), cuts, rng))


def with_end(schedule: Schedule, route: Route, cut: Cut) -> Schedule:
    """The schedule with another cut at the end of a way of `ends_of`."""
    return _put(schedule, route, cut)


def at(value: Any, route: Route) -> Any:
    """What stands at the end of a way."""
    for name in route:
        value = getattr(value, name) if isinstance(name, str) else value[name]
    return value


def _stands_in(schedule: Schedule, route: Route) -> bool:
    """Whether a way leads into the end of a fold or scan."""
    return any(isinstance(at(schedule, route[:count]), Finish) for count in range(len(route)))


def _is_part(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and type(value).__module__.startswith("tapestry_jax.planning")


def _names(part: Any) -> list[str]:
    return [each.name for each in dataclasses.fields(part) if each.name not in KEPT]


def _fields(value: Any, route: Route) -> Iterator[tuple[Route, Any]]:
    """Everything that can be changed, and the way to it."""
    if _is_part(value):
        for name in _names(value):
            yield from _fields(getattr(value, name), (*route, name))
    if isinstance(value, tuple):
        for place, each in enumerate(value):
            yield from _fields(each, (*route, place))
    if (isinstance(value, tuple | frozenset) and value) or isinstance(value, bool | int | str | Cut | None):
        yield route, value


def _put(value: Any, route: Route, new: Any) -> Any:
    if not route:
        return new
    first, rest = route[0], route[1:]
    if isinstance(first, str):
        return dataclasses.replace(value, **{first: _put(getattr(value, first), rest, new)})
    return (*value[:first], _put(value[first], rest, new), *value[first + 1 :])


def _cuts(value: Any) -> set[Cut]:
    found = {value} if isinstance(value, Cut) else set[Cut]()
    if _is_part(value):
        return found.union(*(_cuts(getattr(value, name)) for name in _names(value)))
    return found.union(*map(_cuts, value)) if isinstance(value, tuple) else found


def replaced(value: Any, old: Cut, new: Cut) -> Any:
    """A schedule, or a part of one, with another cut wherever one stands."""
    if value == old and isinstance(value, Cut):
        return new
    if _is_part(value):
        parts = {name: replaced(getattr(value, name), old, new) for name in _names(value)}
        return dataclasses.replace(value, **parts)
    return tuple(replaced(each, old, new) for each in value) if isinstance(value, tuple) else value


def _another(value: Any, cuts: list[Cut], schedule: Schedule, rng: Random) -> Any:
    match value:
        case bool():
            return not value
        case int():
            return value + rng.choice((-1, 1, 2, -value))
        case str():
            return rng.choice(schedule.mesh.names)
        case Cut():
            return _another_cut(value, cuts, rng)
        case frozenset():
            return frozenset(sorted(value)[1:])
        case tuple():
            return _another_tuple(value, rng)
        case _:
            return value


def _another_tuple(value: tuple[Any, ...], rng: Random) -> tuple[Any, ...]:
    """One left out, one twice, all turned round, or two swapped."""
    place, other = rng.randrange(len(value)), rng.randrange(len(value))
    swapped = list(value)
    swapped[place], swapped[other] = value[other], value[place]
    without, twice = (*value[:place], *value[place + 1 :]), (*value[:place], value[place], *value[place:])
    return rng.choice((without, twice, value[::-1], tuple(swapped)))


def _another_cut(cut: Cut, cuts: list[Cut], rng: Random) -> Cut:
    found = [
        dataclasses.replace(cut, striped=not cut.striped),
        dataclasses.replace(cut, block=max(0, cut.block + rng.choice((-1, 1, 2)))),
        dataclasses.replace(cut, axes=cut.axes[::-1]),
        dataclasses.replace(cut, axes=rng.choice((cut.axes[1:], ()))),
        dataclasses.replace(cut, axes=(*cut.axes, *cut.axes[-1:])),
        rng.choice(cuts),
    ]
    if cut.window is not None:
        name = rng.choice(("offset", "width", "count", "before", "after"))
        wrong = dataclasses.replace(cut.window, **{name: rng.randrange(4)})
        found.append(dataclasses.replace(cut, window=wrong))
    return rng.choice(found)
