"""A job that is kept in a folder and goes on from it, in other chunks and on other devices where that gives the same.

Read `apart` (places that are in each other's way), `origins` (names of values that outlive a plan), `edges` (how far a
pass is, in cells), `thaw` (from a run to what is kept, and back), `partials` (what ranges of turns come to, each in a
file), `begun` (sinks that are those of the job), `written` (checksums of what is in them), `interrupts` (Ctrl-C between
two turns) and `checkpoint`, which runs a job so. `extending` goes on with new rows from the states of older ones, and
`batches` are those that are counted in a folder, each once.
"""
