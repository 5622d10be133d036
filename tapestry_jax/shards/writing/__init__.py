"""From a schedule to blocks: the one place here that knows of schedules and layouts.

Read `written`, then the steps: `operations` with `reading` (what index boxes project to), `folds`, `moves`, `regions`
(loops in time) and `repeats` (loops of the program). `scope` is what is held while they are written, `layouts` says
cuts as ranges, `matched` which operation of the program a scheduled one is, `tables` what has been written.
"""
