"""The cluster that the tests beside this one use: a real one, and nothing is left of it."""

import psutil
import pytest

from support.cluster.slurm_cluster import SlurmCluster, missing

needs_slurm = pytest.mark.skipif(bool(missing()), reason=f"no SLURM: {missing()}")


def test_nodes_are_apart_and_reach_each_other(slurm):
    told = "touch /dev/shm/$(hostname); ls /dev/shm; ip -4 -o addr show eth0 | grep -o 'inet [0-9.]*'"
    shown = slurm.call(["srun", "-N2", "-l", "bash", "-c", told])
    assert sorted(shown.stdout.splitlines()) == ["0: inet 10.9.0.1", "0: n1", "1: inet 10.9.0.2", "1: n2"], shown.stderr
    answer = "exec 3<>/dev/tcp/$(hostname | tr 12 21)/6818 && echo reached"  # the other's slurmd
    assert slurm.call(["srun", "-N2", "bash", "-c", answer]).stdout == "reached\n" * 2
    assert "pmix" in slurm.call(["srun", "--mpi=list"]).stdout


@needs_slurm
def test_nothing_is_left_of_a_cluster_when_a_test_fails(tmp_path):
    """It stands beside the one of the other tests: they do not meet."""
    inside = []

    def work() -> None:
        with SlurmCluster(tmp_path / "cluster", nodes=1) as cluster:
            assert cluster.call(["sinfo", "-h", "-o", "%D", "-p", "main"]).stdout == "1\n"
            assert cluster.call(["sbatch", "--wrap", "sleep 300"]).returncode == 0
            inside.extend(psutil.Process(cluster.first_process).children(recursive=True))
            raise ZeroDivisionError

    (tmp_path / "cluster").mkdir()
    with pytest.raises(ZeroDivisionError):
        work()
    assert len(inside) > 5
    assert not [process for process in inside if process.is_running()]
    assert not (tmp_path / "cluster").exists()


@needs_slurm
def test_a_cluster_that_does_not_come_up_says_why(tmp_path, monkeypatch):
    monkeypatch.setattr("support.cluster.slurm_cluster.CONFIGURATION", "ClusterName=broken\n")
    with pytest.raises(AssertionError, match="slurmctld: "):
        SlurmCluster(tmp_path).__enter__()
