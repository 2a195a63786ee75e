"""CallCheck: whether the shared model keeps state between calls, seen at its first call in the user's own loop.

The one idea: nobody but the loop knows what a model is called with. So its first call inside a shard is made twice more
beforehand, from the same buffers and random numbers; they must give the same (`models/torch/call_history.py`).

    with call_check.watching(): yield sample                     # a UserError out of model(x): ... keeps state in ...

Limits: one call, of the model itself, with one input: state that depends on other inputs is not seen, nor is that of
parts which the loop calls by themselves. With synchronised batch norm nothing is called twice, so nothing is checked.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, final

from torch import nn

from unisono.models.torch.call_history import Start, check_same


@final
class CallCheck:
    """One rank's, for one model."""

    def __init__(self, model: nn.Module, *, enabled: bool) -> None:
        self._model, self._left = model, enabled

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Around the user's code for a shard; later ones cost nothing."""
        if not self._left:
            yield
            return
        # Only meanwhile: a copy of the model, or a file, should not hold it.
        hook = self._model.register_forward_pre_hook(self._check, prepend=True, with_kwargs=True)
        try:
            yield
        finally:
            hook.remove()

    def _check(self, model: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        if not self._left or model is not self._model:
            return
        self._left = False  # the calls below come here, too
        start = Start(model, model)
        check_same(model, start, start.run(*given, **named), start.run(*given, **named))
        start.restore()
