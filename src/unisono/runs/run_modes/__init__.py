"""Run modes: what differs between runs by who starts the ranks; see `base.py`."""
