"""Values that jobs have made, kept by what computes them and of which sources: `tp.stream(..., cache="cache/")`.

Read `contents` (what an operation computes, as a key), `code` (what it may do beside what was traced), `keys` (what a
value is known by), `crossing` (which values are kept), `cache` (that of a job), `entries` (how they lie in the folder)
and `prune`.
"""
