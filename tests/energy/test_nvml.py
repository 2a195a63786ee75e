"""GPUs: energy counted by them or by watts times seconds; R3's own figures; what is said where none answers."""

import pytest

from support.energy.counters import Clock, FakeNvml
from unisono.energy.meter import Counters, Meter
from unisono.energy.nvml import find_gpus


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
    monkeypatch.setattr("unisono.energy.nvml.find_spec", lambda name: None)
    assert "not installed" in find_gpus(None)[1]
