"""What data choose in a program, and of which numbers they choose otherwise.

Read `chosen`, where cells that are cut choose together, if the `bounds` of numbers leave them a choice; `kept`
says which comparisons choose nothing; `choices`, whether boxes were seen to choose otherwise than the whole; `edges`,
the numbers at which a choice turns.
"""
