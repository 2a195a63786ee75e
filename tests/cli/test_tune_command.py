"""`unisono tune`, as a user runs it."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

import unisono
from support.cli.train_command import started
from support.report.pages import ABOUT, titles_of
from unisono.cli.main import app
from unisono.errors import Interrupted, UnisonoError, UserError
from unisono.measure.tune import search
from unisono.recipe.reading import load
from unisono.report.html.document import sections_of


def test_a_recipe_is_found_and_written(tmp_path):
    given = ["--ranks", "1", "--threads", "1", "--batch-sizes", "64", "--seconds", "100", "--out", "o"]
    ended = started("tune", *given, "--target-accuracy", "0.5", "--patience", "1", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    for word in ("settings that were tried", "to accuracy", "Nothing was compared: ", "Written: o/tuned.toml"):
        assert word in ended.stdout
    found = load(str(tmp_path / "o" / "tuned.toml"), {})
    expected = {"ranks": 1, "threads": 1, "batch_size": 64, "target_accuracy": 0.5}
    assert expected.items() <= found.options().items()
    assert (tmp_path / "o" / "tune.csv").exists()
    assert titles_of(tmp_path / "o") == ["Tuning", *ABOUT]


class Begun(Exception):
    """Nothing was refused."""


@pytest.mark.parametrize("counters", [[], ["package-0"]])
@pytest.mark.parametrize("watts", ["0", "8"])
@pytest.mark.parametrize("objective", ["energy", "throughput"])
def test_energy_is_the_aim_only_where_it_can_be_told(monkeypatch, objective, watts, counters):
    def begin(*given):
        raise Begun("it begins")

    monkeypatch.setattr("unisono.energy.meter.find_counters", lambda: SimpleNamespace(found=counters))
    monkeypatch.setattr("unisono.measure.tune.candidates.candidates_of", begin)
    refused = objective == "energy" and watts == "0" and not counters
    with pytest.raises(UserError if refused else Begun, match="no counters of energy" if refused else "it begins"):
        app(["tune", "--objective", objective, "--watts-per-core", watts], exit_on_error=False)


def test_an_interruption_shows_what_was_tried_and_the_same_command_goes_on(tmp_path, monkeypatch, capsys):
    """Trials are made up; in the second one somebody presses Ctrl-C, once."""
    struck = []

    def run_trial(cell, seconds, limit_bytes):
        if cell.recipe.ranks.count == 2 and not struck:
            struck.append(cell)
            raise KeyboardInterrupt
        found = {"shards": 8, "global_batch": 64, "memory_bytes": 1 << 20, "energy_source": "none"}
        found |= {"joules_per_sample": None, "samples_per_s": 100.0 * cell.recipe.ranks.count}
        return {"status": "finished", "reason": "", "exit_code": 0, **found}

    monkeypatch.setattr(search, "run_trial", run_trial)
    monkeypatch.chdir(tmp_path)
    command = ["tune", "--ranks", "1,2", "--threads", "1", "--out", "o"]
    with pytest.raises(Interrupted, match="what was finished is kept in o\nHINT: the same command goes on") as caught:
        app(command, exit_on_error=False)
    assert caught.value.exit_code == 75
    told = capsys.readouterr()
    assert "settings that were tried" in told.out
    assert [row["ranks"] for row in json.loads(Path("o/tune.json").read_text())] == ["1"]
    app(command, exit_on_error=False, result_action="return_value")
    assert "* 2 ranks x 1 thread," in capsys.readouterr().out
    first, second = json.loads(Path("o/tune.json").read_text())
    assert (first["mark"], second["mark"], second["objective"], second["complete"]) == ("", "*", "throughput", True)
    lines = Path("o/cells.jsonl").read_text().splitlines()
    assert all("others_cores" in json.loads(line) for line in lines)
    assert sum(json.loads(line)["labels"]["ranks"] == "1" and json.loads(line)["seconds"] == 1 for line in lines) == 1


def test_what_was_found_is_written_only_if_it_was_compared(tmp_path, monkeypatch, capsys):
    """Trials are made up; the first is said to have taken half an hour, the second a day."""

    def tried(cell, seconds, limit_bytes, before):
        found = {"shards": 8, "global_batch": 64, "memory_bytes": 1 << 20, "energy_source": "none", "what": "trial"}
        found |= {"joules_per_sample": None, "samples_per_s": 100.0 * cell.recipe.ranks.count, "others_cores": None}
        found |= {"cell": cell.name, "labels": dict(cell.labels), "digest": cell.digest, "seconds": seconds}
        elapsed_s = 86400.0 if before else 1800.0
        return {"status": "finished", "reason": "", "exit_code": 0, "elapsed_s": elapsed_s, **found}

    def go_on(ranks: str, seconds: str, out: str) -> None:
        words = ["tune", "--ranks", ranks, "--threads", "1", "--seconds", seconds, "--out", out]
        app(words, exit_on_error=False, result_action="return_value")

    monkeypatch.setattr(search, "_tried", tried)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnisonoError, match="before two settings were measured: tuned") as caught:
        go_on("1,2,4", "60", "o")
    assert caught.value.exit_code == 1
    assert "Time ran out (--seconds): 1 of 3 settings was tried." in capsys.readouterr().out
    assert not Path("o/tuned.toml").exists()
    go_on("1,2,4", "7200", "o")
    told = capsys.readouterr().out
    assert "Time ran out (--seconds): 2 of 3 settings were tried. More --seconds go on from here.\n* 2 ranks" in told
    assert load("o/tuned.toml", {}).ranks.count == 2
    (page,) = [section for section in sections_of([unisono.load("o")]) if section.title == "Tuning"]
    assert "2 of 3 settings were tried" in str(page.blocks[0])
    go_on("1", "60", "alone")
    assert Path("alone/tuned.toml").exists(), "there was nothing to compare it with"
