"""Of every network: it trains, depends on the seed alone, and complains about what it cannot be."""

import math

import pytest
import torch

from support.models.net_cases import TRAINED, loss_of, made
from unisono.errors import UserError
from unisono.models import activations as numpy_activations
from unisono.models.torch.nets import NETWORKS, build
from unisono.models.torch.nets.layers import ACTIVATIONS

pytestmark = pytest.mark.forked


def test_every_network_is_tried() -> None:
    assert {case[0] for case in TRAINED.values()} == set(NETWORKS)


def test_losses_fall() -> None:
    for case in TRAINED:
        net, x, y = made(case)
        optimizer = torch.optim.Adam(net.parameters(), lr=0.02 if case == "linear" else 0.01)
        first = loss_of(net, x, y).item()
        assert net(x).shape == (*y.shape, TRAINED[case][3]), case
        for _ in range(40 if case.startswith("gpt") else 20):
            optimizer.zero_grad()
            loss = loss_of(net, x, y)
            loss.backward()
            optimizer.step()
        assert loss.item() < 0.7 * first, f"{case}: {first} -> {loss.item()}"
        for key, parameter in net.named_parameters():
            assert parameter.dtype == torch.float32, key
            assert parameter.grad is not None, key


def test_starting_values_depend_on_the_seed_alone() -> None:
    for case in TRAINED:
        one, two = made(case)[0].state_dict(), made(case)[0].state_dict()
        assert all(torch.equal(one[key], two[key]) for key in one), case
        torch.manual_seed(2)
        other = build(*TRAINED[case]).state_dict()
        assert not all(torch.equal(one[key], other[key]) for key in one), case


def test_dropout_draws_in_training_only() -> None:
    for case in ("mlp, dropout", "cnn, 28 x 28", "wideresnet, 28 x 28", "gpt, dropout"):
        net, x, _ = made(case)
        torch.manual_seed(3)
        one, two = net(x), net(x)
        torch.manual_seed(3)
        assert torch.equal(net(x), one), case
        assert not torch.equal(one, two), case
        net.eval()
        before = torch.get_rng_state()
        assert torch.equal(net(x), net(x)), case
        assert torch.equal(torch.get_rng_state(), before), case


def test_activations_are_called_as_in_numpy() -> None:
    assert [*ACTIVATIONS] == [*numpy_activations.ACTIVATIONS]
    for name, kind in ACTIVATIONS.items():
        for net, args, shape in (
            ("cnn", "4", (8, 8)),
            ("wideresnet", "1", (8, 8)),
            ("gpt", "", (8,)),
            ("mlp", "4", (8,)),
        ):
            kinds = {type(module) for module in build(net, args, shape, 4, name, 0.0).modules()}
            assert kinds & set(ACTIVATIONS.values()) == {kind}, (net, name)


def test_mistakes_name_what_was_given() -> None:
    image, text = {"shape": (28, 28)}, {"shape": (64,)}
    cases = [
        (("ccnn", "8"), image, "unknown model 'ccnn'; there are: cnn, linear, mlp, bn-mlp, wideresnet, gpt", "'cnn'"),
        (("mlp", "12x"), {}, "model 'mlp:12x': '12x' is not a list of sizes", "mlp:128,64"),
        (("mlp", "8,"), {}, "'8,' is not a list", "mlp:128,64"),
        (("mlp", "0"), {}, "'0' is not a list", ""),
        (("bn-mlp", "9" * 5000), {}, "is not a list", "bn-mlp:32"),
        (("linear", "5"), {}, "model 'linear:5' with sizes", "--model mlp"),
        (("linear", ""), {"dropout": 0.1}, "no hidden layer", ""),
        (("linear", ""), {"activation": "relu"}, "no hidden layer", ""),
        (("mlp", ""), {"activation": "rleu"}, "unknown activation 'rleu'", "'relu'"),
        (("mlp", ""), {"dropout": 1.0}, "dropout is 1.0", "below 1"),
        (("mlp", ""), {"dropout": math.nan}, "dropout is nan", ""),
        (("mlp", ""), {"outputs": 0}, "model 'mlp' for samples of shape (4,) and 0 outputs", ""),
        (("mlp", ""), {"shape": (0,)}, "shape (0,)", ""),
        (("cnn", ""), {}, "model 'cnn' needs images, samples of these data have shape (4,)", "--model mlp"),
        (("cnn", "8,8,8,8,8"), image, "needs images of 32 x 32 pixels or more, found 28 x 28", "larger images"),
        (("cnn", ""), {"shape": (32, 32, 3)}, "as 32 channels of 32 x 3 pixels", "channels first"),
        (("cnn", "8"), {"shape": (16, 16, 3)}, "(16, 16, 3) as 16 channels of 16 x 3 pixels", "channels first"),
        (("cnn", "8,8"), {"shape": (3, 16, 3)}, "4 x 4 pixels or more, found 16 x 3", "larger images"),
        (("cnn", "-3"), image, "'-3' is not a list of sizes", "cnn:16,32"),
        (("wideresnet", "2,3"), image, "model 'wideresnet:2,3' has 2 widths", "wideresnet:10"),
        (("wideresnet", "wide"), image, "'wide' is not a list of sizes", "wideresnet:10"),
        (("wideresnet", ""), {"shape": (4, 4)}, "8 x 8 pixels or more, found 4 x 4", ""),
        (("gpt", "heads=3"), text, "3 heads do not divide a width of 64", "66"),
        (("gpt", "layrs=3"), text, "unknown option in model 'gpt:layrs=3': 'layrs'; there are: layers", "'layers'"),
        (("gpt", "4"), text, "unknown option in model 'gpt:4': '4'", ""),
        (("gpt", "width=x"), text, "width is 'x'", "gpt:layers=2,heads=2,width=64"),
        (("gpt", "layers=0"), text, "layers is '0'", "whole numbers"),
        (("gpt", "context=32"), text, "the context is the data's", "--data FILE.txt:context=64"),
        (("gpt", ""), image, "needs text, samples of these data have shape (28, 28)", "--data FILE.txt"),
        (("gpt", ""), text | {"outputs": 1}, "1 outputs", ""),
    ]
    for given, options, says, hint in cases:
        with pytest.raises(UserError) as caught:
            build(*given, **({"shape": (4,), "outputs": 3} | options))
        message, _, hinted = str(caught.value).partition("\nHINT: ")
        assert says in message, str(caught.value)
        assert hinted, str(caught.value)
        assert hint in hinted, str(caught.value)
