"""Parting: what machines say that do not write the run directory, when a run ends before its time.

The one idea: whoever reads one of several terminals learns why the run ended, and where what was reached is kept.

    print(good_bye("node 1 (n2, 10.0.0.2, rank 1) was lost"))
"""


def good_bye(lost: str) -> str:
    """What a machine says that does not write the run directory. lost: why the run cannot go on, if it cannot."""
    if not lost:
        return "the run was asked to end; node 0 keeps what was reached"
    if lost.startswith("node 0 "):
        return (
            f"the run cannot go on: {lost}; its run directory is not here, so nothing was saved\n"
            "HINT: that directory, if it survived, has the snapshots that were made before"
        )
    return f"the run cannot go on: {lost}; node 0 keeps what was reached"
