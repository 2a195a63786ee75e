"""`unisono doctor`: what is installed, what works, how to fix the rest; with --nodes, the network between ranks.

unisono doctor; unisono doctor --json > doctor.json; mpirun -n 4 unisono doctor --nodes
"""

import json
import socket
from dataclasses import asdict
from typing import Annotated

from cyclopts import Parameter

from unisono.cli.train import node_options
from unisono.errors import UnisonoError, UserError
from unisono.launch.machine_options import MachineOptions
from unisono.safe_print import print

JOIN_S = 20.0
"""How long ranks may take to arrive: less than for a training."""
Places = node_options("ranks_per_node", join_timeout=JOIN_S)
_HERE = Places()


def doctor(
    places: Annotated[Places, Parameter(name="*")] = _HERE,  # type: ignore[valid-type]
    *,
    nodes: Annotated[
        bool,
        Parameter(
            help="As a rank of mpirun, srun or torchrun, or by hand on each machine (--num-nodes): every pair of ranks "
            "exchanges messages. Shows latency, bandwidth, and differences between nodes.",
            negative="",
        ),
    ] = False,
    transport: Annotated[str, Parameter(help="With --nodes: mpi, gloo, or auto, what training would use.")] = "auto",
    self_test: Annotated[
        bool, Parameter(help="Also train on 1 and 2 ranks, with NumPy and (if installed) torch, and compare the bits.")
    ] = True,
    json_: Annotated[
        bool, Parameter(name="--json", help="Print everything as JSON, to paste into a bug report.", negative="")
    ] = False,
) -> None:
    """Check this machine: cores, memory, BLAS, MPI, torch, SLURM, and whether unisono works on it.

    Each line is ok, warning, missing (unisono works without it) or FAILED, with the fix. Shared memory, MPI and gloo
    are tried with 2 ranks. Each check ends after 22 seconds at the latest; all take about half a minute. The exit code
    is 1 if something failed.

    Start --nodes like a training on several machines (mpirun -n 4 unisono doctor --nodes): it examines the network
    between them.
    """
    where = MachineOptions(**asdict(places))
    if nodes:
        _visit(where, transport, as_json=json_)
        return
    if where != MachineOptions(join_timeout=where.join_timeout) or transport != "auto":
        raise UserError("options of several machines, without --nodes", hint="give --nodes, too")
    from unisono.doctor.finding import line, record, sentence
    from unisono.doctor.probe_runner import run_probes
    from unisono.report.terminal.console import Console

    _refuse_ranks()
    findings = []
    status = Console(stderr=True, highlight=False)

    def tell(text: str) -> None:
        """On a terminal, in a line that the next one replaces. No thread draws it: this process starts others."""
        if status.is_terminal:
            status.print(f"{text:<60}", end="\r")

    for finding in run_probes(self_test=self_test, tell=lambda about: tell(f"looking at {about} ...")):
        tell("")
        findings.append(finding)
        if not json_:
            print(line(finding), flush=True)
    tell("")
    if json_:
        print(json.dumps(record(findings), indent=1))
    else:
        print(f"\n{sentence(findings)}")
    if any(finding.status == "failed" for finding in findings):
        raise UnisonoError("something failed: see above")


def _visit(options: MachineOptions, transport: str, *, as_json: bool) -> None:
    """As one of several ranks, of which the first one speaks."""
    from unisono.doctor.machines.diagnosis import judge, record, report
    from unisono.doctor.machines.facts import facts_here
    from unisono.doctor.machines.pairwise_test import dismiss, follow, lead
    from unisono.doctor.machines.rank_connection import call_together, place, transport_of
    from unisono.doctor.machines.watchdog import Watchdog

    placement = place(options)
    chosen = transport_of(placement, transport)
    with Watchdog(f"rank {placement.rank} of {placement.size} on {socket.gethostname()}") as dog:
        board = call_together(options, placement, chosen, dog)
        try:
            facts = facts_here(board.transport, board.address)
            if board.rank:
                complete = follow(board, facts, dog)
            else:
                visit = lead(board, facts, dog)
                complete = not visit.silent
                print(json.dumps(record(visit), indent=1) if as_json else report(visit), flush=True)
                dismiss(board, visit)
        except BaseException as error:
            board.abort_peers(error)
            raise
        if complete:
            board.close()
        else:
            board.abort_peers(SystemExit(1))
    if board.rank == 0 and any(finding.status == "failed" for finding in judge(visit)):
        raise UnisonoError("something failed: see above")


def _refuse_ranks() -> None:
    """It starts ranks itself. Launchers that contradict each other are a finding, not the end."""
    from unisono.environment.os_environ import detect

    try:
        size = detect().size
    except UserError:
        return
    if size > 1:
        raise UserError(
            f"doctor was started as {size} ranks, and starts its own",
            hint="run it once: unisono doctor; or, for what is between ranks: unisono doctor --nodes",
        )
