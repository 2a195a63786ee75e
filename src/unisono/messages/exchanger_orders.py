"""What a supervisor and the process that talks to the other machines tell each other: orders, and answers.

    line.send(pack(Share(value))); answer = unpack(line.recv(MESSAGE_BYTES))

The one idea: each order has one answer of its own type, or `NodesLost` or `Failed`, which may come at any time.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias, final

from unisono.errors import NodeLost, RankFailed, UnisonoError, UserError


@final
@dataclass(frozen=True)
class Failed:
    """An error of ours: its exit code and its message."""

    exit_code: int
    message: str
    hint: str = ""
    traceback: bool = False
    """Whether the message is a traceback, of a rank."""

    @classmethod
    def of(cls, error: UnisonoError) -> "Failed":
        """What others are told of an error."""
        traceback = isinstance(error, RankFailed) and error.traceback
        return cls(error.exit_code, error.message, error.hint, traceback)

    def error(self, whose: str = "") -> UnisonoError:
        """To be raised here; whose: a name to begin with."""
        kind = UserError if self.exit_code == UserError.exit_code else UnisonoError
        error = kind(f"{whose}: {self.message}" if whose else self.message, hint=self.hint)
        error.exit_code = self.exit_code
        return error


@final
@dataclass(frozen=True)
class NodesLost:
    """The run cannot go on without machines: what a `NodeLost` says."""

    message: str
    nodes: tuple[int, ...] = ()
    certain: bool = True
    crashes: int = 0

    @classmethod
    def of(cls, error: NodeLost) -> "NodesLost":
        return cls(str(error), error.nodes, error.certain, error.crashes)


@final
@dataclass(frozen=True)
class Joined:
    """All machines have come: what each told of itself."""

    facts: list[dict[str, Any]]


@final
@dataclass(frozen=True)
class Succeeded:
    """A value that one machine found, for all others."""

    value: Any


@final
@dataclass(frozen=True)
class Share:
    """Order: tell all machines, and what they tell."""

    mine: Succeeded | Failed


@final
@dataclass(frozen=True)
class Shared:
    """What each machine found, or why it did not."""

    found: list[Succeeded | Failed]


@final
@dataclass(frozen=True)
class Attach:
    """Order: serve the rounds of the arena that comes with it. plan: how it is laid out, and who is on it."""

    plan: dict[str, Any]


@final
@dataclass(frozen=True)
class Attached:
    """The rounds are served."""


@final
@dataclass(frozen=True)
class Leave:
    """Order: tell the other machines why this one leaves, and end."""

    text: str
    code: int
    crashes: int


@final
@dataclass(frozen=True)
class End:
    """Order: end, with the others."""


Order: TypeAlias = Share | Attach | Leave | End
Answer: TypeAlias = Joined | Shared | Attached | NodesLost | Failed
TYPES = (Failed, NodesLost, Joined, Succeeded, Share, Shared, Attach, Attached, Leave, End)
