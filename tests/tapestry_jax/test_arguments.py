"""Every public constructor and method, every argument, a table of wrong values: only typed errors come out.

What is let through is listed, so that a value that is accepted and means nothing is seen.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Collection, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import tapestry_jax as tp
from tapestry_jax.nnx import parameter as parameters
from tapestry_jax.nnx.training.options import read_nan


class Odd:
    """An object that nothing expects."""

    def __repr__(self) -> str:
        return "<odd>"


WRONG: dict[str, Any] = {
    "None": None,
    "True": True,
    "-2": -2,
    "0": 0,
    "1": 1,
    "10**30": 10**30,
    "2.7": 2.7,
    "nan": float("nan"),
    "inf": float("inf"),
    "1j": 1j,
    "empty text": "",
    "text": "nope",
    "words": "two words",
    "unicode": "\N{SNOWMAN} \N{SNOWMAN}",
    "bytes": b"x",
    "[]": [],
    "[1, 2]": [1, 2],
    "['a']": ["a"],
    "()": (),
    "(None,)": (None,),
    "{}": {},
    "{a: 1}": {"a": 1},
    "{1: a}": {1: "a"},
    "{nope: odd}": {"nope": Odd()},
    "set": {1},
    "odd": Odd(),
    "class": int,
    "array": np.ones(3),
    "jax array": jnp.ones((2, 2)),
    "np.int64": np.int64(3),
    "np.str_": np.str_("b"),
    "np.float32": np.float32(2),
    "np.bool_": np.bool_(True),
    "range": range(3),
    "...": ...,
    "struct": jax.ShapeDtypeStruct((3,), jnp.float32),
    "type": tp.TensorType({"a": 3}),
    "error": ValueError("x"),
    "objects": np.array([None, 1], dtype=object),
}
NUMBERS = {"True", "-2", "0", "1", "10**30", "2.7", "nan", "inf", "1j", "np.int64", "np.float32", "np.bool_"}
TYPED = {"array", "jax array", "struct", "type"}
NAMES = {"None", "empty text", "text", "words", "unicode", "np.str_"}
FLAG = {"True", "np.bool_"}
COUNT = {"1", "10**30", "np.int64"}
SIZES = {"None", "{}"}
LISTS = {"[]", "()", "None"}
DTYPE = {"np.str_", "class", "jax array", "np.int64", "np.float32", "np.bool_", "struct", "type", "array"}

X = tp.TensorType({"b": 8, "c": 4})
ARRAY = np.ones((8, 4), np.float32)
MESH = jax.sharding.AbstractMesh((4,), ("d",))
SUM, AGGREGATOR = tp.monoids.Sum, tp.aggregators.Sum()
LEAF = tp.Map(jnp.tanh, "b c -> b c")
GRAPH = tp.trace(lambda v: tp.fold(AGGREGATOR, "b c -> b")(LEAF(v)), X)
PLAN = tp.plan(GRAPH, MESH, {"b": "d"})
Q, K, V = (tp.TensorType({"h": 2, first: 4, last: 3}) for first, last in (("q", "d"), ("keys", "d"), ("keys", "e")))
BOX = tp.Box((0,), (3,))
RNGS = nnx.Rngs(0)
RECURRENT = tp.nnx.RNN(tp.nnx.GRUCell(3, 2, rngs=RNGS))
CONFIG = tp.nnx.TransformerConfig(layers=1, embed=2, heads=1, vocab=3, mlp=2, max_len=2)
FLOATS = {"jax array", "np.float32", "struct", "type"}
POSITIVE = {"0", "1", "10**30", "2.7", "np.int64", "np.float32"}
SUMS = tp.trace(tp.fold(AGGREGATOR, "b c -> c"), X)
FABRIC = tp.Fabric(None)
FABRIC.load("x", ARRAY, names=("b", "c"))
FABRIC.snapshot("kept")
EXPRESS: Callable[[Any, Any], Any] = lambda state, reference: state  # noqa: E731


def same(x: Any) -> Any:
    return x


def total(x: Any) -> Any:
    return x.sum(0)


def traced(arrow: Any, *types: Any) -> Any:
    return tp.trace(arrow, *(types or (X,)))


def framed(**parts: Any) -> Any:
    whole = {"summary": same, "merge": "sum", "at": same, "express": EXPRESS, "restore": lambda f, s: s} | parts
    return traced(tp.Reduce(total, "b c -> c", tp.Monoid(0.0, jnp.add, frame=tp.Frame(**whole))))


def attended(**options: Any) -> Any:
    return tp.trace(lambda q, k, v: tp.attention(q, k, v, **options), Q, K, V)


def stacked(**options: Any) -> Any:
    call = {"layer": lambda carry, w: carry * w, "n": 3} | options
    return tp.trace(lambda v, w: tp.stack(**call)(v, w), X, tp.TensorType({"layer": 3, "c": 4}))


def planned(**options: Any) -> Any:
    return tp.plan(**({"graph": GRAPH, "mesh": MESH, "entries": {"b": "d"}} | options))


def reduced(**options: Any) -> Any:
    call = {"kernel": total, "signature": "b c -> c", "monoid": SUM} | options
    return traced(tp.Reduce(**call))


# For every subject the arguments and the wrong values that each of them takes after all.
SUBJECTS: dict[str, tuple[Callable[..., Any], dict[str, set[str]]]] = {
    "Map": (
        lambda **k: traced(tp.Map(**({"kernel": same, "signature": "b c -> b c"} | k))),
        {
            "kernel": set(),
            "signature": {"None"},
            "sizes": SIZES,
            "boundary": {"[]", "()"},
            "pad": {"None", "(None,)"},
            "dense": LISTS | {"class"},
            "name": NAMES,
        },
    ),
    "Reduce": (
        reduced,
        {
            "kernel": set(),
            "signature": set(),
            "monoid": set(),
            "carrier": {"None", "text"},
            "present": {"None"},
            "sizes": SIZES,
            "boundary": {"[]", "()"},
            "pad": {"None", "(None,)"},
            "dense": LISTS | {"class"},
            "name": NAMES,
        },
    ),
    "Scan": (
        lambda **k: traced(tp.Scan(**({"monoid": SUM, "signature": "b c -> b c", "over": "b"} | k))),
        {
            "monoid": set(),
            "signature": set(),
            "over": {"np.str_"},
            "kernel": {"None"},
            "carrier": {"None", "words"},
            "present": {"None"},
            "init": {"None", "True", "-2", "0", "1", "10**30", "2.7", "nan", "inf"},
            "final": FLAG,
            "reverse": FLAG,
            "exclusive": FLAG,
            "name": NAMES,
        },
    ),
    "Monoid": (
        lambda **k: reduced(monoid=tp.Monoid(**({"identity": 0.0, "combine": jnp.add} | k))),
        {
            "identity": NUMBERS - {"1j"},
            "combine": set(),
            "commutative": FLAG,
            "idempotent": FLAG,
            "inverse": {"None", "class"},
            "frame": {"None"},
            "name": NAMES,
            "parts": {"()"},
            "keys": {"None", "()"},
        },
    ),
    "Frame": (
        framed,
        {"summary": {"class"}, "merge": set(), "at": {"class"}, "express": {"class"}, "restore": {"class"}},
    ),
    "Aggregator": (
        lambda **k: traced(tp.fold(tp.Aggregator(**({"lift": same, "monoid": SUM, "present": same} | k)), "b c -> c")),
        {
            "lift": set(),
            "monoid": set(),
            "present": set(),
            "lift_many": {"None"},
            "reference": {"None", "class"},
            "name": NAMES,
        },
    ),
    "Dense": (
        lambda **k: traced(tp.Map(same, "b c -> b c", dense=tp.Dense(**({"kernel": same} | k)))),
        {
            "kernel": {"class"},
            "platforms": LISTS,
            "dtypes": LISTS | DTYPE - {"array"} | {"(None,)", "{}"},
            "whole": LISTS | {"np.str_"},
            "gives": set(),
            "takes": {"None", "class"},
        },
    ),
    "TensorType": (
        lambda **k: tp.TensorType(**({"dims": {"a": 3}} | k)),
        {"dims": {"[]", "[1, 2]", "()", "{}", "{a: 1}", "set", "range"}, "dtype": DTYPE - {"array"}},
    ),
    "einsum": (lambda **k: tp.einsum(**k), {"signature": set()}),
    "rearrange": (
        lambda **k: traced(tp.rearrange(**({"signature": "b (h c) -> b h c", "h": 2} | k))),
        {"signature": set(), "name": NAMES, "h": {"1"}},
    ),
    "fold": (
        lambda **k: traced(tp.fold(**({"aggregator": AGGREGATOR, "signature": "b c -> b"} | k))),
        {"aggregator": set(), "signature": set(), "sizes": SIZES, "name": NAMES},
    ),
    "scan": (
        lambda **k: traced(tp.scan(**({"aggregator": AGGREGATOR, "signature": "b t -> b t"} | k))),
        {"aggregator": set(), "signature": set(), "over": {"np.str_"}, "final": FLAG, "name": NAMES},
    ),
    "window": (
        lambda **k: traced(tp.window(**({"aggregator": AGGREGATOR, "size": 2} | k))),
        {"aggregator": set(), "size": COUNT - {"10**30"}, "over": set(), "partial": FLAG, "name": NAMES},
    ),
    "iterate": (
        lambda **k: traced(tp.iterate(**({"step": lambda c: c * 2, "n": 3} | k))),
        {"step": set(), "n": {"0", "1", "np.int64"}, "name": NAMES},
    ),
    "stack": (stacked, {"layer": set(), "n": {"np.int64"}, "over": set(), "name": NAMES}),
    "program": (lambda **k: traced(tp.program(**k)(lambda v: v * 2)), {"signature": {"None"}}),
    "attention": (
        attended,
        {
            "over": set(),
            "causal": FLAG,
            "mask": {"None"},
            "bias": {"None"},
            "scale": {"None", "-2", "0", "1", "10**30", "2.7", "np.int64", "np.float32"},
            "kept": {"None"},
            "share": {"1"},
        },
    ),
    "named": (
        lambda **k: tp.trace(lambda v: tp.named(k.get("name", "h"), k.get("value", v)), X),
        {"name": NAMES - {"None", "empty text"}, "value": set()},
    ),
    "rename": (lambda **k: tp.trace(lambda v: v.rename(**k), X), {"b": {"text", "np.str_"}}),
    "index": (
        lambda **k: tp.trace(lambda v: tp.index(k.get("name", "b"), k.get("like", v)) * 1, X),
        {"name": {"np.str_"}, "like": set()},
    ),
    "random.bits": (
        lambda **k: tp.random.bits(**({"key": jax.random.key(0), "like": ARRAY} | k)),
        {"key": set(), "like": NUMBERS | TYPED},
    ),
    "random.normal": (
        lambda **k: tp.random.normal(jax.random.key(0), like=ARRAY, **k),
        {"dtype": {"jax array", "np.float32", "struct", "type"}},
    ),
    "random.bernoulli": (
        lambda **k: tp.random.bernoulli(jax.random.key(0), like=ARRAY, **k),
        {"p": {"0", "1"}},
    ),
    "random.fold_in": (
        lambda **k: tp.random.fold_in(**({"key": jax.random.key(0), "data": 1} | k)),
        {"key": set(), "data": {"0", "1", "np.int64"}},
    ),
    "random.split": (
        lambda **k: tp.random.split(**({"key": jax.random.key(0)} | k)),
        {"key": set(), "num": {"1", "np.int64"}, "over": {"None", "text", "np.str_"}},
    ),
    "trace": (lambda **k: tp.trace(**k), {"function": set()}),
    "mesh": (lambda **k: tp.mesh(**({"d": 1} | k)), {"devices": {"None"}, "d": {"1", "np.int64"}}),
    "plan": (
        planned,
        {
            "graph": set(),
            "mesh": set(),
            "entries": SIZES,
            "ops": SIZES,
            "inputs": SIZES,
            "outputs": SIZES,
            "accumulate": SIZES | {"jax array", "np.float32", "struct", "type"},
            "platforms": LISTS,
        },
    ),
    "an entry": (lambda entry: planned(entries={"b": entry}), {"entry": LISTS}),
    "an exception": (lambda entries: planned(ops={"tanh": entries}), {"entries": {"{}"}}),
    "a layout": (lambda layout: planned(inputs={"v": layout}), {"layout": {"{}"}}),
    "a carrier": (
        lambda dtype: planned(accumulate={"": dtype}),
        {"dtype": {"None", "jax array", "np.float32", "struct", "type"}},
    ),
    "chunks": (lambda **k: tp.chunks(**k), {"count": COUNT, "size": COUNT}),
    "ring": (lambda **k: planned(entries={"b": tp.ring(**k)}), {"axis": set()}),
    "striped": (lambda axis: planned(entries={"b": tp.striped(axis)}), {"axis": set()}),
    "halo": (lambda **k: tp.halo(**k), {"depth": COUNT}),
    "fsdp": (
        lambda **k: tp.fsdp(**({"plan": PLAN, "over": "d"} | k)),
        {"plan": set(), "over": set(), "only": set(), "smallest": set(), "padded": set()},
    ),
    "store_padded": (lambda **k: tp.store_padded(**({"plan": PLAN} | k)), {"plan": set(), "only": LISTS}),
    "padded": (lambda axes: planned(inputs={"v": {"b": tp.padded(axes)}}), {"axes": set()}),
    "Plan.collectives": (lambda **k: PLAN.collectives(**k), {"grad": FLAG | {"0", "[]", "()"}}),
    "Plan.explain": (lambda **k: PLAN.explain(**k), {"grad": FLAG | {"0", "[]", "()"}}),
    "Plan.put": (lambda x: PLAN.put(x), {"x": set()}),
    "Plan.take": (lambda y: PLAN.take(y), {"y": set()}),
    "Plan.from_json": (
        lambda **k: tp.Plan.from_json(**({"text": PLAN.to_json(), "graph": GRAPH} | k)),
        {"text": set(), "graph": set(), "mesh": {"None"}},
    ),
    "a graph": (lambda x: GRAPH(x), {"x": set()}),
    "an arrow": (lambda x: tp.einsum("b c, c -> b")(x, ARRAY[0]), {"x": set()}),
    "Graph.observe": (lambda name: GRAPH.observe(name), {"name": set()}),
    "Graph.subgraph": (lambda **k: GRAPH.subgraph(**k), {"path": set()}),
    "Graph.show": (lambda **k: GRAPH.show(**k), {"format": set()}),
    "Graph.from_json": (lambda **k: tp.Graph.from_json(**k), {"text": set()}),
    ">>": (lambda other: LEAF >> other, {"other": set()}),
    "* of arrows": (lambda other: LEAF * other, {"other": set()}),
    "& of arrows": (lambda other: LEAF & other, {"other": set()}),
    "|": (lambda other: LEAF | other, {"other": set()}),
    "& of aggregators": (lambda other: AGGREGATOR & other, {"other": set()}),
    "& of monoids": (lambda other: SUM & other, {"other": set()}),
    "by_key": (
        lambda **k: AGGREGATOR.by_key(**({"labels": None, "size": 3} | k)),
        {"labels": {"None", "class"}, "size": COUNT},
    ),
    "masked": (lambda **k: AGGREGATOR.masked(**k), {"where": {"None", "class"}}),
    "segmented": (lambda **k: AGGREGATOR.segmented(**k), {"starts": {"None", "class"}}),
    "by_run": (lambda **k: AGGREGATOR.by_run(**k), {"labels": {"None", "class"}}),
    "contramap": (lambda **k: AGGREGATOR.contramap(**k), {"function": {"class"}}),
    "map": (lambda **k: AGGREGATOR.map(**k), {"function": {"class"}}),
    "run": (lambda x: AGGREGATOR.run(x), {"x": {"array", "jax array"}}),
    "infer": (
        lambda **k: tp.infer(**({"function": jnp.tanh, "specs": [jax.ShapeDtypeStruct((3,), jnp.float32)]} | k)),
        {"function": set(), "specs": {"[1, 2]", "range"}},
    ),
    "assert_collectives": (
        lambda **k: tp.assert_collectives(**({"plan": PLAN, "at_most": {}} | k)),
        {"plan": set(), "at_most": {"{}"}},
    ),
    "lift": (
        lambda **k: tp.lift(jnp.matmul, ARRAY, ARRAY.T, **k),
        {"names": {"None", "{}", "words"}, "state": set(), "stack": {"None"}, "maps": FLAG},
    ),
    "planned": (
        lambda **k: tp.planned(**({"plan": PLAN, "program": LEAF} | k)),
        {"plan": set(), "program": {"class"}, "names": NAMES | {"{}", "{a: 1}", "{1: a}", "{nope: odd}"}, "state": FLAG}
        | {"stack": {"None", "text", "np.str_"}, "maps": FLAG},
    ),
    "stack_layers": (
        lambda **k: tp.stack_layers(**({"graph": GRAPH, "tree": {"a": ARRAY}} | k)),
        {"graph": set(), "tree": set(), "argument": set()},
    ),
    "unstack_layers": (
        lambda **k: tp.unstack_layers(**({"arrays": {"a": ARRAY}, "like": {"a": ARRAY}} | k)),
        {"arrays": {"{a: 1}"}, "like": LISTS | {"(None,)", "{}", "{a: 1}"}},
    ),
    "stream": (
        lambda **k: tp.stream(**({"program": SUMS, "over": {"b": tp.chunks(2)}, "sources": ARRAY} | k)),
        {"program": set(), "over": {"None", "np.str_"}, "sources": set(), "sinks": SIZES}
        | {"memory": {"None"}, "mesh": {"None"}, "save_every": COUNT, "progress": FLAG, "engine": {"None"}}
        | {"prefetch": COUNT | {"None", "0"}},
    ),
    "tune": (lambda **k: tp.tune(tp.stream(SUMS, {"b": tp.chunks(2)}, ARRAY), **k), {"memory": set()}),
    "prune_cache": (
        lambda folder: tp.prune_cache(f"/nowhere/{folder}" if isinstance(folder, str) and folder else folder),
        {"folder": set()},
    ),
    "create": (
        lambda **k: tp.create(**({"path": "y.zarr"} | k)),
        {"path": set(), "format": {"None"}, "chunks": LISTS | {"[1, 2]"}, "overwrite": FLAG},
    ),
    "Fabric": (lambda **k: tp.Fabric(None, **k), {"mesh": {"None"}, "allow": {"[]", "['a']", "()"}}),
    "Fabric.create": (
        lambda **k: FABRIC.create(**({"name": "y"} | k)),
        {"name": {"text", "np.str_"}, "layout": SIZES, "overwrite": FLAG},
    ),
    "Fabric.allocate": (
        lambda **k: FABRIC.allocate(**({"name": "y", "type": X, "overwrite": True} | k)),
        {"name": {"text", "np.str_"}, "layout": SIZES, "chunks": {"None", "[1, 2]"}, "overwrite": FLAG},
    ),
    "Fabric.load": (
        lambda **k: FABRIC.load(**({"name": "y", "source": ARRAY, "overwrite": True} | k)),
        {"tensor": {"None"}, "format": {"None"}, "layout": SIZES, "overwrite": FLAG},
    ),
    "Fabric.array": (lambda **k: FABRIC.array("x", **k), {"layout": SIZES}),
    "Fabric.restore": (lambda *, name: FABRIC.restore("kept", name), {"name": set()}),
    "Fabric.recover": (lambda **k: FABRIC.recover("x", **k), {"function": {"None", "class"}}),
    "Fabric.export": (lambda **k: FABRIC.export("x", "nowhere", **k), {"format": set()}),
    "nan= of a trainer": (lambda nan: read_nan(nan), {"nan": {"None"}}),
    "Box": (lambda **k: tp.Box(**({"start": (0,), "stop": (3,)} | k)), {"start": set(), "stop": set()}),
    "Box.of_shape": (
        lambda **k: tp.Box.of_shape(**({"shape": (3,)} | k)),
        {"shape": {"[]", "[1, 2]", "()", "range"}, "start": {"None"}},
    ),
    "Box.split": (
        lambda **k: BOX.split(**({"axis": 0, "parts": 2} | k)),
        {"axis": {"0"}, "parts": {"1", "np.int64"}},
    ),
    "Box.split at": (
        lambda **k: BOX.split(0, **k),
        {"at": {"0", "1", "[]", "[1, 2]", "()", "np.int64", "range"}, "size": COUNT},
    ),
    "Box.grid": (lambda parts: BOX.grid(parts), {"parts": set()}),
    "Box.contains": (lambda item: BOX.contains(item), {"item": set()}),
    "Box.translate": (lambda by: BOX.translate(by), {"by": set()}),
    "Box.intersect": (lambda other: BOX.intersect(other), {"other": set()}),
    "Box.bounding": (lambda other: BOX.bounding(other), {"other": set()}),
    "Box.product": (lambda other: BOX.product(other), {"other": set()}),
    "Box.slices": (lambda whole: BOX.slices(whole), {"whole": set()}),
    "nnx.LinearGeneral": (
        lambda **k: tp.nnx.LinearGeneral(
            **({"in_features": 3, "out_features": 2, "dims": ("a", "b"), "rngs": RNGS} | k)
        ),
        {"in_features": {"1", "np.int64"}, "out_features": {"1", "np.int64"}, "dims": set(), "use_bias": FLAG}
        | {"axis": COUNT | {"-2", "0", "None"}, "batch_axis": SIZES}
        | {"dtype": FLOATS | {"None"}, "param_dtype": FLOATS, "kernel_init": set(), "bias_init": set(), "rngs": set()},
    ),
    "nnx.Linear": (
        lambda **k: tp.nnx.Linear(**({"in_features": 3, "out_features": 2, "rngs": RNGS} | k)),
        {"in_features": {"1", "np.int64"}, "out_features": {"1", "np.int64"}, "dims": set(), "rngs": set()},
    ),
    "nnx.Einsum": (
        lambda **k: tp.nnx.Einsum(
            **({"signature": "b i, i o -> b o", "kernel_shape": (3, 2), "bias_shape": 2, "rngs": RNGS} | k)
        ),
        {"signature": set(), "kernel_shape": {"[1, 2]"}, "bias_shape": {"None"}, "dtype": FLOATS | {"None"}}
        | {"param_dtype": FLOATS, "kernel_init": set(), "bias_init": set(), "rngs": set()},
    ),
    "nnx.Conv": (
        lambda **k: tp.nnx.Conv(**({"in_features": 4, "out_features": 2, "kernel_size": (2, 2), "rngs": RNGS} | k)),
        {"in_features": {"1", "np.int64"}, "out_features": {"1", "np.int64"}, "strides": COUNT | {"[1, 2]"}}
        | {"kernel_size": {"1", "np.int64", "[1, 2]"}, "padding": {"0", "1", "[1, 2]"}, "spatial": {"None"}}
        | {"kernel_dilation": COUNT | {"[1, 2]"}, "feature_group_count": {"1"}, "use_bias": FLAG, "dims": set()}
        | {"dtype": FLOATS | {"None"}, "param_dtype": FLOATS, "kernel_init": set(), "bias_init": set(), "rngs": set()},
    ),
    "nnx.ConvTranspose": (
        lambda **k: tp.nnx.ConvTranspose(**({"in_features": 4, "out_features": 2, "kernel_size": 2, "rngs": RNGS} | k)),
        {"in_features": {"1", "np.int64"}, "out_features": {"1", "np.int64"}, "strides": COUNT}
        | {"kernel_size": {"1", "np.int64", "[1, 2]"}, "padding": {"0", "1"}, "use_bias": FLAG, "rngs": set()},
    ),
    "nnx.Sequential": (lambda **k: tp.nnx.Sequential(k["layer"]), {"layer": set()}),
    "nnx.max_pool": (
        lambda **k: tp.nnx.max_pool(**({"x": np.ones((5, 4, 2), np.float32), "window_shape": (2, 2)} | k)),
        {"x": {"jax array"}, "window_shape": {"1", "np.int64", "[1, 2]"}, "strides": COUNT | {"None", "[1, 2]"}}
        | {"padding": {"0", "1"}},
    ),
    "nnx.min_pool": (
        lambda **k: tp.nnx.min_pool(**({"x": np.ones((5, 4, 2), np.float32), "window_shape": (2, 2)} | k)),
        {"x": {"jax array"}, "window_shape": {"1", "np.int64", "[1, 2]"}, "strides": COUNT | {"None", "[1, 2]"}}
        | {"padding": {"0", "1"}},
    ),
    "nnx.avg_pool": (
        lambda **k: tp.nnx.avg_pool(**({"x": np.ones((5, 4, 2), np.float32), "window_shape": (2, 2)} | k)),
        {"x": {"jax array"}, "window_shape": {"1", "np.int64", "[1, 2]"}, "count_include_pad": FLAG},
    ),
    "nnx.LayerNorm": (
        lambda **k: tp.nnx.LayerNorm(**({"num_features": 3, "rngs": RNGS} | k)),
        {"num_features": {"1", "np.int64"}, "epsilon": POSITIVE, "use_bias": FLAG, "use_scale": FLAG}
        | {"dims": {"text", "['a']", "np.str_"}, "dtype": FLOATS | {"None"}, "param_dtype": FLOATS, "rngs": set()},
    ),
    "nnx.RMSNorm": (
        lambda **k: tp.nnx.RMSNorm(**({"num_features": 3, "rngs": RNGS} | k)),
        {"num_features": {"1", "np.int64"}, "epsilon": POSITIVE, "use_scale": FLAG, "rngs": set()},
    ),
    "nnx.GroupNorm": (
        lambda **k: tp.nnx.GroupNorm(**({"num_features": 4, "num_groups": 2, "rngs": RNGS} | k)),
        {"num_features": {"1"}, "num_groups": {"1"}, "epsilon": POSITIVE, "use_bias": FLAG, "rngs": set()},
    ),
    "nnx.InstanceNorm": (
        lambda **k: tp.nnx.InstanceNorm(**({"num_features": 4, "rngs": RNGS} | k)),
        {"num_features": {"1", "np.int64"}, "epsilon": POSITIVE, "use_scale": FLAG, "rngs": set()},
    ),
    "nnx.BatchNorm": (
        lambda **k: tp.nnx.BatchNorm(**({"num_features": 4, "rngs": RNGS} | k)),
        {"num_features": {"1", "np.int64"}, "use_running_average": FLAG, "momentum": {"0", "1"}, "rngs": set()},
    ),
    "nnx.Embed": (
        lambda **k: tp.nnx.Embed(**({"num_embeddings": 3, "features": 2, "rngs": RNGS} | k)),
        {"num_embeddings": {"1", "np.int64"}, "features": {"1", "np.int64"}, "dims": set(), "dtype": FLOATS | {"None"}}
        | {"param_dtype": FLOATS, "embedding_init": set(), "rngs": set()},
    ),
    "nnx.PositionEmbed": (
        lambda **k: tp.nnx.PositionEmbed(**({"num_embeddings": 3, "features": 2, "rngs": RNGS} | k)),
        {
            "num_embeddings": {"1", "np.int64"},
            "features": {"1", "np.int64"},
            "over": {"text", "np.str_"},
            "dims": set(),
        },
    ),
    "nnx.MLP": (
        lambda **k: tp.nnx.MLP(**({"features": 3, "hidden": 2, "rngs": RNGS} | k)),
        {"features": {"1", "np.int64"}, "hidden": {"1", "np.int64"}, "activation": {"class"}, "use_bias": FLAG},
    ),
    "nnx.LSTMCell": (
        lambda **k: tp.nnx.LSTMCell(**({"in_features": 3, "hidden_features": 2, "rngs": RNGS} | k)),
        {"in_features": {"1", "np.int64"}, "hidden_features": {"1", "np.int64"}, "gate_fn": {"class"}, "rngs": set()},
    ),
    "nnx.GRUCell": (
        lambda **k: tp.nnx.GRUCell(**({"in_features": 3, "hidden_features": 2, "rngs": RNGS} | k)),
        {"in_features": {"1", "np.int64"}, "hidden_features": {"1", "np.int64"}, "activation_fn": {"class"}},
    ),
    "nnx.DiagonalSSM": (
        lambda **k: tp.nnx.DiagonalSSM(**({"features": 3, "state": 2, "rngs": RNGS} | k)),
        {"features": {"1", "np.int64"}, "state": {"1", "np.int64"}, "param_dtype": FLOATS, "rngs": set()},
    ),
    "nnx.RNN": (
        lambda **k: tp.nnx.RNN(**({"cell": tp.nnx.GRUCell(3, 2, rngs=RNGS)} | k)),
        {"cell": set(), "reverse": FLAG, "keep_order": FLAG},
    ),
    "nnx.Bidirectional": (
        lambda **k: tp.nnx.Bidirectional(**(dict.fromkeys(("forward_rnn", "backward_rnn"), RECURRENT) | k)),
        {"forward_rnn": set(), "backward_rnn": set()},
    ),
    "nnx.mean_squared_error": (
        lambda **k: tp.nnx.mean_squared_error(*({"predictions": ARRAY, "targets": ARRAY} | k).values()),
        {"predictions": set(), "targets": set()},
    ),
    "nnx.contrastive": (
        lambda **k: tp.nnx.contrastive(*({"left": ARRAY, "right": ARRAY, "scale": 1.0} | k).values()),
        {"left": set(), "right": set(), "scale": NUMBERS},
    ),
    "nnx.cross_entropy_with": (
        lambda **k: tp.nnx.cross_entropy_with(**k),
        {"label_smoothing": {"0", "1"}, "z_loss": POSITIVE, "ignore_index": {"None", "-2", "0", "1", "np.int64"}},
    ),
    "nnx.GLU": (
        lambda **k: tp.nnx.GLU(**({"features": 3, "hidden": 2, "rngs": RNGS} | k)),
        {"features": {"1", "np.int64"}, "hidden": {"1", "np.int64"}, "activation": {"class"}, "use_bias": FLAG},
    ),
    "nnx.SwiGLU": (
        lambda **k: tp.nnx.SwiGLU(**({"features": 3, "hidden": 2, "rngs": RNGS} | k)),
        {"features": {"1", "np.int64"}, "hidden": {"1", "np.int64"}, "use_bias": FLAG, "rngs": set()}
        | {"dtype": FLOATS | {"None"}, "param_dtype": FLOATS},
    ),
    "nnx.LoRA": (
        lambda **k: tp.nnx.LoRA(**({"in_features": 3, "lora_rank": 1, "out_features": 2, "rngs": RNGS} | k)),
        {"in_features": {"1", "np.int64"}, "lora_rank": {"1", "np.int64"}, "out_features": {"1", "np.int64"}}
        | {"base_module": {"None"}, "dims": set(), "a_initializer": set(), "b_initializer": set(), "rngs": set()},
    ),
    "nnx.Mamba": (
        lambda **k: tp.nnx.Mamba(**({"features": 2, "state": 2, "rngs": RNGS} | k)),
        {name: {"1", "np.int64"} for name in ("features", "state", "expansion", "width")}
        | {"rank": {"1", "np.int64", "None"}, "dtype": FLOATS | {"None"}, "param_dtype": FLOATS, "rngs": set()},
    ),
    "nnx.MoE": (
        lambda **k: tp.nnx.MoE(**({"num_experts": 2, "features": 2, "hidden": 3, "rngs": RNGS} | k)),
        {"num_experts": {"np.int64"}, "features": {"1", "np.int64"}, "hidden": {"1", "np.int64"}, "top_k": {"1"}}
        | {
            "capacity_factor": POSITIVE - {"0"} | {"None"},
            "normalized": FLAG | {"None"},
            "gated": FLAG,
            "activation": {"class"},
        }
        | {"dtype": FLOATS | {"None"}, "param_dtype": FLOATS, "rngs": set()},
    ),
    "nnx.with_cache": (
        lambda **k: tp.nnx.with_cache(
            **({"model": tp.nnx.PositionEmbed(64, 2, rngs=RNGS), "batch": 2, "length": 3} | k)
        ),
        {
            "model": set(),
            "batch": COUNT | {"np.int64", "{}", "{a: 1}"},
            "length": {"1", "np.int64"},
            "dtype": FLOATS | {"None"},
        },
    ),
    "nnx.Dropout": (
        lambda **k: tp.nnx.Dropout(**({"rate": 0.5, "rngs": RNGS} | k)),
        {"rate": {"0", "1"}, "deterministic": FLAG, "rngs": set()}
        | {"broadcast_dims": {"[]", "()", "['a']", "text", "np.str_"}},
    ),
    "nnx.MultiHeadAttention": (
        lambda **k: tp.nnx.MultiHeadAttention(**({"num_heads": 1, "in_features": 2, "rngs": RNGS} | k)),
        {"num_heads": {"1"}, "in_features": {"1", "np.int64"}, "qkv_features": {"None", "1", "np.int64"}}
        | {"causal": FLAG, "use_bias": FLAG, "num_key_value_heads": {"None", "1"}, "rngs": set()}
        | {"cross": FLAG, "masked": FLAG, "in_kv_features": {"None", "1", "np.int64"}, "normalize_qk": FLAG}
        | {"rotary_base": POSITIVE - {"0"} | {"None"}, "rotary_scaling": {"None"}}
        | {"dropout_rate": {"0"}, "broadcast_dropout": FLAG, "deterministic": FLAG},
    ),
    "nnx.RotaryScaling": (
        lambda **k: tp.nnx.RotaryScaling(**({"factor": 8.0} | k)),
        {"factor": POSITIVE - {"0"}, "original": COUNT | {"None"}, "low": POSITIVE, "high": POSITIVE - {"0", "1"}},
    ),
    "nnx.TransformerConfig": (
        lambda **k: tp.nnx.TransformerConfig(**({"layers": 1, "embed": 2, "heads": 1, "vocab": 3} | k)),
        {"layers": COUNT, "embed": COUNT, "heads": {"1"}, "vocab": COUNT, "mlp": COUNT | {"None"}, "max_len": COUNT}
        | {"use_bias": FLAG, "dtype": FLOATS | {"None"}, "param_dtype": FLOATS, "tied": FLAG},
    ),
    "nnx.Transformer": (
        lambda **k: tp.nnx.Transformer(**({"config": CONFIG, "rngs": RNGS} | k)),
        {"config": set(), "rngs": set()},
    ),
    "Either": (
        lambda **k: traced(lambda v: (LEAF | LEAF)(tp.Either(**({"is_left": v > 0, "left": v, "right": v} | k)))),
        {"is_left": FLAG, "left": set(), "right": set()},
    ),
    "Either of an elementwise map": (
        lambda **k: traced(
            lambda v: tp.Map(jnp.tanh).left()(tp.Either(**({"is_left": True, "left": v, "right": v} | k)))
        ),
        {"is_left": FLAG, "left": set()},
    ),
    "exact_cover": (
        lambda **k: tp.exact_cover(**({"whole": tp.Box((0,), (4,)), "parts": []} | k)),
        {"whole": set(), "parts": {"[]", "()"}},
    ),
}


@pytest.fixture(autouse=True, scope="module")
def drawn_once() -> Iterator[None]:
    """Parameters of one shape are drawn once: a module is made for each wrong value, and its numbers mean nothing."""
    own = parameters.drawn
    kept = functools.cache(lambda initializer, shape, dtype: own(initializer, RNGS, shape, dtype))

    def drawn(initializer: Any, rngs: Any, shape: Any, dtype: Any) -> Any:
        is_plain = rngs is RNGS and callable(initializer)
        return kept(initializer, shape, dtype) if is_plain else own(initializer, rngs, shape, dtype)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parameters, "drawn", drawn)
        yield


def outcomes(
    call: Callable[..., Any], argument: str, without: Collection[str] = ()
) -> Iterator[tuple[str, Exception | None]]:
    """What comes of each wrong value: nothing, or an error."""
    for name, value in WRONG.items():
        if name in without:
            continue
        try:
            call(**{argument: value})
        except Exception as error:  # noqa: BLE001 - which errors come is the question
            yield name, error
        else:
            yield name, None


@pytest.mark.parametrize("subject", SUBJECTS)
def test_wrong_values_are_typed_errors(subject: str) -> None:
    call, arguments = SUBJECTS[subject]
    for argument, accepted in arguments.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy and JAX warn of what they convert
            found = dict(outcomes(call, argument))
        raw = {name: error for name, error in found.items() if error and not isinstance(error, tp.TapestryError)}
        assert not raw, f"{subject}({argument}=...)"
        assert {name for name, error in found.items() if error is None} <= accepted, f"{subject}({argument}=...)"


def test_options_of_pages_and_of_compilers_are_read_before_anything_is_made() -> None:
    for option in ("memory", "open"):
        with pytest.raises(tp.PlanError, match=f"{option}= of plan.show is not what it should be"):
            PLAN.show("nowhere.html", **{option: 1})  # pyright: ignore[reportArgumentType]
    here: Any = tp.plan(GRAPH, tp.mesh(d=2), {"b": "d"})
    for options in ("", 3, [1, 2]):
        with pytest.raises(tp.PlanError, match=r"compiler_options= of plan.compile_only is not what it should be"):
            here.compile_only(compiler_options=options)


AGGREGATORS = [name for name, build in vars(tp.aggregators).items() if inspect.isfunction(build) and name[0].isupper()]
# What means something for an argument of this name.
MEANT = {
    "bins": {"1", "np.int64", "[1, 2]", "range"},
    "range": {"[1, 2]", "None"},
    "seed": {"-2", "0", "1", "10**30", "np.int64"},
    "quantiles": {"{1: a}", "set", "array"},
    "average": {"None"},
    "dense": FLAG,
    "order": {"np.int64"},
}


@pytest.mark.parametrize("name", AGGREGATORS)
def test_wrong_options_of_aggregators_are_typed_errors(name: str) -> None:
    build = getattr(tp.aggregators, name)
    for parameter in inspect.signature(build).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        needed = {p.name: 3 for p in inspect.signature(build).parameters.values() if p.default is p.empty}
        found = dict(outcomes(lambda needed=needed, **k: build(**(needed | k)), parameter.name))
        raw = {key: error for key, error in found.items() if error and not isinstance(error, tp.TapestryError)}
        assert not raw, f"{name}({parameter.name}=...)"
        accepted = {key for key, error in found.items() if error is None}
        assert accepted <= MEANT.get(parameter.name, NUMBERS - {"True", "1j", "nan", "np.bool_", "-2"}), parameter.name


@pytest.mark.parametrize("kind", [ValueError, RuntimeError])
def test_a_present_that_raises_is_told_where_an_aggregator_runs_on_arrays(kind: type[Exception]):
    def present(state: Any) -> Any:
        raise kind("no")

    with pytest.raises(tp.GraphError, match="its `present` fails") as caught:
        AGGREGATOR.map(present).run(ARRAY)
    assert f"{kind.__name__}: no" in str(caught.value)
    for aggregator, what in ((AGGREGATOR.map(present), "present"), (tp.aggregators.Sum().contramap(present), "lift")):
        with pytest.raises(tp.GraphError, match=f"its `{what}` fails"):
            tp.window(aggregator, 2)(ARRAY[:, 0])


@pytest.mark.parametrize("shape", [(), (8, 4)])
def test_a_window_over_other_axes_than_its_signature_has_is_refused(shape: tuple[int, ...]):
    with pytest.raises(tp.SignatureError, match="operand 0 of `window_Sum` does not have the axes of its signature"):
        tp.window(AGGREGATOR, 2, "t -> t")(np.ones(shape, np.float32))
