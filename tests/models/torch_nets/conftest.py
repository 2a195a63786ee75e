"""Without torch only what says so can be tested."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("torch") else ["test_every.py", "test_gpt.py", "test_images.py", "test_rows.py"]
