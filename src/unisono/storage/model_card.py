"""ModelCard: what one has to know beside the weights to use them on new samples; kept in the file of the weights.

The one idea: a network gives sensible answers only to samples that went through what the training data went through.
So the constants of the normalisation (or the vocabulary of a text), the shape of a sample, and what the network is made
from lie in the metadata of `weights.safetensors`, where no array is in the way of `load_state_dict`.

    found = weights.load("runs/mine"); card = found.card
    module = card.build_module(); module.load_state_dict(found.state_dict())
    module.eval()(torch.from_numpy(card.prepare_samples(images)))

Limits: classes are numbers, as in the training data. A network of the user's own is built by the user's function. More
than `MOST` constants are left out: safetensors allows no more than 100 MB of metadata.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np

from unisono.data.dataset import Dataset
from unisono.data.normalisation import Normalisation, apply
from unisono.errors import UserError
from unisono.models.activations import OWN_ACTIVATIONS
from unisono.recipe import Recipe

if TYPE_CHECKING:
    from torch import nn

MOST = 2_000_000
_PLAIN: dict[str, type] = {
    "model": str, "engine": str, "precision": str, "activation": str, "dropout": float, "data": str, "outputs": int,
    "classes": int, "vocabulary": str, "tokens": bool,
}  # fmt: skip
"""Attributes that JSON gives back as they were."""


@final
@dataclass(frozen=True, eq=False)
class ModelCard:
    """`model`, `engine`, `precision`, `dropout` and `data` are those of the recipe, files without
    their folder: the same run elsewhere has the same card."""

    model: str
    engine: str
    precision: str
    activation: str
    """Of the hidden layers, also if the recipe left it to the network; empty: it has none, or is the user's own."""
    dropout: float
    data: str
    outputs: int
    classes: int
    """How many classes the outputs tell apart; 0 for regression; for text the size of the vocabulary."""
    vocabulary: str
    """Of text: its characters, each at the place that is its number."""
    shape: tuple[int, ...]
    """One sample: (28, 28)."""
    tokens: bool
    normalisation: Normalisation | None
    """None: there were too many constants to keep."""

    @staticmethod
    def of(recipe: Recipe, data: Dataset) -> "ModelCard":
        """recipe: resolved, as that of a `Job`."""
        activation = recipe.model.activation or OWN_ACTIVATIONS.get(recipe.model.name.partition(":")[0], "")
        kept = data.normalisation if len(data.normalisation.scale) <= MOST else None
        return ModelCard(
            _short(recipe.model.name), recipe.model.engine, recipe.model.precision, activation, recipe.model.dropout,
            _short(recipe.data.name),
            data.outputs, data.classes, data.vocabulary, data.shape, data.tokens, kept,
        )  # fmt: skip

    @property
    def plain(self) -> dict[str, Any]:
        """For JSON."""
        kept = None if self.normalisation is None else self.normalisation.plain
        found = {name: getattr(self, name) for name in _PLAIN}
        return found | {"shape": list(self.shape), "normalisation": kept}

    @staticmethod
    def read(plain: Mapping[str, Any]) -> "ModelCard":
        """Back from `plain`; LookupError, TypeError or ValueError if it is damaged."""
        kept = plain["normalisation"]
        return ModelCard(
            **{name: kind(plain[name]) for name, kind in _PLAIN.items()},
            shape=tuple(map(int, plain["shape"])),
            normalisation=None if kept is None else Normalisation.read(kept),
        )

    @property
    def input_shape(self) -> tuple[int, ...]:
        """One sample as the network takes it: with a channel axis for images of torch's, a row for NumPy's."""
        if self.engine != "torch":
            return (int(np.prod(self.shape)),)
        from unisono.models.torch.learning_task import Task

        return Task(self.shape, self.outputs, bool(self.classes), self.tokens).input_shape

    def prepare_samples(self, x: Any) -> np.ndarray:
        """New samples (rows, *shape) or (rows, features), as the training data came, for the network: (rows,
        *input_shape), float32 and normalised; tokens as int64."""
        given, features = np.asarray(x), int(np.prod(self.shape))
        if given.shape[1:] not in (self.shape, (features,), self.input_shape):
            raise UserError(
                f"samples of shape {given.shape}; the network was trained on samples of shape {self.shape}",
                hint=f"give an array (rows, {', '.join(map(str, self.shape))}); of one sample x: x[None]",
            )
        if self.tokens:
            return given.astype(np.int64).reshape(len(given), *self.input_shape)
        if self.normalisation is None:
            raise UserError(
                f"the constants of the normalisation were not kept, there were more than {MOST:,}",
                hint="measure them again on the training data",
            )
        rows = given.reshape(len(given), features).astype(np.float32)
        if self.normalisation.kind != "none":
            apply(rows, self.normalisation.shift, self.normalisation.scale)
        return rows.reshape(len(rows), *self.input_shape)

    def encode_text(self, text: str) -> np.ndarray:
        """The numbers of its characters, int64."""
        unknown = sorted(set(text) - set(self.vocabulary))
        if unknown:
            raise UserError(
                f"the character {unknown[0]!r} is not in the vocabulary of {self.data}, which has "
                f"{len(self.vocabulary)} characters",
                hint="leave it out, or train on a text that has it",
            )
        places = {character: place for place, character in enumerate(self.vocabulary)}
        return np.array([places[character] for character in text], np.int64)

    def build_module(self) -> "nn.Module":
        """The network as a torch module, also of the NumPy engine's; `load_state_dict` gives it the weights."""
        if ".py:" in self.model:
            raise UserError(
                f"{self.model} is a network of your own", hint="call your function, then load_state_dict(...)"
            )
        from unisono.models.torch.nets import build

        name, _, arguments = self.model.partition(":")
        return build(name, arguments, self.shape, self.outputs, self.activation, self.dropout)


def _short(name: str) -> str:
    """A file's name without its folder, whatever follows it: /home/me/mine.py:net, data.txt:context=64."""
    return name.rpartition("/")[2]
