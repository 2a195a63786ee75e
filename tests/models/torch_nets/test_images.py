"""cnn and wideresnet against what they say of themselves, written once more with plain functions."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from support.models.net_cases import parameters
from unisono.models.torch.nets import build

pytestmark = pytest.mark.forked


def test_cnn_has_the_parameters_it_says() -> None:
    net = build("cnn", "", (28, 28), 10)
    assert parameters(net) == 9 * 16 + 32 + 9 * 16 * 32 + 64 + 32 * 7 * 7 * 10 + 10
    assert parameters(build("cnn", "5", (3, 9, 12), 2)) == 9 * 3 * 5 + 10 + 5 * 4 * 6 * 2 + 2


def test_wideresnet_has_the_parameters_it_should() -> None:
    def cbr(inputs: int, outputs: int) -> int:
        return 9 * inputs * outputs + 2 * outputs

    stem = cbr(1, 16)
    blocks = cbr(16, 160) + (16 * 160 + 160) + 3 * cbr(160, 160)
    blocks += cbr(160, 320) + (160 * 320 + 320) + 3 * cbr(320, 320)
    blocks += cbr(320, 640) + (320 * 640 + 640) + 3 * cbr(640, 640)
    expected = stem + blocks + 640 * 10 + 10
    assert expected == 17_117_466
    with torch.device("meta"):
        assert parameters(build("wideresnet", "", (28, 28), 10)) == expected
        assert parameters(build("wideresnet", "10", (28, 28), 10)) == expected
    assert parameters(build("wideresnet", "1", (28, 28), 10)) == 174_874


def test_wideresnet_computes_what_it_says() -> None:
    for width in (1, 2):
        torch.manual_seed(0)
        net = build("wideresnet", str(width), (28, 28), 10)
        assert {module.p for module in net.modules() if isinstance(module, nn.Dropout)} == {0.01}
        x = torch.rand(3, 1, 28, 28)
        net(x)  # so that running statistics are not those of the start
        net.eval()
        values = iter(net.state_dict().values())

        def cbr(x: Tensor, values=values) -> Tensor:
            x = functional.conv2d(x, next(values), padding=1)
            weight, bias, mean, var, _ = (next(values) for _ in range(5))
            return functional.relu(functional.batch_norm(x, mean, var, weight, bias))

        y = cbr(x)
        for number, channels in enumerate(16 * width * factor for factor in (1, 1, 2, 2, 4, 4)):
            added = cbr(cbr(y))
            assert added.shape[1] == channels
            y = added + (y if y.shape[1] == channels else functional.conv2d(y, next(values), next(values)))
            if number in (1, 3):
                y = functional.max_pool2d(y, 2)
        y = functional.avg_pool2d(y, 7).flatten(1)
        y = functional.linear(y, next(values), next(values))
        assert next(values, None) is None
        torch.testing.assert_close(net(x), y)


def test_wideresnet_takes_another_dropout() -> None:
    net = build("wideresnet", "1", (28, 28), 10, "", 0.3)
    assert {module.p for module in net.modules() if isinstance(module, nn.Dropout)} == {0.3}
