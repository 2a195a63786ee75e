"""A run on several machines, started by hand on each: one supervisor a machine, and a courier between them.

    run_on_nodes(Recipe(), NodeOptions(num_nodes=2, node_id=0, main_address="10.0.0.1", ranks_per_node=4))

The one idea: the supervisor of the first machine decides what all go on from, writes the run directory and tells of the
run; the others do the same work for their ranks, and say whom they joined and how it ended. Before each step that could
fail on one machine only, all tell each other how it went, so that a mistake ends the run everywhere in the same words.
"""

import sys
from collections.abc import Callable
from contextlib import ExitStack, closing, nullcontext
from dataclasses import replace
from typing import Any

from unisono.cli.beginning import check_nodes, look
from unisono.cli.ending import fail_of, good_bye
from unisono.cli.recorder import Recorder
from unisono.cli.watching import live_page
from unisono.errors import RESUME_ME, RankFailed, UserError
from unisono.launch.connect import require
from unisono.launch.nodes import NodeOptions
from unisono.launch.outpost import Outpost
from unisono.launch.signals import finish_undisturbed, ignore_requests
from unisono.messages.events import Event
from unisono.recipe import Recipe
from unisono.report.train import event_line
from unisono.strategies.farewell import Farewell
from unisono.strategies.nodes.away import Away
from unisono.strategies.nodes.names import NodeName
from unisono.strategies.nodes.seating import Seating
from unisono.strategies.wire import wire_notes
from unisono.terminal import print
from unisono.train.alike import check_same_code, check_same_data, check_same_run, facts_of, unlike
from unisono.train.enough import check_machine
from unisono.train.job import Job, prepare
from unisono.train.precision_trial import precision_notes
from unisono.train.rescuing import Refuge
from unisono.train.resuming import SNAPSHOTS
from unisono.train.snapshots.finding import Snapshot
from unisono.train.team import Halted, Places, Team
from unisono.trust import ANY, Trust


def run_on_nodes(
    recipe: Recipe,
    options: NodeOptions,
    beside: ExitStack | None = None,
    restarts: int | None = None,
    trust: Trust = ANY,
) -> dict[str, Any] | None:
    """The ranks of this machine, to the end; the summary, on the first machine. beside: for a live page there.
    restarts: how often a batch system has started the job again; None: by hand, so each machine has its terminal.
    trust: which of its code may run; nobody is asked, for the others would wait for the answer."""
    _check(recipe)
    recipe = replace(recipe, ranks=options.ranks_per_node or recipe.ranks)
    check_machine(recipe)
    facts = facts_of(recipe) | {"ranks": recipe.ranks}
    by_hand = restarts is None
    if by_hand:
        _say(options, waiting_line(options))
    with closing(Outpost(options, facts)) as post:
        everybody = post.join()
        check_same_run(everybody, "node")
        counts = [one["ranks"] for one in everybody]
        recipe = replace(recipe, ranks=sum(counts))
        check_nodes(recipe, options.num_nodes)
        snapshots: list[Snapshot] = []
        begun = post.share(lambda: look(recipe, restarts or 0, snapshots) if options.node_id == 0 else {})[0]
        if not begun:
            return None
        recipe = replace(recipe, **begun["changed"])
        jobs: list[Job] = []
        made: list[Team] = []
        records: list[Recorder] = []
        hosts = [one["host"] for one in everybody for _ in range(one["ranks"])]

        def read() -> list[str]:
            """The data of this machine, and its network if that is the user's own."""
            trust.check(recipe)
            jobs.append(prepare(recipe))
            return [jobs[0].all_data_sha256, jobs[0].code_sha256]

        def set_up() -> list[str]:
            """The run directory, on the first machine, and its token."""
            job = jobs[0]
            seating = seat(counts, options.node_id, job.recipe)
            team = Team(job, Places(), away=Away(seating, tuple(hosts)))
            made.append(team)
            if snapshots:
                team.resume(snapshots[0])
            else:
                team.resume_at(begun["position"])
            if options.node_id:
                return []
            records.append(_record(job, team, hosts, snapshots, everybody, anew=begun["anew"]))
            return [str(records[0].path.resolve()), records[0].token]

        data, code = zip(*post.share(read), strict=True)
        check_same_data(everybody, data, "node")
        check_same_code(everybody, code, "model", "node")
        try:
            refuge = Refuge(*post.share(set_up)[0])
            if options.node_id and recipe.strategy == "sync":  # of local, each machine has the states of its replicas
                made[0].places = Places(refuge=refuge)
        except BaseException as error:
            for record in records:
                record.__exit__(type(error), error, None)
            raise
        if beside is not None and records:
            beside.enter_context(live_page(records[0].path))
        told = by_hand and not records
        if told:
            first = NodeName(0, everybody[0]["host"], everybody[0]["address"])
            here = f"{counts[options.node_id]} of {recipe.ranks}"
            _say(options, f"joined {first}, which tells of the run; ranks here: {here}")
        summary = _train(made[0], post, records, options)
        if told:
            _say(options, f"the run has ended; node 0 has it in {refuge.path}")
        return summary


def seat(counts: list[int], node: int, recipe: Recipe) -> Seating:
    """So many ranks on each machine, numbered through."""
    colours = [number for number, count in enumerate(counts) for _ in range(count)]
    return Seating.of(colours, colours.index(node), recipe.shards, rounded=recipe.wire != "fp32")


def _check(recipe: Recipe) -> None:
    if recipe.strategy not in ("sync", "local") or recipe.allreduce != "arena":
        what = f"--allreduce {recipe.allreduce}" if recipe.strategy == "sync" else f"--strategy {recipe.strategy}"
        raise UserError(
            f"--num-nodes with {what}: supervisors on several machines train with sync or local, on the arena",
            hint="leave it out, or start the ranks with torchrun or mpirun",
        )
    if recipe.transport not in ("auto", "gloo"):
        raise UserError(
            f"--num-nodes with --transport {recipe.transport}: supervisors talk over gloo",
            hint="leave --transport out, or start with mpirun for MPI",
        )
    require("gloo")


def _record(
    job: Job, team: Team, hosts: list[str], snapshots: list[Snapshot], facts: list[dict[str, Any]], *, anew: bool
) -> Recorder:
    record = Recorder(job, "gloo", hosts, snapshots[0] if snapshots else None, anew=anew)
    record.watch.unknown = (
        "with --num-nodes that of other machines is not gathered; under mpirun, torchrun and srun it is"
    )
    record.say([*job.notes, *precision_notes(job), *wire_notes(job.recipe, len(facts)), *unlike(facts, "node")])
    team.places = Places(record.weights, record.path / SNAPSHOTS, record.log)
    return record


def _train(team: Team, post: Outpost, records: list[Recorder], options: NodeOptions) -> dict[str, Any] | None:
    record = records[0] if records else None
    report: Callable[[int, Any], None] = (lambda rank, value: None) if record is None else (lambda _, v: record.add(v))
    event = _say_event if record is None else record.add_event
    team.on_finished = finish_undisturbed
    with record or nullcontext():
        try:
            tick = (lambda pids: None) if record is None else record.watch.tick
            outcome = team.train(report, event, post, tick)
        except Halted as halted:
            ignore_requests()
            if halted.outcome.lost:
                post.take_leave(Farewell(halted.outcome.lost, RESUME_ME, halted.outcome.crashes))
            if record is not None:
                raise
            told = str(halted) if halted.snapshot or halted.trouble else good_bye(halted.outcome)
            _say(options, told)
            sys.exit(halted.exit_code)
        except RankFailed as error:
            post.take_leave(Farewell(str(error), error.exit_code))
            raise fail_of(error, record) from None
        except Exception as error:
            post.take_leave(Farewell.of(error, "its supervisor"))
            raise
        if record is None:
            return None
        found: dict[str, Any] = next(result for result in outcome.results.values() if result)
        return record.finish(found | {"takeovers": outcome.takeovers, "restarts": outcome.restarts})


def waiting_line(options: NodeOptions) -> str:
    """What this machine is doing until all have come."""
    others = "node 1" if options.num_nodes == 2 else f"nodes 1 to {options.num_nodes - 1}"
    whom = f"node 0 at {options.main_address}" if options.node_id else f"{others} at {options.main_address}"
    return f"waiting for {whom}, port {options.main_port}, for up to {options.join_timeout:g} s (--join-timeout)"


def _say(options: NodeOptions, text: str) -> None:
    print(f"unisono: node {options.node_id}: {text}", file=sys.stderr, flush=True)


def _say_event(event: Event) -> None:
    if told := event_line(event):
        print(told, file=sys.stderr, flush=True)
