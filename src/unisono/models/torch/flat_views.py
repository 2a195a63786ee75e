"""FlatViews: a module's tensors as views of the flat vectors; ShapePlan: a call's arrays as tensors.

The one idea: a tensor is pointed into its vector once and stays there. Trained and frozen parameters are views of the
vectors that all ranks share. Buffers are views of a small private array, which is filled from the committed buffers
before each shard and read afterwards: shards change them and must not see each other's changes.

    views = FlatViews(module, changed); views.write(module, params, buffers); views.point(params, buffers)
    views.enter(); module(x); views.leave(row)
    plan = ShapePlan(task, shards=4, buffers=66, parameters=6); plan.read(x, y); plan.bind_grads(grads, views)

The vector of buffers holds, in this order: float32 buffers that the forward changes (averaged over shards), all other
buffers as bit patterns in float32 words (copied from shard 0) together with frozen parameters of other types than
float32, then frozen parameters of float32 (never changed).

Loaders and strategies pass the same arrays at every step. So a `ShapePlan` keeps the tensors that are views of them,
one a shard, while the arrays are the same objects. Every shard begins on a 64-byte border (`aligned.py`); other arrays
are copied first.

Limits: a buffer of a type other than float32 is not averaged, even if the forward changes it. The memory of every
shape is kept; a run has few (the usual one, the ragged end, evaluation).
"""

from collections.abc import Mapping
from math import prod
from typing import final

import numpy as np
import torch
from torch import Tensor, nn

from unisono import aligned
from unisono.errors import UserError
from unisono.models.base import Array, Layout, Shape, ShardSums
from unisono.models.torch.learning_task import Task

_WORD = 8
"""Bit patterns take whole numbers of these many bytes, so that an int64 lies where processors want it."""


@final
class FlatViews:
    """The tensors of `module`, each once; `changed` names the buffers that its forward changes."""

    def __init__(self, module: nn.Module, changed: set[str]) -> None:
        self.trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
        frozen = {name: p for name, p in module.named_parameters() if not p.requires_grad}
        self._frozen = {name: p for name, p in frozen.items() if p.dtype == torch.float32}
        buffers = dict(module.named_buffers())
        self._averaged = {n: b for n, b in buffers.items() if n in changed and b.dtype == torch.float32}
        self._patterns = {n: b for n, b in (buffers | frozen).items() if n not in self._averaged | self._frozen}
        self._types = {name: b.detach().numpy().dtype for name, b in self._patterns.items()}
        self._shapes: dict[str, Shape] = {name: tuple(b.shape) for name, b in self._patterns.items()}
        words = {name: (-(-b.nbytes // _WORD) * _WORD // 4,) for name, b in self._patterns.items()}
        self.layout = Layout(_shapes(self.trained))
        self.buffers_layout = Layout(_shapes(self._averaged) | words | _shapes(self._frozen))
        self.fixed = sum(p.numel() for p in self._frozen.values())
        self.unaveraged = self.fixed + sum(prod(shape) for shape in words.values())
        by_id = {id(t): name for name, t in (self.trained | frozen | buffers).items()}
        self.state_names = {key: by_id[id(t)] for key, t in module.state_dict(keep_vars=True).items()}
        moving = self.buffers_layout.length - self.fixed
        averaged = self.buffers_layout.length - self.unaveraged
        # The patterns, not the room, start where an int64 may lie.
        self._room = aligned.zeros(moving + averaged % 2)[averaged % 2 :]
        self._committed = self._start = self._room
        self._homes = [
            (part._buffers, name, tensor)
            for part in module.modules()
            for name, tensor in part._buffers.items()
            if tensor is not None
        ]
        self._aim_buffers()

    @property
    def width(self) -> int:
        """Elements of the buffers that may change."""
        return len(self._room)

    def point(self, params: Array, buffers: Array) -> None:
        """From now on the module's tensors lie in these vectors."""
        for tensors, views in (
            (self.trained, self.layout.views(params[: self.layout.length])),
            (self._frozen, self.buffers_layout.views(buffers)),
        ):
            for name, parameter in tensors.items():
                parameter.data = torch.from_numpy(views[name])
        self._committed = self._start = buffers[: len(self._room)]

    def enter(self) -> None:
        """The module's buffers become those that shards start from, whatever a call has made of them."""
        for owner, name, tensor in self._homes:
            owner[name] = tensor
        np.copyto(self._room, self._start)

    def leave(self, row: Array) -> None:
        """Writes the module's buffers as they are now to `row` (width,)."""
        self._gather()
        np.copyto(row, self._room)

    def written(self) -> list[str]:
        """The buffers that are no longer what `enter` made them."""
        self._gather()
        if np.array_equal(self._room.view(np.uint32), self._start.view(np.uint32)):  # bits: a NaN equals itself
            return []
        pairs = zip(self._pieces(self._room).items(), self._pieces(self._start).values(), strict=True)
        return [name for (name, now), before in pairs if now.tobytes() != before.tobytes()]

    def current(self) -> Array:
        """A copy (width,) of the module's buffers as they are now, with what was written since `enter`."""
        self._gather()
        return self._room.copy()

    def adopt(self) -> bytes:
        """Shards start from the buffers as they are now, until `follow`; the bits, none if they are the committed.

        They are copied: in the middle of an update the committed ones are changing.
        """
        changed = bool(self.written())
        self._start = self._room.copy()
        return self._start.tobytes() if changed else b""

    def follow(self) -> None:
        """Shards start from the committed buffers again, and the module has them."""
        self._start = self._committed
        self.enter()

    def _gather(self) -> None:
        for owner, name, tensor in self._homes:
            # `self.mean = 0.9 * self.mean + ...` puts another tensor in its place.
            if (other := owner[name]) is not tensor and other is not None:
                tensor.copy_(other.detach())

    def write(self, module: nn.Module, params: Array, buffers: Array) -> None:
        """Copies the values of another module of the same kind into the vectors."""
        given = dict(module.named_parameters()) | dict(module.named_buffers())
        wanted = self.trained | self._frozen | self._averaged | self._patterns
        if _shapes(given) != _shapes(wanted) or any(given[n].dtype != t.dtype for n, t in wanted.items()):
            raise UserError(
                f"{type(module).__name__} came out differently when it was made a second time",
                hint="let the factory return the same structure every time; only values may be random",
            )
        views, states = self.named(params, buffers)
        for name, view in (views | states).items():
            view[...] = given[name].detach().numpy()

    def named(self, params: Array, buffers: Array) -> tuple[dict[str, Array], dict[str, Array]]:
        """Views of the vectors in the tensors' own shapes and types, by name."""
        states = self.buffers_layout.views(buffers)
        return self.layout.views(params[: self.layout.length]), states | self._typed(states)

    def _aim_buffers(self) -> None:
        views = self._pieces(self._room)
        for name, view in (views | self._typed(views)).items():
            tensor = (self._averaged | self._patterns)[name]
            view[...] = tensor.detach().numpy()
            tensor.data = torch.from_numpy(view)

    def _pieces(self, room: Array) -> dict[str, Array]:
        """What may change, by name."""
        return Layout({n: s for n, s in self.buffers_layout.shapes.items() if n not in self._frozen}).views(room)

    def _typed(self, views: Mapping[str, Array]) -> dict[str, Array]:
        """The bit patterns among `views` (words,) as what they mean."""
        typed = {}
        for name, dtype in self._types.items():
            shape = self._shapes[name]
            typed[name] = views[name].view(np.uint8)[: prod(shape) * dtype.itemsize].view(dtype).reshape(shape)
        return typed


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, Shape]:
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


MOST_AIMS = 64
"""Arrays of gradients whose views are kept: shards that are computed one by one have one each, in turn."""


@final
class ShapePlan:
    """What calls of one shape share: the sums, and views of the arrays they are given, kept while they are the same."""

    def __init__(self, task: Task, shards: int, buffers: int, parameters: int) -> None:
        self._task = task
        self.loss_sum, self.correct = np.zeros((2, shards))
        self.new_buffers = aligned.stack(shards, (buffers,))
        self.used = np.ones((shards, parameters), np.bool_)
        self.complete = ShardSums(self.loss_sum, self.correct, self.new_buffers)
        self.partial = ShardSums(self.loss_sum, self.correct, self.new_buffers, self.used)
        self.evaluated = ShardSums(self.loss_sum, self.correct, self.new_buffers[:, :0])
        self._x: Array | None = None
        self._y: Array | None = None
        self.grads: Array | None = None
        self.weights: dict[float, Tensor] = {}
        """By scale: what a term of the loss weighs in the mean of a batch; batches have one or two sizes."""
        self.samples: list[Tensor] = []
        self.labels: list[Tensor] = []
        self.rows: list[list[Tensor]] = []
        self._aims: dict[tuple[int, tuple[int, ...]], list[list[Tensor]]] = {}

    def read(self, x: Array, y: Array) -> None:
        """x (k, b, features) and y as tensors, one a shard; loaders fill the same arrays again and again."""
        if x is not self._x:
            stack = _writable_stack(x, np.dtype(np.int64 if self._task.tokens else np.float32))
            self.samples = [self._task.samples(torch.from_numpy(shard)) for shard in stack]  # (b, *input_shape) each
            self._x = x if stack is x else None
        if y is not self._y:
            stack = _writable_stack(y, np.dtype(np.int64 if self._task.classifies else np.float32))
            self.labels = [torch.from_numpy(shard) for shard in stack]
            self._y = y if stack is y else None

    def bind_grads(self, grads: Array, vectors: FlatViews) -> None:
        """Gradients go into `grads` (k, length or more) from now on."""
        if len(grads) != len(self.loss_sum):
            raise ValueError(f"grads has {len(grads)} rows for {len(self.loss_sum)} shards")
        key = grads.ctypes.data, grads.strides  # views of it keep its memory, so no other array comes to lie there
        if key not in self._aims:
            rows = [vectors.layout.views(row[: vectors.layout.length]) for row in grads]
            if len(self._aims) == MOST_AIMS:
                self._aims.clear()
            self._aims[key] = [[torch.from_numpy(view) for view in views.values()] for views in rows]
        self.rows, self.grads = self._aims[key], grads


def _writable_stack(array: Array, dtype: np.dtype) -> Array:
    """Without a copy where it can be: torch warns of memory that it must not write, and modules might write to it."""
    if array.flags.writeable:
        return aligned.as_stack(array, dtype)
    copy = aligned.stack(len(array), array.shape[1:], dtype)
    copy[...] = array
    return copy
