"""Composition: arrows, how they are put together, and the graph that comes of it.

Read `part` with `faces`: what can be applied. Others are made of parts: `combined` with `compose` and `choice`,
`bound`, `repeated` with `feedback`. `arrow` gives them operators; users write arrows by `program` with its `signature`
and by `loops`, of which `until` with its `conditions` ends by data; `tracing` is `tp.trace`.
"""
