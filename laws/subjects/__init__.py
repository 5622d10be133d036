"""What laws speak about: a monoid with its carrier, an aggregator, a leaf, an arrow, a plan, a structure.

Read `carrier`, then `aggregator`, `leaf`, `arrow`, `plan`, with what is `streamed` of it, and `structures`; `carriers`
finds how states are made, by `examples` and `elements`.
"""
