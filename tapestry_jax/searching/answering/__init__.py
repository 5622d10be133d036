"""From what a method proposes to one answer.

`best` takes the cheapest that fits and is proved, or says what is `lacking`; `shortened` drops from it what has no
effect, and `progress` shows how it goes.
"""
