"""Names in files are printable: what steers a terminal is refused in every place, and not written."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import combinators as tp
from combinators.errors import FormatError, GraphError
from combinators.stored import json as stored_json
from combinators.stored.json import read_json, text_of
from tests.combinators.hostile_parts import signed

STEERS = {"colours": "\x1b[2J\x1b]0;owned\x07", "a line break": "\n", "a line of Unicode": "\u2028", "turned": "\u202e"}
LOOPED = tp.trace(
    lambda tree: {"sum": tp.named("total", tp.iterate(tp.Map(jnp.sin, "a -> a"), 2)(tree["x"]))},
    {"x": tp.TensorType({"a": 3})},
)
CONTENT = json.loads(LOOPED.to_json())["graph"]


def _places(part: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every string in parsed JSON; to a key with the mark `key` at its end."""
    if isinstance(part, str):
        yield way
    elif isinstance(part, dict):
        for key, item in part.items():
            yield (*way, key, "key")
            yield from _places(item, (*way, key))
    elif isinstance(part, list):
        for at, item in enumerate(part):
            yield from _places(item, (*way, at))


def _changed(part: Any, way: tuple[Any, ...], more: str) -> Any:
    if not way:
        return part + more
    if isinstance(part, list):
        return [_changed(item, way[1:], more) if at == way[0] else item for at, item in enumerate(part)]
    if way[1:] == ("key",):
        return {key + more * (key == way[0]): item for key, item in part.items()}
    return {key: _changed(item, way[1:], more) if key == way[0] else item for key, item in part.items()}


def test_every_text_of_a_graph_is_held_against_what_steers_a_terminal():
    places = [*_places(CONTENT)]
    assert len(places) > 100
    for way in places:
        with pytest.raises(
            FormatError, match=r"^the file, graph.* holds line breaks or control characters\.\n"
        ) as told:
            tp.Graph.from_json(signed(_changed(CONTENT, way, STEERS["colours"])))
        assert str(told.value).replace("\n", "").isprintable(), way


@pytest.mark.parametrize("more", STEERS.values(), ids=STEERS)
def test_a_name_that_steers_a_terminal_is_refused_where_it_stands(more: str):
    with pytest.raises(FormatError) as told:
        tp.Graph.from_json(signed(_changed(CONTENT, ("nodes", 0, "path"), more)))
    assert str(told.value) == (
        "the file, graph, nodes[0], path holds line breaks or control characters.\n"
        f"  got {CONTENT['nodes'][0]['path'] + more!r}\n"
        "  Restore the file from what `to_json` wrote."
    )


def test_letters_of_all_languages_are_read():
    content = json.loads(json.dumps(CONTENT)) | {"name": "größe 形状 α-β"}
    assert tp.Graph.from_json(signed(content)).name == "größe 形状 α-β"


@pytest.mark.parametrize("more", STEERS.values(), ids=STEERS)
def test_what_would_not_be_read_is_not_written(more: str):
    graph = tp.trace(lambda tree: tp.Map(jnp.sin)(tree["x" + more]), {"x" + more: tp.TensorType({"a": 3})})
    with pytest.raises(GraphError) as told:
        graph.to_json()
    assert str(told.value) == (
        "the graph cannot be stored, nodes[0], path\n"
        "  it holds line breaks or control characters\n"
        f"  got {graph.inputs[0].name!r}\n"
        "  Give it a name without line breaks and control characters."
    )


def _nested(depth: int) -> Any:
    kind: Any = tp.TensorType({"a": 3})
    for _ in range(depth):
        kind = [kind]
    return tp.trace(lambda tree: tp.Map(jnp.sin)(jax.tree.leaves(tree)[0]), kind)


def _named(name: str, of: str) -> Any:
    kind = tp.TensorType({name if of == "axis" else "a": 3})
    key = name if of == "key" else "x"
    return tp.trace(lambda tree: tp.Map(jnp.sin, name=name if of == "leaf" else None)(tree[key]), {key: kind})


BEYOND = {
    "a long name of a leaf": (lambda: _named("n" * 4097, "leaf"), "has 4097 characters, names in files at most 4096"),
    "a long key": (lambda: _named("n" * 70_000, "key"), "characters, names in files at most 4096"),
    "a long name of an axis": (lambda: _named("n" * 4097, "axis"), "has 4097 characters, names in files"),
    "a structure of many levels": (lambda: _nested(130), "it is nested deeper than 128 levels"),
    "many axes": (lambda: tp.trace(tp.Map(jnp.sin), tp.TensorType([(None, 1)] * 65)), "it has 65 axes"),
    "an axis without end": (lambda: tp.trace(tp.Map(jnp.sin), tp.TensorType((2**63,))), f"{2**63} cells"),
    "a key of many digits": (
        lambda: tp.trace(lambda tree: tp.Map(jnp.sin)(tree[2**64]), {2**64: tp.TensorType({"a": 3})}),
        "it is no integer below 2**64 in magnitude",
    ),
}


@pytest.mark.parametrize("name", BEYOND)
def test_what_is_beyond_a_bound_of_files_is_not_written(name: str):
    """A file that nobody can read again is none: the program is lost with the process that wrote it."""
    make, told = BEYOND[name]
    with pytest.raises(GraphError) as refused:
        make().to_json()
    assert "cannot be stored" in str(refused.value) and told in str(refused.value)
    assert max(map(len, str(refused.value).split("\n"))) < 300


@pytest.mark.parametrize("depth", [1, 20, 50])
def test_what_is_within_the_bounds_is_read_again(depth: int):
    graph = _nested(depth)
    assert tp.Graph.from_json(graph.to_json()) == graph
    named = _named("n" * 4000, "key")
    assert tp.Graph.from_json(named.to_json()).to_json() == named.to_json()


def test_readers_of_any_text_take_names_that_can_be_printed():
    assert read_json('["a\\nb"]', "the file", any_text=True) == ["a\nb"]
    with pytest.raises(FormatError, match=r"^a place cannot be read\.\n  expected a text without line breaks"):
        text_of("a\nb", "a place")


@pytest.mark.parametrize("text", ['["\\ud800"]', '{"\\udfff": 0}', '["\\ud83d\\ud83d\\ude00"]'])
def test_half_a_character_is_no_text_of_any_reader(text: str):
    with pytest.raises(FormatError, match="holds a string that is no Unicode text"):
        read_json(text, "the file", any_text=True)
    assert read_json('["\\ud83d\\ude00"]', "the file") == ["\U0001f600"]


@pytest.mark.parametrize("text", ["[" + "[]," * 10 + "[]]", "[1", "[1e400]", '["a", "\\u001b"]'])
@pytest.mark.parametrize("collects", [True, False])
def test_what_is_collected_meanwhile_is_as_before(text: str, collects: bool, monkeypatch: pytest.MonkeyPatch):
    """Reading does not collect garbage, of which it makes none, and a large text millions of lists."""
    called: list[str] = []
    monkeypatch.setattr(stored_json.gc, "isenabled", lambda: collects)
    monkeypatch.setattr(stored_json.gc, "disable", lambda: called.append("disable"))
    monkeypatch.setattr(stored_json.gc, "enable", lambda: called.append("enable"))
    with contextlib.suppress(FormatError):
        read_json(text, "the file")
    assert called == ["disable"] + ["enable"] * collects


def test_numbers_are_looked_at_where_one_may_be_too_large():
    assert read_json("[18446744073709551615, -1e3, 1E5, 1.5]", "the file") == [2**64 - 1, -1000.0, 100000.0, 1.5]
    for number in ("18446744073709551616", "-18446744073709551616", "1e309", "-1E+999", "9" * 400 + ".0", "9" * 5000):
        with pytest.raises(FormatError, match="is too large"):
            read_json(f"[0, {number}]", "the file")
    assert read_json('["1e999 99999999999999999999999"]', "the file") == ["1e999 99999999999999999999999"]
