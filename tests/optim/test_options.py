import math
from dataclasses import replace

import pytest

from unisono.errors import UserError
from unisono.optim import make
from unisono.optim.options import OPTIMIZERS, OptimizerOptions

STATES = {
    "sgd": (),
    "momentum": ("momentum",),
    "nesterov": ("momentum",),
    "adam": ("gradient_sum", "square_sum"),
    "adamw": ("gradient_sum", "square_sum"),
    "lars": ("momentum",),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_name_makes_an_optimizer(name):
    optimizer = make(OptimizerOptions(name, lr=0.1))
    assert optimizer.state_names == STATES[name]


def test_sgd_with_a_momentum_is_momentum():
    assert make(OptimizerOptions("sgd", lr=0.1, momentum=0.9)).state_names == ("momentum",)
    assert make(OptimizerOptions("momentum", lr=0.1, momentum=0.0)).state_names == ()


def test_open_values_are_filled_in():
    found = {name: OptimizerOptions(name, lr=0.1) for name in OPTIMIZERS}
    assert {name: options.momentum for name, options in found.items() if options.momentum} == {
        "momentum": 0.9,
        "nesterov": 0.9,
        "lars": 0.9,
    }
    assert {name: options.weight_decay for name, options in found.items() if options.weight_decay} == {"adamw": 0.01}
    assert OptimizerOptions("adamw", lr=0.1, weight_decay=0.0).weight_decay == 0.0
    assert replace(found["adam"], lr=0.2).lr == 0.2


@pytest.mark.parametrize(
    ("name", "field", "value", "option"),
    [
        *(("sgd", "lr", bad, "--lr") for bad in (0, -0.1, math.nan, math.inf)),
        *(("sgd", "momentum", bad, "--momentum") for bad in (-0.1, 1, 1.5, math.nan)),
        *(("adam", "betas", bad, "--betas") for bad in ((0.9, 1), (-0.1, 0.9), (math.nan, 0.9), (0.9,))),
        *(("adam", "eps", bad, "--eps") for bad in (0, -1e-8, 1e-20, math.nan)),
        *(("adamw", "weight_decay", bad, "--weight-decay") for bad in (-0.1, math.nan, math.inf)),
        *(("sgd", "clip", bad, "--clip") for bad in (0, -1, math.nan, math.inf)),
        *(("lars", "trust", bad, "--trust") for bad in (0, -1, math.nan)),
    ],
)
def test_values_out_of_range_are_refused_by_option(name, field, value, option):
    with pytest.raises(UserError, match=rf"(?s)^{option} .*: out of range\nHINT: give "):
        OptimizerOptions(name, **{"lr": 0.1, field: value})


@pytest.mark.parametrize(
    ("name", "momentum", "message"),
    [
        ("adma", None, "unknown --optimizer 'adma'; there are: adam.*sgd.*did you mean 'adam'"),
        ("adam", 0.9, "--momentum 0.9: --optimizer adam has none\nHINT: .*--optimizer momentum"),
        ("nesterov", 0.0, "--optimizer nesterov needs one"),
    ],
)
def test_names_and_momenta_that_do_not_fit_are_refused(name, momentum, message):
    with pytest.raises(UserError, match=f"(?s){message}"):
        OptimizerOptions(name, lr=0.1, momentum=momentum)
