"""The same schedule with its outermost loops turned by the host, over data that lies in files.

Read `split`, `turn` and `running`; `job` with `asked` and `sinks` is what users call, `position` what a run can be
stopped at, `in_memory` what has no file, `metrics` what is measured and `progress` what is shown of it.

Rooms: `moving` (pieces between files and devices), `fits` (what memory is needed), `frozen` (what a job needs to go on,
in a folder) and `kept` (jobs that go on from it). `errors` is what all of it raises.
"""
