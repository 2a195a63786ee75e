"""GroupTransfers: the methods of a process group that move data: broadcast, gathers, scatter, all_to_all, barrier,
messages, and their other names.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import Work

from unisono.torch.calls import Tensor, call, dtype_name
from unisono.torch.group_operations import GroupOperations
from unisono.torch.machine_memory import Steps
from unisono.torch.tensor_checks import (
    as_list,
    check_parts,
    check_size,
    flattened,
    only_one,
    room_for,
    root_of,
    split_rows,
    write,
)
from unisono.torch.work import Operation

_EXCHANGE_TAG = -2
"""Of the messages that all_to_all is made of."""


class GroupTransfers(GroupOperations):
    """See `process_group.py`."""

    def broadcast(self, tensors: Any, opts: Any = None, *rest: Any) -> Work:
        root = opts if isinstance(opts, int) else root_of(opts)
        many = as_list(tensors)
        if self._is_usual(many):
            return self._at_once(self._collectives.broadcast_now, many[0], root, opts)
        return self._collective(
            lambda flat: self._collectives.broadcast(flat, root),
            many,
            many,
            "broadcast",
            opts,
        )

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Operation:
        given = as_list(inputs)
        groups = outputs if isinstance(outputs[0], list | tuple) else [outputs]
        for group, tensor in zip(groups, given, strict=True):
            check_parts(group, self._size, "all_gather")
            for part in group:
                check_size(part, tensor.numel(), "an output of all_gather", "the input", tensor.dtype)

        def steps() -> Steps:
            for group, tensor in zip(groups, given, strict=True):
                flats = [room_for(part) for part in group]
                yield from self._collectives.all_gather(flattened(tensor), flats)
                for part, flat in zip(group, flats, strict=True):
                    write(part, flat)

        return self._start(steps(), "all_gather", opts, [part for group in groups for part in group], groups)

    def allgather_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Operation:
        """outputs: by rank, then by tensor."""
        return self.allgather([[row[number] for row in outputs] for number in range(len(inputs))], inputs, opts)

    def all_gather_single(self, output: Tensor, given: Tensor, opts: Any = None) -> Operation:
        return self._all_gather_many([output], [given], opts)

    def all_gather_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Operation:
        return self._all_gather_many(outputs, inputs, opts)

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def _all_gather_many(self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any) -> Operation:
        for output, given in zip(outputs, inputs, strict=True):
            check_size(output, given.numel() * self._size, "the output of all_gather", "all ranks' inputs", given.dtype)

        def steps() -> Steps:
            for output, given in zip(outputs, inputs, strict=True):
                room = room_for(output)
                rows = list(room.view(self._size, given.numel()))
                yield from self._collectives.all_gather(flattened(given), rows)
                write(output, room)

        return self._start(steps(), "all_gather", opts, list(outputs))

    def gather(self, outputs: Any, inputs: Any, opts: Any = None, *rest: Any) -> Operation:
        root, given = root_of(opts), as_list(inputs)
        here = list(outputs[0] if outputs and isinstance(outputs[0], list | tuple) else outputs)
        if self._rank == root:
            check_parts(here, self._size, "gather")
            for part in here:
                check_size(part, given[0].numel(), "an output of gather", "the input", given[0].dtype)

        def steps() -> Steps:
            rooms = [room_for(part) for part in here] if self._rank == root else []
            yield from self._collectives.all_gather(flattened(given[0]), rooms, "gather", root)
            for part, room in zip(here, rooms, strict=False):
                write(part, room)

        return self._start(steps(), "gather", opts, here)

    def scatter(self, outputs: Any, inputs: Any, opts: Any = None, *rest: Any) -> Operation:
        root, out = root_of(opts), as_list(outputs)
        here = list(inputs[0] if inputs and isinstance(inputs[0], list | tuple) else inputs)
        if self._rank == root:
            check_parts(here, self._size, "scatter")
            for part in here:
                check_size(part, out[0].numel(), "an input of scatter", "the output", out[0].dtype)

        def steps() -> Steps:
            rows = [flattened(part) for part in here] if self._rank == root else []
            room = room_for(out[0])
            yield from self._collectives.scatter(rows, room, root)
            write(out[0], room)

        return self._start(steps(), "scatter", opts, out)

    def alltoall(self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None) -> Operation:
        check_parts(outputs, self._size, "all_to_all")
        check_parts(inputs, self._size, "all_to_all")

        def steps() -> Steps:
            rooms = [room_for(part) for part in outputs]
            yield from self._exchange(rooms, [flattened(part) for part in inputs])
            for part, room in zip(outputs, rooms, strict=True):
                write(part, room)

        return self._start(steps(), "all_to_all", opts, list(outputs))

    def all_to_all_single(
        self, output: Tensor, given: Tensor, output_splits: Any = None, input_splits: Any = None, opts: Any = None
    ) -> Operation:
        def steps() -> Steps:
            room = room_for(output)
            incoming = split_rows(room, output, output_splits, self._size, "output")
            outgoing = split_rows(flattened(given), given, input_splits, self._size, "input")
            yield from self._exchange(incoming, outgoing)
            write(output, room)

        for tensor, splits, what in ((output, output_splits, "output"), (given, input_splits, "input")):
            split_rows(tensor.new_empty(tensor.numel()), tensor, splits, self._size, what)
        return self._start(steps(), "all_to_all", opts, [output])

    alltoall_base = all_to_all_single

    def _exchange(self, incoming: Sequence[Tensor], outgoing: Sequence[Tensor]) -> Steps:
        called = call("all_to_all")
        yield from self._collectives.barrier(called)
        incoming[self._rank].copy_(outgoing[self._rank])
        others = [other for other in range(self._size) if other != self._rank]
        transfers = [(other, self._messages.receive(incoming[other], other, _EXCHANGE_TAG)) for other in others]
        transfers += [(other, self._messages.send(outgoing[other], other, _EXCHANGE_TAG)) for other in others]
        for other, transfer in transfers:
            yield from self._until(transfer, called, [other])

    def barrier(self, opts: Any = None, timeout: Any = None) -> Operation:
        return self._start(self._collectives.barrier(call("barrier")), "barrier", opts, [], timeout=timeout)

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """The ranks that are missing are named by any collective; all of them."""
        called = call("monitored_barrier")
        if timeout == timedelta(0):  # in other calls torch's word for none given; here no time at all, as over gloo
            timeout = timedelta.resolution
        self._start(self._collectives.barrier(called), called.name, None, [], timeout=timeout).wait()

    # -- messages

    def send(self, tensors: Any, dest: int, tag: int = 0) -> Operation:
        tensor = only_one(tensors)
        self._check_peer(dest, "destination")
        text = call("send", tensor.numel(), dtype_name(tensor.dtype), f"to rank {dest}, tag {tag}")
        with self._queue.lock:  # the background thread moves messages, too
            self._queue.check_open()
            transfer = self._messages.send(flattened(tensor), dest, tag)
            return self._message(self._until(transfer, text, [dest]), text, [tensor], [dest])

    def recv(self, tensors: Any, source: int, tag: int = 0) -> Operation:
        tensor = only_one(tensors)
        self._check_peer(source, "source")
        text = call("recv", tensor.numel(), dtype_name(tensor.dtype), f"from rank {source}, tag {tag}")
        room = room_for(tensor)
        with self._queue.lock:
            self._queue.check_open()
            transfer = self._messages.receive(room, source, tag)

            def steps() -> Steps:
                yield from self._until(transfer, text, [source])
                write(tensor, room)

            operation = self._message(steps(), text, [tensor], [source])
        operation.sources = [source]
        return operation

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Operation:
        tensor = only_one(tensors)
        text = call("recv", tensor.numel(), dtype_name(tensor.dtype), f"from any rank, tag {tag}")
        room = room_for(tensor)
        found: list[int] = []

        def steps() -> Steps:
            transfer = yield from self._messages.receive_any(room, tag, found)
            yield from self._until(transfer, text, found)
            write(tensor, room)

        operation = self._message(steps(), text, [tensor], [])
        operation.sources = found
        return operation
