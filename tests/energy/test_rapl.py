"""Energy counters of processors: which count, what a wrap is, what is said where there are none."""

from pathlib import Path

import pytest

from support.energy.counters import make_zone, set_energy
from unisono.energy.rapl import find_zones


def test_packages_and_their_dram_count_and_nothing_twice(tmp_path):
    for folder, name in (
        ("intel-rapl:0", "package-0"),
        ("intel-rapl:0:0", "core"),
        ("intel-rapl:0:1", "dram"),
        ("intel-rapl:1", "package-1"),
        ("intel-rapl:1:0", "dram"),
        ("intel-rapl:2", "psys"),
        ("intel-rapl-mmio:0", "package-0"),
        ("dtpm", "dtpm"),
    ):
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


def test_where_there_are_none_it_says_so(tmp_path, monkeypatch):
    assert find_zones(tmp_path / "none") == ([], "this machine shows no energy counters")
    make_zone(tmp_path, "intel-rapl:0", "package-0", 0)
    make_zone(tmp_path, "intel-rapl:1", "package-1", 0)
    (tmp_path / "intel-rapl:1" / "energy_uj").write_text("nonsense")
    assert [zone.name for zone in find_zones(tmp_path)[0]] == ["package-0"]

    read = Path.read_text

    def refuse(path, *arguments, **options):
        if path.name == "energy_uj":
            raise PermissionError(13, "Permission denied")
        return read(path, *arguments, **options)

    monkeypatch.setattr(Path, "read_text", refuse)
    assert find_zones(tmp_path) == ([], f"{tmp_path} is readable by root only")


def test_a_package_that_may_not_be_read_is_said(tmp_path, monkeypatch):
    make_zone(tmp_path, "intel-rapl:0", "package-0", 0)
    make_zone(tmp_path, "intel-rapl:1", "package-1", 0)
    read = Path.read_text

    def guarded(path, *given, **named):
        if path.match("intel-rapl:1/energy_uj"):
            raise PermissionError(13, "Permission denied")
        return read(path, *given, **named)

    monkeypatch.setattr(Path, "read_text", guarded)
    zones, missing = find_zones(tmp_path)
    assert [zone.name for zone in zones] == ["package-0"]
    assert missing == "only 1 of 2 counters of the processors may be read"
