"""Probes that answer, and those that crash, talk nonsense or do not answer: findings, and nothing of theirs is left."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress

import psutil
import pytest
import threadpoolctl  # noqa: F401 (it sets a variable of the environment, once)

from unisono.doctor.finding import Finding
from unisono.doctor.probe_entry import call
from unisono.doctor.probe_runner import GRACE_S, run_probe, run_probes
from unisono.doctor.probes import PATIENCE_S, PROBES, Probe
from unisono.errors import UserError

HANGS = """
import signal, subprocess, sys
print("started", file=sys.stderr, flush=True)
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.signal(15, signal.SIG_IGN); signal.pause()"])
print(child.pid, file=sys.stderr, flush=True)
signal.pause()
"""
"""A probe that does not end, with a child that does not want to."""


def gone(pid: int) -> bool:
    """Within a moment; what nobody has waited for yet is gone, too."""
    deadline = time.monotonic() + 10.0
    while time.monotonic() < deadline:
        with suppress(psutil.NoSuchProcess):
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                time.sleep(0.02)
                continue
        return True
    return False


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_a_real_probe_answers():
    found = run_probe("machine", PROBES["machine"])
    assert [finding.name for finding in found if finding.name != "load"] == [
        "software", "cores", "memory", "/dev/shm", "disk",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("import sys; print('no such library', file=sys.stderr); sys.exit(3)", "ended with exit code 3"),
        ("import os; os.kill(os.getpid(), 11)", "was killed by SIGSEGV"),
        ("print('hello')", "gave an answer that is none"),
        ("print('[{\"name\": 1}]')", "gave an answer that is none"),
        ("", "gave an answer that is none"),
    ],
)
def test_a_probe_that_fails_is_a_finding(code, told):
    (finding,) = run_probe("mpi", PROBES["mpi"], python(code))
    assert (finding.name, finding.status) == ("MPI", "failed")
    assert told in finding.told
    assert "python -m unisono.doctor.probe_entry mpi" in finding.fix
    if "no such library" in code:
        assert finding.told.endswith("its last words: no such library")


def test_a_probe_that_does_not_answer_is_given_up_with_all_that_it_started(monkeypatch):
    monkeypatch.setattr("unisono.doctor.probe_runner.GRACE_S", 1.0)
    monkeypatch.setattr("unisono.doctor.probe_runner.load_average", lambda: 0.0)
    (finding,) = run_probe("mpi", Probe("mpi:probe", "MPI", timeout_s=4.0), python(HANGS))
    assert (finding.status, finding.told.startswith("the probe gave no answer within 4 s")) == ("failed", True)
    assert gone(int(finding.facts["last_words"][-1]))


def test_a_machine_that_is_too_busy_to_answer_is_not_one_on_which_something_is_broken(monkeypatch):
    monkeypatch.setattr("unisono.doctor.probe_runner.load_average", lambda: 1e6)
    (finding,) = run_probe("mpi", Probe("mpi:probe", "MPI", timeout_s=0.1), ["sleep", "60"])
    assert (finding.status, finding.facts["load"]) == ("warning", 1e6)


LEAVES = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
print('[{"name": "x", "status": "ok", "told": "pid %d"}]' % child.pid, flush=True)
"""
"""A probe that answers and ends, with a child that holds its output open."""


def test_an_answer_counts_though_something_that_was_started_goes_on():
    (finding,) = run_probe("mpi", Probe("mpi:probe", "MPI", timeout_s=4.0), python(LEAVES))
    assert finding.status == "ok", finding.told
    assert gone(int(finding.told.split()[1]))


def test_what_a_library_prints_before_the_answer_does_no_harm():
    code = 'print(\'libfabric: hello\'); print(\'[{"name": "x", "status": "ok", "told": "y"}]\')'
    assert run_probe("mpi", PROBES["mpi"], python(code)) == [Finding("x", "ok", "y")]


def test_nothing_is_waited_for_longer_than_half_a_minute():
    assert all(probe.timeout_s <= PATIENCE_S for probe in PROBES.values())
    assert PATIENCE_S + GRACE_S < 30


def test_without_the_self_test_nothing_is_trained(monkeypatch):
    asked, told = [], []
    monkeypatch.setattr("unisono.doctor.probe_runner.run_probe", lambda name, probe: asked.append(name) or [])
    assert list(run_probes(self_test=False, tell=told.append)) == []
    assert set(PROBES) - set(asked) == {"kernels", "kernels-torch", "bits", "bits-torch"}
    assert told[0] == "cores, memory and disk"


def test_statuses_are_four():
    with pytest.raises(ValueError, match="status 'fine'"):
        Finding("x", "fine", "")


HIDDEN = """
mount -t tmpfs none /proc && mount -t tmpfs none /sys && mount -t tmpfs -o size=4k none /dev/shm || exit 99
exec "$@"
"""
EXAMINED = """
import sys
from unisono.doctor.probe_runner import run_probe
from unisono.doctor.probes import PROBES, Probe
for name in ("machine", "arithmetic", "energy"):
    for finding in run_probe(name, PROBES[name]):
        print(finding.name, finding.status, finding.told, sep=": ")
pausing = [sys.executable, "-c", "import signal; signal.pause()"]
print(run_probe("silent", Probe("a probe", "", timeout_s=0.5), pausing)[0].told)
"""


def has_name_spaces() -> bool:
    program = shutil.which("unshare")
    return (
        program is not None
        and not subprocess.run([program, "-rm", "true"], capture_output=True, check=False).returncode
    )


@pytest.mark.skipif(not has_name_spaces(), reason="no name spaces here")
def test_without_proc_and_sys_every_probe_says_what_it_could_not_learn(tmp_path):
    ended = subprocess.run(
        ["unshare", "-rm", "sh", "-c", HIDDEN, "sh", sys.executable, "-c", EXAMINED],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "kernel files: warning: /proc/self/stat, /proc/meminfo" in ended.stdout
    assert "/proc/cpuinfo does not tell" in ended.stdout
    assert "the probe gave no answer within 0.5 s" in ended.stdout
    assert ": failed: " not in ended.stdout


@pytest.mark.parametrize("name", PROBES)
def test_every_probe_is_where_the_table_says(name):
    module, _, function = PROBES[name].place.partition(":")
    found = __import__(f"unisono.doctor.probes.{module}", fromlist=[function])
    assert callable(getattr(found, function))


def test_an_error_of_ours_is_a_finding(monkeypatch):
    def fails():
        raise UserError("no memory", hint="buy some")

    monkeypatch.setattr("unisono.doctor.probes.machine.probe_machine", fails)
    (finding,) = call("machine")
    assert (finding.status, finding.told, finding.fix) == ("failed", "no memory", "buy some")


def test_the_answer_is_json_in_the_last_line():
    command = [sys.executable, "-m", "unisono.doctor.probe_entry", "network"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert [entry["name"] for entry in json.loads(ended.stdout.splitlines()[-1])] == ["host name", "ports"]


def test_a_probe_that_is_given_up_removes_what_it_has_made(tmp_path):
    """SIGTERM while the self-test trains: its directory, in $TMPDIR, goes."""
    command = [sys.executable, "-m", "unisono.doctor.probe_entry", "bits"]
    with subprocess.Popen(
        command, env={**os.environ, "TMPDIR": str(tmp_path)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as probe:
        while not any(tmp_path.glob("unisono-doctor-*/1")):
            assert probe.poll() is None
            time.sleep(0.01)
        probe.send_signal(signal.SIGTERM)
        assert probe.wait(30) == 1
    assert list(tmp_path.iterdir()) == []
