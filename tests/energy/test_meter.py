"""A node's energy: measured, estimated or unknown, and never one for the other; idle power apart; nodes together."""

import pytest

from support.energy.counters import Clock, FakeNvml, make_zone, set_energy
from unisono.energy.counters import find_gpus, find_zones
from unisono.energy.meter import IDLE_S, Counters, Meter, Reading, sum_readings


def test_counters_of_processors_and_gpus_are_added(tmp_path):
    zone, clock, nvml = make_zone(tmp_path, "intel-rapl:0", "package-0", 0), Clock(), FakeNvml([30], [0])
    meter = Meter(Counters([*find_zones(tmp_path)[0], *find_gpus(None, nvml)[0]]), 8.0, clock)
    clock.turn(10)
    set_energy(zone, 400_000_000)
    nvml.energy_mj[0] = 100_000
    reading = meter.read(cpu_s=1e6)
    assert (reading.joules, reading.source, reading.seconds) == (500.0, "rapl+nvml", 10.0)
    assert reading.parts == {"package-0": 400.0, "gpu 0": 100.0}
    assert meter.watts == pytest.approx(50.0)
    facts = reading.facts(samples=1000)
    assert (facts["energy_per_sample_j"], facts["energy_idle_j"]) == (0.5, None)


def test_what_an_idle_machine_takes_stands_apart(tmp_path):
    zone, clock = make_zone(tmp_path, "intel-rapl:0", "package-0", 0), Clock()
    meter = Meter(Counters(find_zones(tmp_path)[0]), 8.0, clock)

    def idle(seconds):
        clock.turn(seconds)
        set_energy(zone, int(20e6 * seconds))

    meter.measure_idle(idle)
    clock.turn(4)
    set_energy(zone, int(20e6 * IDLE_S + 4 * 90e6))
    reading = meter.read(cpu_s=0)
    assert reading.joules == pytest.approx(360.0)  # without what was used before the run
    assert reading.idle_w == pytest.approx(20.0)
    assert reading.facts(1)["energy_idle_j"] == pytest.approx(80.0)


def test_without_counters_it_is_an_estimate_and_says_so():
    clock = Clock()
    meter = Meter(Counters((), ["no counters here"]), 8.0, clock)
    meter.measure_idle(lambda seconds: pytest.fail("there is nothing to look at"))
    clock.turn(3)
    reading = meter.read(cpu_s=5.0)
    assert (reading.joules, reading.source, reading.idle_j) == (40.0, "estimate", None)
    assert reading.note == "5.0 s of processor time x 8 W a core, idle power not included; no counters here"


def test_without_anything_it_is_none():
    reading = Meter(Counters((), ["no counters here"]), 0.0, Clock()).read(cpu_s=5.0)
    assert (reading.joules, reading.source, reading.note) == (None, "none", "no counters here")
    assert reading.facts(10)["energy_per_sample_j"] is None


def test_nodes_are_added_and_one_unknown_makes_all_unknown():
    one, other = Reading(100.0, "rapl", 10.0, idle_w=5.0), Reading(50.0, "nvml", 12.0, note="how")
    both = sum_readings([one, other])
    assert both == Reading(150.0, "rapl+nvml", 12.0, note="how")
    assert sum_readings([one, one]).idle_j == pytest.approx(100.0)
    unknown = sum_readings([one, Reading(None, "none", 3.0)])
    assert (unknown.joules, unknown.source) == (None, "none")
    assert sum_readings([one]) is one


def test_counters_and_estimates_are_not_added():
    both = sum_readings([Reading(100.0, "rapl", 10.0, idle_w=5.0), Reading(50.0, "estimate", 12.0, note="6 s x 8 W")])
    assert (both.joules, both.source, both.seconds) == (None, "none", 12.0)
    assert both.note.endswith("are not added up: 100.0 J rapl, 50.0 J estimate")
    assert sum_readings([Reading(100.0, "rapl", 1.0), Reading(50.0, "rapl+nvml", 1.0)]).source == "rapl+nvml"
