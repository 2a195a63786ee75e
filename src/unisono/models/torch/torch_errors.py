"""What torch's errors mean: the one place where its texts are read. gloo's are in `comm/gloo/errors.py`.

>>> is_single_sample_batchnorm(ValueError("Expected more than 1 value per channel when training"))
True

Limits: as torch words them in the versions that pyproject.toml allows.
"""


def is_single_sample_batchnorm(error: BaseException) -> bool:
    """Whether batch norm was to train on one sample."""
    return "more than 1 value per channel" in str(error)


def is_unused_parameter(error: BaseException) -> bool:
    """Whether torch's DDP found a parameter without a gradient that had one in the first batch."""
    return "Expected to have finished reduction" in str(error)


def is_reentrant_checkpoint(error: BaseException) -> bool:
    """Whether a gradient was asked for that goes through a re-entrant checkpoint."""
    return "use_reentrant" in str(error)
