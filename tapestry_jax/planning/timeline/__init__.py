"""The schedule in time: when devices compute, when links are busy, and what is alive meanwhile.

Read `event` (what happens, turns of loops folded), `track` (events one after the other, and in turns), `passes`
(forwards, again, backwards), then `simulate`; `timeline` is the result, `text` its table.
"""
