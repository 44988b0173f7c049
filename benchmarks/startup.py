"""How long the commands that people wait for take as whole processes, beside their libraries alone.

python benchmarks/startup.py [ROUNDS]   prints each command's median time and its ratio to
`python -c 'import click, rich.table, sqlalchemy'`, measured in turn with it.  Exit code 1 above a
limit: leaderboard with 10,000 runs <= 1.6, show <= 1.6, --help <= 0.6.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness.store import open_store
from tests.fakes import make_run

RUNS, SUBMISSIONS = 10_000, 200
YARDSTICK = ("-c", "import click, rich.table, sqlalchemy")
PROGRAM = ("-c", "from harness.cli import main; main()")
ROOT = Path(__file__).resolve().parents[1]


def fill(url: str) -> None:
    """Ranked runs of many submissions, by as many authors, each with its raw samples."""
    with open_store(url, create=True) as store:
        for number in range(RUNS):
            entrant = number % SUBMISSIONS
            name, author = f"submission_{entrant}", f"author_{entrant}"
            times = (20.0 + entrant / 10, 40.0 + entrant / 10, 10.0 + entrant / 10)
            store.add(make_run(name, id=f"{number:012x}", author=author, times_us=times))


def seconds(arguments: tuple[str, ...]) -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/runs.db"
        fill(url)
        commands = {
            "leaderboard": ((*PROGRAM, "leaderboard", "--db", url), 1.6),
            "leaderboard --json": ((*PROGRAM, "leaderboard", "--json", "--db", url), 1.6),
            "show": ((*PROGRAM, "show", f"{RUNS // 2:012x}", "--db", url), 1.6),
            "--help": ((*PROGRAM, "--help"), 0.6),
        }
        times: dict[str, list[float]] = {name: [] for name in ("yardstick", *commands)}
        for _ in range(rounds):
            times["yardstick"].append(seconds(YARDSTICK))
            for name, (arguments, _) in commands.items():
                times[name].append(seconds(arguments))
    yardstick = statistics.median(times["yardstick"])
    print(f"{'import click, rich.table, sqlalchemy':38s} {yardstick * 1e3:7.0f} ms")
    failed = False
    for name, (_, limit) in commands.items():
        # Ratio of neighbours in time: what else the machine does is the same for both.
        pairs = zip(times[name], times["yardstick"], strict=True)
        ratio = statistics.median(a / b for a, b in pairs)
        failed |= ratio > limit
        middle = statistics.median(times[name]) * 1e3
        print(f"harness {name:30s} {middle:7.0f} ms  {ratio:5.2f}x  (at most {limit}x)")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
