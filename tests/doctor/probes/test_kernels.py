"""What the doctor says of kernels."""

import numpy as np

from unisono.doctor.probes.kernels import judge, probe_numpy
from unisono.models.chain import Chain
from unisono.models.kernel_check import numpy_cases


def test_kernels_that_keep_the_promise():
    (finding,) = probe_numpy()
    assert finding.status == "ok", finding
    assert finding.facts["differing"] == {}


def test_kernels_that_break_it_are_named(monkeypatch):
    compute = Chain.loss_and_grad

    def by_position(self, x, y, grads, *rest):
        found = compute(self, x, y, grads, *rest)
        grads[1:] += np.float32(1)
        return found

    monkeypatch.setattr(Chain, "loss_and_grad", by_position)
    cases = {name: case for name, case in numpy_cases(3).items() if name in ("linear", "batch norm")}
    finding = judge("kernels, NumPy", cases, 3)
    assert finding.status == "failed"
    assert "the position in a group of 2 (linear; 2 of 2 kinds of layers)" in finding.told
    assert finding.fix
