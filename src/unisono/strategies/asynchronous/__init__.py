"""Asynchronous training: masters own parts of the parameters, workers push gradients to them and never wait for others.

`staleness_rules.py`, `push_order.py`, `batch_assignment.py`, `partition.py` and `staleness_rules.py` are pure;
`sequencer.py` puts them together: which push is next, how stale it is, who computes which batch.
`strategies/asynchronous/arena/strategy.py` trains in shared memory, `strategies/asynchronous/messages/strategy.py`
over a communicator.
"""
