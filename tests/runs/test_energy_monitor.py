"""Energy and utilisation as a run keeps them: files, facts, ranks of other launchers."""

import json
import os

import pytest

import unisono
from unisono.energy.meter import Counters, Meter, Reading
from unisono.energy.resource_usage import BackgroundLoad
from unisono.runs import energy_monitor
from unisono.runs.energy_monitor import EnergyMonitor, NodeEnergy, cpu_s, last_sample_s


@pytest.fixture(autouse=True)
def quick_and_without_counters(monkeypatch):
    monkeypatch.setattr(energy_monitor, "find_counters", lambda gpus: Counters((), ["none here"]))
    monkeypatch.setattr("unisono.energy.utilisation_sampler.FIRST_S", 0.0)
    monkeypatch.setattr("unisono.energy.utilisation_sampler.EVERY_S", 0.0)
    monkeypatch.setattr("unisono.energy.resource_usage.LEAST_S", 0.0)
    monkeypatch.setattr("unisono.energy.resource_usage.under_quota", lambda: False)


def test_the_estimate_is_of_the_processor_time_of_this_process_and_its_children(tmp_path):
    watch = EnergyMonitor(tmp_path, [], watts_per_core=10.0)
    before = cpu_s()
    unisono.run(lambda world: sum(range(3_000_000)), ranks=2)
    used = cpu_s() - before
    facts = watch.facts(samples=50)
    assert facts["energy_source"] == "estimate"
    assert 10.0 * used <= facts["energy_j"] < 10.0 * used + 5.0
    assert facts["energy_per_sample_j"] == pytest.approx(facts["energy_j"] / 50)
    assert len((tmp_path / "utilisation.csv").read_text().splitlines()) == 1  # nobody was looked at
    kept = json.loads((tmp_path / "energy.json").read_text())
    assert (kept["energy_j"], kept["samples"], kept["idle_ranks"]) == (facts["energy_j"], 50, [])
    assert kept.keys() - facts.keys() == {"samples", "seconds", "idle_w", "parts"}  # the same is not told twice


def test_samples_are_appended_below_one_header(tmp_path):
    watch = EnergyMonitor(tmp_path, [], 8.0)
    watch.see(3, os.getpid())
    for _ in range(3):
        watch.tick()
    lines = (tmp_path / "utilisation.csv").read_text().splitlines()
    assert lines[0].startswith("s_after_start,what,")
    assert [line.split(",")[1] for line in lines[1:]].count("rank 3") == 2
    again = EnergyMonitor(tmp_path, [], 8.0)
    again.discard()
    assert (tmp_path / "utilisation.csv").read_text().splitlines() == lines, "they are of the run that was to go on"
    watch.discard()
    assert not (tmp_path / "utilisation.csv").exists()


def test_a_look_without_pids_is_at_the_ranks_that_were_told_last(tmp_path):
    watch = EnergyMonitor(tmp_path, [], 8.0)
    watch.tick({0: os.getpid(), 1: os.getppid()})
    watch.tick({0: os.getpid()})  # rank 1 has ended
    watch.tick()  # as when a rank tells how far it is
    lines = (tmp_path / "utilisation.csv").read_text().splitlines()
    assert [line.split(",")[1] for line in lines[1:]] == ["rank 0", "all ranks", "node"] * 2


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("s_after_start,what\n", 0.0), ("s_after_start,what\n2.25,rank 0\n4.25,node\n", 4.25), ("", 0.0),
        ("s_after_start,what\n2.25,node\n4.2", 2.25), ("s_after_start,what\ninf,node\n", 0.0), ("\n", 0.0),
    ],
)  # fmt: skip
def test_samples_of_a_resumed_run_go_on_after_the_last(text, seconds, tmp_path):
    (tmp_path / "utilisation.csv").write_text(text)
    assert last_sample_s(tmp_path / "utilisation.csv") == seconds
    assert last_sample_s(tmp_path / "none.csv") == 0.0


def test_a_directory_that_is_gone_does_not_matter(tmp_path):
    watch = EnergyMonitor(tmp_path / "gone", [], 8.0)
    watch.tick({0: os.getpid()})
    watch.tick({0: os.getpid()})
    assert watch.facts(1)["energy_source"] == "estimate"


def test_readings_of_several_nodes_go_before_this_process_s(tmp_path):
    watch = EnergyMonitor(tmp_path, [], 8.0)
    watch.set_node_readings([Reading(7.0, "rapl", 1.0), Reading(5.0, "rapl", 1.0)])
    assert watch.facts(6)["energy_per_sample_j"] == 2.0
    watch.unknown = "who knows"  # a part of the nodes is not taken for all
    facts = watch.facts(6)
    assert (facts["energy_j"], facts["energy_source"], facts["energy_note"]) == (None, "none", "who knows")


def test_others_are_told_apart_from_this_process_and_its_children(tmp_path, monkeypatch):
    given = [0.0]
    monkeypatch.setattr(energy_monitor, "BackgroundLoad", lambda: BackgroundLoad(lambda: given[0], lambda: given[0]))
    watch = EnergyMonitor(tmp_path, [], 8.0)
    given[0] += 1000.0  # seconds, and all of one core
    assert watch.others_cores() == pytest.approx(1.0, abs=0.1)
    watch.set_node_readings([Reading(7.0, "rapl", 1.0)], others_cores=0.25)
    assert watch.others_cores() == 0.25


def gathered(world):
    """Three ranks on two made-up nodes."""
    energy = NodeEnergy(world.comm, [4, 4, 9][: world.size], [], watts_per_core=10.0)
    energy.tick()
    sum(range(2_000_000))
    return [[one.joules, one.source, one.note] for one in energy.gather()], energy._meter is not None


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_one_rank_of_each_node_reads_and_all_know_what_was_read(ranks):
    found = unisono.run(gathered, ranks=ranks)
    assert [reads for _, reads in found] == [True, False, True][:ranks]
    readings = [readings for readings, _ in found]
    assert len(readings[0]) == (2 if ranks == 3 else 1)
    for rank in range(ranks):
        assert readings[rank] == readings[0]
    for joules, _, note in readings[0]:  # each node's own
        assert joules == pytest.approx(10.0 * float(note.split(" s of ")[0]), abs=0.51)
    assert all(joules > 0 and source == "estimate" for joules, source, _ in readings[0])


@pytest.mark.parametrize(("second", "told"), [({0, 1}, True), ({1}, False)])
def test_others_of_a_node_are_known_where_its_ranks_share_all_cores(second, told):

    def work(world):
        given = [0.0]
        energy_monitor.BackgroundLoad = lambda: BackgroundLoad(lambda: given[0], lambda: given[0])
        os.sched_getaffinity = lambda pid: second if world.rank else {0, 1}
        energy = NodeEnergy(world.comm, [4, 4], [], watts_per_core=10.0)
        given[0] += 1000.0
        energy.gather()
        return energy.others_cores

    first, other = unisono.run(work, ranks=2)
    assert other is None  # the first rank of a node looks
    assert (first is not None) == told
    if told:
        assert first == pytest.approx(1.0, abs=0.1)


def test_gpus_count_only_if_ranks_compute_on_them(monkeypatch):
    asked = []
    monkeypatch.setattr(energy_monitor, "find_counters", lambda gpus: asked.append(gpus) or Counters())
    monkeypatch.setattr(energy_monitor, "visible_gpus", lambda: [2])
    for devices in ([], ["cpu"], ["cuda:0", "cuda:1"]):
        assert isinstance(energy_monitor.meter_of(devices, 8.0), Meter)
    assert asked == [(), (), [2]]
