"""`unisono doctor` as a user meets it: on this machine, and on one where only the core is installed."""

import json
from importlib.util import find_spec

import pytest

from support.cli.forked_command import forked
from support.cli.train_command import started
from unisono.doctor.finding import Finding
from unisono.doctor.probes import Probe

BARE = """
import sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "mpi4py", "accelerate"}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Hide())
import importlib.util
from unisono.doctor import probes
probes.PATIENCE_S = 80.0
for probe in probes.PROBES.values():
    object.__setattr__(probe, "timeout_s", 90.0)
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name in {"torch", "mpi4py", "accelerate"} else found(name, *rest)
"""
"""As sitecustomize.py: what is hidden from every Python that is started is as good as not installed. Probes have
more time than usual, so a busy machine changes nothing."""


@pytest.mark.skipif(not all(map(find_spec, ("torch", "mpi4py", "accelerate"))), reason="for a full environment")
def test_a_full_environment():
    ended = started("doctor", "--json", "--no-self-test")
    assert ended.returncode == 0, ended.stdout
    findings = json.loads(ended.stdout)["findings"]
    if late := [entry["name"] for entry in findings if "gave no answer" in entry["told"]]:
        pytest.skip(f"this machine is too busy: {', '.join(late)}")  # a warning on such a machine, else a failure
    found = {entry["name"]: entry["status"] for entry in findings}
    here = ("cores", "memory", "BLAS", "shared memory", "MPI", "MPI, 2 ranks", "torch", "gloo, 2 ranks", "Accelerate")
    assert {found[name] for name in here} <= {"ok", "warning"}, found
    assert {"SLURM", "energy: RAPL", "energy: NVML", "ports", "bf16", "fp16"} <= found.keys()
    assert "same bits" not in found


def test_a_bare_environment(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(BARE)
    ended = started("doctor", PYTHONPATH=str(tmp_path), PATH="/usr/bin:/bin")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    lines = ended.stdout.splitlines()
    starts = {tuple(line.split()[:2]) for line in lines}
    assert {("missing", "MPI"), ("missing", "torch"), ("missing", "Accelerate")} <= starts
    assert "gloo, 2 ranks" not in ended.stdout
    assert "same bits         trained on 1 and 2 ranks" in ended.stdout
    assert lines[-1].startswith("unisono works here, with the same bits on 1 and 2 ranks; ")


def test_it_is_run_once(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    ended = forked("doctor")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "doctor was started as 4 ranks" in ended.stderr


def test_what_fails_ends_in_exit_code_1(monkeypatch):
    def run(name: str, probe: Probe) -> list[Finding]:
        return [Finding(probe.about, "failed" if name == "arena" else "ok", "it was tried")]

    monkeypatch.setattr("unisono.doctor.probe_runner.run_probe", run)
    ended = forked("doctor", "--no-self-test")
    assert (ended.returncode, "Traceback" in ended.stderr) == (1, False)
    assert "FAILED   shared memory     it was tried" in ended.stdout
    assert ended.stdout.splitlines()[-1].startswith("Something that is installed does not work here: shared memory")
