"""Holds back every packet that arrives at eth0 of this network name space, for kernels without `tc netem`.

    ip netns exec NAME python benchmarks/delay.py 0.5            # milliseconds; until it is ended

The one idea: netfilter queues the packets to this process (NFQUEUE), which lets them go, in order, when their time has
come; only numbers of packets travel, never their contents. Packets that cannot be queued pass at once.

Limits: needs root and iptables. Python adds some 0.1 ms of its own, more on a busy machine.
"""

import select
import socket
import struct
import subprocess
import sys
import time
from collections import deque

_NETFILTER, _QUEUE = 12, 3
_PACKET, _VERDICT_BATCH, _CONFIG = 0, 3, 2
_ACCEPT = 1
_RULE = ["INPUT", "-i", "eth0", "-j", "NFQUEUE", "--queue-num", "0", "--queue-bypass"]


def _attribute(kind: int, data: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)


def _message(kind: int, attributes: bytes) -> bytes:
    body = struct.pack("!BBH", 0, 0, 0) + attributes  # family, version, number of the queue
    return struct.pack("=LHHLL", 16 + len(body), _QUEUE << 8 | kind, 1, 0, 0) + body


def _ids(data: bytes) -> list[int]:
    """The numbers of the packets that a read brought."""
    found, at = [], 0
    while at + 16 <= len(data):
        length, kind = struct.unpack_from("=LH", data, at)
        place = at + 20
        while kind == _QUEUE << 8 | _PACKET and place < at + length:
            size, name = struct.unpack_from("=HH", data, place)
            if name & 0x3FFF == 1:
                found.append(struct.unpack_from("!L", data, place + 4)[0])
                break
            place += -(-size // 4) * 4
        at += -(-length // 4) * 4
    return found


def main(delay_s: float) -> None:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETFILTER) as queue:
        queue.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)  # SO_RCVBUFFORCE
        queue.bind((0, 0))
        queue.send(_message(_CONFIG, _attribute(1, struct.pack("!BBH", 1, 0, 0))))  # bind
        queue.send(_message(_CONFIG, _attribute(2, struct.pack("!LB", 0, 1))))  # no contents
        queue.send(_message(_CONFIG, _attribute(3, struct.pack("!L", 1 << 16))))  # how many may wait
        # Fail open; and segments that the card would cut stay whole.
        queue.send(_message(_CONFIG, _attribute(4, struct.pack("!L", 5)) + _attribute(5, struct.pack("!L", 5))))
        subprocess.run(["iptables", "-A", *_RULE], check=True)
        print("ready", flush=True)
        waiting: deque[tuple[float, int]] = deque()
        while True:
            now, last = time.monotonic(), None
            while waiting and waiting[0][0] <= now:
                last = waiting.popleft()[1]
            if last is not None:
                queue.send(_message(_VERDICT_BATCH, _attribute(2, struct.pack("!LL", _ACCEPT, last))))
            rest_s = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
            if select.select([queue], [], [], rest_s)[0]:
                due = time.monotonic() + delay_s
                waiting.extend((due, number) for number in _ids(queue.recv(1 << 20)))


if __name__ == "__main__":
    main(float(sys.argv[1]) / 1000)
