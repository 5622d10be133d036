"""Logical axis rules: one for a name, wherever it stands."""

from __future__ import annotations

from tapestry_jax.exported.rules import logical


def test_rules_call_dimensions_by_their_names():
    names, rules = logical([(("batch", ("data",)), ("embed", ())), (("embed", ()), ("mlp", ("data", "model")))])
    assert names == [("batch", "embed"), ("embed", "mlp")]
    assert rules == (("batch", "data"), ("embed", None), ("mlp", ("data", "model")))


def test_rules_of_a_dimension_that_lies_in_two_ways_are_those_of_most_tensors():
    most = (("mlp", ("model",)),)
    names, rules = logical([most, (("mlp", ()),), (("mlp", ("data",)),), most])
    assert names == [("mlp",), (None,), ("mlp_over_data",), ("mlp",)]
    assert rules == (("mlp", "model"), ("mlp_over_data", "data"))


def test_rules_of_a_dimension_that_lies_in_two_ways_equally_often_leave_the_name_to_what_is_whole():
    names, _ = logical([(("embed", ("data",)),), (("embed", ()),)])
    assert names == [("embed_over_data",), ("embed",)]
