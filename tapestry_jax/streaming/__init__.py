"""The same schedule with its outermost loops turned by the host, over data that lies in files.

Read `parts`, `split`, `turn` and `running`; `known` is what other jobs of the same program have compiled, and
`position` what a run can be stopped at.

Rooms: `jobs` (what users call), `moving` (pieces between files and devices), `fits` (what memory is needed), `measured`
(what a run measures), `frozen` (what a job needs to go on, in a folder), `kept` (jobs that go on from it), `cached`
(values that other jobs find) and `cluster` (passes that workers turn). `errors` is what all of it raises.
"""
