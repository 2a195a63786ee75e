"""Who came, who is missing, who came twice: said by everybody who came. The store is a dictionary here."""

import json
from threading import Thread

import pytest

from unisono.comm.topology.rendezvous import RanksMissing, RendezvousOptions, exchange_addresses, rank_names
from unisono.errors import UserError


class Dictionary:
    """What is used of a torch store; whoever serves it has ended after so many `calls`."""

    def __init__(self, calls: float = float("inf")) -> None:
        self.values: dict[str, str] = {}
        self.calls = calls

    @classmethod
    def holding(cls, values: dict[str, str]) -> "Dictionary":
        made = cls()
        made.values = {key: value for key, value in values.items() if value}
        return made

    def _count(self) -> None:
        self.calls -= 1
        if self.calls < 0:
            raise RuntimeError("Connection reset by peer")

    def set(self, key: str, value: str) -> None:
        self._count()
        self.values[key] = value

    def get(self, key: str) -> bytes:
        self._count()
        return self.values[key].encode()

    def multi_get(self, keys: list[str]) -> list[bytes]:
        self._count()
        return [self.values[key].encode() for key in keys]

    def append(self, key: str, value: str) -> None:
        self._count()
        self.values[key] = self.values.get(key, "") + value

    def check(self, keys: list[str]) -> bool:
        self._count()
        return all(key in self.values for key in keys)

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        self._count()
        if self.values.get(key, "") == expected:
            self.values[key] = desired
        return self.values[key].encode()

    def delete_key(self, key: str) -> bool:
        raise NotImplementedError


def test_all_come():
    store, found = Dictionary(), {}
    others = [
        Thread(
            target=lambda rank=rank: found.setdefault(
                rank, exchange_addresses(store, rank, 3, RendezvousOptions(main="127.0.0.1"))
            )
        )
        for rank in (1, 2)
    ]
    for thread in others:
        thread.start()
    assert exchange_addresses(store, 0, 3, RendezvousOptions()) == "127.0.0.1"
    for thread in others:
        thread.join()
    assert found == {1: "127.0.0.1", 2: "127.0.0.1"}


def test_who_is_missing_is_named_with_who_is_here():
    store = Dictionary()
    store.set("roll/2", '{"host": "far", "address": "10.0.0.3"}')
    with pytest.raises(
        RanksMissing, match=r"after 0 s node 1 of 3 had not come; here: node 0 on .*, 2 on far"
    ) as caught:
        exchange_addresses(store, 0, 3, RendezvousOptions(timeout_s=0.0, noun="node"))
    assert (caught.value.missing, caught.value.exit_code) == ((1,), 2)


def test_a_number_that_came_twice_is_refused():
    store = Dictionary()
    with pytest.raises(RanksMissing):
        exchange_addresses(store, 1, 2, RendezvousOptions(timeout_s=0.0, noun="node"))
    with pytest.raises(
        UserError, match=r"node 1 is here already, on (.|\n)*give each node a number of its own, from 0 to 1"
    ):
        exchange_addresses(store, 1, 2, RendezvousOptions(timeout_s=0.0, noun="node"))


@pytest.mark.parametrize(
    "card",
    [
        "",
        "no JSON",
        "[" * 5000,
        "null",
        "[1, 2]",
        '"host"',
        "13",
        "{}",
        '{"host": "n2"}',
        '{"host": 7, "address": "10.0.0.3"}',
        '{"host": "n2\\u001b[31m", "address": "10.0.0.3"}',
        '{"host": "n2\\nunisono: all is well", "address": "10.0.0.3"}',
        '{"host": "n2", "address": "10.0.0.300"}',
        '{"host": "n2", "address": ""}',
        '{"host": "n2", "address": ["10.0.0.3"]}',
        '{"host": "n2", "address": "10.0.0.3", "address": "10.0.0.4"}',
        '{"host": "%s", "address": "10.0.0.3"}' % ("n" * 256),
        '{"host": "n2", "address": "10.0.0.3", "id": "%s"}' % ("0" * 5000),
    ],
    ids=lambda card: card[:30],
)
def test_a_card_that_no_rank_wrote_is_refused_by_name(card):
    store = Dictionary()
    store.values |= {"roll/1": card or " ", "roll/0": '{"host": "near", "address": "10.0.0.1"}'}
    asked = RendezvousOptions(timeout_s=0.0, noun="node", interface="lo")
    for read in (
        lambda: exchange_addresses(Dictionary.holding(store.values | {"roll/0": ""}), 0, 2, asked),
        lambda: exchange_addresses(store, 1, 2, asked),
        lambda: exchange_addresses(Dictionary.holding(store.values | {"roll/0": ""}), 0, 3, asked),
        lambda: rank_names(store, 2, asked),
    ):
        with pytest.raises(UserError, match=r"^the card of node 1 in the rendezvous is not valid: .+") as caught:
            read()
        assert str(caught.value).partition("\nHINT: ")[0].isprintable()


def test_the_requests_of_a_rank_do_not_grow_with_the_number_of_ranks():
    store, join = Dictionary(calls=1000), RendezvousOptions(main="127.0.0.1", timeout_s=30.0)
    for other in range(64):
        if other != 13:
            store.values[f"roll/{other}"] = '{"host": "far", "address": "10.0.0.3"}'
    store.values["roll/came"] = "".join(f"{other} " for other in range(64) if other != 13)
    exchange_addresses(store, 13, 64, join)
    assert len(rank_names(store, 64, join)) == 64
    assert 1000 - store.calls == 6  # card, number, who came, all cards there, cards; cards for the names


def test_numbers_without_cards_are_not_believed():
    store = Dictionary()
    store.values["roll/came"] = "2 1 x -1 99999999999999999999 "
    with pytest.raises(RanksMissing, match=r"after 0 s ranks 1, 2 of 3 had not come"):
        exchange_addresses(store, 0, 3, RendezvousOptions(timeout_s=0.0))


@pytest.mark.parametrize("address", ["10.0.0.3", "fd00::3", "fe80::1%eth0"])
def test_addresses_that_are_some(address):
    store = Dictionary.holding({"roll/0": json.dumps({"host": "near", "address": address})})
    assert rank_names(store, 1, RendezvousOptions()) == [f"rank 0 (near, {address})"]


@pytest.mark.parametrize(
    ("calls", "last"),
    [(0, "ranks 0, 1 had not come"), (1, "ranks 0, 1 had not come"), (3, "rank 0 had not come"), (5, "rank 0 had not")],
)
def test_a_store_that_ended_is_told(calls, last):
    with pytest.raises(RanksMissing, match=rf"whoever serves the store at 10\.0\.0\.1 is gone; until then {last}"):
        exchange_addresses(Dictionary(calls), 1, 2, RendezvousOptions(main="10.0.0.1", interface="lo"))


def test_a_store_that_ended_when_all_had_come_is_told():
    store = Dictionary(4)
    store.values |= {"roll/0": '{"host": "far", "address": "10.0.0.3"}', "roll/came": "0 "}
    with pytest.raises(RanksMissing, match="is gone; until then all had come"):
        exchange_addresses(store, 1, 2, RendezvousOptions(main="10.0.0.1", interface="lo"))
