"""`harness replay FILE`: a bundle's runs once more, here, on the very same inputs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from harness import bundle as bundles
from harness import names
from harness.commands import options, verify
from harness.commands.run import judge
from harness.errors import UsageError
from harness.model import CaseKind, IsolationPolicy, Job, Run, Submission, Task
from harness.render import text


@click.command("replay")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.argument("runs", nargs=-1)
@click.option(
    "--source",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The submission, where the bundle was made without it.",
)
@click.option("--device", metavar="NAME", help="cpu, cuda or cuda:N (default: as in the bundle).")
@options.isolation_option
@options.quiet_option
@verify.signers_option
@options.json_option
@options.problem_option
def command(file: Path, runs: tuple[str, ...], **chosen: Any) -> int:
    """Make RUNS of a bundle again, or all of them, with the secret seeds that they revealed.

    RUNS are ids, the beginning of them, or names of submissions: the latest run of each then.

    The verdicts should be the same anywhere; times are this machine's own.  Nothing is stored: who
    knows the inputs beforehand proves nothing.  Exit code: 0 the verdicts agree, 1 one does not.
    """
    from harness.task import find_root, load

    bundle, _ = verify.read(file, chosen["signers"])
    root = find_root(chosen["problem"], Path.cwd(), None)
    task = load(root)
    old = [_ready(run, task, chosen["source"]) for run in _chosen(bundle.runs, runs, file)]
    pairs = []
    for run in old:
        again = judge(_job(run, root, chosen), run.submission.name, quiet=chosen["quiet"])
        pairs.append((run, again))
        if not chosen["as_json"]:
            options.say("".join(f"{line}\n" for line in _lines(run, again)))
    if not chosen["as_json"]:
        options.say(f"\n{_sentence(pairs)}\n")
    else:
        from harness.render import export

        document = {"schema": 1, "replays": [_document(*pair) for pair in pairs]}
        options.say(export.dumps(document) + "\n")
    return 0 if all(a.verdict is b.verdict for a, b in pairs) else 1


def _chosen(runs: tuple[Run, ...], wanted: tuple[str, ...], file: Path) -> list[Run]:
    """The runs to make again: by their ids, or by what their submissions are called."""
    if not wanted:
        return list(runs)
    chosen: dict[str, Run] = {}
    for key in wanted:
        fits = _fitting(runs, key)
        if not fits:
            raise UsageError(
                f"{file}: no run {key!r}, and none of a submission of that name; see "
                "`harness verify`"
            )
        if len(fits) > 1:
            told = [(run.id, run.submission.name, run.submission.author) for run in fits]
            raise UsageError(f"{file}: {names.ambiguous(key, told)}")
        chosen[fits[0].id] = fits[0]
    return list(chosen.values())


def _fitting(runs: tuple[Run, ...], key: str) -> list[Run]:
    """The runs that a key may mean, as `Store.get` finds them."""
    exact = [run for run in runs if run.id == key]
    return (
        exact
        or _latest_of(runs, key)
        or _latest_of(runs, names.stem(key))
        or [run for run in runs if run.id.startswith(key)]
    )


def _latest_of(runs: tuple[Run, ...], name: str) -> list[Run]:
    """The newest run of each author's submission of that name."""
    oldest_first = sorted(runs, key=lambda run: (run.created_ns, run.id))
    newest = {run.submission.author: run for run in oldest_first if run.submission.name == name}
    return list(newest.values())


def _ready(run: Run, task: Task, source: Path | None) -> Run:
    """The run with its submission's text; UsageError when it cannot be made again here."""
    name = text.plain(run.id)
    if run.task_digest != task.digest:
        raise UsageError(
            f"run {name} is of another version of the task {text.plain(run.task)} than {task.root} "
            "(--problem DIR); times and verdicts would mean something else"
        )
    if source is not None:
        from harness.sources import read_submission

        given = read_submission(source, run.submission.author)
        if given.sha256 != run.submission.sha256:
            raise UsageError(f"{source}: is not the text that run {name} judged")
        run = replace(run, submission=_named(given, run.submission))
    if not run.submission.source:
        raise UsageError(f"run {name}: its source was left out of the bundle; use --source FILE")
    bad = verify.problems(run, task)
    if bad:
        raise UsageError(f"run {name} is not sound: {text.plain(bad[0])}")
    return run


def _named(given: Submission, run: Submission) -> Submission:
    return replace(given, name=run.name)


def _job(run: Run, root: Path, chosen: dict[str, Any]) -> Job:
    tests = [c.case for c in run.cases if c.case.kind is CaseKind.TEST]
    seeds = {case.seed for case in tests}
    return Job(
        task_root=str(root),
        submission=run.submission,
        device=chosen["device"] or run.device.kind,
        mode=run.mode,
        shapes=tuple(dict.fromkeys(c.case.shape for c in run.cases)) if run.custom_shapes else (),
        seed=seeds.pop() if len(seeds) == 1 else None,
        isolation=IsolationPolicy(chosen["isolation"]),
        replay_key=run.secret_seed,
    )


def _lines(old: Run, new: Run) -> list[str]:
    signs = text.marks("ascii")
    lines = [f"{text.plain(old.id)}  {text.plain(old.submission.name)}"]
    lines.append(f"  then  {old.verdict}  on {text.plain(old.device.name)}")
    lines.append(f"  now   {new.verdict}  on {text.plain(new.device.name)}")
    for before, after in bundles.replayed(old, new):
        label = f"  {before.case.shape.label} {before.case.inputs}"
        if after is not None and before.verdict is not after.verdict:
            lines.append(f"{text.plain(label)}: {before.verdict}, now {after.verdict}")
        if after is not None and before.timing is not None and after.timing is not None:
            then, now = before.timing.median_ns, after.timing.median_ns
            change = f"{100 * (now / then - 1):+.1f}%"
            said = f"{text.duration(then, signs)}, now {text.duration(now, signs)} ({change})"
            lines.append(f"{text.plain(label)}: {said}")
    return lines


def _sentence(pairs: list[tuple[Run, Run]]) -> str:
    differ = [old for old, new in pairs if old.verdict is not new.verdict]
    if differ:
        names = text.listing([text.plain(run.id) for run in differ])
        return f"{len(differ)} of {len(pairs)} verdicts differ here: {names}."
    return "The verdict is the same here." if len(pairs) == 1 else "All verdicts are the same here."


def _document(old: Run, new: Run) -> dict[str, object]:
    return {
        "run": old.id,
        "submission": old.submission.name,
        "verdict": old.verdict.value,
        "replayed": new.verdict.value,
        "device": new.device.name,
        "cases": [
            {
                "kind": before.case.kind.value,
                "shape": dict(before.case.shape.axes),
                "inputs": before.case.inputs,
                "verdict": before.verdict.value,
                "replayed": None if after is None else after.verdict.value,
                "median_ns": None if before.timing is None else before.timing.median_ns,
                "replayed_ns": after.timing.median_ns if after and after.timing else None,
            }
            for before, after in bundles.replayed(old, new)
        ],
    }
