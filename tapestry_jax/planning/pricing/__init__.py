"""What a plan costs on a machine, in seconds: counts of kernels, their marginal costs, and the price of a schedule.

Read `counting` (a kernel's counts), then `marginal` (those of any block of it, by arithmetic), `keys` (what the counts
of a step depend on), `roofline` (counts to seconds), `priced` (a schedule), `converted` (what is converted before its
loops), `combined` (what is sent as one), `sums` (what it adds up), `placed` (with the step that each part of it belongs
to), `overlapped` (what is sent behind computing) and `cost` (the result, as table and JSON).
"""
