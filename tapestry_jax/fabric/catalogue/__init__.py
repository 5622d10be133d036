"""The catalogue of a fabric, in SQLite: which tensors there are, where their blocks lie, and how they came to be.

Read `schema` (the tables, and what makes a file a catalogue) with `older`, then `connection` (transactions), `seals`
(rows that say whether they are as they were written), `rows` (read and counted) and `chain` (the blocks of a version),
then `reads`, `writes` and `prune` (what nobody needs any more).
"""
