"""The store with a secret, as torch uses it; and what a machine is told that is refused."""

import gc
import socket
from collections.abc import Iterator
from datetime import timedelta

import pytest

pytest.importorskip("torch")
from torch.distributed import HashStore, Store

from unisono.comm.gloo import store as torch_store
from unisono.comm.gloo.store import SecretStore, open_store, prefixed, reach_store, serve_store
from unisono.comm.topology.authentication import Secret
from unisono.comm.topology.rendezvous import RanksMissing, RendezvousOptions
from unisono.comm.topology.store_client import StoreClient
from unisono.comm.topology.store_server import MOST_VALUE_BYTES
from unisono.errors import UserError

OURS, OTHER = Secret(b"the secret of these tests", "mine"), Secret(b"the secret of somebody else", "~/other")


@pytest.fixture
def served() -> Iterator[SecretStore]:
    made = serve_store(["127.0.0.1"], 0, OURS, "node 0")
    yield made
    made.close()


def use(store: Store) -> list[object]:
    """What a store answers to whatever torch asks."""
    store.set_timeout(timedelta(seconds=20))
    store.set("a", "13")
    store.set("bytes", b"\0\xff" if isinstance(store, SecretStore) else "\0")
    store.append("a", "!")
    store.multi_set(["x", "y"], ["1", "2"])
    store.wait(["a", "x"])
    store.wait(["a", "y"], timedelta(seconds=20))
    return [
        store.get("a"),
        store.add("n", 7),
        store.add("n", -2),
        store.compare_set("c", "", "first"),
        store.compare_set("c", "", "second"),
        store.compare_set("c", "first", "second"),
        store.check(["a", "c"]),
        store.check(["a", "none"]),
        store.multi_get(["x", "y"]),
        store.num_keys(),
        store.delete_key("a"),
        store.delete_key("a"),
        store.has_extended_api(),
        store.timeout,
    ]


def test_it_answers_as_torchs_own_store(served):
    assert use(served) == use(HashStore())


def test_under_a_prefix_it_is_kept(served):
    store = prefixed("split1", prefixed("unisono/1", SecretStore(served._client, OURS)))
    gc.collect()
    store.set("here/0", "1")
    assert (store.get("here/0"), store.check(["here/1"])) == (b"1", False)
    assert (store.num_keys(), store.delete_key("here/0"), served.num_keys()) == (1, True, 0)


def test_many_values_are_one_request_if_they_fit_into_one_answer(served, monkeypatch):
    keys = [f"nonce/{rank}" for rank in range(64)]
    served.multi_set(keys, [f"{rank}" for rank in range(64)])
    served.set("long", "x" * MOST_VALUE_BYTES)
    asked, ask = [], StoreClient.ask

    def count(self, wait_s, *fields):
        asked.append(fields)
        return ask(self, wait_s, *fields)

    monkeypatch.setattr(StoreClient, "ask", count)
    assert prefixed("nonce", served).multi_get([str(rank) for rank in range(64)]) == [b"%d" % n for n in range(64)]
    assert len(asked) == 1
    assert list(map(len, served.multi_get(["nonce/1", "long", "long", "nonce/13"]))) == [1, 1 << 20, 1 << 20, 2]
    assert len(asked) == 5


def test_what_does_not_come_is_a_time_out_that_the_communicator_knows(served):
    with pytest.raises(RuntimeError, match=r"Timed out after 0\.01 s waiting for roll/1"):
        prefixed("roll", served).wait(["1"], timedelta(milliseconds=10))


def test_another_secret_is_refused_by_name_and_told_by_the_first_machine(served, capfd):
    with pytest.raises(UserError) as caught:
        reach_store("127.0.0.1", served.port, OTHER, 20.0, "node 1")
    said, hint = str(caught.value).splitlines()
    assert said.startswith(
        f"node 1 on {socket.gethostname()}: refused at 127.0.0.1:{served.port}: it has another secret"
    )
    assert said.endswith("(here it is from ~/other)")
    for cure in (
        "~/.config/unisono/secret, mode 0600",
        "--secret-file FILE",
        f"another --main-port than {served.port}",
    ):
        assert cure in hint
    served.num_keys()  # the server has gone on after its refusal
    (refusal,) = served.refusals
    assert refusal == f"refused 127.0.0.1: ({socket.gethostname()}) it has another secret"
    assert capfd.readouterr().err == f"unisono: node 0: {refusal}\n"


def test_worlds_of_one_process_share_a_server():
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]
    join = RendezvousOptions(main="127.0.0.1", secret=OURS, timeout_s=20.0)
    (first, _), (second, _) = (open_store(0, 1, f"127.0.0.1:{port}", join) for _ in range(2))
    first.set("a", "1")
    assert not second.check(["a"])
    del first, second
    gc.collect()
    with socket.create_server(("127.0.0.1", port)):
        pass  # free again


def test_a_port_that_is_taken_is_told():
    with socket.create_server(("127.0.0.1", 0)) as door:
        address = f"127.0.0.1:{door.getsockname()[1]}"
        with pytest.raises(RanksMissing, match=f"node 0: no store at {address}: Address already in use"):
            open_store(0, 2, address, RendezvousOptions(main="127.0.0.1", secret=OURS, noun="node"))


@pytest.mark.parametrize(
    ("host", "means", "interface", "expected"),
    [
        ("127.0.0.1", "127.0.0.1", "", ["127.0.0.1"]),
        ("localhost", "127.0.0.1", "", ["127.0.0.1"]),
        ("localhost", "127.0.0.1", "lo", ["127.0.0.1"]),
        ("n1", "127.0.0.2", "", ["10.1.1.1", "127.0.0.2"]),
        ("n1", "127.0.1.1", "lo", ["127.0.0.1", "127.0.1.1"]),
        ("service", "203.0.113.9", "", ["10.1.1.1"]),
    ],
)
def test_where_the_first_machine_listens(monkeypatch, host, means, interface, expected):
    monkeypatch.setattr(torch_store, "resolve", lambda host: means)
    monkeypatch.setattr(torch_store, "own_addresses", lambda: ["10.1.1.1"])
    assert torch_store._listening(host, RendezvousOptions(interface=interface)) == expected
