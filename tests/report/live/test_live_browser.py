"""The live page in a real browser: it grows with the run, keeps what the reader chose, and says when it is over."""

from collections.abc import Iterator

import pytest

from support.report.browsing import CHROMIUM, browser_pages, figure
from support.report.made_run import PARAMETERS, make, record_of, summary_of
from support.report.serving import served
from unisono.recipe import Recipe
from unisono.report.live import follower
from unisono.report.live.page_server import LiveServer
from unisono.storage.rundir import RunDirectory

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium: apt-get install chromium")
EPOCHS, RANKS = 6, 2


@pytest.fixture
def growing(tmp_path) -> Iterator[RunDirectory]:
    """A run with one epoch, that goes on."""
    with RunDirectory.make(
        str(tmp_path / "run"), Recipe.from_options(epochs=EPOCHS, ranks=RANKS, shards=RANKS)
    ) as directory:
        grow(directory, 1)
        yield directory


def grow(directory: RunDirectory, *epochs: int) -> None:
    for epoch in epochs:
        directory.add(record_of(epoch, EPOCHS, RANKS), PARAMETERS)


@pytest.fixture
def server(growing, monkeypatch) -> Iterator[LiveServer]:
    monkeypatch.setattr(follower, "PAUSE_S", 0.0)
    monkeypatch.setattr(follower, "SHARE", 0)
    with served([growing.path]) as found:
        yield found


def test_the_curve_grows_and_the_reader_s_choices_stay(server, growing):
    with browser_pages(f"http://127.0.0.1:{server.port}/") as open_page:
        page = open_page(server.address)
        loss = figure(page, "Loss")
        assert loss.locator("circle.dot").count() == 2  # test and train: a point an epoch each
        loss.get_by_role("button", name="time").click()
        figure(page, "What each rank did").get_by_role("button", name="table").click()
        page.locator("summary").first.click()
        assert page.locator("details[open]").count() == 1
        page.locator("#theme").click()
        grow(growing, 2, 3)
        loss.locator("circle.dot").nth(5).wait_for(state="attached", timeout=30_000)
        assert loss.get_by_role("button", name="time").get_attribute("aria-pressed") == "true"
        assert loss.locator("svg .title").all_text_contents() == ["loss", "time since the first epoch began"]
        assert page.locator("details[open]").count() == 1
        ranks = figure(page, "What each rank did")
        assert ranks.locator("svg").count() == 0
        ranks.locator("tr").nth(3 * RANKS).wait_for(state="attached", timeout=30_000)  # its file is written a bit later
        assert ranks.locator("tr").count() == 1 + 3 * RANKS
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        assert "last written" in page.locator("#live").inner_text()
        growing.finish(summary_of(3, RANKS))
        page.get_by_text("Live: the run has ended").wait_for(timeout=30_000)
        assert page.locator("#verdict .tiles").get_by_text("97.21 %").is_visible()
        titles = page.locator("main h2").all_inner_texts()
        assert page.locator("nav a").all_inner_texts() == titles
        assert titles[0] == "Verdict"


def test_what_somebody_points_at_is_not_taken_away(server, growing):
    with browser_pages(f"http://127.0.0.1:{server.port}/") as open_page:
        page = open_page(server.address)
        loss = figure(page, "Loss")
        box = loss.locator("svg").bounding_box()
        loss.locator("svg").hover(position={"x": box["width"] * 0.53, "y": 60})
        assert loss.locator(".tip").is_visible()
        grow(growing, 2)
        assert loss.locator("circle.dot").count() == 4  # two of them under the pointer
        throughput = page.locator("#throughput-and-synchronising circle.dot")
        throughput.nth(1).wait_for(state="attached", timeout=30_000)  # other sections have the news
        assert loss.locator(".tip").is_visible()
        assert loss.locator("circle.dot").count() == 4
        page.mouse.move(0, 0)
        loss.locator("circle.dot").nth(3).wait_for(state="attached", timeout=30_000)


def test_a_server_that_is_gone_is_said(growing):
    with browser_pages("http://127.0.0.1:") as open_page:
        with served([growing.path]) as server:
            page = open_page(server.address)
            page.evaluate("() => { fetch = () => Promise.reject(new Error('gone')); }")  # else chromium logs an error
        page.get_by_text("unisono watch has ended: this is what was there at").wait_for(timeout=30_000)
        assert figure(page, "Loss").locator("svg").count() == 1


def test_the_end_of_a_run_is_still_told_when_its_server_has_gone(growing):
    with browser_pages("http://127.0.0.1:") as open_page:
        with served([growing.path]) as server:
            page = open_page(server.address)
            growing.finish(summary_of(1, RANKS))
            page.get_by_text("Live: the run has ended").wait_for(timeout=30_000)
            page.evaluate("() => { asked = 0; fetch = async () => { asked += 1; throw new Error('gone'); }; }")
        page.wait_for_function("() => asked >= 2", timeout=30_000)
        assert page.locator("#live").inner_text() == "Live: the run has ended"


def test_hostile_news_are_text(server, growing):
    evil = "<img src=x onerror=\"document.title='evil'\"><script>document.title='evil'</script>"
    with browser_pages(f"http://127.0.0.1:{server.port}/") as open_page:
        page = open_page(server.address)
        growing.finish(summary_of(1, RANKS) | {"status": evil, "error": evil, "model": evil})
        page.get_by_text("Live: the run has ended").wait_for(timeout=30_000)
        page.locator("#verdict", has_text="<img src=x").wait_for(timeout=30_000)
        assert page.locator("img").count() == 0
        assert page.title() != "evil"


def test_several_runs_lie_over_each_other(tmp_path):
    runs = [make(tmp_path / name) for name in ("one", "two")]
    with served(runs) as server, browser_pages(f"http://127.0.0.1:{server.port}/") as open_page:
        page = open_page(server.address)
        assert "All 2 runs ended with the same weights" in page.locator("#verdict").inner_text()
