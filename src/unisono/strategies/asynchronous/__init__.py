"""Asynchronous training: masters own parts of the parameters, workers push gradients to them and never wait for others.

`rules.py`, `orders.py`, `deals.py`, `cuts.py` and `bounds.py` are pure; `clerk.py` puts them together: which push is
next, how stale it is, who computes which batch. `arena.py` trains in shared memory, `messages.py` over a communicator.
"""
