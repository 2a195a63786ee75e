"""Policy: what ranks exchange, and when. `registry.py` finds the strategy that a recipe asks for."""
