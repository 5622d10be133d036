"""Graph to graph, before it is scheduled: wider carriers, kernels for platforms, several turns to a halo.

Read `operations`, which replaces operations, then `carriers` and `platforms`; `deepen` stands alone.
"""
