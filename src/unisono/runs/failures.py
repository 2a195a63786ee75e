"""What the user is told when a run ends early: by the process that writes the run directory, and by the others.

raise fail_of(error, record); print(good_bye(halted.outcome))
"""

from unisono.errors import RankFailed, UnisonoError, UserError
from unisono.runs.recorder import Recorder
from unisono.supervise.config import SupervisorResult


def fail_of(error: RankFailed, record: Recorder | None) -> Exception:
    """What the user is told of it."""
    kept = f"\nWhat was reached is in {record.path}" if record is not None and record.path.exists() else ""
    if error.traceback:
        again = record.go_on if record is not None else ""
        hint = f"\nHINT: correct it, then go on with {again}" if again else ""
        report = f"{error.report.rstrip()}{kept}{hint}"
        return RankFailed(error.rank, report, kind=error.kind, exit_code=error.exit_code, traceback=True)
    kind = UserError if error.exit_code == 2 else UnisonoError
    return kind(f"{error.told}{kept}")


def good_bye(outcome: SupervisorResult) -> str:
    """What a machine says that does not write the run directory."""
    lost = outcome.lost
    if not lost:
        return "the run was asked to end; node 0 keeps what was reached"
    if 0 in outcome.lost_nodes:
        return (
            f"the run cannot go on: {lost}; its run directory is not here, or somebody has "
            "gone on with the run since, so nothing was saved\n"
            "HINT: that directory, if it survived, has the snapshots that were made before"
        )
    return f"the run cannot go on: {lost}; node 0 keeps what was reached"
