"""Models of both engines, their reference, and runs of them."""
