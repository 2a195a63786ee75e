"""One rank of the tests of the torch backend.

torchrun --nproc-per-node=3 torch_backend.py                what is special to it in a world of three
python torch_backend.py RANK SIZE HOST:PORT                  our own store; rank 1 is killed in the middle
python torch_backend.py refusals                             what cannot be connected
python torch_backend.py stranger                             somebody who takes a rank's place
"""

import os
import re
import signal
import sys
from threading import Thread
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from support.comm.conformance_checks import hasty
from unisono.comm.base import Communicator
from unisono.comm.gloo.communicator import TorchCommunicator, world
from unisono.comm.gloo.process_group import connect
from unisono.comm.gloo.store import prefixed, reach_store, serve_store
from unisono.comm.topology.authentication import Secret
from unisono.comm.topology.rendezvous import RendezvousOptions
from unisono.environment.os_environ import detect
from unisono.errors import CommError, CommTimeout, UserError

SECRET = Secret(b"known to all ranks here", "the test")


def torchs_default_group_is_left_alone(comm: Communicator) -> None:
    assert not dist.is_initialized()
    dist.init_process_group("gloo")
    with world(comm.rank, 3, timeout_s=20.0) as made:
        total = torch.ones(3)
        dist.all_reduce(total)
        ours = np.ones(3)
        made.all_reduce(ours)
        assert total.tolist() == ours.tolist() == [3, 3, 3]
    dist.destroy_process_group()


def without_checks_a_wait_ends_all_the_same(comm: Communicator) -> None:
    group = hasty(comm, 3.0)
    assert isinstance(group, TorchCommunicator)
    group.checked = False
    if comm.rank != 2:
        with pytest.raises(CommTimeout) as caught:
            group.all_reduce(np.ones(5))
        assert caught.value.missing == ()
    comm.barrier()
    group.close()


def connecting_names_who_is_missing(comm: Communicator) -> None:
    comm.barrier()  # whoever comes late is missing, too
    if comm.rank != 2:
        with pytest.raises(CommTimeout, match=r"rank 2 of 3 had not come; here: rank 0 on .*, 1 on") as caught:
            world(comm.rank, 3, timeout_s=4.0)
        assert caught.value.missing == (2,)
    comm.barrier()


def groups_have_as_long_to_connect_as_the_world_had(comm: Communicator) -> None:
    with world(comm.rank, 3, timeout_s=17.0) as group, group.split(0) as part:
        assert (group.join_s, part.join_s) == (17.0, 17.0)


def lose_a_rank(rank: int, size: int, address: str) -> None:
    """Rank 1 writes, and dies: the message is still there, and the next meeting fails long before the time-out."""
    with world(
        rank, size, address, timeout_s=30.0, join=RendezvousOptions("127.0.0.1", timeout_s=30.0, secret=SECRET)
    ) as comm:
        if rank == 1:
            comm.send(np.array([7]), 0)
            comm.recv(np.empty(5000), 0)
            os.kill(os.getpid(), signal.SIGKILL)
        comm.send(np.empty(5000), 1)
        with pytest.raises(CommError, match="rank 1 had not arrived") as caught:
            comm.barrier()
        assert not isinstance(caught.value, CommTimeout)
        print("PASSED", flush=True)


def announce_failure(rank: int, size: int, address: str) -> None:
    """Rank 1 says why it leaves, and does: whoever waits for it, in whatever, learns it when the wait fails."""
    with world(
        rank, size, address, timeout_s=30.0, join=RendezvousOptions("127.0.0.1", timeout_s=30.0, secret=SECRET)
    ) as comm:
        comm.checked = False
        if rank == 1:
            return comm.announce_failure(b"no label")
        arriving = comm.irecv(np.empty(5), 1)
        with pytest.raises(CommError) as caught:
            comm.all_gather(np.zeros(5))
        assert not isinstance(caught.value, CommTimeout)
        assert comm.failure_notices() == [b"no label"]
        for _ in range(2):
            with pytest.raises(CommError, match="a receive from rank 1 failed"):
                arriving.wait()
        comm.announce_failure(b"nobody is there any more")
        print("PASSED", flush=True)


def refusals() -> None:
    with pytest.raises(UserError, match="'here' is no address"):
        world(0, 2, "here", join=RendezvousOptions(secret=SECRET))
    with pytest.raises(CommTimeout, match=r"no store at 127.0.0.1:1:(.|\n)*is rank 0 running") as caught:
        world(1, 2, "127.0.0.1:1", join=RendezvousOptions(timeout_s=0.5, secret=SECRET))
    assert caught.value.missing == (0,)
    with pytest.raises(UserError, match="no secret"):
        world(0, 2, "127.0.0.1:1")
    if not dist.is_nccl_available():
        with pytest.raises(UserError, match="no NCCL for cuda:0"):
            TorchCommunicator(dist.HashStore(), 0, 1, "cuda:0")


def stranger() -> None:
    """Whoever is in rank 1's place, as gloo lets anybody be who connects before that, has to know the secret."""
    first = serve_store(["127.0.0.1"], 0, SECRET, "rank 0")
    second = reach_store("127.0.0.1", first.port, SECRET, 30.0, "rank 1")
    for number, (wrong, reason) in enumerate(
        [
            (Secret(b"of somebody else", "elsewhere"), "whoever connected as rank 1 does not know the secret"),
            (None, "rank 1 did not prove the secret over its connection; did somebody else take its place?"),
        ]
    ):
        theirs = prefixed(f"world{number}", second)
        theirs.secret = wrong  # type: ignore[attr-defined]
        theirs.set("nonce/1", "as the true rank 1 did")
        found = []

        def live(store: Any = theirs, found: list[Any] = found) -> None:
            try:
                found.append(connect(store, 1, 2, "127.0.0.1", 5.0))  # kept: the connection is not closed
            except RuntimeError as error:
                found.append(error)

        other = Thread(target=live)
        other.start()
        with pytest.raises(RuntimeError, match=re.escape(reason)):
            connect(prefixed(f"world{number}", first), 0, 2, "127.0.0.1", 5.0 if wrong else 1.5)
        other.join()
    print("PASSED", flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["refusals"]:
        refusals()
    elif sys.argv[1:] == ["stranger"]:
        stranger()
    elif len(sys.argv) > 1:
        part = {"lose_a_rank": lose_a_rank, "take_leave": announce_failure}[sys.argv[4]]
        part(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
    else:
        placement = detect()
        with world(placement.rank, placement.size, join=RendezvousOptions(timeout_s=20.0), timeout_s=20.0) as comm:
            torchs_default_group_is_left_alone(comm)
            without_checks_a_wait_ends_all_the_same(comm)
            groups_have_as_long_to_connect_as_the_world_had(comm)
            connecting_names_who_is_missing(comm)  # last: one rank has made a world less afterwards
        print("PASSED", flush=True)
