"""A profile as nested frames: what is inside something lies in it, and adds up."""

import pytest

from support.report.profile_records import record, row
from unisono.report.html.flame import COLOURS, LEAST, frames_of


def by_name(frames):
    return {frame.name: frame for frame in frames}


def inside(inner, outer):
    return (
        inner.depth == outer.depth + 1
        and inner.start_s >= outer.start_s - 1e-9
        and inner.start_s + inner.length_s <= outer.start_s + outer.length_s + 1e-9
    )


def test_a_step_is_phases_one_after_the_other():
    frames = [frame for frame in frames_of(record()) if frame.depth < 2]
    names = ["step", "data", "forward", "backward", "waiting", "summing", "optimizer"]
    assert [frame.name for frame in frames] == names  # other took no time
    step, *phases = frames
    assert step.length_s == pytest.approx(1.0)  # 10 s of 10 batches
    assert sum(phase.length_s for phase in phases) == pytest.approx(step.length_s)
    assert all(inside(phase, step) for phase in phases)
    assert phases[1].colour == COLOURS["forward"]


def test_modules_that_fit_are_as_long_as_they_were_measured():
    frames = by_name(frames_of(record(modules=[row("0", "Linear", self_s=1.0), row("1", "ReLU", self_s=0.5)])))
    assert frames["0 Linear"].length_s == pytest.approx(0.1)
    assert frames["1 ReLU"].start_s == pytest.approx(frames["0 Linear"].start_s + 0.1)
    assert inside(frames["1 ReLU"], frames["forward"])


def test_modules_that_came_out_longer_are_drawn_to_fit():
    frames = by_name(frames_of(record(modules=[row("0", "Linear", self_s=30.0), row("1", "ReLU", self_s=10.0)])))
    forward = frames["forward"]
    assert frames["0 Linear"].length_s == pytest.approx(0.75 * forward.length_s)
    assert frames["1 ReLU"].length_s == pytest.approx(0.25 * forward.length_s)


def test_modules_of_torch_lie_in_each_other():
    modules = [
        row("Net", "Net", self_s=0.2),
        row("body", "Sequential", self_s=0.1),
        row("body.0", "Linear", self_s=0.5),
        row("loss", "loss", self_s=0.3),
        row("body.0", "Linear", "backward", self_s=1.0),
    ]
    found = frames_of(record(engine="torch", modules=modules))
    frames = by_name(frame for frame in found if frame.colour == COLOURS["forward"])
    assert inside(frames["body.0 Linear"], frames["body Sequential"])
    assert inside(frames["body Sequential"], frames["Net"])
    assert inside(frames["Net"], frames["forward"])
    assert inside(frames["loss"], frames["forward"])
    assert frames["Net"].length_s == pytest.approx(0.08)  # itself and what is in it
    backward = [frame.name for frame in found if frame.colour == COLOURS["backward"]]
    assert backward == ["backward", "Net", "body", "body.0 Linear"]


def test_operators_share_their_module_s_own_time():
    operators = [row("0", "Linear", self_s=s, operator=f"op{s}", shapes="") for s in (3, 1)]
    frames = by_name(frames_of(record(modules=[row("0", "Linear", self_s=1.0)], operators=operators)))
    assert frames["op3"].length_s == pytest.approx(0.075)
    assert frames["op1"].length_s == pytest.approx(0.025)
    assert inside(frames["op1"], frames["0 Linear"])


def test_what_nobody_could_see_is_left_out_and_leaves_its_room():
    modules = [row("0", "Linear", self_s=0.9 * LEAST * 10), row("1", "ReLU", self_s=1.0)]
    frames = by_name(frames_of(record(modules=modules)))
    assert "0 Linear" not in frames
    assert frames["1 ReLU"].start_s > frames["forward"].start_s
