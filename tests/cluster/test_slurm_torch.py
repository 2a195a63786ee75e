"""An unchanged torch script as the tasks of srun on two nodes: by itself, and by `unisono launch`."""

import json
import sys

SCRIPT = """
import hashlib, json, os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("unisono")
torch.set_num_threads(1)
rank = dist.get_rank()
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(13, 31), torch.nn.Linear(31, 7)))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(3):
    optimizer.zero_grad()
    torch.manual_seed(100 * step + rank)
    model(torch.randn(5, 13)).square().mean().backward()
    optimizer.step()
values = b"".join(value.detach().numpy().tobytes() for value in model.parameters())
facts = [os.environ["LOCAL_RANK"], os.uname().nodename, hashlib.sha256(values).hexdigest()]
print(json.dumps([rank, dist.get_world_size(), *facts]), flush=True)
dist.destroy_process_group()
"""
LAUNCH = [sys.executable, "-P", "-m", "unisono", "launch"]
STARTS = {
    "the script": ["-n4", sys.executable],
    "unisono launch as a rank": ["-n4", *LAUNCH],
    "unisono launch once a node": ["-n2", *LAUNCH, "--virtual-ranks", "4"],
}


def test_four_ranks_on_two_nodes_know_their_place_and_end_with_the_same_bits(slurm, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    hashes = set()
    for start in STARTS.values():
        ended = slurm.call(["srun", "-N2", *start, str(script)], cwd=tmp_path)
        assert ended.returncode == 0, ended.stderr[-3000:]
        found = sorted(json.loads(line) for line in ended.stdout.splitlines() if line.startswith("["))
        places = [each[:4] for each in found]
        assert places == [[0, 4, "0", "n1"], [1, 4, "1", "n1"], [2, 4, "0", "n2"], [3, 4, "1", "n2"]]
        hashes |= {each[4] for each in found}
    assert len(hashes) == 1
