"""How a run ends early: the error `Halted`, and the messages of the processes of the run.

    raise user_error_of(error, record.path, record.resume_command); print(stop_message(halted.outcome))

The one idea: the process that writes the run directory says what was saved and how to go on; the others say that they
stop, and why.
"""

from pathlib import Path
from typing import final

from unisono.errors import RESUME_ME, RankFailed, UnisonoError, UserError
from unisono.safe_print import printable
from unisono.storage.run_files import resume_command
from unisono.supervise.config import SupervisorResult


@final
class Halted(UnisonoError):
    """The run ended before its time, as it was asked to or because it could not go on, and left a snapshot."""

    def __init__(self, outcome: SupervisorResult, snapshot: str, trouble: str = "") -> None:
        """trouble: why there is no snapshot; then it is a failure."""
        why = f"the run cannot go on: {outcome.lost}" if outcome.lost else "the run was asked to end"
        kept = f"; everything up to here is in {printable(snapshot)}" if snapshot else "; nothing was to be kept"
        hint = f"go on with {resume_command(Path(snapshot).parents[1])}" if snapshot else ""
        again = outcome.crashes > 1
        if again:
            hint = (
                "resuming will not help: it would end whoever computes it again. Correct what ends the process there "
                "(os._exit, a library that crashes)" + (f", then {hint}" if hint else "")
            )
        elif outcome.crashes and hint:
            hint += "; if the same step ends it again, correct what that step computes: resuming will not help"
        super().__init__(f"{why}\n{trouble}" if trouble else why + kept, hint=hint)
        self.outcome, self.snapshot, self.trouble = outcome, snapshot, trouble
        self.exit_code = 1 if trouble or again else RESUME_ME


def user_error_of(error: RankFailed, path: Path | None = None, resume: str = "") -> Exception:
    """The error for the user when a rank failed. path: the run directory; resume: the command that resumes the run once
    the user's code is corrected."""
    kept = f"\nWhat was reached is in {path}" if path is not None and path.exists() else ""
    if error.traceback:
        hint = f"\nHINT: correct it, then go on with {resume}" if resume else ""
        report = f"{error.report.rstrip()}{kept}{hint}"
        return RankFailed(error.rank, report, kind=error.kind, exit_code=error.exit_code, traceback=True)
    kind = UserError if error.exit_code == 2 else UnisonoError
    return kind(f"{error.user_message}{kept}")


def stop_message(outcome: SupervisorResult) -> str:
    """The message of a machine that does not write the run directory."""
    lost = outcome.lost
    if not lost:
        return "the run was asked to end; node 0 keeps what was reached"
    if 0 in outcome.lost_nodes:
        return (
            f"the run cannot go on: {lost}; its run directory is not here, or the run was resumed elsewhere, so "
            "nothing was saved\n"
            "HINT: that directory, if it survived, has the snapshots that were made before"
        )
    return f"the run cannot go on: {lost}; node 0 keeps what was reached"
