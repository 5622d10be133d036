"""The same schedule with its outermost loops turned by the host, over data that lies in files.

Read `split`, `turn` and `running`; `job` with `asked` and `sinks` is what users call, `position` what a run can be
stopped at, `metrics` what is measured and `progress` what is shown of it.

Rooms: `moving` (pieces between files and devices), `fits` (what memory is needed), `frozen` (what a job needs to go on,
in a folder), `kept` (jobs that go on from it) and `cluster` (passes that workers turn). `errors` is what all of it
raises.
"""
