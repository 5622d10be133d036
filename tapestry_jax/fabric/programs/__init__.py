"""Programs on tensors by name.

Read `program` (graphs, plans, how both are remembered) and `applying`, then `recovering` (blocks that are lost, again).
"""
