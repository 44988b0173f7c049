"""How long the commands that people wait for take as whole processes, beside their libraries alone.

    python benchmarks/startup.py [ROUNDS]

Prints each command's median time and its ratio to that of importing click, rich.table, sqlalchemy
run right before it, by the wall clock and by processor time, which a busy machine disturbs less.
Exit code 1 when both are above a limit: leaderboard and show with 10,000 runs 1.6, --help 0.6.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.big_board import fill  # noqa: E402

RUNS, SUBMISSIONS = 10_000, 200
YARDSTICK = ("-c", "import click, rich.table, sqlalchemy")
PROGRAM = (
    "-c",
    f"import sys; sys.path.insert(0, {str(ROOT)!r}); from harness.cli import main; main()",
)


def spent(arguments: tuple[str, ...], folder: str) -> tuple[float, float]:
    """Seconds of one whole process, by the wall clock and of processor time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, cwd=folder, capture_output=True)
    wall = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        fill(Path(folder) / "runs.db", RUNS, SUBMISSIONS)
        url = f"sqlite:///{folder}/runs.db"
        commands = {
            "leaderboard": ((*PROGRAM, "leaderboard", "--db", url), 1.6),
            "leaderboard --json": ((*PROGRAM, "leaderboard", "--json", "--db", url), 1.6),
            "show": ((*PROGRAM, "show", f"r{RUNS - 1:07d}", "--db", url), 1.6),
            "--help": ((*PROGRAM, "--help"), 0.6),
        }
        for name, (arguments, limit) in commands.items():
            pairs = [(spent(YARDSTICK, folder), spent(arguments, folder)) for _ in range(rounds)]
            wall, processor = (
                statistics.median(ours[i] / theirs[i] for theirs, ours in pairs) for i in (0, 1)
            )
            middle = statistics.median(ours[0] for _, ours in pairs) * 1e3
            failed |= min(wall, processor) > limit
            print(
                f"harness {name:20s} {middle:7.0f} ms  {wall:5.2f}x the yardstick, "
                f"{processor:5.2f}x its processor time  (at most {limit}x)"
            )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
