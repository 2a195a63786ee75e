"""Clusters on this one machine, started once for each file of tests that ask for them."""

from collections.abc import Iterator

import pytest

from support.cluster.slurm_cluster import SlurmCluster, missing


@pytest.fixture(scope="module")
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
