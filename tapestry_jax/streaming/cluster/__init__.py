"""Passes in ranges of turns, on the workers of a Dask cluster: `tp.stream(..., engine=client)`.

Read `handed` (what a worker is given, and builds of it), `ranges` (turns in
fixed ranges, merged in a fixed tree), `totals` (what the scans of a range go on from), `task` (what a worker does, and
commits), `driver` (a run that has them do it), `waiting` (for tasks, and for workers), `asked` (`engine=`, and what is
refused) and `local` (a cluster of this machine).
"""
