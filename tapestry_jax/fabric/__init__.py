"""Named tensors in files or in memory: `tp.Fabric`. Versions never change; names change in one step.

Read `fabric` (what users call), `opened` (what all parts share) and the rooms: `tensors` (types, boxes, records),
`catalogue` (what there is), `blocks` (where bytes lie). Then `drafts` (how a new version gets its name), `naming` (what
names stand for, snapshots too), `placing` and `arrays` (layouts on a mesh); the room `moving` reads, writes, copies,
loads and exports, `programs` applies and recovers, `streams` is what streams read and write. `described` and `errors`
are what they say.
"""
