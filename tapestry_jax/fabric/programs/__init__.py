"""Programs on tensors by name.

Read `program` (graphs, plans, how both are remembered), `holding` (what a program holds, as tensors) and `applying`
with `streaming`, then `recovering` (blocks that are lost, again).
"""
