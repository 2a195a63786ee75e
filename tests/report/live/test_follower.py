import os
import shutil

import pytest

from support.report.made_run import PARAMETERS, make, record_of
from unisono.recipe import Recipe
from unisono.report.live import follower as following
from unisono.report.live.follower import Follower, current, ended
from unisono.report.run.load import STUDIES
from unisono.storage.rundir import RunDirectory


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(following, "PAUSE_S", 0.0)
    monkeypatch.setattr(following, "SHARE", 0)


@pytest.fixture
def growing(tmp_path):
    """A run that goes on, without an epoch."""
    with RunDirectory.make(str(tmp_path / "run"), Recipe.from_options(epochs=4, ranks=2, shards=2)) as directory:
        yield directory


def test_what_a_run_writes_is_seen(growing):
    follower = Follower([growing.path])
    first = follower.look()
    assert not first.ended
    assert "The run is going on, with 0 of 4 epochs done." in first.html
    assert "arena." in first.html
    assert "over auto" not in first.html  # not known before the summary
    assert follower.look().version == first.version
    growing.add(record_of(1, 4, 2), PARAMETERS)
    second = follower.look()
    assert second.version != first.version
    assert "The run is going on, with 1 of 4 epochs done." in second.html
    growing.finish({"status": "finished"})
    assert follower.look().ended


def test_a_run_that_has_not_written_for_long_may_have_been_cut_off(growing, monkeypatch):
    follower = Follower([growing.path])
    fresh = follower.look()
    assert '<p class="state">The run is going on, ' in fresh.html
    assert "going on, with 0 of 4" in follower.page()
    monkeypatch.setattr(following, "FRESH_S", 0.0)
    stale = follower.look()
    assert '<p class="warning">The run is going on, or was cut off: 0 epochs were recorded' in stale.html
    assert "or was cut off: 0 epochs" in follower.page()
    assert stale.version != fresh.version


def test_files_that_have_not_changed_are_not_read_again(growing, monkeypatch):
    follower = Follower([growing.path])
    view = follower.look()
    monkeypatch.setattr(following, "_content", lambda paths: pytest.fail("read again"))
    assert follower.look() == following.PageView(view.version, view.html, view.ended, pytest.approx(view.age_s, abs=60))
    (growing.path / "report.html").write_text("a report that somebody made meanwhile")
    (growing.path / "live_page.txt").write_text("where it is served")
    follower.look()


def test_after_a_reading_there_is_a_pause_but_not_for_how_a_run_ended(growing, monkeypatch):
    monkeypatch.setattr(following, "PAUSE_S", 3600.0)
    follower = Follower([growing.path])
    first = follower.look()
    assert first.fresh
    growing.add(record_of(1, 4, 2), PARAMETERS)
    second = follower.look()
    assert (second.version, second.fresh) == (first.version, False)
    growing.finish({"status": "finished"})
    last = follower.look()
    assert (last.ended, last.fresh) == (True, True)
    assert last.version != first.version


@pytest.mark.parametrize("study", STUDIES)
def test_a_study_that_can_be_shown_is_not_waited_for(study, growing, tmp_path):
    (tmp_path / "study").mkdir()
    assert not ended([tmp_path / "study"])
    (tmp_path / "study" / f"{study}.json").write_text("[]")
    assert ended([tmp_path / "study"])
    assert not ended([tmp_path / "study", growing.path])
    (growing.path / f"{study}.json").write_text("[]")
    assert not ended([growing.path]), "a run that goes on, and a study of it"


def test_what_is_not_there_yet_is_no_problem_of_a_run_that_goes_on(growing):
    assert current(growing.path).problems == []
    growing.add(record_of(1, 4, 2), PARAMETERS)
    (growing.path / "ranks.csv").write_text("epoch,rank\n1")
    assert current(growing.path).problems == ["ranks.csv: 1 of 1 lines are cut short and left out"]


def test_what_a_finished_run_lacks_is_told(tmp_path):
    run = make(tmp_path / "run")
    (run / "ranks.csv").unlink()
    assert current(run).problems == ["ranks.csv is missing: what each rank did is not known"]


def test_a_run_that_is_removed_meanwhile_is_said_and_comes_back(tmp_path):
    run = make(tmp_path / "run")
    follower = Follower([run])
    first = follower.look()
    shutil.move(run, tmp_path / "elsewhere")
    assert "there is no run" in follower.look().html
    assert not ended([run])
    shutil.move(tmp_path / "elsewhere", run)
    assert follower.look().version == first.version


@pytest.mark.parametrize("kind", ["link", "pipe", "directory"])
def test_only_files_of_the_run_s_own_are_looked_at(growing, tmp_path, kind):
    """A stranger's run: what its links lead to is no news of it, and a pipe is waited for by nobody."""
    follower, outside = Follower([growing.path]), tmp_path / "outside"
    outside.mkdir()
    (outside / "summary.json").write_text("{}")
    seen = following._state([growing.path])
    for name in ("summary.json", "log"):
        place = growing.path / name
        if place.is_dir():
            place.rmdir()
        if kind == "link":
            place.symlink_to(outside if name == "log" else outside / name)
        elif kind == "pipe":
            os.mkfifo(place)
        else:
            place.mkdir(exist_ok=True)
    assert following._state([growing.path]) == seen
    assert not ended([growing.path])
    assert not follower.look().ended


def test_a_directory_of_very_many_files_is_not_listed_whole(growing, monkeypatch):
    monkeypatch.setattr(following, "MOST_FILES", 13)
    for number in range(17):
        (growing.path / f"{number}.csv").touch()
    assert len(following._files([growing.path])) <= 13
