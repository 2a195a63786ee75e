"""Energy counters that tests turn by hand."""
