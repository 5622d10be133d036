"""Composition: arrows, how they are put together, and the graph that comes of it.

Read `arrow` with `faces`, then `compose`, `combined` and `choice`; then `program` with `signature`; `loops` repeats,
`bound` holds arguments, `tracing` is `tp.trace`.
"""
