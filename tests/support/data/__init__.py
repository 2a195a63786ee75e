"""A server of image sets."""
