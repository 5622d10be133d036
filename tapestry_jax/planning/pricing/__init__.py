"""What a plan costs on a machine, in seconds: counts of kernels, their marginal costs, and the price of a schedule.

Read `counts`, then `traced` (a kernel's program) and `count` (it, counted), `resized` (the same program at other
sizes), `marginal` (any block of it, by arithmetic), `roofline` (counts to seconds), then `priced` (a schedule), `sums`
(what it adds up), `placed` (with the step that each part of it belongs to), `overlapped` (what is sent behind
computing) and `cost` (the result, as table and JSON).
"""
