import os
import stat

import pytest

from unisono.report.live import address as module
from unisono.report.live.address import address_file
from unisono.storage.run_files import LIVE_PAGE

ADDRESS = "http://127.0.0.1:13/token/"


def test_only_the_owner_may_read_it_and_it_goes(tmp_path):
    (tmp_path / LIVE_PAGE).write_text("left by one that was killed")
    (tmp_path / LIVE_PAGE).chmod(0o644)
    with address_file(ADDRESS, tmp_path) as path:
        assert path == tmp_path / LIVE_PAGE
        assert path.read_text() == f"{ADDRESS}\n"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == []


def test_the_address_of_another_page_stays(tmp_path):
    with address_file(ADDRESS, tmp_path), address_file("http://127.0.0.1:17/other/", tmp_path):
        pass
    assert not (tmp_path / LIVE_PAGE).exists()
    with address_file(ADDRESS, tmp_path) as path:
        path.write_text("http://127.0.0.1:17/other/\n")
    assert path.read_text() == "http://127.0.0.1:17/other/\n"


@pytest.mark.parametrize("kind", ["link", "pipe", "none"])
def test_a_directory_that_cannot_be_written_safely_gets_a_private_one_in_its_place(tmp_path, kind):
    run, outside = tmp_path / "run", tmp_path / "outside"
    outside.write_text("mine")
    if kind != "none":
        run.mkdir()
        os.mkfifo(run / LIVE_PAGE) if kind == "pipe" else (run / LIVE_PAGE).symlink_to(outside)
    with address_file(ADDRESS, run) as path:
        assert path.parent != run
        assert path.read_text() == f"{ADDRESS}\n"
        assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)) == (0o600, 0o700)
    assert not path.parent.exists()
    assert outside.read_text() == "mine"


def test_nowhere_to_write_it(tmp_path, monkeypatch):
    def full(*given, **more):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "write_file", full)
    with pytest.raises(OSError, match="No space left"), address_file(ADDRESS, tmp_path):
        pass
