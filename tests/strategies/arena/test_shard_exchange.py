"""Exchanges in the middle of a step: rows of all shards, changes of membership, and who is waited for in vain."""

from collections.abc import Callable
from threading import Barrier, Thread
from typing import Any

import numpy as np
import pytest

from support.strategies.arena_cases import arena_state
from unisono.arena.membership import protocol
from unisono.arena.membership.member import Member, MembershipChanged, pulse_of
from unisono.arena.sync.waiting import wait_until
from unisono.errors import CommTimeout, UserError
from unisono.strategies.arena.shard_exchange import ShardExchange
from unisono.strategies.arena.state import EXCHANGE_LINE, ArenaExtent, ArenaState

SHARDS, WIDTH = 7, 3


def arena(size: int) -> ArenaState:
    shared = arena_state(ArenaExtent(size, SHARDS, (SHARDS,), exchange=WIDTH))
    protocol.first_view(shared.words, range(size), size)
    return shared


def exchange_of(shared: ArenaState, rank: int) -> ShardExchange:
    return ShardExchange(shared, Member(shared.words, rank, shared.size, crowded=True))


def in_threads(*works: Callable[[], Any]) -> list[Any]:
    """What each of them returned or raised."""
    found: list[Any] = [None] * len(works)

    def work(number: int) -> None:
        try:
            found[number] = works[number]()
        except Exception as error:
            found[number] = error.with_traceback(None)

    threads = [Thread(target=work, args=[number]) for number in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def values_of(shard: int, position: int, number: int) -> list[float]:
    return [shard + 0.5, position * 100.0 + number, 1 / (1 + shard)]


def rows(exchange: ShardExchange, position: int, number: int) -> np.ndarray:
    mine = [np.array(values_of(shard, position, number)) for shard in exchange._mine]
    return exchange.rows(number, mine).copy()


def expected(live: int, position: int, number: int) -> np.ndarray:
    return np.array([values_of(shard, position, number) for shard in range(live)])


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
def test_everybody_gets_the_rows_of_all_shards_again_and_again(size):
    shared, between = arena(size), Barrier(size)  # rounds are kept apart by meetings of another kind

    def work(rank: int) -> int:
        exchange, right = exchange_of(shared, rank), 0
        # Batches of fewer shards than ranks leave ranks out, which then have fewer exchanges than others.
        for position, live in enumerate([SHARDS, 1, SHARDS, 2, 3], start=1):
            exchange.open(position, live)
            if exchange._mine:
                for number in range(position):
                    right += np.array_equal(rows(exchange, position, number), expected(live, position, number))
            else:
                right += position
            between.wait()
        return right

    assert in_threads(*(lambda rank=rank: work(rank) for rank in range(size))) == [1 + 2 + 3 + 4 + 5] * size


def test_a_change_of_membership_ends_the_wait_and_the_round_is_redone():
    shared = arena(3)
    words = shared.words

    def work(rank: int) -> np.ndarray:
        member = Member(words, rank, 3, crowded=True)
        exchange = ShardExchange(shared, member)
        exchange.open(1, SHARDS)
        rows(exchange, 1, 0)
        rows(exchange, 1, 1)
        with pytest.raises(MembershipChanged):
            rows(exchange, 1, 2)  # rank 2 came twice, and comes no more
        exchange.open(1, SHARDS)
        return rows(exchange, 1, 0)

    def dying() -> None:
        exchange = exchange_of(shared, 2)
        exchange.open(1, SHARDS)
        for number in range(2):
            rows(exchange, 1, number)

    def supervise() -> bool:
        wait_until(lambda: all(shared.exchange_words[EXCHANGE_LINE * rank] % 2**16 == 3 for rank in (0, 1)), 30)
        before = [pulse_of(words, rank) for rank in (0, 1)]
        alive = wait_until(lambda: all(pulse_of(words, rank) > before[rank] for rank in (0, 1)), 30)
        view = protocol.current_view(words, 3)
        protocol.raise_freeze(words)
        wait_until(lambda: protocol.all_still(words, (0, 1)), 30)
        protocol.publish(words, protocol.outcome(words, view, (0, 1)), 3)
        return alive

    first, second, _, alive = in_threads(lambda: work(0), lambda: work(1), dying, supervise)
    assert alive, "whoever waits shows signs of life: it is not the one that is stuck"
    for found in (first, second):
        assert np.array_equal(found, expected(SHARDS, 1, 0))


def test_other_batch_norms_are_an_error_on_every_rank():
    shared = arena(2)

    def work(rank: int) -> None:
        exchange = exchange_of(shared, rank)
        exchange.open(1, SHARDS)
        rows(exchange, 1, rank)

    for found in in_threads(lambda: work(0), lambda: work(1)):
        assert isinstance(found, UserError)
        assert "do not pass the same batch norms" in str(found)


def test_a_rank_that_has_finished_its_gradients_is_not_waited_for():
    shared = arena(2)
    exchange = exchange_of(shared, 0)
    exchange.open(1, SHARDS)
    protocol.arrive(shared.words, 1, protocol.pack(1, 1, protocol.READY))
    with pytest.raises(UserError, match="do not pass the same batch norms"):
        rows(exchange, 1, 0)


def test_a_rank_that_does_not_come_is_named():
    shared = arena(3)
    exchange = exchange_of(shared, 1)
    exchange._timeout_s = 0.0
    exchange.open(1, SHARDS)
    with pytest.raises(CommTimeout, match="rank 1: waited 0 s in an exchange of batch norm; rank 0, 2 did not arrive"):
        rows(exchange, 1, 0)


@pytest.mark.parametrize("rounds", [2**27 - 1, 2**27, 2**28 - 2, 2**39])
def test_rounds_of_a_view_are_counted_without_end(rounds):
    shared, between = arena(3), Barrier(3)

    def work(rank: int) -> int:
        exchange, right = exchange_of(shared, rank), 0
        for position in range(rounds, rounds + 3):
            exchange.open(position, SHARDS)
            right += np.array_equal(rows(exchange, position, 0), expected(SHARDS, position, 0))
            between.wait()
        return right

    assert in_threads(*(lambda rank=rank: work(rank) for rank in range(3))) == [3] * 3


@pytest.mark.parametrize("rounds", [2, 2**27 - 1, 2**27])
def test_a_word_of_the_round_before_does_not_count(rounds):
    """Also where the numbers of rounds begin anew."""
    shared = arena(2)
    exchange, other = exchange_of(shared, 0), exchange_of(shared, 1)
    other.open(rounds, SHARDS)
    shared.exchange_words[EXCHANGE_LINE] = other._last
    exchange.open(rounds + 1, SHARDS)
    exchange._timeout_s = 0.0
    with pytest.raises(CommTimeout, match="rank 1 did not arrive"):
        rows(exchange, rounds + 1, 0)


def test_more_exchanges_than_can_be_counted_are_an_error():
    shared = arena(1)
    exchange = exchange_of(shared, 0)
    exchange.open(1, SHARDS)
    exchange._number += 2**16 - 2
    rows(exchange, 1, 0)
    with pytest.raises(UserError, match="more than 65535 times in a step"):
        rows(exchange, 1, 1)
