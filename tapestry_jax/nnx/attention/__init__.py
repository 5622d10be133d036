"""Attention as a layer.

Read `multi_head`, then what it is made of beside projections: `positions`, which turn queries and keys, and the `cache`
that it decodes with.
"""
