"""Small modules with batch norm, and synchronised models of them."""

import numpy as np
import torch
from torch import Tensor, nn

from support.models.engine_cases import CLASSES, FEATURES, bound
from unisono.models.torch.learning_task import Task
from unisono.models.torch.model import TorchModel

ROWS, IMAGES, VOLUMES = Task((FEATURES,), CLASSES), Task((6, 6), CLASSES), Task((2, 4, 4, 4), CLASSES)


class Branches(nn.Module):
    """Two batch norms side by side, one that is passed twice, one on the samples themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.BatchNorm1d(FEATURES, momentum=None)
        self.left, self.right = nn.Linear(FEATURES, 8), nn.Linear(FEATURES, 8)
        self.one, self.two = nn.BatchNorm1d(8), nn.BatchNorm1d(8, affine=False)
        self.out = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return self.out(torch.relu(self.one(torch.tanh(self.one(self.left(x)) + self.two(self.right(x))))))


def rows() -> nn.Module:
    return nn.Sequential(
        nn.Linear(FEATURES, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 9), nn.BatchNorm1d(9), nn.Tanh(),
        nn.Linear(9, CLASSES),
    )  # fmt: skip


def images() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Conv2d(4, 3, 3, bias=False),
        nn.BatchNorm2d(3, track_running_stats=False), nn.Flatten(), nn.Linear(12, CLASSES),
    )  # fmt: skip


def volumes() -> nn.Module:
    return nn.Sequential(nn.Conv3d(2, 4, 3), nn.BatchNorm3d(4), nn.ReLU(), nn.Flatten(), nn.Linear(32, CLASSES))


CASES = {"rows": (rows, ROWS), "branches": (Branches, ROWS), "images": (images, IMAGES), "volumes": (volumes, VOLUMES)}


def synced(make, task=ROWS, **options) -> TorchModel:
    return bound(make, task, sync_batchnorm=True, **options)[0]


def gradients(model: TorchModel, shards: int) -> np.ndarray:
    return np.full((shards, model.layout.length), np.nan, np.float32)
