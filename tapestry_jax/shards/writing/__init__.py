"""From a schedule to blocks: the one place here that knows of schedules and layouts.

Read `written`, with `layouts` (cuts as ranges), `reading` (what index boxes project to), `matched` (which operation of
the program a scheduled one is) and `tables` (what has been written).
"""
