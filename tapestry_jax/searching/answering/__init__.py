"""From what a method proposes to one answer.

`best` takes the cheapest that fits and is proved, or says what is `lacking`; `rings` asks of each proposal whether what
came round rings may be sent once more; `shortened` drops from what was found what has no effect, `beside` keeps what
else was evaluated best, and `progress` shows how it goes. Meanwhile garbage is `collected` less often.
"""
