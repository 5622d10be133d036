"""Hypothesis strategies for users' own properties: values, states, partitions, programs and plans.

Each of `values` (with `bounds`), `states`, `partitions` and `plans` stands alone; `language` reads its `words`.
"""
