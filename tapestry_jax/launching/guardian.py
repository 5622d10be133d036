"""Leads the process group of the ranks, and ends it when the supervisor is gone, however it went.

It is run as a script by a bare Python and imports nothing of the library: it has to be there at once.

Its input is a pipe that only the supervisor holds open, so its end says that the supervisor has ended.
"""

import os
import signal
import sys

if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while os.read(0, 4096):
        pass
    os.killpg(0, signal.SIGKILL)
