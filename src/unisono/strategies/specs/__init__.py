"""Specs: what each strategy declares, refuses and supports, and how it is made; `registry.py` finds them by name."""
