"""Commands: `unisono ...` forked or started, terminals, the options of small runs."""
