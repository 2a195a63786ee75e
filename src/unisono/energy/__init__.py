"""Energy and utilisation of one machine: counters, estimates, samples, the load of other programs."""
