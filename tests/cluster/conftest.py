"""A cluster on this one machine, started once for all tests of this folder that ask for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cluster.slurm_cluster import SlurmCluster, missing
from support.cluster.slurm_jobs import Desk


@pytest.fixture(scope="package")
def slurm_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """Two nodes of two cores."""
    if why := missing():
        pytest.skip(f"no SLURM: {why}")
    with SlurmCluster(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


@pytest.fixture
def slurm(slurm_cluster: SlurmCluster) -> Iterator[SlurmCluster]:
    """The cluster, without jobs of other tests."""
    yield slurm_cluster
    slurm_cluster.settle()


@pytest.fixture
def mailbox(slurm: SlurmCluster, tmp_path: Path) -> Desk:
    return Desk(slurm, tmp_path)
