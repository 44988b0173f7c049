"""One submission per failure: the right verdict, one clear line, nothing left, the next unharmed.

The files are in tests/submissions; each says in its first line what it does.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness import isolation
from harness.model import Isolation, IsolationPolicy, Mode
from tests.judging import SUBMISSIONS, TIGHT, Judged, judge, small_task

pytestmark = pytest.mark.timeout(600)


@dataclass(frozen=True, slots=True)
class Expected:
    verdict: str
    said: str  # part of the run's message


_CACHED = Expected("wrong_answer", "second call, on new inputs: 1000 of 1000 elements are wrong")
_ENDED = "before custom_kernel returned"

NVFP4 = {
    "returns_zeros": Expected("wrong_answer", "every output is zero"),
    "ignores_high_nibble": Expected("wrong_answer", "the high nibble of every byte were ignored"),
    "ignores_sign": Expected("wrong_answer", "the sign bit of e2m1 were ignored"),
    "drops_scale_mantissa": Expected("wrong_answer", "the mantissa of the scales were dropped"),
    "swaps_nibbles": Expected("wrong_answer", "256 of 256 elements are wrong"),
    "wrong_l_stride": Expected("wrong_answer", "b of batch 0 were used for every batch"),
}

DOUBLE = {
    "wrong_shape": Expected("wrong_shape", "returned shape (1, 1000), expected (1000,)"),
    "wrong_dtype": Expected("wrong_dtype", "returned dtype float64, expected float32"),
    "nan_in_last_element": Expected("nonfinite", "worst at [999]: expected 0."),
    "raises": Expected("runtime_error", "red [/tmp/x] [bold]"),
    "long_error": Expected("runtime_error", "the reason: no such register"),
    "sys_exits_at_import": Expected("crashed", "called sys.exit(0) instead of returning"),
    "os_exits_at_import": Expected("crashed", "ended (exit code 0) while it was imported"),
    "killed_at_import": Expected("crashed", "ended (signal SIGKILL) while it was imported"),
    "honest": Expected("passed", ""),
    "sys_exits_in_second_call": Expected("crashed", "second call, on new inputs: called sys.exit"),
    "os_exits_in_second_call": Expected("crashed", f"ended (exit code 0) {_ENDED}"),
    "killed_in_second_call": Expected("crashed", f"ended (signal SIGKILL) {_ENDED}"),
    "syntax_error": Expected("compile_error", "SyntaxError: expected ':'"),
    "no_custom_kernel": Expected("import_error", "name the entry point"),
    "missing_import": Expected("import_error", "No module named 'no_such_package'"),
    "returns_subclass": Expected("wrong_type", "the result is a submission.Lazy"),
    "returns_lambda": Expected("wrong_type", "the result is a function"),
    "changes_inputs": Expected("input_modified", "it changed its inputs: data[0]"),
    "zeroes_inputs": Expected("input_modified", "it changed its inputs: data[0]"),
    "caches_by_pointer": _CACHED,
    "caches_by_shape": _CACHED,
    "wrong_on_every_second_call": _CACHED,
    "fakes_a_report": Expected("protocol_error", "the worker process sent"),
    "prints_200_mb": Expected("passed", ""),
    "prints_bytes": Expected("passed", ""),
    "forks_a_child": Expected("passed", ""),
    "uses_its_own_source": Expected("passed", ""),
    "uses_a_pool": Expected("passed", ""),
}

#: What another level of isolation makes of some.
OTHERWISE = {
    ("uses_a_pool", Isolation.RESTRICTED): Expected("import_error", "Permission denied"),
}


HANGING = {
    "sleeps_past_deadline": Expected("timed_out", f"one call took longer than {TIGHT} s"),
}

EVERY = {**NVFP4, **DOUBLE, **HANGING}


@pytest.fixture(scope="module")
def judged() -> Iterator[dict[str, Judged]]:
    """Every submission judged, half of them after the other half's nastiest."""
    folder = Path(tempfile.mkdtemp(prefix="harness-judge-", dir="/tmp"))
    try:
        folder.chmod(0o755)
        double, nvfp4 = small_task(folder / "a", "double"), small_task(folder / "b", "nvfp4")
        tight = small_task(folder / "c", "double", call_s=TIGHT)
        names = list(DOUBLE)
        # The honest one ends each list: what came before it has not harmed its process.
        shards = [
            (double, [*names[::2], "honest"]),
            (double, [*names[1::2], "honest"]),
            (tight, [*HANGING, "honest"]),
            (nvfp4, [*NVFP4, "honest_nvfp4"]),
        ]
        with ThreadPoolExecutor(2) as threads:
            found = threads.map(lambda shard: _judge(*shard), shards)
            yield {j.name: j for results in found for j in results}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _judge(root: Path, names: list[str]) -> list[Judged]:
    return list(judge(root, Mode.TEST, [SUBMISSIONS / f"{name}.py" for name in names]))


@pytest.mark.parametrize("name", EVERY)
def test_a_submission_gets_its_verdict_and_one_clear_line(
    judged: dict[str, Judged], name: str
) -> None:
    level = isolation.choose(IsolationPolicy.AUTO)
    expected = OTHERWISE.get((name, level), EVERY[name])
    assert (judged[name].verdict, judged[name].message) == (
        expected.verdict,
        judged[name].message if expected.said in judged[name].message else f"...{expected.said}...",
    )
    assert "\n" not in judged[name].message
    assert len(judged[name].message) < 1000


@pytest.mark.parametrize("name", EVERY)
def test_nothing_is_left_of_it(judged: dict[str, Judged], name: str) -> None:
    assert judged[name].left == ()


def test_the_honest_submission_after_all_of_them_passes(judged: dict[str, Judged]) -> None:
    assert judged["honest"].verdict == judged["honest_nvfp4"].verdict == "passed"


def test_a_flood_of_output_is_cut_in_the_middle_and_keeps_its_end(
    judged: dict[str, Judged],
) -> None:
    log = judged["prints_200_mb"].log
    assert len(log) < 2 * 65536
    assert log.startswith("xxxx")
    assert "the last line" in log


def test_bytes_that_are_no_text_are_kept_as_replacements(judged: dict[str, Judged]) -> None:
    log = judged["prints_bytes"].log
    assert "\ufffd" in log
    log.encode("utf-8")


def test_an_ended_process_is_noticed_at_once_and_not_at_its_deadline(
    judged: dict[str, Judged],
) -> None:
    honest = judged["honest"].seconds
    assert judged["os_exits_at_import"].seconds < honest + 40  # import_s is 60


def test_an_error_names_the_line_of_the_authors_file(judged: dict[str, Judged]) -> None:
    assert f"{SUBMISSIONS}/raises.py:5)" in judged["raises"].message
    assert "submission.py" not in judged["missing_import"].message
