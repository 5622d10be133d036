"""What users write in a plan, read and checked, and what it says of every operation.

Read `items`, then `read` and `layouts`; then `placement`, which refuses by `loop_rules` and `stage_rules`, and
`unused`, which refuses what it had no use for. `remat`
says what is computed again.
"""
