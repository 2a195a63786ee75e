"""Exchanger: the one process of a machine that exchanges sums and losses of its ranks with the other machines.

The one idea: everything it sends and receives lies in the arena (`mailbox.py`), so it can be a rank that also trains
(under mpirun or torchrun), or a process of its own that outlives any rank (under our supervisors).

    exchanger = Exchanger(shared, comm, names)  # comm: a rank for each machine, in the order of the machine layout
    exchanger.serve(position, makers)                   # after READY of the round; then mailbox.answer(position)

A step takes one message to each other machine, or two (`machine_layout.py`); losses, buffers and requests to end travel
with them. With a `wire` the sums are rounded to that type on their way, also those of this machine, so that all
machines still have the same bits as each other, though not those of one machine alone.

`PackedArrays` holds arrays of different kinds in one array of bytes, so that they travel in one message. Each machine
that knows names, shapes and types computes the same places, on borders of 8 bytes:

>>> packed = PackedArrays({"sums": ((2, 2), np.dtype(np.float64)), "asked": ((1,), np.dtype(np.int64))})
>>> packed["asked"][0] = 1; packed.views(packed.data[None])[0]["asked"].tolist()
[1]

Limits: one process a machine moves everything; nothing is sent before all gradients of the machine are there. All
machines must be of one kind: numbers travel as they lie in memory.
"""

import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import prod
from typing import TypeAlias, final

import numpy as np

from unisono.arena.reduction_tree import Span, chunk_bounds, combine, tree_over
from unisono.comm.base import Communicator
from unisono.errors import CommError, CommTimeout, Diverged, NodeLost
from unisono.strategies.arena.shard_sums import ShardAssignment, Slots
from unisono.strategies.arena.state import ArenaState
from unisono.strategies.failure_notice import FailureNotice
from unisono.strategies.machines.machine_layout import MachineName
from unisono.strategies.machines.mailbox import STEP, MachineMailbox
from unisono.strategies.stats import complete_shares

Shapes: TypeAlias = Mapping[str, tuple[tuple[int, ...], np.dtype]]


@final
class PackedArrays:
    """`data`: the bytes to send; views of it by name."""

    def __init__(self, shapes: Shapes) -> None:
        self._shapes = shapes
        self._starts: dict[str, int] = {}
        end = 0
        for name, (shape, dtype) in shapes.items():
            self._starts[name] = end
            end += -(-prod(shape) * dtype.itemsize // 8) * 8
        self.data = np.zeros(end, np.uint8)
        self._own = self._view(self.data)

    def __getitem__(self, name: str) -> np.ndarray:
        return self._own[name]

    def views(self, gathered: np.ndarray) -> list[dict[str, np.ndarray]]:
        """Views of the packed arrays of all machines, one a row."""
        return [self._view(row) for row in gathered]

    def _view(self, data: np.ndarray) -> dict[str, np.ndarray]:
        return {
            name: data[start : start + prod(shape) * dtype.itemsize].view(dtype).reshape(shape)
            for (name, start), (shape, dtype) in zip(self._starts.items(), self._shapes.values(), strict=True)
        }


_F4, _F8, _I8, _BOOL = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.int64), np.dtype(np.bool_)


@final
class Exchanger:
    """One machine's side; `comm` has as many ranks as there are machines."""

    def __init__(
        self, shared: ArenaState, comm: Communicator, names: Sequence[MachineName], wire: np.dtype | None = None
    ) -> None:
        """names: what the machines are called when one of them is lost."""
        assert shared.mailbox is not None
        self._names = names
        self._shared, self._comm, self._wire = shared, comm, wire
        self._mailbox: MachineMailbox = shared.mailbox
        self._machine_layout = shared.mailbox.machine_layout
        self._assignment = ShardAssignment(shared.gradients, shared.labels, shared.mailbox)
        self._packed_by_name: dict[tuple[str, int], PackedArrays] = {}
        self._sent_bytes = 0
        self._halt = False

    def announce_failure(self, failure_notice: FailureNotice) -> None:
        """Tells the other machines why this one leaves."""
        node = self._machine_layout.node
        named = replace(failure_notice, text=f"{self._names[node]}: {failure_notice.text}", node=node)
        self._comm.announce_failure(named.packed())

    def close(self) -> None:
        """Sends the failure notice of a rank of this machine to the others, if there is one."""
        if (failure_notice := self._shared.failure_notices.own) is not None:
            self.announce_failure(failure_notice)
        self._comm.close()

    def serve(self, position: int, makers: Slots) -> None:
        """Exchanges what the round that all members have come to is about; `makers` left its gradients."""
        kind, number, due = self._mailbox.ordered
        try:
            if kind == STEP:
                self._sent_bytes = 0
                self._step(number, makers)
                self._mailbox.count(self._sent_bytes)
            else:
                self._evaluate(number)
        except CommError as error:
            heard = self._failure_notice()
            self._mailbox.fail()
            raise self._lost(error) if heard is None else heard.error(first_hand=True) from error
        except BaseException as error:
            self._mailbox.fail(diverged=isinstance(error, Diverged))
            raise
        # Not as the request stands now: asked in between, this machine would halt a round before the others.
        self._shared.requests.decide(position, due=due, halt=self._halt)
        self._mailbox.answer(position)

    def _failure_notice(self) -> FailureNotice | None:
        """Why another machine left, if it said so; passed on, as this one, which leaves now, would look lost."""
        for words in self._comm.failure_notices()[:1]:
            self._comm.announce_failure(words)
            self._shared.failure_notices.pass_on(FailureNotice.unpacked(words))
        return self._shared.failure_notices.first

    def _lost(self, error: CommError) -> NodeLost:
        """Which machine it was, as far as the error shows."""
        others = [name for name in self._names if name.node != self._machine_layout.node]
        missing = [self._names[node] for node in error.missing] if isinstance(error, CommTimeout) else []
        seen = [name for name in others if name.address and name.address == error.peer_address]
        found = missing or seen or others
        certain = len(found) == len(others) == 1 or bool(missing or seen)
        who = " and ".join(map(str, found)) if certain else f"one of {'; '.join(map(str, found))}"
        nodes = [name.node for name in found]
        return NodeLost(f"{who} was lost ({error.summary})", first_hand=True, nodes=nodes, certain=certain)

    # --- a step ------------------------------------------------------------------------------------------------------

    def _step(self, live: int, makers: Slots) -> None:
        if self._mailbox.at_once(live):
            self._send_sums(live, makers)
        else:
            self._send_parts(live, makers)

    def _send_sums(self, live: int, makers: Slots) -> None:
        machine_layout, used = self._machine_layout, self._mailbox.used
        counts = [len(machine_layout.spans(live, node)) for node in range(machine_layout.count)]
        packed = self._packed("sums", live, {"rows": ((max(counts), used), _F4)})
        for row, (_, parts) in zip(packed["rows"], self._folds(live, makers), strict=False):
            combine([part[:used] for _, part in parts], row, np.add, tree_over(tuple(found for found, _ in parts)))
        others = self._exchange(packed, live)
        rows = (row for node, came in others for row in came["rows"][: counts[node]])
        for (_, place), row in zip(self._mailbox.far(live), rows, strict=True):
            place[:used] = row

    def _send_parts(self, live: int, makers: Slots) -> None:
        """Sends sums to the machine that finishes a part of the vector; then the finished parts."""
        machine_layout, comm, wire = self._machine_layout, self._comm, self._wire or _F4
        bounds = [chunk_bounds(self._mailbox.used, machine_layout.count, node) for node in range(machine_layout.count)]
        spans = [machine_layout.spans(live, node) for node in range(machine_layout.count)]
        low, high = bounds[comm.rank]
        folds = self._folds(live, makers)
        found: list[tuple[Span, np.ndarray]] = list(
            zip(spans[comm.rank], self._fold(folds, low, high, wire).astype(_F4), strict=True)
        )
        for turn in range(1, machine_layout.count):
            dest, source = (comm.rank + turn) % machine_layout.count, (comm.rank - turn) % machine_layout.count
            leaving = self._fold(folds, *bounds[dest], wire)
            arriving = np.empty((len(spans[source]), high - low), wire)
            comm.sendrecv(leaving.view(np.uint8), dest, arriving.view(np.uint8), source)
            self._sent_bytes += leaving.nbytes
            found += zip(spans[source], arriving.astype(_F4, copy=False), strict=True)
        found.sort(key=lambda pair: pair[0])
        widest = max(stop - start for start, stop in bounds)
        packed = self._packed("parts", live, {"part": ((widest,), wire)})
        finished = np.empty(high - low, np.float32)
        combine([row for _, row in found], finished, np.add, tree_over(tuple(span for span, _ in found)))
        packed["part"][: high - low] = finished
        for node, came in [*self._exchange(packed, live), (comm.rank, {"part": packed["part"]})]:
            start, stop = bounds[node]
            self._mailbox.whole[start:stop] = came["part"][: stop - start]

    def _folds(self, live: int, makers: Slots) -> list[tuple[Span, list[tuple[Span, np.ndarray]]]]:
        """For each sum that this machine sends: the rows of its ranks that add up to it."""
        lying = self._assignment.lying(live, makers)
        return [
            ((start, stop), [(span, row) for span, row in lying if start <= span[0] and span[1] <= stop])
            for start, stop in self._machine_layout.spans(live, self._machine_layout.node)
        ]

    def _fold(
        self, folds: list[tuple[Span, list[tuple[Span, np.ndarray]]]], low: int, high: int, wire: np.dtype
    ) -> np.ndarray:
        """(sums, high - low): elements of this machine's sums."""
        rows = np.empty((len(folds), high - low), np.float32)
        for row, (_, parts) in zip(rows, folds, strict=True):
            combine([part[low:high] for _, part in parts], row, np.add, tree_over(tuple(span for span, _ in parts)))
        return rows.astype(wire, copy=False)

    def _exchange(self, packed: PackedArrays, live: int) -> list[tuple[int, dict[str, np.ndarray]]]:
        """Sends a packed array to all, with what else was found of this machine's shards; the packed arrays of the
        others."""
        shared, mine = self._shared, self._machine_layout.part(live)
        fields = {"losses": shared.sums, "buffers": shared.new_buffers, "unused": shared.unused}
        for name, rows in fields.items():
            packed[name][: len(mine)] = rows[mine.start : mine.stop]
        others = self._gather(packed)
        self._sent_bytes += packed.data.nbytes * (self._machine_layout.count - 1)
        for node, came in others:
            theirs = self._machine_layout.part(live, node)
            for name, rows in fields.items():
                rows[theirs.start : theirs.stop] = came[name][: len(theirs)]
        return others

    def _packed(self, name: str, live: int, shapes: Shapes) -> PackedArrays:
        if (name, live) not in self._packed_by_name:
            shared, machine_layout = self._shared, self._machine_layout
            most = max(len(machine_layout.part(live, node)) for node in range(machine_layout.count))
            found: Shapes = {
                "losses": ((most, 2), _F8),
                "buffers": ((most, shared.new_buffers.shape[1]), _F4),
                "unused": ((most, shared.unused.shape[1]), _BOOL),
                "asked": ((1,), _I8),
            }
            self._packed_by_name[name, live] = PackedArrays({**shapes, **found})
        return self._packed_by_name[name, live]

    # --- an evaluation -----------------------------------------------------------------------------------------------

    def _evaluate(self, count: int) -> None:
        shared, mailbox, machine_layout = self._shared, self._mailbox, self._machine_layout
        most = max(len(machine_layout.cut(count, node)) for node in range(machine_layout.count))
        packed = PackedArrays(
            {
                "table": ((most, 2), _F8),
                "stats": ((machine_layout.most, shared.stats.shape[1]), _F8),
                "shares": ((machine_layout.most + 1, *mailbox.shares.shape[1:]), _F8),
                "asked": ((1,), _I8),
                "checksum": ((1,), _I8),
            }
        )
        packed["checksum"][0] = zlib.crc32(shared.params.data)
        mine, ranks = machine_layout.cut(count), len(machine_layout.ranks)
        packed["table"][: len(mine)] = shared.table[mine.start : mine.stop]
        packed["stats"][:ranks] = shared.stats
        packed["shares"][: ranks + 1] = complete_shares(shared).sum(axis=0)
        own = {name: packed[name] for name in ("table", "stats", "shares", "checksum")}
        for node, came in [*self._gather(packed), (machine_layout.node, own)]:
            if came["checksum"][0] != packed["checksum"][0]:
                with suppress(CommError):  # the first to leave would look lost to the others, which find the same
                    self._comm.barrier()
                raise Diverged(
                    f"{self._names[node]} and {self._names[machine_layout.node]} have different parameters; "
                    "nothing was saved",
                    hint="their processors, or libraries, compute differently: use machines that are alike. Snapshots "
                    "made since the evaluation before this one may hold such parameters, too",
                )
            theirs, group = machine_layout.cut(count, node), list(machine_layout.groups[node])
            shared.table[theirs.start : theirs.stop] = came["table"][: len(theirs)]
            mailbox.stats[group] = came["stats"][: len(group)]
            mailbox.shares[group] = came["shares"][: len(group)]
            mailbox.shares[-1] = came["shares"][len(group)]

    def _gather(self, packed: PackedArrays) -> list[tuple[int, dict[str, np.ndarray]]]:
        """The packed arrays of the other machines, by number. A machine that was asked to halt asks all."""
        requests = self._shared.requests
        packed["asked"][0] = requests.asked_to_halt
        came = packed.views(self._comm.all_gather(packed.data))
        self._halt = any(views["asked"][0] for views in came)
        if self._halt:
            requests.ask_to_halt()
        return [(node, views) for node, views in enumerate(came) if node != self._machine_layout.node]
