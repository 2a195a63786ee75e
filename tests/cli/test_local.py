"""`unisono train --strategy local` as a user meets it."""

import pytest

from support.cli.train_command import COMMAND, summary_of, train
from support.needs import needs_mpi4py, needs_torch
from unisono.environment.os_environ import child_environment, mpi_environment
from unisono.launch.launcher_commands import mpirun

LOCAL = ["--strategy", "local", "--sync-every", "5", "--dropout", "0.1"]


def test_it_says_what_it_does_and_a_run_that_was_halted_goes_on(tmp_path):
    ended = train(*LOCAL, "--epochs", "2", "--ranks", "3", "--out", "one", "--snapshot-every", "1epochs", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "8 shards: same bits on 1-8 ranks" in ended.stdout
    assert "8 replicas, one a shard, averaged after every 5 steps and at the end of each epoch" in ended.stdout
    more = ["--epochs", "3", "--allow-change", "epochs"]
    ended = train("--resume", "one", "--ranks", "1", *more, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    ended = train(*LOCAL, "--epochs", "3", "--out", "two", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    one, two = summary_of(tmp_path / "one"), summary_of(tmp_path / "two")
    assert one["weights_sha256"] == two["weights_sha256"]
    assert (two["strategy"], two["shard_price"]) == ("local", None)


@needs_mpi4py
def test_as_ranks_of_mpi_in_the_arena_and_over_messages(tmp_path):
    assert train(*LOCAL, "--epochs", "2", "--out", "one", cwd=tmp_path).returncode == 0
    for out, more in (
        ("arena", []),
        ("doubling", ["--transport", "mpi", "--allreduce", "doubling"]),
        ("native", ["--transport", "mpi", "--allreduce", "native", "--slow", "1:1.5"]),
    ):
        arguments = [*LOCAL, "--epochs", "2", *more, "--out", out]
        ended = train(*arguments, cwd=tmp_path, command=mpirun(2, COMMAND), environment=mpi_environment())
        assert ended.returncode == 0, ended.stderr
    one, arena, doubling, native = (summary_of(tmp_path / out) for out in ("one", "arena", "doubling", "native"))
    assert one["weights_sha256"] == arena["weights_sha256"] == doubling["weights_sha256"]
    assert native["test_loss"] == pytest.approx(one["test_loss"], rel=1e-3)
    refused = [*LOCAL, "--transport", "mpi", "--allreduce", "native", "--wire", "bf16"]
    ended = train(*refused, cwd=tmp_path, command=mpirun(2, COMMAND), environment=mpi_environment())
    assert ended.returncode == 2
    assert ended.stderr.count("--wire bf16 with --allreduce native: MPI cannot add up such numbers") == 1


@needs_torch
def test_over_gloo_in_16_bits(tmp_path):
    over = ["--epochs", "3", "--transport", "gloo", "--allreduce", "native", "--wire", "bf16", "--out", "run"]
    ended = train(*LOCAL, *over, cwd=tmp_path, environment=child_environment(threads=1))
    assert ended.returncode == 0, ended.stderr
    assert "other bits on other numbers of ranks" in ended.stdout
    summary = summary_of(tmp_path / "run")
    assert (summary["strategy"], summary["transport"], summary["allreduce"]) == ("local", "gloo", "native")
    assert summary["test_accuracy"] > 0.5
