"""From a graph and placements to a schedule: the steps that every device runs, in order.

Read `schedule`, which is the data; then `demands` (with `reads`, `free` and `widen`): the layouts that operations
want; then `regions`, `frame` and `graph`, which writes steps with `operations` (with `gradient_orders`), `repetitions`
and `time_loops` (with `totals`). `received` says which steps are not computed again, `summed` which loops
end in one sum.
"""
