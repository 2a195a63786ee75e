"""Small networks and data for loops of a user's own."""
