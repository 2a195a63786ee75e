"""Threads started inside are calm, others are not."""

import os
import threading

from unisono.comm.gloo.kernel_settings import batch_scheduled_threads


def policy_of(thread: threading.Thread) -> int:
    assert thread.native_id is not None
    return os.sched_getscheduler(thread.native_id)


def test_only_threads_started_inside_are_calm():
    done = threading.Event()
    before, inside = threading.Thread(target=done.wait), threading.Thread(target=done.wait)
    before.start()
    try:
        with batch_scheduled_threads():
            inside.start()
        assert policy_of(inside) == os.SCHED_BATCH
        assert policy_of(before) == os.sched_getscheduler(0) != os.SCHED_BATCH
    finally:
        done.set()
        before.join()
        inside.join()
