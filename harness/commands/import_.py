"""`harness import FILE`: the runs of a bundle into the results database."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from harness import bundle as bundles
from harness import codec
from harness.commands import options, verify
from harness.errors import UsageError
from harness.model import Run
from harness.render import text
from harness.store import Store, open_store


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@verify.signers_option
@options.db_option
@options.problem_option
def command(file: Path, signers: Path | None, db: str | None, problem: Path | None) -> None:
    """Store the runs of a bundle that `harness verify` finds sound; each says where it is from.

    Imported runs rank like your own: import only what somebody you trust has signed (--signers).
    Runs that are there already are left as they are.
    """
    bundle, vouched = verify.read(file, signers)
    for run in bundle.runs:
        if found := bundles.problems(run):
            raise UsageError(
                f"{file}: run {text.plain(run.id)} is not sound ({text.plain(found[0])}); nothing "
                "was imported, see `harness verify`"
            )
    note = f"imported from a bundle, {bundle.digest}, {vouched}"
    with open_store(options.store_url(db, options.task_root(problem)), create=True) as store:
        fresh = [run for run in bundle.runs if not _there(store, run, file)]
        store.add(*(replace(run, notes=(*run.notes, note)) for run in fresh))
    kept = len(bundle.runs) - len(fresh)
    count = f"{len(fresh)} run{'' if len(fresh) == 1 else 's'}"
    click.echo(f"imported {count}" + (f"; {kept} were there already" if kept else ""))


def _there(store: Store, run: Run, file: Path) -> bool:
    """Whether the run is stored already; UsageError when another one has its id."""
    try:
        known = store.get(run.id)
    except UsageError:
        return False
    if known.id != run.id:
        return False  # only begins alike
    submission = replace(known.submission, source=run.submission.source)
    same = replace(known, notes=run.notes, submission=submission)
    if codec.encode(same) != codec.encode(run):
        raise UsageError(
            f"{file}: another run {text.plain(run.id)} is stored already; nothing was imported"
        )
    return True
