"""Replay one schedule and print each step, or run many schedules: `python -m tests.simulator --seed 7`."""

import argparse
import os
import subprocess
import sys
import time

from tests.simulator.campaign import HOSTS, POOLS, first_finding, replay


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulator", description=__doc__)
    parser.add_argument("--host", choices=sorted({*HOSTS, POOLS}), default="machine")
    parser.add_argument("--seed", type=int, default=0, help="the schedule, or the first of many")
    parser.add_argument("--count", type=int, default=0, help="number of schedules; stop at the first finding")
    options = parser.parse_args()
    if options.host == POOLS and os.environ.get("PYTHONHASHSEED") != "0":
        # The host's sets are in another order with another seed of the hashes.
        command = [sys.executable, "-m", "tests.simulator", *sys.argv[1:]]
        return subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": "0"}).returncode
    if not options.count:
        story: list[str] = []
        finding = replay(options.host, options.seed, story)
        print("\n".join(story))
        print(finding or "All is well.")
        return bool(finding)
    begin = time.perf_counter()
    found = first_finding(options.host, range(options.seed, options.seed + options.count))
    tried = found[0] - options.seed + 1 if found else options.count
    print(f"{(time.perf_counter() - begin) / tried * 1e3:.2f} ms a schedule")
    print(f"seed {found[0]}: {found[1]}" if found else f"{options.count} schedules, nothing found")
    return bool(found)


if __name__ == "__main__":
    raise SystemExit(main())
