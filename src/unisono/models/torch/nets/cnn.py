"""cnn: a small convolutional network for images, a block of convolution, batch norm, activation and pooling a size.

The one idea: each block halves the image; what is left is flattened and goes to one linear layer.

    build("cnn", "16,32", shape=(28, 28), outputs=10)       # 28 x 28 -> 14 x 14 -> 7 x 7, 32 channels -> 10
    build("cnn", "32,64,128", shape=(3, 32, 32), outputs=10)

Reads (b, channels, height, width). Activation: ReLU unless told otherwise; dropout stands before the linear layer.
Limits: an image must survive the halving: three blocks need 8 x 8 pixels. Odd sides lose a row (7 -> 3).
"""

from torch import nn

from unisono.models.torch.nets.activations import ACTIVATIONS
from unisono.models.torch.nets.request import Request


def cnn(request: Request) -> nn.Module:
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
