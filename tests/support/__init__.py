"""Helpers that tests share, importable as `support` (see `paths.py` for processes that tests start)."""
