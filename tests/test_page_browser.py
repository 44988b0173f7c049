"""The page in a real browser: errors, width, sorting, links, plots, and that no name runs.

Needs Chromium and playwright's Python package; HARNESS_TEST_SHOTS keeps screenshots.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import leaderboard
from harness.model import Doubt
from harness.render.page import page
from tests.sampled import sampled_run
from tests.test_page import EVIL, NOW_NS, evil_runs, make_page, some_runs

pytestmark = pytest.mark.browser

FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
]
ALL = [(width, scheme) for width in (390, 1280) for scheme in ("light", "dark")]
TWO = [ALL[0], ALL[3]]
#: Of the first board: four friendly ones, the hostile ones, 25 close together.
ENTRIES = 4 + len(EVIL) + 25


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api")
    path = os.environ.get("HARNESS_TEST_CHROMIUM") or shutil.which("chromium")
    if path is None:
        pytest.fail("no chromium: apt-get install chromium, or set HARNESS_TEST_CHROMIUM")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Friendly and hostile entries, ties, doubts, a second board, source, unranked runs."""
    runs = [*some_runs(), *evil_runs()]
    runs += [
        sampled_run(f"kernel_{i}", author=f"author {i}", id=f"k{i}", created=100 + i, seed=50 + i,
                    times_us=(22.0 + i / 30, 41.0 + i / 30, 11.0), doubts=list(Doubt)[: i % 3])
        for i in range(25)
    ]  # fmt: skip
    path = tmp_path_factory.mktemp("page") / "board.html"
    document = make_page(runs, with_source=True, everything=True)
    path.write_text(document, encoding="utf-8")
    return path


@pytest.fixture
def opened(request: pytest.FixtureRequest, browser: Any, file: Path) -> Iterator[Any]:
    """The page without a network; fails afterwards for any error or warning of the console."""
    width, scheme = request.param
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme=scheme,
        offline=True,
        reduced_motion="reduce",
    )
    tab, said = context.new_page(), []
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))

    def refuse(request: Any) -> None:
        if not request.url.startswith(("file:", "data:", "blob:")):
            said.append(request.url)

    tab.on("request", refuse)
    tab.goto(file.as_uri())
    yield tab
    if shots := os.environ.get("HARNESS_TEST_SHOTS"):
        tab.evaluate("for (const d of document.querySelectorAll('details')) d.open = false")
        tab.evaluate("scrollTo(0, 0)")
        shot = Path(shots) / f"board-{width}-{scheme}.png"
        tab.screenshot(path=shot, full_page=True, timeout=120_000)
    context.close()
    assert said == []


def scroll_through(tab: Any) -> None:
    for _ in range(200):
        tab.mouse.wheel(0, 1200)
        tab.wait_for_timeout(20)
        if tab.evaluate("innerHeight + scrollY >= document.documentElement.scrollHeight - 2"):
            break
    tab.wait_for_timeout(300)


@pytest.mark.parametrize("opened", ALL, indirect=True)
def test_all_plots_are_drawn_nothing_is_wider_than_the_screen_and_no_name_ran(opened: Any) -> None:
    opened.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")
    scroll_through(opened)
    wanted = opened.evaluate("document.querySelectorAll('[data-figure]').length")
    drawn = opened.evaluate("document.querySelectorAll('[data-figure] svg.main-svg').length")
    assert wanted >= 8 and drawn >= wanted
    width = opened.evaluate("document.documentElement.scrollWidth")
    assert width == opened.viewport_size["width"]
    wide = """[...document.querySelectorAll("main *")]
      .filter(e => !e.closest(".source, .js-plotly-plot"))
      .filter(e => e.getBoundingClientRect().right > innerWidth + 1).map(e => e.className)"""
    assert opened.evaluate(wide) == []
    assert "owned" not in opened.title()
    assert opened.evaluate("document.querySelectorAll('.js-plotly-plot a').length") == 0
    assert opened.evaluate("document.querySelectorAll('main img').length") == 0


@pytest.mark.parametrize("opened", TWO, indirect=True)
def test_every_sort_button_sorts_both_ways_and_keeps_every_row(opened: Any) -> None:
    table = opened.locator("table.standings").first
    rows = "e => [...e.tBodies[0].rows].map(r => r.dataset)"
    before = table.evaluate(rows)
    assert len(before) == ENTRIES
    for button in table.locator("[data-sort]").all():
        key = button.get_attribute("data-sort")
        orders = []
        for _ in range(2):
            button.click()
            state = button.locator("xpath=..").get_attribute("aria-sort")
            values = [row[key] for row in table.evaluate(rows)]
            assert len(values) == len(before)
            orders.append(state)
            if key != "name":
                assert [float(v) for v in values] == sorted(
                    map(float, values), reverse=state == "descending"
                )
        assert sorted(orders) == ["ascending", "descending"]
        assert table.locator("th[aria-sort$=ending]").count() == 1
    table.locator("[data-sort=name]").click()
    names = [row["name"] for row in table.evaluate(rows) if row["name"].startswith("kernel_")]
    assert names == [f"kernel_{i}" for i in range(25)]  # 2 before 10


@pytest.mark.parametrize("opened", TWO, indirect=True)
def test_find_leaves_what_fits_and_says_when_nothing_does(opened: Any) -> None:
    field = opened.locator("input[type=search]").first
    shown = """document.querySelector("table.standings")
      .querySelectorAll("tbody tr:not([hidden])").length"""
    field.fill("kernel_1")
    assert opened.evaluate(shown) == 11
    field.fill("AUTHOR 24")
    assert opened.evaluate(shown) == 1
    field.fill("<script>nothing")
    assert opened.evaluate(shown) == 0 and opened.locator(".none").first.is_visible()
    field.fill("")
    assert opened.evaluate(shown) == ENTRIES


@pytest.mark.parametrize("opened", TWO, indirect=True)
def test_every_link_leads_somewhere_and_one_to_a_submission_opens_it(opened: Any) -> None:
    dead = (
        "[...document.querySelectorAll('a')].filter(a => !document.getElementById(a.hash.slice(1)))"
    )
    assert opened.evaluate(f"{dead}.length") == 0
    first = opened.locator("table.standings").first.locator("tbody tr .c-name a").nth(5)
    first.click()
    target = opened.locator(first.get_attribute("href"))
    assert target.get_attribute("open") is not None
    opened.wait_for_timeout(700)
    assert abs(target.bounding_box()["y"]) < 60
    target.locator("summary").click()
    assert target.get_attribute("open") is None


def test_plots_follow_a_change_of_theme(browser: Any, file: Path) -> None:
    context = browser.new_context(viewport={"width": 800, "height": 900}, color_scheme="light")
    tab = context.new_page()
    tab.goto(file.as_uri())
    scroll_through(tab)
    ink = "getComputedStyle(document.querySelector('.js-plotly-plot .annotation-text')).fill"
    light = tab.evaluate(ink)
    tab.emulate_media(color_scheme="dark")
    tab.wait_for_timeout(800)
    assert tab.evaluate(ink) != light
    context.close()


def test_without_scripts_every_number_is_still_there(browser: Any, file: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto(file.as_uri())
    assert tab.locator("table.standings tbody tr").count() == ENTRIES + 1
    assert tab.locator("noscript").first.inner_text()
    context.close()


def test_two_hundred_entries_open_in_a_few_seconds(browser: Any, tmp_path: Path) -> None:
    runs = [
        sampled_run(f"kernel_{i}", author=f"author {i % 60}", id=f"k{i}", created=i, seed=i,
                    times_us=(22.0 + i, 41.0 + i, 11.0 + i))
        for i in range(200)
    ]  # fmt: skip
    rows = [leaderboard.summarise(run) for run in runs]
    path = tmp_path / "big.html"
    made = leaderboard.boards(rows)
    path.write_text(page(made, {r.id: r for r in runs}, rows, now_ns=NOW_NS), encoding="utf-8")
    assert path.stat().st_size < 15_000_000
    context = browser.new_context(viewport={"width": 390, "height": 844}, offline=True)
    tab = context.new_page()
    tab.goto(path.as_uri(), timeout=60_000)
    assert tab.locator("table.standings tbody tr").count() == 200
    assert tab.evaluate("document.documentElement.scrollWidth") == 390
    context.close()
