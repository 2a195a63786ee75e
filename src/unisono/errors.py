"""unisono's exceptions: what you gave, what was found, HINT what to do, and the exit code.

`str(error)` is the whole message for the user; a traceback is for our own bugs only. The command line prints the
message and leaves with `exit_code`: 2 for a mistake in what was asked for, 1 for a run that failed, 75 for one that was
asked to end and can be resumed, as can a study.

>>> str(UserError("--ranks is 0", hint="give 1 or more"))
'--ranks is 0\\nHINT: give 1 or more'
"""

from collections.abc import Iterable
from difflib import get_close_matches

RESUME_ME = 75
"""The exit code of a run that was asked to end and can be resumed."""


def with_hint(message: str, hint: str) -> str:
    """A message for the user, and what to do about it, if that is known."""
    return f"{message}\nHINT: {hint}" if hint else message


class UnisonoError(Exception):
    """Anything unisono raises on purpose.

    `message` and `hint` are its two parts; `named_rank`: the rank that says it, if the message begins with its number.
    """

    exit_code = 1
    shown = False
    """Whether the user has read the message already, from this process or another one of the same run."""

    def __init__(self, message: str, *, hint: str = "", rank: int | None = None) -> None:
        self.message = message if rank is None else f"rank {rank}: {message}"
        self.hint, self.named_rank = hint, rank
        super().__init__(with_hint(self.message, hint))

    @property
    def summary(self) -> str:
        """The first line of the message."""
        return self.message.partition("\n")[0]


def first_line(error: BaseException) -> str:
    """What any error says, short enough for a message of ours."""
    return next(iter(str(error).splitlines()), "")


class AskedToEnd(SystemExit):
    """A signal asked for the end of a loop that `unisono.keep` looks after: all ranks leave it after the same step.

    `snapshot` is where everything up to there is. Not handled, it ends the program with exit code 75.
    """

    def __init__(self, snapshot: str) -> None:
        super().__init__(RESUME_ME)
        self.snapshot = snapshot


class Interrupted(UnisonoError):
    """Ctrl-C or SIGTERM ended a study: what was finished is kept in `path`, and the same command goes on there.
    early: that is nothing."""

    exit_code = RESUME_ME

    def __init__(self, path: str, *, hint: str = "the same command goes on", early: bool = False) -> None:
        told = f"interrupted; what was finished is kept in {path}"
        if early:
            told = f"interrupted before anything was measured; the study is in {path}"
        super().__init__(told, hint=hint)


class UserError(UnisonoError):
    """What was asked for cannot be done: an unknown name, a number out of range, something not installed."""

    exit_code = 2


class Contradiction(UserError):
    """Two sources disagree on the world: SLURM says 4 tasks, MPI says 1 rank."""


class Mismatch(UserError):
    """Ranks called the same collective with different arguments. Raised on every rank."""


class CommError(UnisonoError):
    """A message or a collective failed; the communicator cannot be used any more.

    `peer_address` is the network address of the other side, and `reason` what was seen there, where they are known.
    """

    def __init__(
        self, message: str, *, hint: str = "", rank: int | None = None, peer_address: str = "", reason: str = ""
    ) -> None:
        super().__init__(message, hint=hint, rank=rank)
        self.peer_address, self.reason = peer_address, reason


class CommTimeout(CommError):
    """A wait ended before everybody had arrived; `missing` names the ranks that had not."""

    def __init__(self, message: str, *, missing: Iterable[int] = (), hint: str = "", rank: int | None = None) -> None:
        super().__init__(message, hint=hint, rank=rank)
        self.missing = tuple(missing)


class RankLost(CommError):
    """A rank that others wait for is no more; `ranks` names it, or several."""

    def __init__(self, message: str, *, ranks: Iterable[int], hint: str = "", rank: int | None = None) -> None:
        super().__init__(message, hint=hint, rank=rank)
        self.ranks = tuple(ranks)


class NodeLost(CommError):
    """Another machine does not answer: it, or one of its ranks, is no more, or cannot be reached.

    `nodes`: the numbers of those machines; `certain` False: one of them, nobody knows which. `first_hand`: this rank
    saw it itself; others of its machine were told. `crashes`: if it gave up, how many of its ranks had ended by
    themselves in the round that was to be done.
    """

    def __init__(
        self, message: str, *, first_hand: bool, nodes: Iterable[int] = (), certain: bool = True, crashes: int = 0
    ) -> None:
        super().__init__(message)
        self.first_hand, self.nodes, self.certain, self.crashes = first_hand, tuple(nodes), certain, crashes


class OtherFailed(UnisonoError):
    """Another rank or machine left with an error of its own, which would come again: all leave with its exit code.

    `first_hand`: nobody on this machine has said it yet.
    """

    def __init__(self, message: str, *, exit_code: int, first_hand: bool) -> None:
        super().__init__(message)
        self.exit_code, self.first_hand = exit_code, first_hand


class Diverged(UnisonoError):
    """Machines that should have the same parameters do not. Nobody knows whose are right: nothing of them is saved."""


class RankFailed(UnisonoError):
    """A rank of `unisono.run` raised or died.

    `report` is its traceback, if `traceback` says so, or the message of an error of ours, or how it died; `kind` is the
    name of the exception ("CommTimeout", "ValueError"), empty if it died without one.
    """

    def __init__(
        self,
        rank: int,
        report: str,
        *,
        kind: str = "",
        exit_code: int = 1,
        traceback: bool = False,
        named: int | None = None,
    ) -> None:
        """named: the rank that the report itself begins with."""
        super().__init__(report, rank=None if named == rank else rank)
        self.rank = rank
        self.report, self.traceback = report, traceback
        self.kind = kind
        self.exit_code = exit_code

    @property
    def user_message(self) -> str:
        """For the user: an error of ours on one rank speaks for all; of a traceback or a death it is said whose."""
        return self.report if self.kind and not self.traceback else str(self)


def unknown_name(what: str, given: str, valid: Iterable[str]) -> UserError:
    """The error for a name that is not in a table: lists every valid one, the nearest first, and suggests that."""
    names = {name.lower(): name for name in valid}
    near = [names[name] for name in get_close_matches(str(given).lower(), names)]
    known = [*near, *(name for name in names.values() if name not in near)]
    hint = f"did you mean {near[0]!r}?" if near else "choose one of these" if known else "there is nothing to choose"
    return UserError(f"unknown {what} {given!r}; there are: {', '.join(known) or 'none'}", hint=hint)
