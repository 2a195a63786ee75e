"""Mailbox: one rank's point-to-point messages over the pipes of shared memory.

The one idea: no thread works in the background, so whoever waits does the work. Each wait moves everything that can
be moved: it pushes what this rank still has to send, to anybody, and takes in what others sent to it, asked for or not
(into memory of its own, if no receive was posted). So two ranks that both send before they receive do not lock up.

Messages of one source are matched by tag, oldest first, against the posted receives in the order they were posted.
"""

from collections import deque
from collections.abc import Callable
from typing import final

from unisono.arena.sync.pipe import Reader, Writer
from unisono.arena.sync.waiting import SPINS, wait_until
from unisono.comm.base import ANY, Array, Envelope, Request, matches, wrong_length
from unisono.comm.checked_base import as_bytes
from unisono.errors import CommError, CommTimeout


@final
class MailRequest(Request):
    """One send or receive of a mailbox."""

    def __init__(self, box: "Mailbox", peer: int, tag: int, view: memoryview, kind: str) -> None:
        self.box, self.peer, self.tag, self.view, self.kind = box, peer, tag, view, kind
        self.done = False
        self.moved = 0
        """Grows while parts of the message move."""
        self.error: CommError | None = None

    def test(self) -> bool:
        if not self.done:
            self.box.progress()
            self.box.attend(self)
        return self._finished()

    def wait(self) -> None:
        self.box.wait_for(self)
        self._finished()

    def _finished(self) -> bool:
        if self.error is not None:
            raise self.error
        return self.done


@final
class _Inbox:
    """What comes from one source: the pipe, the message being taken in, and what has no taker yet."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.posted: deque[MailRequest] = deque()
        self.unexpected: deque[tuple[int, memoryview]] = deque()
        self.request: MailRequest | None = None
        self.tag = 0
        self.target: memoryview | None = None
        self.filled = 0


@final
class Mailbox:
    """`writers` and `readers` hold one pipe per peer."""

    def __init__(
        self,
        rank: int,
        writers: dict[int, Writer],
        readers: dict[int, Reader],
        give_up: Callable[[str, list[int]], CommTimeout],
        timeout_s: float,
        *,
        crowded: bool,
    ) -> None:
        """give_up(what, missing ranks) gives the error of a wait that ended in vain, and breaks the communicator."""
        self.names = {peer: peer for peer in (rank, *writers)}
        """What ranks are called now: they are numbered anew when one is lost."""
        self.pause: Callable[[int], None] = lambda peer: None
        """Called by those who wait for a peer, again and again; raises if that one is no more."""
        self._rank = rank
        self._give_up = give_up
        self._timeout_s = timeout_s
        self._writers = writers
        self._outgoing: dict[int, deque[MailRequest]] = {peer: deque() for peer in writers}
        self._inboxes = {peer: _Inbox(reader) for peer, reader in readers.items()}
        self._spins = 0 if crowded else SPINS // 10
        self._next = 0

    def isend(self, array: Array, dest: int, tag: int) -> MailRequest:
        request = MailRequest(self, dest, tag, as_bytes(array).data, "send")
        queue = self._outgoing[dest]
        queue.append(request)
        if len(queue) == 1:
            self._writers[dest].start(tag, request.view)
        self._push(dest)
        return request

    def irecv(self, array: Array, source: int, tag: int) -> MailRequest:
        request = MailRequest(self, source, tag, as_bytes(array).data, "receive")
        inbox = self._inboxes[source]
        for position, (found, message) in enumerate(inbox.unexpected):
            if found == tag:
                del inbox.unexpected[position]
                self._deliver(request, message)
                return request
        inbox.posted.append(request)
        self._take_in(source)
        return request

    def probe(self, source: int, tag: int) -> Envelope | None:
        self.progress(take_unexpected=False)
        sources = list(self._inboxes) if source == ANY else [source]
        # Starts after the source found last, so that a busy one cannot hide the others.
        for step in range(len(sources)):
            peer = sources[(self._next + step) % len(sources)]
            inbox = self._inboxes[peer]
            for found, message in inbox.unexpected:
                if matches(tag, found):
                    self._next = (self._next + step + 1) % len(sources)
                    return Envelope(peer, found, len(message))
            if inbox.target is None and (head := inbox.reader.peek()) is not None:
                if matches(tag, head[0]):
                    self._next = (self._next + step + 1) % len(sources)
                    return Envelope(peer, *head)
                self._take_in(peer)  # another tag is in front: look behind it next time
        return None

    def wait_for(self, request: MailRequest) -> None:
        """Works until `request` is done or failed; CommTimeout when time is up."""
        for _ in range(self._spins):
            if request.done:
                return
            self.progress()

        while not request.done:
            # Patience starts anew whenever a part of it moves: a long message is no reason to sleep or to give up.
            before = request.moved

            def ready(before: int = before) -> bool:
                self.progress()
                self.attend(request)
                return request.done or request.moved != before

            if not wait_until(ready, self._timeout_s):
                way = "to" if request.kind == "send" else "from"
                peer = self.names[request.peer]
                what = f"a {request.kind} of {len(request.view)} bytes {way} rank {peer} (tag {request.tag})"
                raise self._give_up(what, [peer])

    def attend(self, request: MailRequest) -> None:
        """Whoever waits for `request` looks whether its peer lives."""
        if not request.done:
            try:
                self.pause(request.peer)
            except CommError:
                self.progress()  # it may have sent this before it ended
                if not request.done:
                    raise

    def rename(self, names: dict[int, int]) -> None:
        """Peers are called so from now on; of those who are not named no more messages are told."""
        self.names = {**self.names, **names}
        self._inboxes = {peer: inbox for peer, inbox in self._inboxes.items() if peer in names}

    def progress(self, *, take_unexpected: bool = True) -> None:
        """Moves what can be moved; never blocks."""
        for dest, queue in self._outgoing.items():
            if queue:
                self._push(dest)
        for source, inbox in self._inboxes.items():
            if take_unexpected or inbox.posted or inbox.target is not None:
                self._take_in(source)

    def _push(self, dest: int) -> None:
        queue, writer = self._outgoing[dest], self._writers[dest]
        while queue:
            whole = writer.push()
            queue[0].moved = writer.position
            if not whole:
                return
            queue.popleft().done = True
            if queue:
                writer.start(queue[0].tag, queue[0].view)

    def _take_in(self, source: int) -> None:
        inbox = self._inboxes[source]
        while True:
            if inbox.target is None:
                head = inbox.reader.peek()
                if head is None:
                    return
                self._open(inbox, *head)
            assert inbox.target is not None
            inbox.filled += inbox.reader.pull(inbox.target[inbox.filled :])
            if inbox.request is not None:
                inbox.request.moved = inbox.filled
            if inbox.filled < len(inbox.target):
                return
            if inbox.request is None:
                self._hand_on(inbox, inbox.tag, inbox.target)
            else:
                inbox.request.done = True
            inbox.request = inbox.target = None

    def _open(self, inbox: _Inbox, tag: int, nbytes: int) -> None:
        """Starts to take a message in: straight to where it is wanted, if somebody wants it and it fits."""
        inbox.reader.open()
        inbox.tag, inbox.filled, inbox.request = tag, 0, None
        for request in inbox.posted:
            if request.tag == tag:
                if len(request.view) == nbytes:
                    inbox.posted.remove(request)
                    inbox.request, inbox.target = request, request.view
                    return
                break
        inbox.target = memoryview(bytearray(nbytes))

    def _hand_on(self, inbox: _Inbox, tag: int, message: memoryview) -> None:
        for request in inbox.posted:
            if request.tag == tag:
                inbox.posted.remove(request)
                self._deliver(request, message)
                return
        inbox.unexpected.append((tag, message))

    def _deliver(self, request: MailRequest, message: memoryview) -> None:
        request.done = True
        if len(message) == len(request.view):
            request.view[:] = message
        else:
            request.error = wrong_length(
                self.names[self._rank], self.names[request.peer], request.tag, len(message), len(request.view)
            )
