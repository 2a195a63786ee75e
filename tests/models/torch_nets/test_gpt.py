"""gpt: looks at no later place, has one matrix for reading and scoring, starts knowing nothing."""

import math

import pytest
import torch

from support.models.net_cases import loss_of, made, parameters
from unisono.errors import UserError
from unisono.models.torch.nets import build
from unisono.models.torch.nets.gpt import Attention, Sizes

pytestmark = pytest.mark.forked


def test_gpt_does_not_look_ahead() -> None:
    net, x, _ = made("gpt")
    net.eval()
    for place in (0, 7, 15):
        other = x.clone()
        other[:, place] = (other[:, place] + 1) % 7
        same = (net(x) - net(other)).abs().amax((0, 2)) < 1e-6  # (T,)
        assert same[:place].all(), place
        assert not same[place:].any(), place
    torch.testing.assert_close(net(x[:, :5]), net(x)[:, :5])


def test_gpt_has_one_matrix_for_reading_and_scoring() -> None:
    layers, width, context, vocabulary = 3, 8, 10, 7
    net = build("gpt", f"layers={layers},heads=2,width={width}", (context,), vocabulary)
    block = 12 * width**2 + 13 * width
    assert parameters(net) == (vocabulary + context) * width + layers * block + 2 * width
    assert [*net.state_dict()] == [key for key, _ in net.named_parameters()]
    x = torch.zeros(1, 4, dtype=torch.int64)
    before = net(x)
    with torch.no_grad():
        net.get_parameter("tokens.weight")[5] *= 2  # never read here, only scored
    assert torch.equal(net(x)[..., 5], 2 * before[..., 5])
    assert torch.equal(net(x)[..., :5], before[..., :5])
    assert parameters(build("gpt", "layers=5,heads=4,width=128", (128,), 65)) == 1_016_320


def test_gpt_starts_knowing_nothing() -> None:
    torch.manual_seed(0)
    net = build("gpt", "", (64,), 67)
    x = torch.randint(67, (8, 64))
    assert abs(loss_of(net, x, torch.randint(67, (8, 64))).item() - math.log(67)) < 0.1
    deviation = {key: value.std().item() for key, value in net.named_parameters() if value.ndim == 2}
    for key, found in deviation.items():
        expected = 0.01 if key.endswith("add.weight") else 0.02
        assert 0.9 * expected < found < 1.1 * expected, key


def test_attention_is_the_textbooks() -> None:
    torch.manual_seed(0)
    attention = Attention(Sizes(heads=2, width=8), 0.0)
    x = torch.randn(3, 5, 8)
    q, k, v = attention.read(x).split(8, dim=2)  # (b, T, width) each
    heads = []
    for part in (slice(0, 4), slice(4, 8)):
        scores = q[..., part] @ k[..., part].transpose(1, 2) / 2  # sqrt(4); (b, T, T)
        scores = scores.masked_fill(~torch.ones(5, 5, dtype=torch.bool).tril(), -math.inf)
        heads.append(scores.softmax(2) @ v[..., part])
    torch.testing.assert_close(attention(x), attention.add(torch.cat(heads, 2)))


def test_gpt_refuses_what_is_not_text() -> None:
    with pytest.raises(UserError, match=r"it was given torch\.float32"):
        build("gpt", "", (64,), 5)(torch.zeros(2, 64))
