"""Run directories and studies made for reports, and browsers to see them."""
