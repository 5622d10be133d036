"""One step of training: what one program computes, and the arrays that it changes.

Read `step`, with `finite` (numbers that are none) and `scaling` (of the loss); then `state`, what a step changes,
`begun`, what it begins with, and `places`, where all of it lies.
"""
