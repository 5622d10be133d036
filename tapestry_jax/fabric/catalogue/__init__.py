"""The catalogue of a fabric, in SQLite: which tensors there are, where their blocks lie, and how they came to be.

Read `schema` (the tables, and what makes a file a catalogue), then `connection` (transactions), `reads`, `writes` and
`prune` (what nobody needs any more).
"""
