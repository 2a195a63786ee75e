"""Every collective of the backend, over all types, on 1 to 4 ranks and several layouts of machines, at random sizes."""

import random
import sys
import threading
import time
from datetime import timedelta

import pytest
import torch
from torch._C._distributed_c10d import (
    AllgatherOptions,
    AllreduceOptions,
    AllToAllOptions,
    BroadcastOptions,
    GatherOptions,
    ReduceOp,
    ReduceOptions,
    ReduceScatterOptions,
    ScatterOptions,
    _make_nccl_premul_sum,
)
from torch.distributed import HashStore, PrefixStore

from support.torch_ranks import in_ranks
from unisono.arena.reduction_tree import combine
from unisono.errors import UserError
from unisono.torch.calls import DTYPES, call
from unisono.torch.operation_queue import OperationQueue
from unisono.torch.process_group import UnisonoProcessGroup

LAYOUTS = {
    1: [[(0,)]],
    2: [[(0, 1)], [(0,), (1,)]],
    3: [[(0, 1, 2)], [(0, 2), (1,)]],
    4: [[(0, 1, 2, 3)], [(0, 1), (2, 3)], [(0, 1, 2), (3,)], [(0,), (1,), (2,), (3,)], [(0, 2), (1, 3)]],
}
WORLDS = [(size, layout) for size, layouts in LAYOUTS.items() for layout in layouts]
FLOATS = [dtype for dtype in DTYPES if dtype.is_floating_point]


def drawn(rank: int, count: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Numbers that differ by rank."""
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    if dtype is torch.bool:
        return torch.randint(0, 2, (count,), generator=generator).bool()
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(count, generator=generator, dtype=torch.float64).to(dtype)
    return torch.randint(0, 5, (count,), generator=generator).to(dtype)


def options(kind, **values):
    made = kind()
    for name, value in values.items():
        setattr(made, name, value)
    return made


def check(results):
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results


def reduced(size, count, dtype, function, seed=0):
    out = torch.empty(count, dtype=dtype)
    parts = [drawn(rank, count, dtype, seed) for rank in range(size)]
    combine(parts, out, function, None, lambda length, kind: torch.empty(length, dtype=kind))
    return out


@pytest.mark.parametrize(("size", "machines"), WORLDS)
def test_sums_of_all_types_and_sizes_follow_the_tree(size, machines):
    rng = random.Random(size)
    counts = [0, 1, 7, 1023, rng.randrange(2, 5000), 300_007]

    def work(group):
        found = []
        for dtype in DTYPES:
            for seed, count in enumerate(counts if dtype is torch.float32 else counts[:4]):
                tensor = drawn(group.rank(), count, dtype, seed)
                group.allreduce([tensor], AllreduceOptions()).wait()
                found.append(tensor)
        return found

    expected = [
        reduced(size, count, dtype, torch.add, seed)
        for dtype in DTYPES
        for seed, count in enumerate(counts if dtype is torch.float32 else counts[:4])
    ]
    for found in check(in_ranks(size, work, machines)):
        for tensor, wanted in zip(found, expected, strict=True):
            assert torch.equal(tensor, wanted), (tensor.dtype, len(tensor))


@pytest.mark.parametrize(
    ("op", "function", "dtype"),
    [
        (ReduceOp.PRODUCT, torch.mul, torch.float32),
        (ReduceOp.MIN, torch.minimum, torch.int16),
        (ReduceOp.MAX, torch.maximum, torch.bfloat16),
        (ReduceOp.BAND, torch.bitwise_and, torch.int64),
        (ReduceOp.BOR, torch.bitwise_or, torch.bool),
        (ReduceOp.BXOR, torch.bitwise_xor, torch.uint8),
    ],
)
def test_operations(op, function, dtype):
    def work(group):
        tensor = drawn(group.rank(), 999, dtype)
        group.allreduce([tensor], options(AllreduceOptions, reduceOp=op)).wait()
        return tensor

    for found in check(in_ranks(3, work)):
        assert torch.equal(found, reduced(3, 999, dtype, function))


@pytest.mark.parametrize("machines", LAYOUTS[3])
@pytest.mark.parametrize("dtype", FLOATS)
def test_averages(dtype, machines):
    def work(group):
        tensor = drawn(group.rank(), 100_003, dtype)
        group.allreduce([tensor], options(AllreduceOptions, reduceOp=ReduceOp.AVG)).wait()
        return tensor

    for found in check(in_ranks(3, work, machines)):
        assert torch.equal(found, reduced(3, 100_003, dtype, torch.add).div_(3))


def test_averages_of_integers_are_cut_towards_zero():
    """As Lightning wants it, which averages counts."""

    def work(group):
        tensor = torch.tensor([5, -5, 7]) + group.rank()
        group.allreduce([tensor], options(AllreduceOptions, reduceOp=ReduceOp.AVG)).wait()
        return tensor.tolist()

    assert check(in_ranks(2, work)) == [[5, -4, 7]] * 2


@pytest.mark.parametrize(("size", "machines"), WORLDS)
def test_moving_data(size, machines):
    rng = random.Random(100 + size)
    count, root = rng.randrange(1, 3000), rng.randrange(size)

    def work(group):
        rank = group.rank()
        own = drawn(rank, count, torch.float64)
        root_data = own.clone()
        group.broadcast([root_data], options(BroadcastOptions, rootRank=root)).wait()
        rows = [torch.empty(count, dtype=torch.float64) for _ in range(size)]
        group.allgather([rows], [own], AllgatherOptions()).wait()
        single = torch.empty(size * count, dtype=torch.float64)
        group.all_gather_single(single, own).wait()
        gathered = [torch.empty(count, dtype=torch.float64) for _ in range(size)] if rank == root else []
        group.gather([gathered] if gathered else [], [own], options(GatherOptions, rootRank=root)).wait()
        scattered = torch.empty(count, dtype=torch.float64)
        parts = [drawn(to, count, torch.float64, seed=5) for to in range(size)] if rank == root else []
        group.scatter([scattered], [parts] if parts else [], options(ScatterOptions, rootRank=root)).wait()
        reduced_to = own.clone()
        group.reduce([reduced_to], options(ReduceOptions, rootRank=root)).wait()
        group.barrier().wait()
        return root_data, rows, single, gathered, scattered, reduced_to

    everyone = [drawn(rank, count, torch.float64) for rank in range(size)]
    for rank, found in enumerate(check(in_ranks(size, work, machines))):
        root_data, rows, single, gathered, scattered, reduced_to = found
        assert torch.equal(root_data, everyone[root])
        assert torch.equal(torch.stack(rows), torch.stack(everyone))
        assert torch.equal(single, torch.cat(everyone))
        assert not gathered or torch.equal(torch.stack(gathered), torch.stack(everyone))
        assert torch.equal(scattered, drawn(rank, count, torch.float64, seed=5))
        wanted = reduced(size, count, torch.float64, torch.add) if rank == root else everyone[rank]
        assert torch.equal(reduced_to, wanted)


@pytest.mark.parametrize(("size", "machines"), WORLDS)
def test_reduce_scatter_and_all_to_all(size, machines):
    def work(group):
        rank = group.rank()
        out = torch.empty(301)
        group.reduce_scatter_single(out, drawn(rank, 301 * size, torch.float32), ReduceScatterOptions()).wait()
        parts = [drawn(rank, 3 + to, torch.float32, seed=to) for to in range(size)]  # of different lengths
        uneven = torch.empty(3 + rank)
        group.reduce_scatter([uneven], [parts], ReduceScatterOptions()).wait()
        sent = torch.arange(size * (size + 1) // 2).float() + 100 * rank  # to + 1 elements to each rank
        got = torch.empty(size * (rank + 1))
        splits = [to + 1 for to in range(size)]
        group.all_to_all_single(got, sent, [rank + 1] * size, splits, AllToAllOptions()).wait()
        lists = [torch.empty(2) for _ in range(size)]
        group.alltoall(lists, [torch.full((2,), 10.0 * rank + to) for to in range(size)], AllToAllOptions()).wait()
        return out, uneven, got, lists

    whole = reduced(size, 301 * size, torch.float32, torch.add)
    for rank, (out, uneven, got, lists) in enumerate(check(in_ranks(size, work, machines))):
        assert torch.equal(out, whole[301 * rank : 301 * (rank + 1)])
        assert torch.equal(uneven, reduced(size, 3 + rank, torch.float32, torch.add, seed=rank))
        begin = rank * (rank + 1) // 2
        wanted = [torch.arange(begin, begin + rank + 1).float() + 100 * source for source in range(size)]
        assert torch.equal(got, torch.cat(wanted))
        assert [float(part[0]) for part in lists] == [10.0 * source + rank for source in range(size)]


@pytest.mark.parametrize("machines", LAYOUTS[3])
def test_messages_in_any_order(machines):
    """Both ranks of a pair send first; tags are received in the other order; one comes from whoever is first."""

    def work(group):
        rank, size = group.rank(), group.size()
        right, left = (rank + 1) % size, (rank - 1) % size
        long = torch.full((1_500_000,), float(rank))  # more than a pipe holds
        sends = [group.send([long], right, 1), group.send([torch.tensor([rank])], right, 2)]
        small, large = torch.empty(1, dtype=torch.int64), torch.empty(1_500_000)
        second = group.recv([small], left, 2)
        first = group.recv([large], left, 1)
        for work in (second, first, *sends):
            work.wait()
        group.barrier().wait()
        anybody = torch.empty(1, dtype=torch.int64)
        if rank == 0:
            sources = []
            for _ in range(size - 1):
                received = group.recv_anysource([anybody], 7)
                received.wait()
                sources.append((received._source_rank(), int(anybody)))
            return sources
        group.send([torch.tensor([rank])], 0, 7).wait()
        return int(small), float(large[0]), float(large[-1])

    results = check(in_ranks(3, work, machines))
    assert sorted(results[0]) == [(1, 1), (2, 2)]
    assert results[1:] == [(0, 0.0, 0.0), (1, 1.0, 1.0)]


@pytest.mark.parametrize("machines", [[(0, 1, 2)], [(0, 1), (2,)]])
def test_tensors_of_any_shape(machines):
    rng = random.Random(7)
    shapes = [(), (1,), (3, 5), (2, 1, 7), (0, 4), (513, 257), *[tuple(rng.sample(range(1, 30), 3)) for _ in range(5)]]

    def work(group):
        found = []
        for shape in shapes:
            summed, sent = torch.full(shape, float(group.rank())), torch.full(shape, float(group.rank()))
            group.allreduce([summed], AllreduceOptions()).wait()
            group.broadcast([sent], options(BroadcastOptions, rootRank=2)).wait()
            found.append((summed, sent))
        return found

    for found in check(in_ranks(3, work, machines)):
        for shape, (summed, sent) in zip(shapes, found, strict=True):
            assert torch.equal(summed, torch.full(shape, 3.0))
            assert torch.equal(sent, torch.full(shape, 2.0))


def test_tensors_that_do_not_lie_in_order():
    def work(group):
        rank = group.rank()
        tensor = (torch.arange(12.0).reshape(3, 4) + rank).t()  # strides (1, 4)
        group.allreduce([tensor], AllreduceOptions()).wait()
        column = torch.zeros(5, 3)
        group.broadcast([column[:, 1]], options(BroadcastOptions, rootRank=1)).wait()
        whole = torch.zeros(2, 4, 3).transpose(0, 1)
        group.all_gather_single(whole, torch.full((4, 3), float(rank))).wait()
        return tensor, column, whole

    for tensor, column, whole in check(in_ranks(2, work)):
        assert torch.equal(tensor, (2 * torch.arange(12.0).reshape(3, 4) + 1).t())
        assert not column.any()
        assert float(whole.sum()) == 12.0


@pytest.mark.parametrize("machines", LAYOUTS[2])
@pytest.mark.parametrize("rows", [0, 1])
def test_the_strides_of_a_tensor_of_one_element_or_none_do_not_matter(machines, rows):
    """To torch it is contiguous whatever they are."""

    def work(group):
        rank = group.rank()
        given = (torch.arange(6.0) + rank).view(3, 2)[:rows, 1]
        room = [torch.zeros(3, 2)[:rows, 0] for _ in range(2)]
        group.allgather([room], [given], AllgatherOptions()).wait()
        whole = torch.zeros(2 * rows)
        group.all_gather_single(whole, given).wait()
        told = torch.zeros(3, 2)[:rows, 0] if rank else given
        group.broadcast([told], options(BroadcastOptions, rootRank=0)).wait()
        got = torch.zeros(3, 2)[:rows, 0]
        works = [group.send([given], 1 - rank), group.recv([got], 1 - rank)]
        for each in works:
            each.wait()
        group.allreduce([given], AllreduceOptions()).wait()
        return [value.tolist() for value in (*room, whole, told, got, given)]

    for rank, found in enumerate(check(in_ranks(2, work, machines))):
        single = [[1.0], [2.0], [1.0, 2.0], [3.0 - 2 * rank], [2.0 - rank], [3.0]]  # rank 0 broadcast what it reduced
        assert found == (single if rows else [[]] * 6)


def test_tensors_with_a_lazy_sign_or_conjugate():
    def work(group):
        numbers = torch.tensor([1 + 2j, 3 - 4j]) * (group.rank() + 1)
        whole = torch.zeros(4)
        group.all_gather_single(whole, numbers.conj().imag).wait()
        total = torch._neg_view(torch.ones(3))
        group.allreduce([total], AllreduceOptions()).wait()
        return whole.tolist(), total.tolist()

    assert check(in_ranks(2, work)) == [([-2.0, 4.0, -4.0, 8.0], [-2.0] * 3)] * 2


def test_an_expanded_tensor_is_refused_before_others_meet_this_rank():
    def work(group):
        if group.rank() == 0:
            with pytest.raises(UserError, match="whose elements share memory"):
                group.allreduce([torch.ones(1).expand(4)], AllreduceOptions())
        tensor = torch.ones(4)
        group.allreduce([tensor], AllreduceOptions()).wait()
        return tensor.tolist()

    assert check(in_ranks(2, work)) == [[2.0] * 4] * 2


def test_only_works_of_numbers_that_stand_alone_are_kept():
    def work(group):
        graph = torch.ones(9, requires_grad=True).sum()
        for tensor in (torch.ones(99)[:1], graph, torch.ones(2), torch.ones(1)):
            group.allreduce([tensor], AllreduceOptions()).wait()
        return [work.result()[0].tolist() for work in group._last_works if work.result()]

    assert check(in_ranks(2, work)) == [[[2.0]]] * 2


@pytest.mark.parametrize("machines", LAYOUTS[3])
def test_sparse_gradients(machines):
    """One rank has none at all."""

    def work(group):
        tensor = torch.zeros(7, 2)
        for row in range(group.rank() * 2):
            tensor[row + 1] = row + group.rank()
        sparse = tensor.to_sparse(1)
        group.allreduce([sparse], AllreduceOptions()).wait()
        return sparse.to_dense()

    wanted = torch.zeros(7, 2)
    for rank in range(3):
        for row in range(rank * 2):
            wanted[row + 1] += row + rank
    for found in check(in_ranks(3, work, machines)):
        assert torch.equal(found, wanted)


@pytest.mark.parametrize("machines", LAYOUTS[2])
def test_operations_under_way_of_two_groups_in_different_orders(machines):
    """Two groups of the same ranks, started by the ranks in opposite orders, and waited for later."""
    store = HashStore()

    def work(group):
        rank = group.rank()
        other = UnisonoProcessGroup(PrefixStore("other", store), rank, 2, timedelta(seconds=30))
        tensors = [torch.full((4,), float(rank)), torch.full((4,), 10.0 * rank)]
        order = [(group, tensors[0]), (other, tensors[1])]
        started = [each.allreduce([tensor], AllreduceOptions()) for each, tensor in (order if rank else order[::-1])]
        futures = [work.get_future() for work in started]
        for future in futures:
            future.wait()
        group.barrier().wait()
        other.shutdown()
        return [float(tensor[0]) for tensor in tensors]

    assert check(in_ranks(2, work, machines)) == [[1.0, 10.0], [1.0, 10.0]]


@pytest.mark.parametrize("machines", LAYOUTS[2])
def test_a_message_that_the_other_rank_needs_before_it_comes_to_a_collective(machines):
    def work(group):
        tensor, told = torch.ones(3), torch.full((1,), 5.0)
        if group.rank() == 0:
            started = group.allreduce([tensor], AllreduceOptions())
            group.send([told], 1, 0).wait()
            started.wait()
        else:
            told.zero_()
            group.recv([told], 0, 0).wait()
            group.allreduce([tensor], AllreduceOptions()).wait()
        return float(tensor[0]), float(told)

    assert check(in_ranks(2, work, machines)) == [(2.0, 5.0)] * 2


def test_threads_that_send_and_receive_at_once():
    count = 3000

    def work(group):
        other, errors = 1 - group.rank(), []

        def send():
            for number in range(count):
                group.send([torch.tensor([number])], other, 0).wait()

        def guarded(function):
            try:
                function()
            except Exception as error:
                errors.append(error)

        sender = threading.Thread(target=guarded, args=[send])
        sender.start()
        got = torch.empty(1, dtype=torch.int64)
        for number in range(count):
            group.recv([got], other, 0).wait()
            assert int(got) == number
        sender.join()
        return errors

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        assert check(in_ranks(2, work)) == [[], []]
    finally:
        sys.setswitchinterval(before)


def test_messages_that_the_callback_of_a_future_starts():
    def work(group):
        other = 1 - group.rank()
        first, more = torch.empty(1), [torch.empty(1) for _ in range(3)]
        started = []
        received = group.recv([first], other, 0)
        chained = received.get_future().then(lambda _: started.extend(group.recv([each], other, 1) for each in more))
        group.barrier().wait()
        for tag, value in ((0, 0.0), (1, 1.0), (1, 2.0), (1, 3.0)):
            group.send([torch.full((1,), value)], other, tag).wait()
        received.wait()
        chained.wait()  # a callback may still run when the wait for the message itself is over
        for each in started:
            each.wait()
        return [float(each) for each in (first, *more)]

    assert check(in_ranks(2, work)) == [[0.0, 1.0, 2.0, 3.0]] * 2


def test_collectives_that_the_callback_of_a_future_starts_and_waits_for():
    """As torch's PowerSGD does, on the background thread, with nobody else to move them."""

    def work(group):
        first, second = torch.ones(3), torch.ones(4)

        def callback(_):
            if group.rank() == 1:
                time.sleep(0.1)  # so that rank 0 waits on its background thread
            return group.allreduce([second], AllreduceOptions()).get_future().wait()[0]

        if group.rank() == 1:
            time.sleep(0.1)
        chained = group.allreduce([first], AllreduceOptions()).get_future().then(callback)
        until = time.monotonic() + 5
        while not chained.done():
            assert time.monotonic() < until
            time.sleep(0.001)
        return first.tolist(), chained.value().tolist()

    assert check(in_ranks(2, work, timeout_s=5.0)) == [([2.0] * 3, [2.0] * 4)] * 2


def test_callbacks_of_two_queues_that_start_operations_of_each_other():
    """Two threads finish an operation of one queue each, and either callback needs the other's queue."""

    def queue():
        return OperationQueue(
            lambda _: None, lambda _: TimeoutError("late"), lambda: None, lambda _: None, crowded=True
        )

    def lasting(seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            yield

    def chained(first, second, seconds):
        work = first.start(lasting(seconds), call("first"), 20.0, [], background=True)
        then = lambda _: second.start(lasting(0.1), call("second"), 20.0, [], background=True).get_future()  # noqa: E731
        return work, work.get_future().then(then)

    def program(done):
        one, other = queue(), queue()
        works = [chained(one, other, 0.05), chained(other, one, 0.1)]
        for work, future in works:
            work.wait()
            future.wait()
        done.set()

    for _ in range(3):
        done = threading.Event()
        threading.Thread(target=program, args=(done,), daemon=True).start()
        assert done.wait(30)


def test_inference_mode_leaves_nothing_behind():
    def work(group):
        with torch.inference_mode():
            inside = torch.ones(3)
            group.allreduce([inside], AllreduceOptions()).wait()
            rows = [torch.empty(3) for _ in range(2)]
            group.allgather([rows], [inside], AllgatherOptions()).wait()
        outside = torch.ones(3)
        for _ in range(3):
            group.allreduce([outside], AllreduceOptions()).wait()
        return inside.tolist(), rows[1].tolist(), outside.tolist()

    assert check(in_ranks(2, work)) == [([2.0] * 3, [2.0] * 3, [8.0] * 3)] * 2


def test_coalesced_gathers_are_by_rank_then_by_tensor():
    """Also where there are as many tensors as ranks."""

    def work(group):
        rank = group.rank()
        outputs = [[torch.empty(1), torch.empty(1)] for _ in range(2)]
        group.allgather_coalesced(outputs, [torch.tensor([10.0 * rank]), torch.tensor([10.0 * rank + 1])]).wait()
        return [[float(each) for each in row] for row in outputs]

    assert check(in_ranks(2, work)) == [[[0.0, 1.0], [10.0, 11.0]]] * 2


def test_groups_one_after_the_other_over_one_store():
    store = HashStore()

    def work(group):
        found = []
        for turn in range(5):
            again = UnisonoProcessGroup(PrefixStore("again", store), group.rank(), 2, timedelta(seconds=30))
            tensor = torch.full((2,), float(turn))
            again.allreduce([tensor], AllreduceOptions()).wait()
            again.shutdown()
            found.append(float(tensor[0]))
        return found

    assert check(in_ranks(2, work)) == [[0.0, 2.0, 4.0, 6.0, 8.0]] * 2


WRONG = {
    "scaled": lambda group: group.allreduce(
        [torch.ones(2)], options(AllreduceOptions, reduceOp=_make_nccl_premul_sum(2.0))
    ),
    "bitwise": lambda group: group.allreduce([torch.ones(2)], options(AllreduceOptions, reduceOp=ReduceOp.BAND)),
    "average": lambda group: group.allreduce(
        [torch.ones(2, dtype=torch.bool)], options(AllreduceOptions, reduceOp=ReduceOp.AVG)
    ),
    "sparse": lambda group: group.broadcast([torch.eye(3).to_sparse()], options(BroadcastOptions, rootRank=0)),
    "sparse max": lambda group: group.allreduce(
        [torch.eye(3).to_sparse()], options(AllreduceOptions, reduceOp=ReduceOp.MAX)
    ),
    "meta": lambda group: group.broadcast([torch.ones(2, device="meta")], options(BroadcastOptions, rootRank=0)),
    "parts": lambda group: group.allgather([[torch.ones(2)]], [torch.ones(2)], AllgatherOptions()),
    "size": lambda group: group.all_gather_single(torch.ones(3), torch.ones(2)),
    "type": lambda group: group.all_gather_single(torch.ones(4, dtype=torch.float64), torch.ones(2)),
    "splits": lambda group: group.all_to_all_single(torch.ones(3), torch.ones(3)),
    "itself": lambda group: group.send([torch.ones(1)], group.rank(), 0),
    "outside": lambda group: group.recv([torch.ones(1)], 7, 0),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_refused(name):
    """Every rank learns it at once, with a hint, and the group still works for those that asked for it."""

    def work(group):
        with pytest.raises(UserError, match="HINT"):
            WRONG[name](group).wait()
        group.barrier().wait()

    check(in_ranks(2, work))
