"""Scripts that do not want to end."""

STUBBORN = """#!/usr/bin/env python3
import os, signal, sys, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.closerange(0, 4096)
            time.sleep(300)
        os._exit(0)
print("ready", flush=True)
time.sleep(300)
"""

DAEMON = """#!/usr/bin/env python3
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 4096)
        time.sleep(300)
    os._exit(0)
os.wait()
"""

# Each process replaces itself all the time, so no list of processes stays true.
RESTLESS = """#!/usr/bin/env python3
import os, sys, time
for _ in range(40):
    if os.fork() == 0:
        while True:
            if os.fork() != 0:
                os._exit(0)
print("ready", flush=True)
time.sleep(300)
"""

BOMB = """#!/usr/bin/env python3
import os, time
if os.fork() == 0:
    while True:
        try:
            os.fork()
        except OSError:
            pass
print("ready", flush=True)
time.sleep(300)
"""
