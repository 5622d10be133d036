"""From what a method proposes to one answer.

`best` takes the cheapest that fits and is proved, or says what is `lacking`; `shortened` drops from it what has no
effect, `beside` keeps what else was evaluated best, and `progress` shows how it goes. Meanwhile garbage is `collected`
less often.
"""
