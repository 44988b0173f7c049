"""`harness import FILE`: the runs of a bundle into the results database."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import click

from harness import codec
from harness.commands import options, verify
from harness.errors import UsageError
from harness.model import Doubt, Run
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
    What nobody vouches for has the doubt `unsigned import` on the board, and replaces nothing that
    was made here or is signed.  Runs that are there already are left as they are.
    """
    bundle, vouched = verify.read(file, signers)
    root = options.task_root(problem)
    task = options.task_at(root)
    for run in bundle.runs:
        if found := verify.problems(run, task):
            raise UsageError(
                f"{file}: run {text.plain(run.id)} is not sound ({text.plain(found[0])}); nothing "
                "was imported, see `harness verify`"
            )
    note = f"imported from a bundle, {bundle.digest}, {vouched}"
    url = options.store_url(db, root)
    with open_store(url, create=True) as store:
        if db is not None and store.new:
            options.say_new(store.where)
        fresh = [run for run in bundle.runs if not _there(store, run, file)]
        store.add(*(_imported(run, note, signed=signers is not None) for run in fresh))
    kept = len(bundle.runs) - len(fresh)
    count = f"{len(fresh)} run{'' if len(fresh) == 1 else 's'}"
    were = "was" if kept == 1 else "were"
    click.echo(f"imported {count}" + (f"; {kept} {were} there already" if kept else ""))
    if fresh and signers is None:
        click.echo(
            f"the bundle is {vouched}; the board says `{Doubt.UNSIGNED_IMPORT}` of what it brought"
        )
    if fresh:
        options.say("".join(f"{line}\n" for line in verify.not_compared(bundle, task)))


def _imported(run: Run, note: str, *, signed: bool) -> Run:
    """The run as it is stored: with its origin, and a doubt unless a known key signed it.

    Whoever exported it may have imported it unsigned: what counts is who vouches for this bundle.
    A clock that was ahead dates nothing later than what is made here from now on.
    """
    doubts = (*_own_doubts(run), *(() if signed else (Doubt.UNSIGNED_IMPORT,)))
    created_ns = min(run.created_ns, time.time_ns())
    return replace(run, created_ns=created_ns, doubts=doubts, notes=(*run.notes, note))


def _own_doubts(run: Run) -> tuple[Doubt, ...]:
    return tuple(doubt for doubt in run.doubts if doubt is not Doubt.UNSIGNED_IMPORT)


def _there(store: Store, run: Run, file: Path) -> bool:
    """Whether the run is stored already; UsageError when another one has its id."""
    try:
        known = store.get(run.id)
    except UsageError:
        return False
    if known.id != run.id:
        return False  # only begins alike
    same = replace(
        known,
        created_ns=run.created_ns,
        doubts=_own_doubts(known),
        notes=run.notes,
        submission=replace(known.submission, source=run.submission.source),
    )
    if codec.encode(same) != codec.encode(replace(run, doubts=_own_doubts(run))):
        raise UsageError(
            f"{file}: another run {text.plain(run.id)} is stored already; nothing was imported"
        )
    return True
