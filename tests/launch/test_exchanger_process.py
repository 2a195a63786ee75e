"""A supervisor's hold on its exchanger: what is a loss, after which a run is saved, and what is an error."""

import socket
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from unisono.errors import UnisonoError, UserError
from unisono.launch import exchanger_process
from unisono.launch.exchanger_process import MESSAGE_BYTES, ExchangerProcess, packed, unpacked
from unisono.launch.machine_options import MachineOptions
from unisono.messages.exchanger_orders import Answer, Attached, Failed, Joined, NodesLost
from unisono.recipe import Recipe
from unisono.strategies.failure_notice import FailureNotice
from unisono.training.consistency import facts_of

TWO = MachineOptions(num_nodes=2, node_id=0, main_address="10.0.0.1")


def attached(monkeypatch: Any, *news: Answer) -> ExchangerProcess:
    """One whose exchanger tells these news after it was attached, and ends."""

    def run_exchanger_process(line: socket.socket, options: MachineOptions, facts: dict[str, Any]) -> int:
        line.recv(exchanger_process.MESSAGE_BYTES)
        for told in (Attached(), *news):
            line.send(packed(told))
        return 0

    monkeypatch.setattr(exchanger_process, "run_exchanger", run_exchanger_process)
    post = ExchangerProcess(TWO, {})
    with socket.socket() as anything:
        post.attach({}, anything.fileno(), SimpleNamespace(fail=lambda: None, failed=True))
    return post


@pytest.mark.parametrize(
    ("news", "why", "nodes", "crashes"),
    [
        ([NodesLost("node 1 (n2) was lost", nodes=(1,))], "node 1 (n2) was lost", (1,), 0),
        ([NodesLost("node 1 (n2): no rank is left", nodes=(1,), crashes=5)], "node 1 (n2): no rank is left", (1,), 5),
        ([], "the exchanger of this node, which talks to the others, was ended", (), 0),
    ],
)
def test_a_machine_that_was_lost_or_gave_up_is_a_loss(monkeypatch, news, why, nodes, crashes):
    with closing(attached(monkeypatch, *news)) as post:
        assert (post.why(), post.failure) == (why, None)
        assert (post.lost_nodes, post.first_lost, post.crashes) == (nodes, False, crashes)


def test_whoever_fails_says_so_instead_of_good_bye(monkeypatch, tmp_path):
    def run_exchanger_process(line: socket.socket, options: MachineOptions, facts: dict[str, Any]) -> int:
        line.recv(exchanger_process.MESSAGE_BYTES)
        line.send(packed(Attached()))
        orders = []
        while data := line.recv(exchanger_process.MESSAGE_BYTES):
            orders.append(unpacked(data))
            if orders[-1]:
                break
        (tmp_path / "orders").write_text(repr(orders))
        return 0

    monkeypatch.setattr(exchanger_process, "run_exchanger", run_exchanger_process)
    with closing(ExchangerProcess(TWO, {})) as post, socket.socket() as anything:
        post.attach({}, anything.fileno(), SimpleNamespace(fail=lambda: None, failed=False))
        post.announce_failure(FailureNotice("rank 2: no label", 1))
        post.announce_failure(FailureNotice("its supervisor: another one, later", 1))
    assert (tmp_path / "orders").read_text() == "[Leave(text='rank 2: no label', code=1, crashes=0)]"


@pytest.mark.parametrize(("code", "kind"), [(1, UnisonoError), (2, UserError), (3, UnisonoError)])
def test_an_error_is_none_for_nothing_of_it_is_to_be_saved(monkeypatch, code, kind):
    with closing(attached(monkeypatch, Failed(code, "node 1 and node 0 have different parameters"))) as post:
        with pytest.raises(kind, match="different parameters") as caught:
            post.why()
        assert caught.value.exit_code == code
        assert post.lost == ""


def test_the_facts_of_a_thousand_machines_are_one_message():
    one = facts_of(Recipe())
    facts = [one | {"host": f"n{node}", "address": f"10.0.{node // 256}.{node % 256}"} for node in range(1000)]
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with left, right:
        left.settimeout(10)
        left.send(packed(Joined(facts)))
        assert unpacked(right.recv(MESSAGE_BYTES)) == Joined(facts)
