"""The page: what it says, that it needs nothing, that no name in it can do anything."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import math
import re
import sqlite3
import sys
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from harness import leaderboard
from harness.cli import run as run_cli
from harness.model import Board, Doubt, Run, Verdict
from harness.render import axes, histogram, plot
from harness.render.page import page
from harness.render.progression import leaders, progression
from harness.store import open_store
from tests.fakes import CPU, EPOCH_NS, make_run
from tests.sampled import sampled_run, sampled_timing

NOW_NS = EPOCH_NS + 10**15

EVIL = [
    "<script>fetch('//evil')</script>",
    '"><img src=x onerror=document.title="owned">',
    "</script><script>document.title='owned'</script>",
    '<a href="javascript:document.title=1">click</a>',
    "{{ 7 * 7 }}{% raw %}",
    "\u202egnp.evil\u2066\u200f",
    "\u05d0\u05d1\u05d2 \u0627\u0628",
    "n" * 300,
    "\0\x1b[31m\udcff\n\t",
    "&lt;b&gt;<!--",
]


def make_page(runs: Sequence[Run], **options: Any) -> str:
    rows = [leaderboard.summarise(run) for run in runs]
    made = leaderboard.boards(rows)
    return page(made, {run.id: run for run in runs}, rows, now_ns=NOW_NS, **options)


def some_runs() -> list[Run]:
    return [
        sampled_run("quick", author="ada", created=10, seed=1),
        sampled_run("middling", author="bob", created=20, seed=2, times_us=(30, 60, 15)),
        sampled_run("slow", author="eve", created=30, seed=3, times_us=(90, 300, 40)),
        sampled_run("old", author="eve", created=5, seed=4, times_us=(95, 300, 40)),
        sampled_run("home", author="ada", created=40, seed=5, device=CPU, floor=None),
    ]


def evil_runs() -> list[Run]:
    return [
        sampled_run(
            name,
            author=name[::-1],
            id=f"e{i}",
            created=i,
            seed=i,
            times_us=(20.0 + i, 40.0 + i, 10.0 + i),
            source=f"{name}\n</code></pre><script>document.title='owned'</script>",
            notes=[name],
            task="nvfp4_gemv",
        )
        for i, name in enumerate(EVIL)
    ]


class Elements(HTMLParser):
    """Every element with its attributes, and the text of scripts."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self._inside = ""
        self.scripts: list[str] = []
        self.feed(document)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data
        elif self._inside != "style":
            self.text.append(data)


def island(document: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', document)
    assert found
    figures: dict[str, Any] = json.loads(found.group(1))
    return figures


def test_the_same_runs_give_the_same_bytes() -> None:
    assert make_page(some_runs()) == make_page(some_runs())


def test_the_page_needs_nothing_from_outside_and_holds_the_library_once() -> None:
    document = make_page(some_runs(), with_source=True)
    elements = Elements(document)
    outside = [
        value
        for tag, attributes in elements.found
        for name, value in attributes.items()
        if name in ("src", "href", "srcset", "action", "poster")
        and not (value or "").startswith("#")
    ]
    assert outside == ["data:,"]
    assert document.count("plotly.js v") == 1
    assert not any(
        tag in ("iframe", "object", "embed", "form", "base") for tag, _ in elements.found
    )


def test_the_policy_names_exactly_the_scripts_that_are_there() -> None:
    document = make_page(some_runs())
    elements = Elements(document)
    policy = next(a["content"] for t, a in elements.found if t == "meta" and "http-equiv" in a)
    assert policy is not None
    allowed = set(re.findall(r"'(sha256-[^']+)'", policy))
    scripts = [s for s in elements.scripts if not s.startswith("{")]
    digests = [hashlib.sha256(script.encode()).digest() for script in scripts]
    assert {f"sha256-{base64.b64encode(d).decode()}" for d in digests} == allowed
    assert len(scripts) == 2 and "unsafe-inline" not in policy.split("style-src")[0]


@pytest.mark.parametrize("with_source", [True, False])
def test_no_name_author_note_or_source_becomes_markup(with_source: bool) -> None:
    document = make_page(evil_runs(), with_source=with_source, everything=True)
    elements = Elements(document)
    assert len(elements.scripts) == 3
    assert not [a for _, a in elements.found for name in a if name.startswith("on")]
    assert not [t for t, _ in elements.found if t in ("img", "b ", "iframe")]
    links = [a.get("href") or "" for t, a in elements.found if t == "a"]
    assert links and all(link.startswith("#") for link in links)
    targets = {a["id"] for _, a in elements.found if "id" in a}
    assert {link[1:] for link in links} <= targets
    said = " ".join(elements.text)
    assert "<script>fetch('//evil')</script>" in said  # shown, not swallowed
    assert "{{ 7 * 7 }}" in said and "49" not in said.split("{{ 7 * 7 }}")[0][-3:]
    assert not set("\u202e\u2066\u200f\0\x1b") & set(document)
    assert "\\u202egnp.evil" in said
    document.encode("utf-8")


def test_labels_of_plots_are_no_markup_of_plotlys_own() -> None:
    figures = island(make_page(evil_runs()))
    texts = json.dumps(figures)
    assert "<a " not in texts and "<img" not in texts and "<script" not in texts.lower()
    ticks = figures["b0-bars-0"]["layout"]["yaxis"]["ticktext"]
    assert all(len(re.sub("&[a-z]+;", "x", t)) < 40 for t in ticks)


def test_standings_carry_interval_share_doubt_and_range() -> None:
    runs = some_runs()
    runs[1] = sampled_run(
        "middling", author="bob", created=20, seed=2, times_us=(20.02, 40.02, 10.01),
        doubts=[Doubt.NOISY],
    )  # fmt: skip
    said = re.sub(r"\s+", " ", " ".join(Elements(make_page(runs)).text))
    assert "quick" in said and "middling" in said and "too close to call" in said
    assert "\u00b10." in said and "1\u20132" in said
    assert "noisy" in said and "close other programs" in said
    assert "95% interval" in said and "60.0%" in said


def test_the_speed_of_light_is_told_of_a_gpu_and_of_no_processor() -> None:
    """The published bounds are a GPU's; the terminal has none for a processor either."""
    gpu = make_page([sampled_run("quick", seed=1)])
    assert gpu.count("<dt>of speed of light</dt>") == 3 and "<dt>of the speed of light</dt>" in gpu
    assert "speed of light" not in make_page([sampled_run("home", device=CPU, floor=None)])


def test_the_page_states_one_rule_for_ties() -> None:
    document = make_page(some_runs()[:3])
    assert document.count("beyond noise") + document.count("by more than noise") == 1
    assert "only called different" not in document


def test_a_leader_alone_is_named_with_its_lead() -> None:
    said = re.sub(r"\s+", " ", " ".join(Elements(make_page(some_runs())).text))
    assert re.search(r"quick leads; \w+ takes 1\.50 ± 0\.0\d times as long", said), said
    assert "home is the only entry so far" in said


def test_a_leader_of_the_same_name_as_another_is_told_apart_by_its_author() -> None:
    runs = [
        sampled_run("twin", author="ada"),
        sampled_run("twin", author="bob", seed=2, times_us=(30.0, 60.0, 15.0)),
    ]
    said = re.sub(r"\s+", " ", " ".join(Elements(make_page(runs)).text))
    assert "twin by ada leads; twin by bob takes 1.50" in said


def test_the_source_is_there_only_when_asked_for() -> None:
    runs = [sampled_run("quick", source="SECRET_TRICK = 42\n")]
    assert "SECRET_TRICK" not in make_page(runs)
    assert "SECRET_TRICK" in make_page(runs, with_source=True)


def test_runs_without_a_rank_are_listed_with_the_reason_only_when_asked_for() -> None:
    runs = [*some_runs(), make_run("cheat", verdict=Verdict.TAMPERED, message="it lied")]
    assert "it lied" not in make_page(runs)
    assert "it lied" in make_page(runs, everything=True)


def test_a_run_whose_details_are_damaged_keeps_its_standing_and_the_page_says_so() -> None:
    runs = some_runs()
    rows = [leaderboard.summarise(run) for run in runs]
    kept = {run.id: run for run in runs if run.submission.name != "quick"}
    document = page(leaderboard.boards(rows), kept, rows, now_ns=NOW_NS)
    assert "damaged or missing" in document and "quick leads" in re.sub("<[^>]+>", "", document)


def test_no_board_is_a_page_that_says_what_to_do() -> None:
    for boards in ([], [Board("t", "d", ())]):
        document = page(boards, {}, [], now_ns=NOW_NS)
        assert "Nobody is ranked yet" in document and "harness run" in document


def test_every_figure_is_one_that_plotly_knows() -> None:
    graph_objects = pytest.importorskip("plotly.graph_objects")
    for name, figure in island(make_page(some_runs())).items():
        plain = json.loads(re.sub(r'"\$[a-z]+"', '"#123456"', json.dumps(figure)))
        graph_objects.Figure(plain)
        assert figure["layout"]["xaxis"]["fixedrange"], name


def test_every_colour_token_has_a_value_in_both_themes() -> None:
    style = (Path(plot.__file__).parent / "page.css").read_text(encoding="utf-8")
    light, dark = style.split("@media (prefers-color-scheme: dark)")[0:2]
    tokens = set(re.findall(r'"\$([a-z]+)"', json.dumps(island(make_page(some_runs())))))
    assert tokens
    for token in tokens:
        assert f"--{token}:" in light and f"--{token}:" in dark.split("}")[0]


def contrast(a: str, b: str) -> float:
    """Of two colours #rrggbb, as WCAG 2 defines it."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_text_has_the_contrast_that_readers_need_in_both_themes() -> None:
    style = (Path(plot.__file__).parent / "page.css").read_text(encoding="utf-8")
    for block in re.findall(r":root \{([^}]*)\}", style):
        colour = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block))
        for ink in ("ink", "mute", "accent", "warm"):
            for ground in ("paper", "card"):
                assert contrast(colour[ink], colour[ground]) >= 4.5, (ink, ground)
        assert contrast(colour["onbar"], colour["bar"]) >= 4.5
        assert contrast(colour["onaccent"], colour["accent"]) >= 4.5
        assert contrast(colour["warm"], colour["warmwash"]) >= 4.5


# Figures


def test_bars_are_drawn_against_floor_and_light_speed_and_a_long_one_is_cut_and_says_so() -> None:
    rows = [leaderboard.summarise(run) for run in some_runs()]
    figure = plot.bars(leaderboard.boards(rows)[0], 1)
    (bar,) = figure["data"]
    times = [s.shapes[1].median_ns for s in leaderboard.boards(rows)[0].standings]
    assert bar["x"][:2] == times[:2]
    assert bar["x"][2] == pytest.approx(plot.CUT * times[0])
    assert [("\u2192" in said) for said in bar["text"]] == [False, False, True, True]
    beside = [note["text"] for note in figure["layout"]["annotations"] if note["xref"] == "paper"]
    assert beside[2].startswith("<b>299.9") and "60.0%" in beside[0]
    notes = " ".join(note["text"] for note in figure["layout"]["annotations"])
    assert "floor 24.0" in notes and "speed of light 17.3" in notes
    assert bar["error_x"]["array"][0] > 0 and bar["error_x"]["array"][2] == 0


def test_whoever_leads_loses_the_lead_by_a_slower_later_run() -> None:
    runs = [
        make_run("a", id="1", created=1, times_us=(10, 10, 10)),
        make_run("b", id="2", created=2, times_us=(12, 12, 12)),
        make_run("a", id="3", created=3, times_us=(20, 20, 20)),
        make_run("c", id="4", created=4, times_us=(50, 50, 50)),
        make_run("b", id="5", created=5, times_us=(11, 11, 11)),
    ]
    found = leaders([leaderboard.summarise(run) for run in runs])
    assert [(m.run, round(m.score_ns)) for m in found] == [
        ("1", 10_000),
        ("2", 12_000),
        ("5", 11_000),
    ]
    assert progression([], NOW_NS) is None


def test_a_long_history_is_thinned_and_keeps_its_ends() -> None:
    rows = [
        leaderboard.summarise(make_run("a", id=f"{i:05}", created=i, times_us=(9e3 - i,) * 3))
        for i in range(3000)
    ]
    figure = progression(rows, NOW_NS)
    assert figure is not None
    rings, line, _ = figure["data"]
    assert len(rings["x"]) <= 600 and len(line["x"]) <= 401
    assert line["y"][0] == pytest.approx(9e6) and line["y"][-1] == pytest.approx(9e6 - 2999e3)


def test_a_histogram_has_the_median_inside_its_interval_and_ignores_what_is_no_time() -> None:
    timing = sampled_timing(20_000)
    times = [v / b.calls for b in timing.blocks for v in b.window_ns]
    made = histogram.histogram(timing, [*times, math.nan, 0.0, -1.0, math.inf])
    assert made is not None and made.low <= made.middle <= made.low + made.width <= 100.01
    assert made.path.count("M") > 3 and "nan" not in made.path
    assert histogram.histogram(timing, [1.0, 2.0]) is None
    assert histogram.histogram(timing, [5.0, 5.0, 5.0]) is not None


@pytest.mark.parametrize(("low", "high"), [(9.9, 10.4), (20_000, 21_000), (1, 1e9), (300, 7000)])
def test_axes_are_marked_at_a_few_round_numbers_inside(low: float, high: float) -> None:
    for marks in (axes.ticks(low, high), axes.linear_ticks(high, low)):
        assert 2 <= len(marks) <= 9
        assert all(low <= v <= high * 1.0001 for v in marks) and marks == sorted(set(marks))


def test_a_label_cannot_hold_a_tag_of_plotlys_or_be_endless() -> None:
    assert axes.label("<b>x</b>&") == "&lt;b&gt;x&lt;/b&gt;&amp;"
    assert len(axes.label("x" * 300)) == 60


# The command


@pytest.fixture
def url(tmp_path: Path) -> str:
    where = f"sqlite:///{tmp_path / 'harness.db'}"
    with open_store(where, create=True) as store:
        for run in some_runs():
            store.add(run)
    return where


@pytest.fixture(autouse=True)
def _outside_of_any_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_command_writes_the_page_whole_and_says_so(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "out" / "board.html"
    file.parent.mkdir()
    assert run_cli(["leaderboard", "--db", url, "--html", str(file)]) == 0
    assert capsys.readouterr().out.startswith(f"wrote {file}")
    document = file.read_text(encoding="utf-8")
    assert document.startswith("<!doctype html>") and document.rstrip().endswith("</html>")
    assert [p.name for p in file.parent.iterdir()] == ["board.html"]


def test_a_damaged_run_does_not_keep_the_page_from_being_written(url: str, tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as link, link:
        link.execute("UPDATE harness_details SET data = x'00'")
    file = tmp_path / "board.html"
    assert run_cli(["leaderboard", "--db", url, "--html", str(file)]) == 0
    assert "damaged or missing" in file.read_text(encoding="utf-8")


def test_a_file_that_cannot_be_written_is_a_usage_error_and_leaves_nothing(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["leaderboard", "--db", url, "--html", str(tmp_path / "no" / "x.html")]) == 2
    assert "x.html: cannot be written" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()


def test_the_page_replaces_an_earlier_page_and_nothing_else(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--html submissions/mine.py` lost a submission."""
    mine, board = tmp_path / "mine.py", tmp_path / "board.html"
    mine.write_text("def custom_kernel(data): ...\n")
    for options in ((), ("--confirm", "2"), ("--json",)):
        assert run_cli(["leaderboard", "--db", url, "--html", str(mine), *options]) == 2
        said = capsys.readouterr()
        assert said.err.startswith(f"harness: --html {mine}: is there already and would be over")
        assert "name a new file, or an earlier page" in said.err and said.out == ""
    assert mine.read_text() == "def custom_kernel(data): ...\n"
    of_0_2 = '<!doctype html>\n<meta name="referrer" content="no-referrer">\n'
    for earlier in ("", of_0_2 + "<title>double leaderboard</title>"):
        board.write_text(earlier)
        assert run_cli(["leaderboard", "--db", url, "--html", str(board)]) == 0
    assert run_cli(["leaderboard", "--db", url, "--html", str(board)]) == 0
    board.write_text("<!doctype html>\n<title>my leaderboard</title>")
    assert run_cli(["leaderboard", "--db", url, "--html", str(board)]) == 2


def test_source_without_a_page_is_a_usage_error(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["leaderboard", "--db", url, "--with-source"]) == 2
    assert "--html" in capsys.readouterr().err


@pytest.mark.parametrize("missing", ["plotly", "jinja2"])
def test_without_the_extra_the_error_says_what_to_install(
    missing: str,
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, "plotly.offline", raising=False)
    assert run_cli(["leaderboard", "--db", url, "--html", str(tmp_path / "x.html")]) == 2
    install = "pip install -e '.[page]'"
    said = f"harness: --html needs {missing}; in the harness's checkout: {install}\n"
    assert capsys.readouterr().err == said
    assert not (tmp_path / "x.html").exists()
