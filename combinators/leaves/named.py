"""Naming a value of a program, so that it can be observed."""

from __future__ import annotations

from combinators.arguments import read_name
from combinators.recording.current import trace_of
from combinators.recording.value import Value, as_value


def named(name: str, value: Value) -> Value:
    """Give a value a name: `h = tp.named("h", h)`, later `graph.observe("h")`.

    Raises:
      GraphError: when `value` is not a value of a program, or another one has the name.
    """
    name = read_name(name, "the name in tp.named")
    value = as_value(value)
    return trace_of([value], f"named({name!r})").name(name, value)
