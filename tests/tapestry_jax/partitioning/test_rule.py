"""What Shardy is told of a program: which axes are cut alike, which are reduced, which are needed whole."""

from __future__ import annotations

import jax
import jax.numpy as jnp

import tapestry_jax as tp
from tapestry_jax.partitioning.rule import cut_anywhere, sharding_rule
from tapestry_jax.partitioning.tensors import Tensors

X, W = tp.TensorType({"batch": 8, "embed": 4}), tp.TensorType({"embed": 4, "out": 6})
softmax = tp.Map(jax.nn.softmax, "b [c] -> b [c]")
GRAPH = tp.trace(lambda x, w: softmax(tp.einsum("i k, k n -> i n")(x, w)), X, W)


def test_rule_has_a_factor_for_every_dimension():
    rule = sharding_rule(GRAPH, Tensors.of_graph(GRAPH))
    assert rule.operand_mappings == (("f0", "f1"), ("f1", "f2")) and rule.result_mappings == (("f0", "f2"),)
    assert (rule.reduction_factors, rule.need_replication_factors) == (("f1",), ())


def test_rule_needs_whole_what_no_operation_cuts():
    graph = tp.trace(softmax, X)
    assert cut_anywhere(graph) == {"batch"}
    assert sharding_rule(graph, Tensors.of_graph(graph)).need_replication_factors == ("f1",)


def test_rule_tells_sizes_of_one_name_apart():
    graph = tp.trace(tp.Map(lambda x: x[1:] + x[:-1], "(y+[dy]) -> y", sizes={"dy": 2}), tp.TensorType({"y": 8}))
    rule = sharding_rule(graph, Tensors.of_graph(graph))
    assert rule.operand_mappings == (("f0",),) and rule.result_mappings == (("f1",),)


def test_rule_of_a_gradient_pairs_it_with_that_of_which_it_is_one():
    rule = sharding_rule(GRAPH, Tensors.of_graph(GRAPH).gradient, [jnp.ones(3)])
    assert rule.operand_mappings == (("f0",), ("f1", "f2"), ("f3", "f4"), ("f5", "f6"))
    assert rule.result_mappings == (("f1", "f2"), ("f3", "f4"))
    assert rule.need_replication_factors == ("f0",), "arrays that the program holds"
