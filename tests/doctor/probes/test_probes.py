"""What each probe makes of machines that are not this one; what it says of this one is `tests/cli`'s affair."""

import re
import shutil
import socket
import subprocess

import numpy as np
import pytest

from support.commands import put_command
from support.needs import needs_torch
from support.slurm.answer_mutations import mutations
from unisono.doctor.finding import Finding
from unisono.doctor.probes import compute, equal_bits, machine, slurm, transports
from unisono.errors import UnisonoError
from unisono.launch.slurm.command import Answer, plain
from unisono.models.chain import Chain
from unisono.models.kernel_check import numpy_cases


def told(finding) -> tuple[str, str]:
    return finding.status, finding.told


class TestMachine:
    def test_a_whole_machine(self):
        (found,) = machine.cores(8, 8, 8, 0.5)
        assert told(found) == ("ok", "8, all usable")

    def test_affinity_and_quotas_are_named(self):
        (found,) = machine.cores(64, 8, 4, 0.5)
        assert found.status == "ok"
        assert "4 of 64 usable" in found.told
        assert "affinity mask leaves 8" in found.told
        assert "quota of the group leaves 4" in found.told

    def test_one_core_is_no_place_for_more_ranks(self):
        (found,) = machine.cores(4, 1, 1, 0.0)
        assert found.status == "warning"
        assert "--cpus-per-task" in found.fix

    def test_cores_that_others_want_are_a_warning(self):
        _, load = machine.cores(2, 2, 2, 7.25)
        assert told(load) == ("warning", "7.2 processes want the 2 cores: times measured now say little")

    def test_little_memory(self, monkeypatch):
        monkeypatch.setattr(machine, "available_bytes", lambda: 100 << 20)
        monkeypatch.setattr(machine, "memory_kills", lambda: 3)
        found = machine.memory()
        assert found.status == "warning"
        assert "100 MiB of" in found.told
        assert "killed 3 processes" in found.told

    def test_a_container_s_small_dev_shm(self, monkeypatch):
        usage = type(shutil.disk_usage("/"))
        monkeypatch.setattr(machine.shutil, "disk_usage", lambda path: usage(64 << 20, 0, 64 << 20))
        assert machine.shm().status == "warning"
        assert "--shm-size" in machine.shm().fix

    def test_no_dev_shm(self):
        assert machine.shm("/no/such/place").status == "warning"


class TestArithmetic:
    def test_the_widest_instructions_are_named(self):
        assert told(compute.processor("a", {"avx2", "avx512f"})) == ("ok", "a, AVX-512")
        assert compute.processor("a", {"sse4_2"}).status == "warning"

    def test_what_instructions_mean_for_sixteen_bits(self):
        assert compute.sixteen("bf16", {"avx512_bf16"}).status == "ok"
        assert compute.sixteen("fp16", {"avx512_bf16"}).status == "missing"
        assert "--precision fp32" in compute.sixteen("bf16", set()).fix

    def test_a_numpy_without_blas_is_a_warning(self, monkeypatch):
        monkeypatch.setattr(compute, "threadpool_info", lambda: [])
        assert compute.blas().status == "warning"

    def test_variables_of_threads_are_shown(self):
        assert compute.threads({"OMP_NUM_THREADS": "8"}).told.startswith("OMP_NUM_THREADS=8; ranks of unisono")


@pytest.mark.parametrize(
    ("module", "probe"),
    [(transports, transports.probe_mpi), (compute, compute.probe_torch), (transports, transports.probe_accelerate)],
    ids=["mpi", "torch", "accelerate"],
)
def test_what_is_not_installed_is_missing_with_the_command_that_installs_it(module, probe, monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    (found,) = probe()
    assert (found.status, "pip install" in found.fix) == ("missing", True)
    assert module is compute or transports.probe_gloo() == []  # torch's probe reports it


class TestMpi:
    def test_mpi4py_without_mpirun(self, monkeypatch):
        monkeypatch.setattr(transports, "find_spec", lambda name: True)
        monkeypatch.setattr(transports, "find_program", lambda name: None)
        monkeypatch.setattr(transports.metadata, "version", lambda name: "4.1")
        for why, more in (("", ""), ("cannot load it", ", nor a library: cannot load it")):
            monkeypatch.setattr(transports, "mpi_problem", lambda why=why: why)
            assert told(transports.probe_mpi()[0]) == ("missing", f"mpi4py 4.1 is there, mpirun is not{more}")

    @pytest.mark.parametrize(
        ("why", "ranks", "srun", "statuses"),
        [
            ("", "ok", "srun", ["ok", "ok"]),
            ("cannot load it", "ok", "srun", ["ok", "ok", "warning"]),
            ("cannot load it", "ok", None, ["ok", "ok", "missing"]),
            ("cannot load it", "failed", "srun", ["ok", "failed"]),  # which says it already
        ],
    )
    def test_a_library_that_is_found_under_mpirun_alone(self, monkeypatch, why, ranks, srun, statuses):
        programs = {"mpirun": "mpirun", "srun": srun}
        monkeypatch.setattr(transports, "find_spec", lambda name: True)
        monkeypatch.setattr(transports, "find_program", programs.get)
        monkeypatch.setattr(transports.metadata, "version", lambda name: "4.1")
        monkeypatch.setattr(transports, "mpirun_version", lambda program: "MPICH 5")
        monkeypatch.setattr(transports, "mpi_problem", lambda: why)
        monkeypatch.setattr(transports, "exchange", lambda name, *others: Finding(name, ranks, ""))
        found = transports.probe_mpi()
        assert [one.status for one in found] == statuses
        if len(found) == 3:
            assert "under mpirun alone (cannot load it): ranks that srun starts would fail" in found[-1].told

    @pytest.mark.parametrize(
        ("said", "version"),
        [
            ("mpirun (Open MPI) 5.0.11\n\nReport bugs to\n", "mpirun (Open MPI) 5.0.11"),
            ("HYDRA build details:\n    Version:                                 5.0.2\n", "MPICH 5.0.2"),
            ("", "mpirun"),
        ],
    )
    def test_versions_of_both_kinds(self, said, version, monkeypatch, tmp_path):
        ended = subprocess.CompletedProcess([], 0, stdout=said)
        monkeypatch.setattr(transports.subprocess, "run", lambda *command, **options: ended)
        assert transports.mpirun_version("mpirun") == version

    def test_ranks_that_do_not_meet_are_told_with_the_fix(self, monkeypatch):
        def fails(worlds):
            raise UnisonoError("the mpi world of 2 ranks ended with exit code 1:\n\nORTE: no permission\n")

        monkeypatch.setattr("unisono.doctor.probes.transports.plan", lambda options: [])
        monkeypatch.setattr("unisono.doctor.probes.transports.measure", fails)
        found = transports.exchange("MPI, 2 ranks", "mpi", "native", "mend it")
        assert told(found) == ("failed", "2 ranks could not exchange numbers: ORTE: no permission")
        assert found.fix == "mend it"

    def test_a_wrong_sum_is_a_failure(self, monkeypatch):
        row = {"transport": "mpi", "algorithm": "native", "median_us": 1.0, "correct": False}
        monkeypatch.setattr("unisono.doctor.probes.transports.plan", lambda options: [])
        monkeypatch.setattr("unisono.doctor.probes.transports.measure", lambda worlds: iter([row]))
        assert transports.exchange("MPI, 2 ranks", "mpi", "native", "mend it").status == "failed"


class TestNetwork:
    def addresses(self, monkeypatch, *found: str) -> None:
        entries = [(0, 0, 0, "", (address, 0)) for address in found]
        monkeypatch.setattr(transports.socket, "getaddrinfo", lambda *arguments, **options: entries)

    def test_a_name_that_leads_to_loopback_is_a_warning(self, monkeypatch):
        self.addresses(monkeypatch, "127.0.1.1", "::1")
        found = transports.host_name("here")
        assert found.status == "warning"
        assert "GLOO_SOCKET_IFNAME" in found.fix

    def test_a_name_that_others_can_use(self, monkeypatch):
        self.addresses(monkeypatch, "10.0.0.5", "fe80::1%eth0")
        assert told(transports.host_name("here")) == ("ok", "here is 10.0.0.5, fe80::1%eth0")

    def test_a_name_that_leads_nowhere(self, monkeypatch):
        def fails(*arguments, **options):
            raise socket.gaierror(-2, "Name or service not known")

        monkeypatch.setattr(transports.socket, "getaddrinfo", fails)
        assert "here leads nowhere (Name or service not known)" in transports.host_name("here").told

    def test_a_port_that_is_taken(self):
        with socket.socket() as taken:
            taken.bind(("", 0))
            taken.listen()
            port = taken.getsockname()[1]
            assert f"{port}, torchrun's usual port, is taken" in transports.ports(port).told
        assert transports.ports(port).status == "ok"


class TestEnergy:
    def test_counters_are_there_and_readable_or_not(self, tmp_path):
        assert machine.rapl(tmp_path).status == "missing"
        for zone, name in (("intel-rapl:0", "package-0"), ("intel-rapl:0:0", "core"), ("intel-rapl:1", "psys")):
            (tmp_path / zone).mkdir()
            for file, text in (("name", name), ("energy_uj", "123"), ("max_energy_range_uj", "999")):
                (tmp_path / zone / file).write_text(f"{text}\n")
        assert told(machine.rapl(tmp_path)) == ("ok", "package-0: readable")  # the others are in it, or it in them
        counter = tmp_path / "intel-rapl:0" / "energy_uj"
        counter.unlink()
        counter.mkdir()  # which cannot be read, not even by root
        found = machine.rapl(tmp_path)
        assert found.status == "warning"
        assert "chmod a+r" in found.fix

    def test_a_driver_without_the_package_that_runs_ask_is_a_warning(self, monkeypatch):
        class Driver:
            def nvmlInit_v2(self):
                return 0

            def nvmlDeviceGetCount_v2(self, count):
                count._obj.value = 2
                return 0

        monkeypatch.setattr(machine.ctypes, "CDLL", lambda library: Driver())
        monkeypatch.setattr("unisono.energy.counters.find_spec", lambda name: None)
        found = machine.nvml("libnvidia-ml.so.1")
        assert found.status == "warning"
        assert found.told.startswith("2 GPUs, whose energy a run could not tell: GPUs are asked through nvidia-ml-py")

    def test_no_driver(self):
        assert machine.nvml("libno-such-thing.so.1").status == "missing"


class TestSlurm:
    @pytest.fixture
    def commands(self, tmp_path, monkeypatch):
        """Puts commands of the given contents on an otherwise empty PATH."""

        def make(**scripts: str) -> None:
            for name, script in scripts.items():
                put_command(tmp_path, name, script, "#!/bin/sh")
            monkeypatch.setenv("PATH", str(tmp_path))

        return make

    def test_a_machine_without_it(self, commands):
        commands()
        assert [finding.status for finding in slurm.cluster()] == ["missing"]

    def test_a_cluster_that_answers(self, commands):
        sinfo = '[ "$1" = --version ] && echo slurm 22.05.8 || echo "debug* 4 idle"'
        commands(sinfo=sinfo, srun="echo 'MPI plugin types are: none pmi2 pmix'")
        (found,) = slurm.cluster()
        assert told(found) == ("ok", "slurm 22.05.8; partition, nodes, state: debug* 4 idle")

    def test_an_srun_without_pmix_is_a_warning(self, commands):
        commands(sinfo="echo slurm 22.05.8", srun="echo 'MPI plugin types are: none pmi2' >&2")
        assert [finding.status for finding in slurm.cluster()] == ["ok", "warning"]

    @pytest.mark.parametrize(
        ("sinfo", "end"),
        [
            ("echo 'slurm_load_partitions: Unable to contact slurm controller' >&2; exit 1", "slurm controller"),
            ("exec /bin/sleep 60", "does not answer: no answer"),
        ],
    )
    def test_a_controller_that_is_not_there_or_does_not_answer(self, sinfo, end, commands, monkeypatch):
        monkeypatch.setattr(slurm, "ANSWER_S", 0.2)
        commands(sinfo=sinfo, srun="")
        (found,) = slurm.cluster()
        assert (found.status, found.told.endswith(end)) == ("warning", True)

    def test_whatever_it_answers_is_shown_as_lines(self, monkeypatch):
        monkeypatch.setattr(slurm.shutil, "which", lambda name: name)
        for answer in mutations("debug* 4 idle*\nfat 2 down~\n" * 20, seed=41, count=100):
            monkeypatch.setattr(slurm, "run_command", lambda words, s, answer=answer: Answer(0, plain(answer), ""))
            assert not any(re.search(r"[\x00-\x1f\x7f-\x9f]", finding.told) for finding in slurm.cluster())
            assert len(slurm.cluster()[0].told) < 10_000

    def test_inside_a_job(self, monkeypatch):
        monkeypatch.setenv("SLURM_JOB_ID", "7")
        monkeypatch.setenv("SLURM_NTASKS", "4")
        (found,) = slurm.job()
        assert found.told.startswith("job_id 7, ntasks 4; this process: ")

    def test_launchers_that_contradict_each_other(self, monkeypatch):
        monkeypatch.setenv("RANK", "3")
        (found,) = slurm.job()
        assert (found.name, found.status) == ("launcher", "warning")
        assert "WORLD_SIZE is not" in found.told


class TestTraining:
    def test_equal_and_different_bits(self):
        assert equal_bits.judge_weights("bits", {1: "ab" * 32, 2: "ab" * 32}).status == "ok"
        found = equal_bits.judge_weights("bits", {1: "ab" * 32, 2: "cd" * 32})
        assert told(found) == ("failed", "trained on 1 and 2 ranks: the weights differ")
        assert found.facts == {"weights_sha256 on 1": "ab" * 32, "weights_sha256 on 2": "cd" * 32}

    def test_a_training_that_fails_says_why(self):
        found = equal_bits.compare("bits", ["--engine", "abacus"])
        assert found.status == "failed"
        assert "--engine abacus" in found.told

    def test_without_torch_nothing_is_said_of_it(self, monkeypatch):
        monkeypatch.setattr(equal_bits, "find_spec", lambda name: None)
        assert equal_bits.probe_training_torch() == []


@needs_torch
def test_torch_without_gpus_says_that_none_are_needed():
    assert compute._gpus(None).status == "missing"


def test_kernels_that_keep_the_promise():
    (finding,) = equal_bits.probe_kernels_numpy()
    assert finding.status == "ok", finding
    assert finding.facts["differing"] == {}


def test_kernels_that_break_it_are_named(monkeypatch):
    compute_gradient = Chain.loss_and_grad

    def by_position(self, x, y, grads, *rest):
        found = compute_gradient(self, x, y, grads, *rest)
        grads[1:] += np.float32(1)
        return found

    monkeypatch.setattr(Chain, "loss_and_grad", by_position)
    cases = {name: case for name, case in numpy_cases(3).items() if name in ("linear", "batch norm")}
    finding = equal_bits.judge_kernels("kernels, NumPy", cases, 3)
    assert finding.status == "failed"
    assert "the position in a group of 2 (linear; 2 of 2 kinds of layers)" in finding.told
    assert finding.fix
