"""Named tensors in files or in memory: `tp.Fabric`. Versions never change; names change in one step.

Read `fabric` (what users call), `records` (tensors, versions, blocks), `opened` (what all parts share) and the rooms
`catalogue` and `blocks`. Then `drafts` (how a new version gets its name), `reading`, `copying` with `boxes` and `casting`, `moving`
(load and export), `placing` and `arrays` (layouts on a mesh), `programs` and `applying`, `recovering`; `sources` and
`sinks` are what streams read and write; `described`, `names` and `errors` are what they say.
"""
