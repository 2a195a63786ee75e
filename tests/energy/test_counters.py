"""Energy counters: RAPL's zones and wraps, GPUs that count energy or only show power, messages where none answers."""

from pathlib import Path

import pytest

from support.energy.counters import Clock, FakeNvml, make_zone, set_energy
from unisono.energy.counters import find_gpus, find_zones
from unisono.energy.meter import Counters, Meter


def test_packages_and_their_dram_count_and_nothing_twice(tmp_path):
    names = {"0": "package-0", "0:0": "core", "0:1": "dram", "1": "package-1", "1:0": "dram", "2": "psys"}
    zones = {f"intel-rapl:{place}": name for place, name in names.items()}
    for folder, name in (zones | {"intel-rapl-mmio:0": "package-0", "dtpm": "dtpm"}).items():
        make_zone(tmp_path, folder, name, 5)
    zones, missing = find_zones(tmp_path)
    assert [zone.name for zone in zones] == ["package-0", "dram-0", "package-1", "dram-1"]
    assert missing == ""


def test_a_counter_that_wraps_goes_on(tmp_path):
    folder = make_zone(tmp_path, "intel-rapl:0", "package-0", 9_000_000, range_uj=10_000_000)
    (zone,), _ = find_zones(tmp_path)
    zone.follow(0.0)
    for now, energy_uj in ((2.0, 9_500_000), (4.0, 1_500_000), (6.0, 3_500_000)):
        set_energy(folder, energy_uj)
        zone.follow(now)
    assert zone.joules == pytest.approx(0.5 + 2.0 + 2.0)
    assert zone.watts == pytest.approx(1.0)


def test_what_was_counted_stays_when_the_counter_is_gone(tmp_path):
    folder = make_zone(tmp_path, "intel-rapl:0", "package-0", 0)
    (zone,), _ = find_zones(tmp_path)
    zone.follow(0.0)
    set_energy(folder, 3_000_000)
    zone.follow(1.0)
    (folder / "energy_uj").unlink()
    zone.follow(2.0)
    assert zone.joules == pytest.approx(3.0)


def forbid(monkeypatch, pattern):
    """Files of that pattern may not be read, as by anybody but root."""
    read = Path.read_text

    def guarded(path, *given, **named):
        if path.match(pattern):
            raise PermissionError(13, "Permission denied")
        return read(path, *given, **named)

    monkeypatch.setattr(Path, "read_text", guarded)


def test_where_there_are_none_it_says_so(tmp_path, monkeypatch):
    assert find_zones(tmp_path / "none") == ([], "this machine shows no energy counters")
    for package in range(2):
        make_zone(tmp_path, f"intel-rapl:{package}", f"package-{package}", 0)
    (tmp_path / "intel-rapl:1" / "energy_uj").write_text("nonsense")
    assert [zone.name for zone in find_zones(tmp_path)[0]] == ["package-0"]
    forbid(monkeypatch, "energy_uj")
    assert find_zones(tmp_path) == ([], f"{tmp_path} is readable by root only")


def test_a_package_that_may_not_be_read_is_said(tmp_path, monkeypatch):
    for package in range(2):
        make_zone(tmp_path, f"intel-rapl:{package}", f"package-{package}", 0)
    forbid(monkeypatch, "intel-rapl:1/energy_uj")
    zones, missing = find_zones(tmp_path)
    assert [zone.name for zone in zones] == ["package-0"]
    assert missing == "only 1 of 2 counters of the processors may be read"


def trained(watts, seconds):
    """The reading of a run on boards that only tell their power, looked at every 2 s."""
    clock = Clock()
    boards, missing = find_gpus(None, FakeNvml(watts))
    meter = Meter(Counters(boards, [missing] if missing else []), 8.0, clock)
    left = seconds
    while left > 0:
        clock.turn(min(2.0, left))
        meter.follow()
        left -= 2.0
    return meter.read(cpu_s=1e6)


@pytest.mark.parametrize(
    ("watts", "seconds", "kilojoules"), [([68], 275, 18.7), ([70] * 4, 71.7, 20.1)], ids=["one T4", "four T4"]
)
def test_watts_times_seconds_as_the_reference_should_have_had_it(watts, seconds, kilojoules):
    reading = trained(watts, seconds)
    assert reading.joules == pytest.approx(1000 * kilojoules, rel=0.004)
    assert reading.joules == pytest.approx(sum(watts) * seconds)
    assert reading.source == "nvml"
    assert reading.seconds == pytest.approx(seconds)


def test_power_that_changes_counts_as_its_mean():
    nvml = FakeNvml([50])
    (board,), _ = find_gpus([0], nvml)
    board.follow(0.0)
    nvml.watts[0] = 150
    board.follow(2.0)
    assert board.joules == pytest.approx(200.0)


def test_boards_that_count_are_believed():
    nvml = FakeNvml([50, 60], energy_mj=[1_000_000, 7])
    (board,), _ = find_gpus([0], nvml)
    board.follow(0.0)
    nvml.energy_mj[0] += 5_500
    board.follow(2.0)
    assert board.joules == pytest.approx(5.5)
    assert board.watts == pytest.approx(2.75)
    assert (board.state().utilisation, board.state().memory_bytes, board.state().temperature_c) == (0.97, 7 << 30, 71.0)


def test_no_driver_no_package_no_such_board(monkeypatch):
    assert find_gpus(None, FakeNvml([50], driver=False)) == ([], "the GPUs do not tell their energy: Driver Not Loaded")
    assert "Invalid Argument" in find_gpus([3], FakeNvml([50]))[1]
    monkeypatch.setattr("unisono.energy.counters.find_spec", lambda name: None)
    assert "not installed" in find_gpus(None)[1]
