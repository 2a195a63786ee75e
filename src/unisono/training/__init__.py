"""The training of a job: its rounds, what follows an epoch, and checks before it starts."""
