"""The laws, one family a file: two sides that have to agree, each with its formula and its source.

Read `monoid`, with `running`, `declared`, `framed` and `connected`; then `aggregator`; then those of leaves, `map`,
`reduce` and `scan`; of composition, `arrow`, `choice` and `feedback`; and `plan`. `laws/catalogue.py` lists them in
the order in which they are checked.
"""
