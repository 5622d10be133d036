"""One step of training: what one program computes, and the arrays that it changes.

Read `step`, with `finite` (numbers that are none), `batch` (what in a batch makes them), `empty` (batches of no row)
and `scaling` (of the loss); then `state`, what a step changes, `begun`, what it begins with, `places`, where all of it
lies, `programs`, one for each size of a batch, and `whole`: Ctrl-C leaves no half of a step.
"""
