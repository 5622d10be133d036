"""Files whose parts are of another kind than was written: each with a word of what its reader is told."""

from __future__ import annotations

import json
from typing import Any

import jax.numpy as jnp

import combinators as tp
from combinators.stored.json import LARGEST_TEXT
from tests.combinators.hostile_parts import BASE, dataclass, edited, graph, named, partial, signed

Case = tuple[Any, tuple[str, ...], str]
ONE = named("jax.numpy:sin")
LOOP = json.loads(tp.trace(tp.iterate(tp.Map(jnp.sin, "a -> a"), 2), tp.TensorType({"a": 4})).to_json())["graph"]
RENAMED = json.loads(tp.trace(lambda x: x.rename(a="b"), tp.TensorType({"a": 4})).to_json())["graph"]
NO_MONOID: dict[str, Any] = {"fields": {"identity": 0.0, "combine": named("jax.numpy:add")}}


def field(name: str, **fields: Any) -> str:
    """The base graph with a kernel of ours."""
    return graph(kernel=dataclass(name, **fields))


def looped(*path: Any, value: Any) -> str:
    return edited(*path, value=value, content=LOOP)


def texts() -> dict[str, Case]:
    """What is looked at before anything is interpreted."""
    plain: dict[str, tuple[Any, str]] = {
        "more characters than are read": (" " * LARGEST_TEXT + graph(), "is too large to be read"),
        "a long string in a list": (edited("suggested", value=["a" * 70_000]), "holds a string that is too long"),
        "half a character in a key": (edited("nodes", value={"\ud800": 0}), "is no Unicode text"),
        "half a character in a list": (edited("suggested", value=["\ud800"]), "is no Unicode text"),
        "a large integer": (edited("nodes", 1, "operands", value=[[2**64, 0]]), "is too large"),
        "something more at its head": (graph().replace('"version"', '"more": 0, "version"', 1), "an object of format"),
        "something more in a graph": (signed(BASE | {"more": 0}), "expected an object of name, operations"),
        "something less in a graph": (signed({"name": "x"}), "expected an object of name, operations"),
        "another format": (graph().replace("tapestry-graph", "pickle"), "no graph of this version"),
        "another version of the format": (graph().replace('"version": 1', '"version": 2'), "no graph of this version"),
        "true for a version": (graph().replace('"version": 1', '"version": true'), "no graph of this version"),
    }
    return {name: (text, (), told) for name, (text, told) in plain.items()}


def graphs() -> dict[str, Case]:
    """What is no graph: references, sizes and trees."""
    long = "a" * 5000
    plain: dict[str, tuple[Any, str]] = {
        "a negative number": (edited("nodes", 1, "operands", value=[[0, -1]]), "expected a non-negative integer"),
        "an output of the past": (edited("nodes", 1, "operands", value=[[0, 1]]), "it refers to output 1 of node 0"),
        "three numbers for two": (edited("nodes", 1, "operands", value=[[0, 0, 0]]), "expected 2 integers"),
        "a result of the future": (edited("outputs", value=[["y", 7, 0]]), "it refers to node 7"),
        "no result": (edited("outputs", value=[]), "it holds 1 outputs, the graph has 0"),
        "a result twice": (edited("outputs", value=[["y", 1, 0], ["y", 1, 0]]), "expected names that differ"),
        "no result and none meant": (signed(BASE | {"outputs": [], "out_tree": None}), "it has no output"),
        "more inputs than there are": (
            edited("in_tree", value={"list": ["*", "*"]}),
            "it holds 2 inputs, the graph has 1",
        ),
        "an input behind an operation": (
            signed(BASE | {"nodes": [*BASE["nodes"], BASE["nodes"][0]]}),
            "an input stands behind operations",
        ),
        "an operation that is not there": (
            edited("nodes", 1, "operation", value=1),
            "expected one of the 1 operations",
        ),
        "a node of no kind": (edited("nodes", 1, "kind", value="eval"), "a node of kind input, apply, rename, loop"),
        "an input of two types": (edited("nodes", 0, "types", value=BASE["nodes"][0]["types"] * 2), "one type"),
        "a label past all bounds": (edited("nodes", 1, "path", value=long), "at most 4096 characters"),
        "a dimension past all bounds": (
            edited("nodes", 0, "types", 0, "dims", 0, value=[long, 4]),
            "at most 64 pairs of a name and a size",
        ),
        "more axes than there are": (
            edited("nodes", 0, "types", 0, "dims", value=[[None, 1]] * 65),
            "at most 64 pairs of a name and a size",
        ),
        "half a size": (edited("nodes", 0, "types", 0, "dims", 0, value=["a", 4.0]), "at most 64 pairs"),
        "a size below nothing": (edited("nodes", 0, "types", 0, "dims", 0, value=["a", -4]), "is no type"),
        "a struct format for a dtype": (edited("nodes", 0, "types", 0, "dtype", value="f4,f4"), "the name of a dtype"),
        "another name of a dtype": (edited("nodes", 0, "types", 0, "dtype", value="double"), "the name of a dtype"),
        "objects": (edited("nodes", 0, "types", 0, "dtype", value="object"), "the name of a dtype"),
        "another type": (edited("nodes", 1, "types", 0, "dtype", value="int32"), "result 0 is int32(a=4, b=3)"),
        "another size": (edited("nodes", 1, "types", 0, "dims", 0, value=["a", 5]), "result 0 is float32(a=5, b=3)"),
        "colours in the name of an operation": (
            graph(name="\x1b[31mred\x1b[2J", kernel=partial("jax.numpy:full_like", fill_value=0, shape=[3])),
            "the file, graph, operations[0], name holds line breaks or control characters",
        ),
        "colours in a key": (edited("operations", 0, "\x1b[31mred", value=0), "operations[0] holds line breaks"),
        "other dimensions": (edited("nodes", 1, "names", value=[["a", "b"], ["b", "a"]]), "it binds {'a': 'b'"),
        "a name of three": (edited("nodes", 1, "names", value=[["a", "b", "c"]]), "expected pairs of names"),
        "a signature of another rank": (edited("operations", 0, "rank", value=65), "the signature cannot be read"),
        "a renamed axis that is not there": (
            edited("nodes", 1, "names", value=[["z", "b"]], content=RENAMED),
            "it renames ['z']",
        ),
        "a tree of a number": (edited("in_tree", value=3), "is no structure of arguments"),
        "a tree with a key of three": (edited("in_tree", value={"dict": [["a", "*", "*"]]}), "no pair of key and part"),
        "a key of a tree twice": (edited("in_tree", value={"dict": [["a", "*"], ["a", "*"]]}), "and stands once"),
        "a list for a key": (edited("in_tree", value={"dict": [[["a"], "*"]]}), "expected a key that can be hashed"),
        "a listed function as a key": (edited("in_tree", value={"dict": [[ONE, "*"]]}), "expected a plain value"),
        "NaN for a key": (edited("in_tree", value={"dict": [[{"$float": "nan"}, "*"]]}), "and stands once"),
        "keys of two kinds": (edited("in_tree", value={"dict": [["a", "*"], [1, "*"]]}), "keys of one kind"),
        "a loop of fewer carries": (looped("nodes", 1, "carries", value=7), "it has fewer operands than it names"),
        "a loop past all counting": (looped("nodes", 1, "length", value=2**31), "and may be 2147483647 at most"),
        "a loop below nothing": (looped("nodes", 1, "length", value=-1), "expected a non-negative integer"),
        "a loop over nothing": (looped("nodes", 1, "axes", value=[0]), "fewer operands than it names"),
        "slices that are not there": (
            signed(LOOP | {"nodes": [LOOP["nodes"][0], LOOP["nodes"][1] | {"carries": 0, "axes": [0]}]}),
            "does not hold 2 slices",
        ),
        "a body of another type": (
            looped("nodes", 1, "body", "nodes", 0, "types", 0, "dtype", value="int32"),
            "float32",
        ),
    }
    return {name: (text, (), told) for name, (text, told) in plain.items()}


def names() -> dict[str, Case]:
    """What names something that is not the reader's to call."""
    return {
        "a number for a name": (graph(kernel={"$function": 3}), (), "expected a string"),
        "a name that is none": (graph(kernel=named("evil2:f ")), ("evil2",), 'a name such as "jax.nn:gelu"'),
        "a name past all bounds": (graph(kernel=named("evil2:" + "f" * 400)), ("evil2",), 'such as "jax.nn:gelu"'),
        "what the process runs": (graph(kernel=named("__main__:main")), (), "is in `__main__`"),
        "the way to the globals": (
            graph(kernel=named("evil2:f.__globals__")),
            ("evil2",),
            "leads through a name that starts with two underscores",
        ),
        "a package of a longer name": (
            graph(kernel=named("evil22:f")),
            ("evil2",),
            "is not among what a file may name",
        ),
        "a module that was imported": (graph(kernel=named("evil2:sys")), ("evil2",), "leads out of the packages"),
        "what is not there": (graph(kernel=named("evil2:nothing")), ("evil2",), "cannot be imported"),
        "a reference for a kernel": (
            graph(kernel=dataclass("combinators.aggregator:OnHost", function=ONE)),
            (),
            "is no kernel of this library",
        ),
        "a function among arguments of what was allowed twice": (
            graph(kernel=partial("jax.numpy:where", ONE)),
            ("jax.numpy:where",),
            "a function among them",
        ),
        "a function deep among arguments": (
            graph(kernel=partial("jax.numpy:where", x={"a": [{"$tuple": [ONE]}]})),
            (),
            "a function among them",
        ),
        "a dataclass among arguments": (
            graph(kernel=partial("jax.numpy:where", dataclass("combinators.scan:Steps"))),
            (),
            "a function among them",
        ),
        "a dataclass that is not frozen": (graph(kernel=dataclass("evil2:Open")), ("evil2",), "not a frozen dataclass"),
        "a class that is none of data": (graph(kernel=dataclass("jax.numpy:float32")), (), "is not a frozen dataclass"),
        "a kernel that ends the process": (graph(kernel=named("evil2:leave")), ("evil2",), "SystemExit: 0"),
        "a function for a dataclass": (graph(kernel=dataclass("jax.numpy:sin")), (), "is not a frozen dataclass"),
        "an array for a function": (graph(kernel=named("evil2:NUMBER")), ("evil2",), "evil2:NUMBER"),
    }


def kinds() -> dict[str, Case]:
    """What stands in a field that is annotated otherwise."""
    calls = {"functions": {"$tuple": [ONE]}}
    aligned = {"function": ONE, "positions": {"$tuple": [{"$tuple": [0, 1]}]}, "numbers": {"$tuple": []}, "rank": 2}
    lifted = {"lift": ONE, "monoid": {"$dataclass": "combinators.monoid:Monoid", **NO_MONOID}}
    moments, mean = "combinators.aggregators.moments", "combinators.aggregators.classification"
    grid = {"edges": {"$tuple": [0.0, 1.0]}, "is_uniform": True}
    plain: dict[str, tuple[Any, str]] = {
        "a number for a monoid": (
            field("combinators.aggregator:LiftEach", **lifted | {"monoid": 3}),
            "`monoid` of `LiftEach` has a wrong value",
        ),
        "a text for a function": (field("combinators.aggregator:LiftEach", **lifted | {"lift": "eval"}), "`lift` of"),
        "true for an order": (field(f"{moments}:MomentsMany", order=True), "`order` of `MomentsMany` has a wrong"),
        "an order below nothing": (field(f"{moments}:MomentsMany", order=-1), "`order` of `MomentsMany` has a wrong"),
        "a text for a float": (field("combinators.monoids.decayed:Decay", half_life="1"), "`half_life` of `Decay`"),
        "a word that is none of them": (
            field(f"{mean}:PresentScore", score="__import__", average=None),
            "`score` of `PresentScore` has a wrong value",
        ),
        "a number for a word": (field(f"{mean}:PresentScore", score=0, average=None), "`score` of `PresentScore`"),
        "a list for a tuple": (field("combinators.aggregator:Each", functions=[ONE]), "`functions` of `Each` has a"),
        "a text in a tuple": (field("combinators.aggregator:Each", functions={"$tuple": ["eval"]}), "`functions` of"),
        "three texts for a pair": (
            field(
                "combinators.rearrange:Rearrangement",
                source={"$tuple": []},
                target={"$tuple": []},
                inner={"$tuple": [{"$tuple": ["a", "b", "c"]}]},
                repeated={"$tuple": []},
            ),
            "`inner` of `Rearrangement` has a wrong value",
        ),
        "a text for a size": (
            field(
                "combinators.rearrange:Rearrangement",
                source={"$tuple": []},
                target={"$tuple": []},
                inner={"$tuple": [{"$tuple": ["a", "b"]}]},
                repeated={"$tuple": []},
            ),
            "`inner` of `Rearrangement` has a wrong value",
        ),
        "three for a pair": (
            field(
                "combinators.rearrange:Rearrangement",
                source={"$tuple": []},
                target={"$tuple": []},
                inner={"$tuple": [{"$tuple": ["a", 2, 2]}]},
                repeated={"$tuple": []},
            ),
            "`inner` of `Rearrangement` has a wrong value",
        ),
        "endless calls": (
            field("combinators.aggregator:Fork", **calls, counts={"$tuple": [2**40]}),
            "`counts` of `Fork` has a wrong value",
        ),
        "a text for a count": (field("combinators.aggregator:Fork", **calls, counts="1"), "`counts` of `Fork` has a"),
        "an endless window": (field("combinators.scan_ends:AtStep", axis=0, step=2**41), "`step` of `AtStep`"),
        "a text for a position": (
            field("combinators.arithmetic:Aligned", **aligned | {"positions": {"$tuple": [{"$tuple": ["a"]}]}}),
            "`positions` of `Aligned` has a wrong value",
        ),
        "a text for a flag": (
            field(
                "combinators.aggregators.histogram:HistogramMany",
                grid=dataclass("combinators.aggregators.grid:Grid", **grid | {"is_uniform": "no"}),
            ),
            "`is_uniform` of `Grid` has a wrong value",
        ),
        "a field too many": (field("combinators.scan:Steps", more=0), "the fields [] of"),
        "a field too few": (field("combinators.aggregator:LiftEach", lift=ONE), "the fields ['lift', 'monoid']"),
        "two tags": (graph(kernel={"$function": "jax.numpy:sin", "$tuple": []}), "expected one of $function"),
        "an unknown tag": (graph(kernel={"$eval": "1"}), "expected one of $function"),
        "a partial of a number": (
            graph(kernel={"$partial": {"function": 3, "arguments": [], "keywords": {}}}),
            "callable",
        ),
        "a partial of less": (graph(kernel={"$partial": {"function": ONE}}), "function, arguments and keywords"),
        "a float that is none": (graph(pad={"$tuple": [{"$float": "1e999"}]}), "expected inf, -inf or nan"),
        "a pair of one": (graph(kernel=partial("jax.numpy:clip", {"$dict": [[1]]})), "expected a key and a value"),
        "a key that is no key": (graph(kernel=partial("jax.numpy:clip", {"$dict": [[[], 1]]})), "that can be hashed"),
        "a number for a signature": (graph(signature=3), "the signature cannot be read"),
        "a text for a rank": (graph(rank="2"), "the signature cannot be read"),
        "true for a rank": (graph(rank=True), "the signature cannot be read"),
        "a list for an operation": (edited("operations", 0, value=[]), "is no operation"),
        "a list for a monoid": (graph(monoid=[]), "is no monoid"),
        "a list for the name of a monoid": (graph(monoid={"name": []}), "is no monoid"),
        "a monoid of both": (graph(monoid={"name": "Sum", "fields": {}}), "is no monoid"),
        "a list for the fields of a monoid": (graph(monoid={"fields": []}), "is no monoid"),
        "a list for a dimension": (graph(over=[]), "`over` has a wrong value"),
        "a function for dense kernels": (graph(dense=ONE), "`dense` has a wrong value"),
        "a number for a kernel": (graph(kernel=3), "`kernel` has a wrong value"),
        "a number for present": (graph(present=3), "`present` has a wrong value"),
        "a number among dense kernels": (graph(dense={"$tuple": [3]}), "`dense` has a wrong value"),
        "a dimension that is not there": (graph(over="z"), "`over` has a wrong value"),
        "a text for reverse": (graph(reverse="no"), "`reverse` has a wrong value"),
        "a text for exclusive": (graph(exclusive="no"), "`exclusive` has a wrong value"),
        "a number for a name of an operation": (graph(name=3), "`name` has a wrong value"),
        "half a size of an operation": (graph(sizes={"$tuple": [{"$tuple": ["a", 4.0]}]}), "`sizes` has a wrong"),
        "a size of an operation below nothing": (graph(sizes={"$tuple": [{"$tuple": ["a", -4]}]}), "`sizes` has a"),
        "a number for a boundary": (graph(boundary=3), "`boundary` has a wrong value"),
        "a number for a carrier": (graph(carrier={"$tuple": [3]}), "`carrier` has a wrong value"),
        "a text to pad with": (graph(pad={"$tuple": ["a"]}), "`pad` has a wrong value"),
        "something less in an operation": (edited("operations", 0, value={"kernel": ONE}), "is no operation"),
        "a monoid that is none": (graph(monoid={"name": "Monoid"}), "is no monoid"),
        "a monoid of less": (graph(monoid={"fields": {"identity": 0}}), "expected the fields identity, combine"),
        "a monoid of more": (
            graph(monoid={"fields": NO_MONOID["fields"] | {"more": 0}}),
            "expected the fields identity",
        ),
        "a text for a part of a monoid": (graph(monoid={"fields": NO_MONOID["fields"] | {"parts": "a"}}), "no list"),
        "a text for a law of a monoid": (
            graph(monoid={"fields": NO_MONOID["fields"] | {"commutative": "yes"}}),
            "`commutative` of `Monoid` has a wrong value",
        ),
    }
    return {name: (text, (), told) for name, (text, told) in plain.items()}


def cases() -> dict[str, Case]:
    """Text, what the reader allows, and a word of what it is told, by name."""
    return texts() | graphs() | names() | kinds()
