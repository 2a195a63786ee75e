"""Scripts that tests start as processes."""
