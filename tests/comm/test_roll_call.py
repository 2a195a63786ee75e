"""Who came, who is missing, who came twice: said by everybody who came. The store is a dictionary here."""

from threading import Thread

import pytest

from unisono.comm.roll_call import Join, NotAllCame, call
from unisono.errors import UserError


class Dictionary:
    """What is used of a torch store; `gone`: whoever served it has ended."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.gone = False

    def set(self, key: str, value: str) -> None:
        self.values[key] = value

    def get(self, key: str) -> bytes:
        return self.values[key].encode()

    def check(self, keys: list[str]) -> bool:
        if self.gone:
            raise RuntimeError("Connection reset by peer")
        return all(key in self.values for key in keys)

    def add(self, key: str, amount: int) -> int:
        self.values[key] = str(int(self.values.get(key, "0")) + amount)
        return int(self.values[key])


def test_all_come():
    store, found = Dictionary(), {}
    others = [
        Thread(target=lambda rank=rank: found.setdefault(rank, call(store, rank, 3, Join(main="127.0.0.1"))))
        for rank in (1, 2)
    ]
    for thread in others:
        thread.start()
    assert call(store, 0, 3, Join()) == "127.0.0.1"
    for thread in others:
        thread.join()
    assert found == {1: "127.0.0.1", 2: "127.0.0.1"}


def test_who_is_missing_is_named_with_who_is_here():
    store = Dictionary()
    store.set("roll/2", '{"host": "far", "address": "10.0.0.3"}')
    with pytest.raises(NotAllCame, match=r"after 0 s node 1 of 3 had not come; here: node 0 on .*, 2 on far") as caught:
        call(store, 0, 3, Join(timeout_s=0.0, noun="node"))
    assert (caught.value.missing, caught.value.exit_code) == ((1,), 2)


def test_a_number_that_came_twice_is_refused():
    store = Dictionary()
    with pytest.raises(NotAllCame):
        call(store, 1, 2, Join(timeout_s=0.0, noun="node"))
    with pytest.raises(
        UserError, match=r"node 1 is here already, on (.|\n)*give each node a number of its own, from 0 to 1"
    ):
        call(store, 1, 2, Join(timeout_s=0.0, noun="node"))


def test_a_store_that_ended_is_told():
    store = Dictionary()
    store.gone = True
    with pytest.raises(NotAllCame, match=r"whoever serves the store at 10\.0\.0\.1 is gone; until then ranks 0, 1"):
        call(store, 1, 2, Join(main="10.0.0.1", interface="lo"))
