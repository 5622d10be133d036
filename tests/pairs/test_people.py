"""A sample of programs as people write them, and the tool itself: planted faults are found.

Thorough: more of the same sample.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from combinators.graphs import unchanged
from combinators.leaves import map as maps
from combinators.operations import operation
from tests.pairs import people


@pytest.mark.parametrize("number", [*range(3), *(pytest.param(n, marks=pytest.mark.thorough) for n in range(3, 60))])
def test_programs_as_people_write_them_compute_what_they_say(number: int) -> None:
    assert people.check(f"sample/{number}") == []


def found(monkeypatch: pytest.MonkeyPatch, form: Any, base: Any) -> list[str]:
    """What is said of a program of one form, whatever its seed draws."""
    group = people.Group(form, base, (1.0, 2.0, 3.0), at_once=False)
    monkeypatch.setattr(people, "draw", lambda seed: [group])
    return people.check("planted")


@pytest.mark.parametrize("form", [people.closures, people.jvps, people.default_functions])
def test_leaves_that_are_not_settled_are_found(form: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def itself(value: Any) -> Any:
        return value

    for module in (maps, operation):
        monkeypatch.setattr(module, "settled", itself)
    # What reads late is refused then: a finding for a form that has to run.
    assert any("has changed since" in text for text in found(monkeypatch, form, people.line))


@pytest.mark.parametrize("form", [people.one_list, people.globals_in_a_loop, people.classes_in_a_loop])
def test_plans_of_what_has_changed_are_found(form: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def passed(*given: Any) -> None:
        del given

    monkeypatch.setattr(unchanged, "check_operation", passed)
    assert any(text.startswith("in blocks: got") for text in found(monkeypatch, form, people.line))


def test_forms_that_may_be_refused_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    real: Callable[..., None] = unchanged.check_operation

    def counted(*given: Any) -> None:
        asked.append(given[-1])
        real(*given)

    monkeypatch.setattr(unchanged, "check_operation", counted)
    assert found(monkeypatch, people.one_object, people.wave) == [] and asked
