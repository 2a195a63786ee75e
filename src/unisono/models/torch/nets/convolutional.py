"""cnn and wideresnet: convolutional networks for images, (b, channels, height, width).

The one idea of cnn: a block of convolution, batch norm, activation and pooling for each number of channels. Each block
halves the image; the rest is flattened and goes to one linear layer.

    build("cnn", "16,32", shape=(28, 28), outputs=10)       # 28 x 28 -> 14 x 14 -> 7 x 7, 32 channels -> 10
    build("cnn", "32,64,128", shape=(3, 32, 32), outputs=10)

The one idea of wideresnet: 3x3 convolution, batch norm and activation ("cbr"), repeated; each of six blocks adds two of
them to its input. The default is `wideresnet:10`, with 17 million parameters.

    build("wideresnet", "10", shape=(28, 28), outputs=10)      # blocks of 160, 160, 320, 320, 640, 640 channels
    build("wideresnet", "1", shape=(28, 28), outputs=10)       # 16, 16, 32, 32, 64, 64: a CPU can train it

The shortcut is a 1x1 convolution with bias and without batch norm where channels change; nothing follows the addition.
Max-pooling by 2 follows blocks 2 and 4, then the mean over the rest (7 x 7 of 28 x 28), then linear.

The default activation is ReLU. Dropout of cnn stands before the linear layer.
Limits: a side must survive the halving: three blocks need 8 x 8 pixels. Odd sides lose a row (7 -> 3). In wideresnet
dropout 0 means the network's default, 0.01: --dropout 0 and no --dropout are the same number.
"""

from typing import final

from torch import Tensor, nn

from unisono.errors import UserError
from unisono.models.torch.nets.layers import ACTIVATIONS
from unisono.models.torch.nets.network_request import NetworkRequest


def cnn(request: NetworkRequest) -> nn.Module:
    """Two blocks, of 16 and 32 channels."""
    sizes = request.sizes((16, 32))
    channels, height, width = request.image(least=2 ** len(sizes))
    activation = ACTIVATIONS[request.chosen_activation]
    layers: list[nn.Module] = []
    for size in sizes:
        # No bias: batch norm would take it away again.
        conv = nn.Conv2d(channels, size, kernel_size=3, padding=1, bias=False)
        layers += [conv, nn.BatchNorm2d(size), activation(), nn.MaxPool2d(2)]
        channels, height, width = size, height // 2, width // 2
    layers.append(nn.Flatten())
    if request.dropout:
        layers.append(nn.Dropout(request.dropout))
    return nn.Sequential(*layers, nn.Linear(channels * height * width, request.outputs))


WIDTH = 10
STEM = 16
DROPOUT = 0.01


@final
class Block(nn.Module):
    """cbr, dropout, cbr, plus the shortcut: (b, inputs, h, w) -> (b, outputs, h, w)."""

    def __init__(self, inputs: int, outputs: int, activation: type[nn.Module], dropout: float) -> None:
        super().__init__()
        self.first = cbr(inputs, outputs, activation)
        self.dropout = nn.Dropout(dropout)
        self.second = cbr(outputs, outputs, activation)
        self.shortcut = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, kernel_size=1)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.second(self.dropout(self.first(x))) + self.shortcut(x)  # (b, outputs, h, w)
        return y


def cbr(inputs: int, outputs: int, activation: type[nn.Module]) -> nn.Module:
    """Convolution, batch norm, activation; the image keeps its size."""
    conv = nn.Conv2d(inputs, outputs, kernel_size=3, padding=1, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), activation())


def wideresnet(request: NetworkRequest) -> nn.Module:
    """`args` is how many times wider than 16, 32 and 64 channels the blocks are."""
    widths = request.sizes((WIDTH,))
    if len(widths) > 1:
        raise UserError(f"model {request.spec!r} has {len(widths)} widths", hint=f"give one, as wideresnet:{WIDTH}")
    channels, height, width = request.image(least=8)
    activation, dropout = ACTIVATIONS[request.chosen_activation], request.dropout or DROPOUT
    layers = [cbr(channels, STEM, activation)]
    inputs = STEM
    for outputs in (16 * widths[0], 32 * widths[0], 64 * widths[0]):
        layers += [Block(inputs, outputs, activation, dropout), Block(outputs, outputs, activation, dropout)]
        layers.append(nn.MaxPool2d(2))
        inputs = outputs
    layers[-1] = nn.AvgPool2d((height // 4, width // 4))  # in the place of the last pooling: 28 x 28 pixels are 7 x 7
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(inputs, request.outputs))
