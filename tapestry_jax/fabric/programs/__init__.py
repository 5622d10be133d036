"""Programs on tensors by name.

Read `program` (graphs, plans, how both are remembered) and `applying` with `streaming`, then `recovering` (blocks that
are lost, again).
"""
