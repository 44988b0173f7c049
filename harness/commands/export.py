"""`harness export FILE`: runs into a bundle."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from harness.commands import options


@click.command("export")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.argument("runs", nargs=-1)
@click.option("--device", metavar="NAME", help="Only runs on this device.")
@click.option("--task", "task_name", metavar="NAME", help="Only runs of this task.")
@click.option("--all", "everything", is_flag=True, help="All runs, not only those that stand.")
@click.option("--without-source", is_flag=True, help="Keep the submissions' text back.")
@click.option(
    "--sign",
    "key",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="KEY",
    help="Sign the digest with this SSH key.",
)
@options.db_option
@options.problem_option
def command(
    file: Path,
    runs: tuple[str, ...],
    device: str | None,
    task_name: str | None,
    everything: bool,
    without_source: bool,
    key: Path | None,
    db: str | None,
    problem: Path | None,
) -> None:
    """Put RUNS, or those that hold a standing, into a bundle that another machine can check.

    RUNS are ids, the beginning of them, or names of submissions: the latest run of each then.
    It holds every raw sample, the environment, the source and its hash, the secret seeds of the
    runs, which are public from then on, and a digest over all of it.
    """
    from harness import bundle, whole_file
    from harness.commands import narrowing, page_file
    from harness.errors import UsageError
    from harness.leaderboard import boards
    from harness.store import open_store

    # `harness export SUBMISSION.py` and `harness export *.json` mean something else.
    whole_file.refuse_foreign(
        file,
        [whole_file.BUNDLE],
        remedy="FILE is the bundle to write; names of runs come after it",
    )
    root = options.task_root(problem)
    url = options.store_url(db, root)
    with open_store(url, create=False) as store:
        if not runs and file.parent == Path() and not file.suffix and store.knows(file.name):
            raise UsageError(f"{file} names a run: harness export FILE {file}")
        if runs:
            named = [store.get(run) for run in runs]
            chosen = list({run.id: run for run in named}.values())
        elif everything:
            every = store.runs(task=task_name, device=device)
            chosen = [store.get(row.id) for row in reversed(every)]
        else:
            task = options.task_at(root)
            rows = store.latest_eligible(task, task=task_name, device=device)
            made = boards(rows, task=task)
            chosen = [store.get(s.run) for board in made for s in board.standings]
        if not chosen and (said := narrowing.unknown(store, task_name, device)):
            raise UsageError(f"nothing to export: {said}")
    if not chosen:
        raise UsageError("nothing to export: no run holds a standing; --all takes every run")
    made_bundle = bundle.make(chosen, with_source=not without_source)
    if key is not None:
        from harness import signature

        made_bundle = replace(made_bundle, signature=signature.sign(made_bundle.digest, key))
    size = page_file.replace_file(file, bundle.dumps(made_bundle))
    signed = "signed" if key is not None else "not signed"
    count = f"{len(chosen)} run{'' if len(chosen) == 1 else 's'}"
    about = f"{count}, {page_file.megabytes(size)}, {made_bundle.digest}, {signed}"
    click.echo(f"wrote {file}: {about}")
