"""A supervisor's hold on its courier: what is a loss, after which a run is saved, and what is an error."""

import socket
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from unisono.errors import UnisonoError, UserError
from unisono.launch import outpost
from unisono.launch.errand import packed
from unisono.launch.nodes import NodeOptions
from unisono.launch.outpost import Outpost

TWO = NodeOptions(num_nodes=2, node_id=0, main_address="10.0.0.1")


def attached(monkeypatch: Any, *news: dict[str, Any]) -> Outpost:
    """One whose courier tells these news after it was attached, and ends."""

    def run_errand(line: socket.socket, options: NodeOptions, facts: dict[str, Any]) -> int:
        line.recv(outpost.MESSAGE_BYTES)
        for told in ({"attached": True}, *news):
            line.send(packed(told))
        return 0

    monkeypatch.setattr(outpost, "run_errand", run_errand)
    post = Outpost(TWO, {})
    with socket.socket() as anything:
        post.attach({}, anything.fileno(), SimpleNamespace(fail=lambda: None, failed=True))
    return post


def test_a_machine_that_was_lost_is_a_loss(monkeypatch):
    with closing(attached(monkeypatch, {"lost": "node 1 (n2) was lost"})) as post:
        assert post.why() == "node 1 (n2) was lost"
        assert post.failure is None


def test_a_courier_that_ends_without_a_word_is_a_loss(monkeypatch):
    with closing(attached(monkeypatch)) as post:
        assert post.why() == "the courier of this node, which talks to the others, was ended"


@pytest.mark.parametrize(("code", "kind"), [(1, UnisonoError), (2, UserError)])
def test_an_error_is_none_for_nothing_of_it_is_to_be_saved(monkeypatch, code, kind):
    with closing(attached(monkeypatch, {"error": [code, "node 1 and node 0 have different parameters"]})) as post:
        with pytest.raises(kind, match="different parameters") as caught:
            post.why()
        assert caught.value.exit_code == code
        assert post.lost == ""
