"""The page in a real browser: charts drawn, nothing asked for, pointing and tables work, light and dark, a phone."""

import json
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import unisono
from support.report.browsing import CHROMIUM, browser_pages, figure
from support.report.made_run import SPIKE, make
from support.report.made_studies import make_studies
from support.report.study_records import failed, record_of
from unisono.recipe import Recipe
from unisono.report.html.document import document
from unisono.report.studies import compare
from unisono.study.cells import cells_of, over

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium: apt-get install chromium")
EVIL = "<img src=x onerror=\"document.title='evil'\"><script>document.title='evil'</script>"
OVERLAPS = """() => [...document.querySelectorAll("svg")].flatMap((svg) => {
  const boxes = [...svg.querySelectorAll("text")].map((text) => [text.textContent, text.getBoundingClientRect()]);
  return boxes.flatMap(([name, a], at) => boxes.slice(at + 1).filter(([, b]) =>
    a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3
  ).map(([other]) => `${name} / ${other}`));
})"""
"""Texts of a chart that lie on each other."""


@pytest.fixture
def opened() -> Iterator[Callable[..., Any]]:
    """Opens a page; in the end nothing was logged as an error, and nothing was asked for but the file."""
    with browser_pages("file://") as open_page:
        yield lambda path, *arguments, **options: open_page(path.as_uri(), *arguments, **options)


def written(path: Path, *runs: Path) -> Path:
    path.write_text(document([unisono.load(run) for run in runs]))
    return path


@pytest.fixture
def page_path(tmp_path) -> Path:
    return written(tmp_path / "report.html", make(tmp_path / "run", epochs=12))


def test_every_chart_is_drawn(opened, page_path):
    page = opened(page_path)
    assert page.locator("figure").count() == 8
    assert page.locator("figure svg").count() == 8
    loss = figure(page, "Loss")
    assert loss.locator("path.line").count() == 2
    assert loss.locator("path.flag").count() == 3
    assert loss.locator(".legend .entry").all_inner_texts() == [
        "test", "train", "rank lost (1)", "rank back (1)", "rank stalled (1)",
    ]  # fmt: skip
    looks = "(all) => all.map((sign) => [getComputedStyle(sign).fill, sign.getAttribute('d')])"
    colours, shapes = zip(*loss.locator("path.flag").evaluate_all(looks), strict=True)
    assert len(set(colours)) == len(set(shapes)) == 3  # lost, back and stalled are told apart, by either
    looks = "(all) => all.map((sign) => [getComputedStyle(sign).backgroundColor, getComputedStyle(sign).clipPath])"
    legend, shapes = zip(*loss.locator(".legend i.flag").evaluate_all(looks), strict=True)
    assert legend == colours
    assert len(set(shapes)) == 3
    assert figure(page, "What each rank did").locator("rect").count() == 4 * 12 * 4
    assert figure(page, "Contribution to the updates").locator("rect").count() == 4 * 12
    assert page.evaluate(OVERLAPS) == []


def test_ticks_are_whole_where_values_are_and_end_at_the_end_of_the_number_line(opened, tmp_path):
    run = make(tmp_path / "run", epochs=2, ranks=2)
    metrics = run / "metrics.jsonl"
    for number in (1, 2):
        metrics.write_text(metrics.read_text().replace(f'"epoch": {number},', f'"epoch": {2**53 - 4 + number},'))
    page = opened(written(tmp_path / "report.html", run))
    assert figure(page, "Loss").locator("svg").count() == 1
    ticks = "([low, high, step]) => multiples(low, high, step)"
    assert page.evaluate(ticks, [0.1, 1, 0.25]) == [0.25, 0.5, 0.75, 1]
    assert page.evaluate(ticks, [2**53 - 3, 2**53, 0.2])
    assert len(page.evaluate(ticks, [0, 1, 1e-9])) == 50
    assert page.evaluate(ticks, [1, 1, 0]) == []
    counted = "(values) => scale({ label: '', unit: '', log: false, counted: true }, values, [0, 100], 7).ticks"
    for values, expected in (([1, 2], [1, 2]), ([1, 3], [1, 2, 3]), ([1, 16], [5, 10, 15])):
        assert page.evaluate(counted, values) == expected
    assert page.evaluate(counted.replace("counted: true", "counted: false"), [1, 2]) != [1, 2]


def test_pointing_at_a_chart_shows_its_values(opened, page_path):
    page = opened(page_path)
    for title, told in (
        ("Loss", ["epoch 7", "test", "train"]),
        ("What each rank did", ["rank 1, epoch 7", "computing", "waiting"]),
        ("Contribution to the updates", ["rank 1, epoch 7", "%"]),
    ):
        found = figure(page, title)
        box = found.locator("svg").bounding_box()
        found.locator("svg").hover(position={"x": box["width"] * 0.56, "y": 60})
        tip = found.locator(".tip").inner_text()
        for word in told:
            assert word in tip, (title, tip)
        page.mouse.move(0, 0)
        assert not found.locator(".tip").is_visible()


def test_a_chart_s_table_shows_its_numbers_and_its_legend_switches_curves(opened, page_path):
    page = opened(page_path)
    loss = figure(page, "Loss")
    loss.get_by_role("button", name="table").click()
    assert loss.locator("svg").count() == 0
    rows = loss.locator("tr")
    assert rows.count() == 13
    assert rows.nth(0).locator("th").all_inner_texts() == ["epoch", "test", "train"]
    assert rows.nth(4).locator("td").all_inner_texts() == ["4", f"{SPIKE + 0.1:g}", f"{SPIKE:g}"]
    loss.get_by_role("button", name="time").click()
    assert rows.nth(4).locator("td").nth(0).inner_text() == "4.8 ms"
    loss.get_by_role("button", name="table").click()
    for curves in (2, 1, 2):
        assert loss.locator("path.line").count() == curves
        loss.get_by_role("button", name="train").click()


def test_light_and_dark_follow_the_system_and_the_button(opened, page_path):
    paper = "getComputedStyle(document.body).backgroundColor"
    light, dark = opened(page_path).evaluate(paper), opened(page_path, scheme="dark").evaluate(paper)
    assert light != dark
    for scheme, first, then in (("light", light, dark), ("dark", dark, light)):
        page = opened(page_path, scheme=scheme)
        for expected in (first, then, first):
            assert page.evaluate(paper) == expected
            page.locator("#theme").click()


def test_nothing_overlaps_or_sticks_out_on_a_narrow_screen(opened, tmp_path):
    runs = [make(tmp_path / name, epochs=12) for name in ("first-run-with-a-long-name-20261116", "second")]
    pages = written(tmp_path / "one.html", runs[0]), written(tmp_path / "two.html", *runs)
    for path, width in product(pages, (375, 768)):
        page = opened(path, width)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert page.evaluate(OVERLAPS) == []
        page.evaluate(
            "document.querySelectorAll('figure').forEach((f) => f.querySelector('.buttons').lastChild.click())"
        )
        assert page.locator("figure svg").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth") == width


def test_why_a_combination_failed_is_read_without_scrolling(opened, tmp_path):
    cells = cells_of(Recipe(), [over("strategy=sync,ddp")])
    why = "this machine has no torch, which is needed, " * 8
    rows = compare.rows_of(cells, [record_of(cells[0], 0, 100.0), failed(cells[1], why)])
    (tmp_path / "compare.json").write_text(json.dumps(rows))
    path = written(tmp_path / "report.html", tmp_path)
    for width in (375, 1200):
        page = opened(path, width)
        box = page.locator("p.warning", has_text="strategy=ddp: this machine has no torch").bounding_box()
        assert 0 <= box["x"] < box["x"] + box["width"] <= width
        assert page.get_by_text("ddp (failed)").bounding_box()["x"] < width


def test_hostile_names_and_logs_are_text(opened, tmp_path):
    run = make(tmp_path / EVIL.replace("/", "|"), error=EVIL, model=EVIL, machine={EVIL: EVIL})
    (run / "log").mkdir()
    (run / "log" / "rank-0.log").write_text(EVIL)
    ranks = (
        (run / "ranks.csv").read_text().replace("node0", '"' + EVIL.replace('"', '""') + '"').replace("0.W", "<img>")
    )
    (run / "ranks.csv").write_text(ranks)
    page = opened(written(tmp_path / "report.html", run))
    assert page.title() != "evil"
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 1 + page.locator("figure").count()
    assert EVIL in page.locator("#logs").text_content()
    figure(page, "Contribution to each parameter").get_by_role("button", name="table").click()
    assert "<img>" in page.locator("figure td").first.inner_text()
    assert page.locator("img").count() == 0


def test_a_traceback_in_the_verdict_keeps_its_indentation(opened, tmp_path):
    error = (
        'rank 0: Traceback (most recent call last):\n  File "mine.py", line 7, in forward\n    1 / 0\nValueError: no'
    )
    page = opened(written(tmp_path / "report.html", make(tmp_path / "run", status="failed", error=error)))
    assert page.locator("#verdict .warning").inner_text().endswith(error)


def test_a_run_of_thousands_of_steps_on_sixteen_ranks_is_drawn_whole(opened, long_page):
    page = opened(long_page)
    assert page.locator("figure svg").count() == 8
    loss = figure(page, "Loss")
    loss.get_by_role("button", name="table").click()
    assert loss.get_by_role("cell", name=f"{SPIKE:g}", exact=True).count() == 1


def test_studies_are_drawn_told_and_tabled(opened, tmp_path):
    path = written(tmp_path / "report.html", *make_studies(tmp_path / "studies"))
    for width in (1200, 375):
        page = opened(path, width)
        assert page.locator("section h2").all_inner_texts() == [
            "All-reduce", "Scaling", "Comparison", "Profile", "Prediction", "Tuning",
        ]  # fmt: skip
        assert page.locator("figure svg").count() == page.locator("figure").count() == 16
        assert page.evaluate(OVERLAPS) == []
        assert page.evaluate("document.documentElement.scrollWidth") == width
    page = opened(path)
    flame = figure(page, "Where a step's time goes")
    assert flame.locator("rect.frame").count() == 12
    flame.scroll_into_view_if_needed()
    bar = flame.locator("text.inside", has_text="forward").bounding_box()
    page.mouse.move(bar["x"] + 2, bar["y"] + 2)
    tip = flame.locator(".tip").inner_text()
    assert "200 ms" in tip
    assert "20 %" in tip
    page.mouse.click(bar["x"] + 2, bar["y"] + 2)
    assert flame.locator("text.inside").all_text_contents()[:3] == ["step", "forward", "0 Linear"]
    assert flame.locator("text.inside", has_text="backward").count() == 0
    flame.get_by_role("button", name="table").click()
    assert [text.strip() for text in flame.locator("tr").nth(3).locator("td").all_inner_texts()] == [
        "forward", "200 ms", "20 %",
    ]  # fmt: skip
    told = (
        ("A step of each rank", ["rank 1, a mean step", "backward", "300 ms, 30 %"], 0.5, 50),
        ("Efficiency of sync", ["nodes 8", "10gbit,50us", "%"], 0.54, 60),
        ("Throughput of each setting", ["2 x 1", "200"], 0.5, 30),
        ("Training time, and where it went", ["ddp", "computing", "14 s, 70 %"], 0.5, 50),
    )
    for title, words, across, down in told:
        chart = figure(page, title)
        chart.scroll_into_view_if_needed()
        box = chart.locator("svg").bounding_box()
        chart.locator("svg").hover(position={"x": box["width"] * across, "y": down})
        tip = chart.locator(".tip").inner_text()
        assert all(word in tip for word in words), (title, tip)
