"""Runs with planned faults, and what must come of them."""
