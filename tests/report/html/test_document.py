"""The page of runs of all kinds: whole, damaged, hostile, large. What a browser makes of it is in test_browser.py."""

import json
import re
import shlex
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import unisono
from support.report.made_run import SPIKE, make
from support.report.made_studies import bench_record
from support.report.pages import ABOUT, titles_of
from unisono.recipe import Recipe
from unisono.recipe.reading import load
from unisono.report.html import document as module
from unisono.report.html.blocks import Section
from unisono.report.html.document import content, document, sections_of
from unisono.report.html.sections import SECTIONS
from unisono.report.html.sections.recipe_and_machine import command

EVIL = "<script>document.title='evil'</script><img src=x onerror=\"document.title='evil'\">"


def text_of(*paths: Path) -> str:
    return document([unisono.load(path) for path in paths])


def test_a_run_has_its_sections_and_the_verdict_is_first(tmp_path):
    assert titles_of(make(tmp_path / "run")) == [
        "Verdict", "Loss and accuracy", "Where the time went", "Who contributed what", "Throughput and synchronising",
        "What happened", *ABOUT,
    ]  # fmt: skip


def test_the_verdict_says_what_the_terminal_said(tmp_path):
    page = text_of(make(tmp_path / "run"))
    for told in ("97.21 %", "10.0 s", "50 MiB", "Limited by computing, on all cores", "taken over 2 times"):
        assert told in page
    assert page.index("Limited by computing") < page.index("<figure")


def test_the_page_asks_for_nothing(tmp_path):
    page = text_of(make(tmp_path / "run"))
    assert "default-src 'none'" in page
    assert re.findall(r"(?:src|href)=[\"']?([^\"'> ]+)", page) == [
        "data:,", *re.findall(r'href="(#[a-z-]+)"', page)
    ]  # fmt: skip
    assert set(re.findall(r"https?://[^\"' ]+", page)) == {"http://www.w3.org/2000/svg"}  # the name of SVG, not a place


def test_a_run_cannot_lead_to_files_outside_of_it(tmp_path):
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "private").write_text("TOP SECRET key\n")
    (tmp_path / "credentials.toml").write_text('token = "TOP SECRET token"\n')
    run = make(tmp_path / "run")
    (run / "recipe.toml").unlink()
    (run / "recipe.toml").symlink_to(tmp_path / "credentials.toml")
    (run / "weights.safetensors").symlink_to(tmp_path / "keys" / "private")
    (run / "log").symlink_to(tmp_path / "keys")
    page = text_of(run)
    assert "TOP SECRET" not in page
    assert page.count("is a link, which is not followed") == 2
    (run / "log").unlink()
    (run / "log").mkdir()
    (run / "log" / "rank-0.log").symlink_to(tmp_path / "keys" / "private")
    (run / "log" / "rank-1.log").write_text("its own words\n")
    page = text_of(run)
    assert "TOP SECRET" not in page
    assert "its own words" in page


def test_a_resumed_run_says_what_its_times_are_of(tmp_path):
    page = text_of(make(tmp_path / "run", epochs=8, resumed_from="snapshots/5", epochs_timed=3))
    assert "Time, throughput and energy here are those since it was resumed (3 of 8 epochs)" in page
    assert "since it was resumed" not in text_of(make(tmp_path / "whole", epochs=8, epochs_timed=8))


def test_a_failed_run_says_who_failed_and_why_whatever_lies_between(tmp_path):
    frames = '  File "mine.py", line 7, in forward\n' * 400
    error = f"rank 2: Traceback (most recent call last):\n{frames}ZeroDivisionError: division by zero\n"
    page = text_of(make(tmp_path / "run", status="failed", error=error))
    verdict = page[page.index('id="verdict"') : page.index("<figure")]
    assert "The run is failed: 8 epochs were recorded.\nrank 2: Traceback (most recent call last):\n  File" in verdict
    assert "\n...\n" in verdict
    assert "\nZeroDivisionError: division by zero</p>" in verdict
    short = text_of(make(tmp_path / "short", status="failed", error="rank 1: was killed (SIGKILL)"))
    assert "8 epochs were recorded; rank 1: was killed (SIGKILL)</p>" in short


def test_several_runs_are_compared(tmp_path):
    one = make(tmp_path / "one", ranks=2)
    other = make(tmp_path / "other", ranks=4)
    page = text_of(one, other)
    assert "All 2 runs ended with the same weights, bit for bit." in page
    assert '<td>ranks</td><td class="number">2</td><td class="number">4</td>' in page
    names = {series["name"] for spec in charts(page) if spec["kind"] == "lines" for series in spec["series"]}
    assert {"one: test", "other: test", "one", "other"} <= names
    changed = make(tmp_path / "third", weights_sha256="cd" * 32)
    assert "one, other ended with the same weights, bit for bit." in text_of(one, other, changed)


def test_of_several_runs_those_that_others_slowed_down_are_named(tmp_path):
    quiet, busy = make(tmp_path / "quiet"), make(tmp_path / "busy", others_cores=3.2)
    page = text_of(quiet, busy)
    assert "busy: Other programs kept 3.2 of the 4 cores busy" in page
    assert "quiet: Other programs" not in page
    assert "Other programs kept 3.2" in text_of(busy)


def charts(page: str) -> list[dict]:
    return [json.loads(text) for text in re.findall(r'<script type="application/json">(.*?)</script>', page)]


def test_events_are_marked_on_both_axes(tmp_path):
    loss = charts(text_of(make(tmp_path / "run", epochs=8)))[0]
    # 8 epochs of 1.2 ms and one step each: a rank is lost before the third epoch's step, one before the fifth's.
    assert [(mark["kind"], mark["at"]) for mark in loss["marks"]] == [
        ("rank lost", [2, 0.0024]), ("rank back", [4, 0.0048]), ("rank stalled", [4, 0.0048]),
    ]  # fmt: skip
    assert [mark["sign"] for mark in loss["marks"]] == ["lost", "back", "stalled"]


def test_a_run_of_thousands_of_steps_on_sixteen_ranks_is_small_and_keeps_its_extremes(long_page):
    page = long_page.read_text()
    assert len(page) < 5e6
    specs = charts(page)
    train = next(series for series in specs[0]["series"] if series["name"] == "train")
    assert max(train["y"]) == SPIKE
    assert train["xs"][0][train["y"].index(SPIKE)] == 1000
    assert len(train["y"]) <= 600
    rows = next(spec for spec in specs if spec["kind"] == "rows")
    assert len(rows["rows"]) == 16
    # Sums over stretches: no second is lost.
    assert sum(cell[2] for cell in rows["cells"][0]) == pytest.approx(3000 * 5e-5, rel=1e-3)
    assert "3,000 points as" in page


def damage(path: Path, name: str) -> None:
    text = (path / name).read_text()
    (path / name).write_text(text[: len(text) * 2 // 3])


@pytest.mark.parametrize("name", ["metrics.jsonl", "ranks.csv", "summary.json", "recipe.toml", "events.jsonl"])
def test_a_file_that_is_cut_short_is_reported_and_the_rest_is_shown(name, tmp_path):
    path = make(tmp_path / "run")
    whole = set(titles_of(path))
    damage(path, name)
    found = titles_of(path)
    assert "What could not be read" in found
    assert name in text_of(path)
    assert len(whole & set(found)) >= 6


@pytest.mark.parametrize("name", ["metrics.jsonl", "ranks.csv", "summary.json", "recipe.toml"])
def test_a_file_that_is_missing_is_reported_and_the_rest_is_shown(name, tmp_path):
    path = make(tmp_path / "run")
    (path / name).unlink()
    assert f"{name} is missing" in text_of(path)
    assert len(titles_of(path)) >= 5


def test_hostile_text_is_shown_wherever_it_stands(tmp_path):
    path = make(tmp_path / EVIL.replace("/", "|"), error=EVIL, stopped_early=EVIL, model=EVIL, machine={EVIL: EVIL})
    (path / "log").mkdir()
    (path / "log" / "rank-0.log").write_text(EVIL)
    ranks = (path / "ranks.csv").read_text().replace("node0", '"' + EVIL.replace('"', '""') + '"').replace("0.W", "<i>")
    (path / "ranks.csv").write_text(ranks)
    with open(path / "events.jsonl", "a") as file:
        event = {"kind": "death", "rank": EVIL, "cause": EVIL, "ranks": 1, "s": 0.1, "position": 3}
        file.write(json.dumps(event) + "\n" + json.dumps({"kind": EVIL}) + "\n")
    (path / "recipe.toml").write_text(f"model = {json.dumps(EVIL)}\n{json.dumps(EVIL)} = 1\n")
    page = text_of(path)
    assert "<img" not in page
    assert page.count("<script>") == 1
    assert page.count("</script>") == 1 + page.count('<script type="application/json">')
    assert page.count("&lt;img") > 8


def test_records_nobody_thought_of_cost_one_section(tmp_path, monkeypatch):
    path = make(tmp_path / "run")
    monkeypatch.setattr("unisono.report.html.sections.epoch_curves.overlay", lambda *given, **more: 1 / 0)
    page = text_of(path)
    assert "could not be made of these records: ZeroDivisionError" in page
    assert "Where the time went" in page


@pytest.mark.parametrize(
    "metrics",
    [
        '{"epoch": 1}',
        '{"epoch": 1, "train_accuracy": 1e308, "epoch_s": 1e308}',
        '{"epoch": 1, "train_loss": null, "epoch_s": "x", "lr": [1]}',
        '{"epoch": 1, "train_loss": 1e400}',
    ],
)
def test_odd_metrics_cost_no_section(metrics, tmp_path):
    path = make(tmp_path / "run", epochs=1)
    (path / "metrics.jsonl").write_text(metrics + "\n")
    assert "could not be made" not in text_of(path)


def test_contributions_stand_beside_the_samples_of_the_last_step(tmp_path):
    # 64 samples in batches of 48 and shards of 12: the last batch is one whole shard and a third of another.
    path = make(tmp_path / "run", epochs=2, ranks=4, global_batch=48)
    by_epoch, by_parameter = (spec for spec in charts(text_of(path)) if spec["kind"] == "heat")
    assert by_epoch["expected"] == [[75, 75], [25, 25], [0, 0], [0, 0]]
    assert by_parameter["expected"] == [[75] * 4, [25] * 4, [0] * 4, [0] * 4]
    np.testing.assert_allclose(by_epoch["values"], 100 * unisono.load(path).by_rank("contribution:0.W").T, rtol=1e-5)


def test_a_rank_alone_has_no_contributions_to_compare(tmp_path):
    assert "Who contributed what" not in titles_of(make(tmp_path / "run", ranks=1))


def make_asynchronous(path: Path) -> Path:
    """One master, two workers; pushes were 0 to 2 updates late."""
    counts = [[3, 1], [2, 1, 1]]
    facts = {"masters": 1, "workers": 2, "staleness_rule": "safe", "classes": 10, "pushes": 8, "updates": 8}
    facts |= {"drops": 0, "clips": 0, "updates_per_s": 4.0, "staleness_mean": 0.5, "staleness_max": 2}
    facts |= {"staleness_counts": [5, 2, 1], "masters_busy": [0.9], "wait_per_push_s": [0.002], "shards": 0}
    facts |= {"workers_busy": 0.6, "slow_worker": [], "order": "free"}
    make(path, epochs=2, ranks=3, strategy="async", **facts)
    lines = (path / "metrics.jsonl").read_text().splitlines()
    more = [{"staleness_mean": 0.5, "staleness_max": len(row) - 1, "staleness_counts": row} for row in counts]
    rows = [json.dumps(json.loads(line) | found) for line, found in zip(lines, more, strict=True)]
    (path / "metrics.jsonl").write_text("\n".join(rows) + "\n")
    recipe = (path / "recipe.toml").read_text().replace('name = "sync"', 'name = "async"')
    (path / "recipe.toml").write_text(recipe)
    return path


def test_an_asynchronous_run_shows_its_staleness(tmp_path):
    path = make_asynchronous(tmp_path / "run")
    assert "Staleness" in titles_of(path)
    page = text_of(path)
    assert "Limited by the masters, busy 90 % of the time. Try --masters 2 --ranks 4." in page
    assert "Staleness: 0.5 updates on average, 0 or less for half of the pushes, at most 2" in page
    histogram = next(spec for spec in charts(page) if spec["kind"] == "rows" and spec["parts"] == ["pushes"])
    assert (histogram["rows"], histogram["cells"]) == (["0", "1", "2"], [[[0, 5]], [[0, 2]], [[0, 1]]])
    assert "different every time; add --order" in page
    assert "Synchronising, mean over the ranks" not in page  # there are no steps
    by_epoch = next(spec for spec in charts(page) if spec["kind"] == "heat")
    assert by_epoch["expected"] == [[0, 0], [50, 50], [50, 50]]
    (path / "metrics.jsonl").write_text('{"epoch": 1, "staleness_mean": 1, "staleness_counts": ["<b>"]}\n')
    assert "could not be made" not in text_of(path)


@pytest.mark.parametrize(
    ("order", "change", "said"),
    [
        ("free", {}, "to repeat it bit by bit, with unisono"),
        ("free", {"takeovers": 1}, "repeat it bit by bit, which is refused for epochs in which a worker was replaced"),
        ("round-robin", {}, "the same on 3 ranks of the same machine, while no worker dies, with unisono"),
        ("round-robin", {"resumed_from": "x"}, "while no worker dies; here ranks died or the run was resumed"),
    ],
)
def test_when_an_asynchronous_run_can_be_repeated(tmp_path, order, change, said):
    path = make_asynchronous(tmp_path / "run")
    recipe = (path / "recipe.toml").read_text().replace('order = "free"', f'order = "{order}"')
    (path / "recipe.toml").write_text(re.sub("(?m)^count = .*", "count = 3", recipe))
    summary = json.loads((path / "summary.json").read_text())
    (path / "summary.json").write_text(json.dumps(summary | {"takeovers": 0, "resumed_from": None} | change))
    assert said in text_of(path)


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        ({"numpy": "2.3.1"}, "of the same machine, with unisono 0.1.0."),
        ({"torch": "2.13.0", "numpy": "2.3.1"}, "of the same machine, with unisono 0.1.0 and torch 2.13.0."),
        ({"torch": ["2"], "accelerate": "1.15"}, "with unisono 0.1.0 and accelerate 1.15."),
    ],
)
def test_the_same_weights_need_the_same_torch(machine, said, tmp_path):
    page = text_of(make(tmp_path / "run", machine=machine, version="0.1.0", weights_sha256="ab" * 32))
    assert said in page


def test_a_bench_has_a_section_of_its_own(tmp_path):
    first, second, other = (bench_record(1, "shm", power) for power in (0, 1, 0))
    records = [first, second, other | {"algorithm": EVIL}, {"ranks": "two"}]
    (tmp_path / "bench.json").write_text(json.dumps(records))
    assert titles_of(tmp_path) == ["What could not be read", "All-reduce"]
    page = text_of(tmp_path)
    assert "bench.json: 1 of 4 records are not such as unisono bench writes" in page
    assert "Fastest on 2 ranks" in page
    assert charts(page)[0]["series"][0] == {
        "name": "shm ring", "xs": [[1024, 4096]], "y": [1e-05, 3e-05], "colour": 1, "dashed": False,
    }  # fmt: skip
    assert "<img" not in page


def test_content_is_what_stands_in_main(tmp_path):
    runs = [unisono.load(make(tmp_path / "run"))]
    assert f"<main>{content(runs)}</main>" in document(runs)


def test_every_section_says_nothing_of_an_empty_run():
    assert sections_of([unisono.Run(Path("nothing"))]) == []


def test_every_file_of_sections_stands_in_the_table():
    folder = Path(module.__file__).parent / "sections"
    places = [place.partition(":") for place in SECTIONS.values()]
    assert {path.stem for path in folder.glob("*.py")} - {"__init__"} == {name for name, _, _ in places}
    for name, _, function in places:
        assert callable(getattr(import_module(f"unisono.report.html.sections.{name}"), function))


def test_a_section_is_added_by_a_row(tmp_path, monkeypatch):
    monkeypatch.setattr("unisono.report.html.sections.events.mine", lambda runs: Section("Mine", []), raising=False)
    monkeypatch.setitem(SECTIONS, "mine", "events:mine")
    assert titles_of(make(tmp_path / "run"))[-1] == "Mine"


@pytest.mark.parametrize(
    "recipe",
    [
        Recipe(),
        Recipe.from_options(
            model="file name.py:make", ranks=3, shards=8, batch_size="full", lr=1e-05, respawn=False, log_ranks=True
        ),
        Recipe.from_options(batch_size_per_rank=32, batch_size=128, data="synthetic:regression,rows=10", momentum=-0.5),
        Recipe.from_options(
            data_dir="$(rm -rf /)", activation="`x`; y", target_accuracy=0.97, snapshot_every="2epochs", out="mine"
        ),
    ],
)
def test_the_command_gives_the_same_recipe(recipe):
    from unisono.cli.main import app

    words = shlex.split(command(recipe))
    assert words[:2] == ["unisono", "train"]
    _, bound, _ = app.parse_args(words[1:], exit_on_error=False, print_error=False)
    given = vars(bound.arguments["options"]) if bound.arguments else {}
    made = load("", {name: value for name, value in given.items() if value is not None})
    expected = recipe.options() | {"out": ""}
    if recipe.learning.batch_size_per_rank:
        expected["batch_size"] = Recipe().learning.batch_size
    assert made.options() == expected


def test_ranks_of_mpi_are_started_by_mpirun():
    assert command(Recipe.from_options(ranks=4), mpi=True) == "mpirun -n 4 unisono train --ranks 4"


def test_a_recipe_of_another_version_is_named(tmp_path):
    path = make(tmp_path / "run")
    with open(path / "recipe.toml", "a") as file:
        file.write("warp = 9\n")
    assert "This version of unisono cannot run the recipe" in text_of(path)
