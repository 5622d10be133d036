"""Plans as files: what comes back, and what is refused, by its full text."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh

import tapestry_jax as tp
from tapestry_jax import plan_json
from tests.damaged import damaged
from tests.mutate_json import mutated, parts

GRAPH = tp.trace(
    tp.einsum("i k, k n -> i n"),
    tp.TensorType({"i": 8, "k": 6}, jnp.float32),
    tp.TensorType({"k": 6, "n": 4}, jnp.float32),
)
PLAN = tp.plan(
    GRAPH,
    AbstractMesh((2, 4), ("data", "model")),
    {"i": ("data", "model")},
    ops={"einsum": {"i": "data", "k": "model"}},
    inputs={"x0": {"i": "model"}},
    outputs={"y": {"n": "model"}},
)
TEXT = PLAN.to_json()


def test_a_plan_comes_back_as_it_was():
    read = tp.Plan.from_json(TEXT, GRAPH)
    assert (read.entries, read.ops, read.inputs, read.outputs) == (PLAN.entries, PLAN.ops, PLAN.inputs, PLAN.outputs)
    assert read.schedule == PLAN.schedule
    assert read.to_json() == TEXT
    assert read.collectives(grad=True) == PLAN.collectives(grad=True)


def test_the_mesh_has_devices_where_there_are_enough():
    assert isinstance(tp.Plan.from_json(TEXT, GRAPH).mesh, jax.sharding.Mesh)
    large = tp.plan(GRAPH, AbstractMesh((64,), ("data",)), {"i": "data"})
    assert isinstance(tp.Plan.from_json(large.to_json(), GRAPH).mesh, AbstractMesh)


def test_a_mesh_of_the_stored_shape_is_taken(mesh2x4):
    assert tp.Plan.from_json(TEXT, GRAPH, mesh2x4).mesh is mesh2x4


def test_the_text_of_a_graph_that_was_stored_holds_its_plans():
    assert tp.Plan.from_json(TEXT, tp.Graph.from_json(GRAPH.to_json())).schedule.steps == PLAN.schedule.steps


def _edited(**fields):
    return json.dumps(json.loads(TEXT) | fields)


OTHER = tp.trace(tp.einsum("i k -> i"), tp.TensorType({"i": 8, "k": 6}, jnp.float32))
REFUSED = {
    "truncated": (
        '{"format"',
        {},
        "FormatError: a plan file is not JSON\n"
        "  Expecting ':' delimiter: line 1 column 10 (char 9)\n"
        "  It was truncated or edited; store the plan again with plan.to_json().",
    ),
    "empty": (
        "",
        {},
        "FormatError: a plan file is not JSON\n"
        "  Expecting value: line 1 column 1 (char 0)\n"
        "  It was truncated or edited; store the plan again with plan.to_json().",
    ),
    "a path": (
        Path("plan.json"),
        {},
        "FormatError: a plan file is no text.\n"
        f"  got {type(Path()).__name__}: {Path('plan.json')!r}\n"
        "  Pass the text that `to_json` gave; of a file, `Path(...).read_text()`.",
    ),
    "edited": (
        TEXT.replace('"data"', '"model"', 1),
        {},
        "FormatError: a plan file does not match its checksum\n"
        "  It was truncated or edited; store the plan again with plan.to_json().",
    ),
    "without content": (
        _edited(content=None),
        {},
        "FormatError: a plan file does not match its checksum\n"
        "  It was truncated or edited; store the plan again with plan.to_json().",
    ),
    "of another kind": (
        '{"format": "recipe"}',
        {},
        "FormatError: this is no plan file\n  got {'format': 'recipe'}\n  Pass plan.to_json() text.",
    ),
    "of another version": (
        _edited(version=9),
        {},
        "FormatError: a plan file has version 9, newer than this library reads\n  expected 1\n"
        "  Update the library, or plan again with this version of the library.",
    ),
    "for another graph": (
        TEXT,
        {"graph": OTHER},
        "FormatError: the plan belongs to another graph\n"
        f"  stored key {GRAPH.key[:16]}..., this graph has {OTHER.key[:16]}...\n"
        "  the first that differs is `einsum`\n"
        "  Plan this graph again.",
    ),
    "for another mesh": (
        TEXT,
        {"mesh": AbstractMesh((4, 2), ("data", "model"))},
        "FormatError: the plan was made for another mesh\n"
        "  stored data=2 x model=4, got data=4 x model=2\n"
        "  Pass a mesh of the stored shape, or plan again.",
    ),
    "without a graph": (
        TEXT,
        {"graph": "graph.json"},
        "PlanError: a stored plan is read for a graph\n"
        "  got str: 'graph.json'\n"
        "  Pass the graph that it was made for: tp.Plan.from_json(text, tp.trace(f, *specs)).",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_plan_file_is_refused(name):
    text, asked, expected = REFUSED[name]
    with pytest.raises(tp.TapestryError) as caught:
        tp.Plan.from_json(text, **({"graph": GRAPH} | asked))
    assert f"{type(caught.value).__name__}: {caught.value}" == expected


def test_the_file_of_a_plan_is_told_where_one_of_a_graph_is_read():
    with pytest.raises(tp.FormatError) as caught:
        tp.Graph.from_json(TEXT)
    assert str(caught.value) == (
        "the file is no graph.\n  expected tapestry-graph\n  got 'tapestry-plan'\n"
        "  Pass what `to_json` of a graph gave."
    )


def test_every_truncation_is_refused():
    for length in range(0, len(TEXT) - 1, 37):
        with pytest.raises(tp.FormatError):
            tp.Plan.from_json(TEXT[:length], GRAPH)


DATA = Path(__file__).parent / "data"


def test_a_plan_that_an_earlier_release_wrote_is_read():
    graph = tp.Graph.from_json((DATA / "graph_of_plan_1.json").read_text())
    plan = tp.Plan.from_json((DATA / "plan_1.json").read_text(), graph)
    assert dict(plan.entries) == {"batch": ("data", tp.chunks(2)), "mlp": ("model",)}
    assert [(each.kind, each.axes, each.bytes) for each in plan.collectives()] == [("all-reduce", ("model",), 32)]


def _signed(content):
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return json.dumps({"format": "tapestry-plan", "version": 1, "checksum": digest, "content": content})


CONTENT = json.loads(TEXT)["content"]
DAMAGED = {
    "no entries": ({"entries": None}, "the plan, entries cannot be read.\n  expected a list\n  got None"),
    "an item that is none": ({"entries": [["i", [{"os": "system"}]]]}, "expected a mesh axis, or one of chunks"),
    "a mesh of 2**40": ({"mesh": [["data", 2**40], ["model", 4]]}, "and at most 1048576 devices"),
    "a mesh of nothing": ({"mesh": [["data", 0], ["model", 4]]}, "axes of at least one device"),
    "an axis twice": ({"mesh": [["data", 2], ["data", 4]]}, "expected names that differ"),
    "chunks without end": ({"entries": [["i", [{"chunks": 0}]]]}, "tp.chunks takes a number of chunks"),
    "stripes of a number": ({"entries": [["i", [{"striped": 3}]]]}, "expected a list\n  got 3"),
    "platforms that are none": ({"platforms": [3]}, "the plan, platforms cannot be read.\n  expected a text"),
    "padded over a number": ({"inputs": [["x0", [["i", [{"padded": [3]}]]]]]}, "tp.padded takes names of mesh axes"),
    "padded over no list": ({"inputs": [["x0", [["i", [{"padded": "data"}]]]]]}, "expected a list\n  got 'data'"),
    "padded over another mesh": ({"inputs": [["x0", [["i", [{"padded": ["pod"]}]]]]]}, "pod"),
    "two items in one": ({"entries": [["i", [{"ring": "data", "halo": 1}]]]}, "expected a mesh axis, or one of chunks"),
    "a dimension twice": ({"entries": [["i", ["data"]], ["i", ["model"]]]}, "expected names that differ"),
    "half a pair": ({"entries": [["i"]]}, "expected pairs of a name and what it stands for"),
    "a size below nothing": ({"mesh": [["data", -2], ["model", 4]]}, "expected a non-negative integer"),
    "an operation that is not there": ({"ops": [["decoder", [["i", ["data"]]]]]}, "decoder"),
    "an input that is not there": ({"inputs": [["x7", [["i", ["data"]]]]]}, "x7"),
    "a carrier that is none": ({"accumulate": [["", "V8"]]}, "V8"),
    "a number for a carrier": ({"accumulate": [["", 3]]}, "the plan, accumulate cannot be read.\n  expected a text"),
    "something more": ({"kernel": "os:system"}, "the plan cannot be read.\n  expected an object of graph, mesh"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_plan_that_was_edited_and_signed_is_refused(name):
    fields, text = DAMAGED[name]
    with pytest.raises(tp.FormatError) as caught:
        tp.Plan.from_json(_signed(CONTENT | fields), GRAPH)
    assert text in str(caught.value)


def test_edited_plans_are_read_or_refused():
    draws, refused = random.Random(0), 0
    for _ in range(150):
        try:
            plan = tp.Plan.from_json(_signed(mutated(CONTENT, draws, parts(CONTENT))), GRAPH)
        except tp.FormatError:
            refused += 1
        else:
            assert tp.Plan.from_json(plan.to_json(), GRAPH, plan.mesh).entries == plan.entries
    assert 100 < refused < 150


def layers(kernel, count):
    def layer(x, w):
        return tp.Map(kernel)(tp.einsum("b k, k n -> b n")(x, w).rename(n="k"))

    return tp.trace(
        lambda x, w: tp.stack(layer, count)(x, w),
        tp.TensorType({"b": 4, "k": 4}, jnp.float32),
        tp.TensorType({"layer": count, "k": 4, "n": 4}, jnp.float32),
    )


@pytest.mark.parametrize(
    ("graph", "path"),
    [(layers(jnp.cos, 3), "stack/cos"), (layers(jnp.sin, 2), "w"), (layers(jnp.sin, 3), None), (GRAPH, "x0")],
)
def test_a_plan_of_another_graph_says_where_that_differs(graph, path):
    mesh = AbstractMesh((2,), ("data",))
    text = tp.plan(layers(jnp.sin, 3), mesh, {"b": "data"}).to_json()
    if path is None:
        assert tp.Plan.from_json(text, graph).entries == (("b", ("data",)),)
        return
    with pytest.raises(tp.FormatError) as refused:
        tp.Plan.from_json(text, graph)
    assert f"\n  the first that differs is `{path}`\n" in str(refused.value)


@pytest.mark.parametrize("marks", [None, 3, [], [3], ["é"], ["abc"], ["0" * 60000] * 9, "0000"])
def test_marks_decide_nothing(marks):
    assert tp.Plan.from_json(_edited(marks=marks), GRAPH).entries == PLAN.entries
    with pytest.raises(tp.FormatError, match="the plan belongs to another graph"):
        tp.Plan.from_json(_edited(marks=marks), OTHER)


DAMAGES = {
    "no checksum": (plan_json._content, '!= head.get("checksum")', "is None", {"entries": []}, False),
    "any version": (plan_json._content, "version != _VERSION", "False", {}, False),
    "any graph": (plan_json._plan, "key != graph.key", "False", {"graph": OTHER.key}, True),
    "any content": (
        plan_json._plan,
        "_content(head), _CONTENT,",
        "_content(head), _content(head),",
        {"kernel": 3},
        True,
    ),
    "any mesh": (
        plan_json._axes,
        "not axes or any(size < 1",
        "not axes or any(size < 0",
        *DAMAGED["a mesh of nothing"][:1],
        True,
    ),
    "any number of devices": (plan_json._axes, "> _MOST_DEVICES", "< 0", *DAMAGED["a mesh of 2**40"][:1], True),
    "names twice": (plan_json._pairs, "< len(pairs)", "< 0", *DAMAGED["a dimension twice"][:1], True),
    "any item": (plan_json._stored, "len(kinds) != 1", "len(kinds) < 1", *DAMAGED["two items in one"][:1], True),
    "any pair": (plan_json._pairs, "len(pair) == 2 and", "", *DAMAGED["half a pair"][:1], True),
    "what planning raises": (
        plan_json._plan,
        "TapestryError, Arith",
        "Arith",
        *DAMAGED["a carrier that is none"][:1],
        True,
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_every_damage_to_the_reader_of_plans_is_seen(name):
    function, old, new, fields, is_signed = DAMAGES[name]
    edited = CONTENT | fields
    text = (
        _signed(edited)
        if is_signed
        else json.dumps(json.loads(TEXT) | ({"content": edited} if fields else {"version": 9}))
    )
    expected = DAMAGED.get(next((key for key, each in DAMAGED.items() if each[0] is fields), ""), ("", ""))[1]

    def is_refused():
        try:
            tp.Plan.from_json(text, GRAPH)
        except tp.FormatError as error:
            return expected in str(error)
        except Exception:  # noqa: BLE001 - whatever a damaged reader lets through
            return False
        return False

    with damaged(function, old, new):
        assert not is_refused()
    assert is_refused()


@pytest.mark.parametrize(
    "part",
    [
        {"mesh": [["\x1b[2Jm", 2], ["data", 2], ["model", 4]]},
        {"entries": [["i\n", ["data"]]]},
        {"ops": [["einsum\x1b[2J", []]]},
        {"remat": [["\x1b[2J", ""]]},
    ],
    ids=lambda part: next(iter(part)),
)
def test_names_that_steer_a_terminal_are_refused(part):
    content = json.loads(TEXT)["content"] | part
    text = json.dumps({**json.loads(TEXT), "checksum": plan_json._checksum(content), "content": content})
    with pytest.raises(tp.FormatError, match=r"^a plan file, content, \w+\[0\]\[0\] holds line breaks") as told:
        tp.Plan.from_json(text, GRAPH)
    assert str(told.value).replace("\n", "").isprintable()


def test_names_that_would_not_be_read_are_not_written():
    plan = tp.plan(GRAPH, AbstractMesh((2,), ("data\n",)), {"i": "data\n"})
    with pytest.raises(tp.PlanError, match=r"^the plan cannot be stored, mesh\[0\]\[0\]\n  it holds line breaks"):
        plan.to_json()
