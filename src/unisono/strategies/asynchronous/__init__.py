"""Asynchronous training: masters own parts of the parameters, workers push gradients to them and never wait for others.

`sequencer.py` decides which push is next and how stale it is; `staleness_rules.py` and `batch_assignment.py` (which
worker computes which batch) are pure, too; `push_update.py` is what a worker and a master do to a gradient.
`strategies/asynchronous/arena/strategy.py` trains in shared memory, `strategies/asynchronous/messages/strategy.py` over
a communicator.
"""
