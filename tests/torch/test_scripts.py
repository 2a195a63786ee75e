"""Unchanged scripts under `unisono launch`: the results of gloo, frameworks, and a rank that is killed."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from importlib.util import find_spec

import pytest

COMMAND = [sys.executable, "-P", "-m", "unisono", "launch"]

PARALLEL = """
import copy, hashlib, json, sys, warnings
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group({backend})
rank = dist.get_rank()
name = dist.get_backend(), type(dist.group.WORLD).__name__

def trained(group, **options):
    torch.manual_seed(rank)  # ranks that differ: DDP takes the weights of rank 0
    net = nn.Sequential(nn.Linear(13, 31), nn.BatchNorm1d(31), nn.ReLU(), nn.Linear(31, 3), nn.Linear(3, 1031))
    model = DistributedDataParallel(net, process_group=group, **options)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(6):
        optimizer.zero_grad()
        torch.manual_seed(100 * step + rank)
        model(torch.randn(7, 13)).square().mean().backward()
        optimizer.step()
    return hashlib.sha256(b"".join(value.numpy().tobytes() for value in model.state_dict().values())).hexdigest()
"""


def told(tmp_path, text, *options, environment=None):
    """The JSON lines that the ranks print."""
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(text))
    ended = subprocess.run(
        [*COMMAND, *options, str(path)], capture_output=True, text=True, timeout=110, check=False, env=environment
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    return sorted(json.loads(line) for line in ended.stdout.splitlines() if line.startswith("["))


def test_two_ranks_of_ddp_end_with_the_bits_of_gloo(tmp_path):
    """Also with views for gradients, a static graph, and small buckets, so that several are under way."""
    text = (
        PARALLEL.format(backend='"unisono"')
        + """
gloo = dist.new_group(backend="gloo")
variants = [{}, {"gradient_as_bucket_view": True, "static_graph": True}, {"bucket_cap_mb": 0.01}]
same = [trained(None, **variant) == trained(gloo, **variant) for variant in variants]
print(json.dumps([rank, *name, same]), flush=True)
dist.destroy_process_group()
"""
    )
    expected = [[rank, "unisono", "UnisonoProcessGroup", [True] * 3] for rank in range(2)]
    assert told(tmp_path, text, "--ranks", "2") == expected


@pytest.mark.parametrize(
    ("backend", "options", "name"),
    [("", (), "unisono"), ('"gloo"', ("--replace-gloo",), "gloo"), ('"gloo"', (), "gloo")],
)
def test_which_backend_a_script_gets(tmp_path, backend, options, name):
    text = PARALLEL.format(backend=backend) + "\nprint(json.dumps([rank, *name]))\ndist.destroy_process_group()\n"
    kind = "ProcessGroup" if backend and not options else "UnisonoProcessGroup"
    (found,) = told(tmp_path, text, "--ranks", "1", *options)
    assert found[2] == kind
    assert found[1] == ("undefined" if not backend else name) or found[1] == name


def test_a_killed_rank_is_named_by_the_others(tmp_path):
    """Each says it within a second; here without a launcher, which would end them."""
    from unisono.environment.os_environ import script_environment
    from unisono.launch.script_options import ScriptOptions, free_port

    path = tmp_path / "script.py"
    path.write_text(
        textwrap.dedent("""
        import json, os, signal, time, torch, torch.distributed as dist
        dist.init_process_group("unisono")
        dist.all_reduce(torch.ones(3))
        if dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        begun = time.monotonic()
        try:
            dist.all_reduce(torch.ones(3))
        except Exception as error:
            print(json.dumps([type(error).__name__, list(error.ranks), str(error)]))
        """)
    )
    ranks = [
        subprocess.Popen(
            [sys.executable, path], env=script_environment(placement, 1, replace_gloo=False),
            stdout=subprocess.PIPE, text=True,
        )
        for placement in ScriptOptions(ranks=3).placements(free_port())
    ]  # fmt: skip
    said = [rank.communicate(timeout=110)[0] for rank in ranks]
    assert ranks[1].returncode == -signal.SIGKILL
    for number in (0, 2):
        kind, gone, text = json.loads(said[number])
        assert (kind, gone) == ("RankLost", [1])
        assert "rank 1 is gone, so all_reduce" in text


def test_a_rank_that_is_gone_in_the_backward_pass_is_named(tmp_path):
    """DDP's reducer takes the outcome of an all-reduce from its future in C++, not in Python."""
    text = """
import json, os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("unisono")
model = DistributedDataParallel(torch.nn.Linear(5, 3))
loss = model(torch.ones(7, 5)).sum()
if dist.get_rank() == 1:
    os._exit(0)
try:
    loss.backward()
except RuntimeError as error:
    print(json.dumps([str(error)]))
"""
    ((said,),) = told(tmp_path, text, "--ranks", "2")
    assert "RankLost: rank 0: rank 1 is gone, so all_reduce" in said


def test_callbacks_that_start_collectives_of_groups_in_another_order_on_each_rank(tmp_path):
    """They only take futures; that must not keep the background thread from what other ranks wait for."""
    text = """
        import json, time, torch, torch.distributed as dist
        dist.init_process_group("unisono")
        rank, started = dist.get_rank(), []
        A, B, C, D = (dist.new_group() for _ in range(4))
        def chained(first, second):
            x = torch.ones(5)
            future = dist.all_reduce(x, group=first, async_op=True).get_future()
            then = lambda _: started.append(dist.all_reduce(x, group=second, async_op=True).get_future())
            return future.then(then)
        for step in range(10):
            started.clear()
            if rank == 2:
                time.sleep(0.02)
            for future in [chained(*order) for order in ([(A, B), (D, C)] if rank == 0 else [(D, C), (A, B)])]:
                future.wait()
            for future in started:
                future.wait()
        print(json.dumps([rank, started[0].value()[0].tolist()]), flush=True)
        dist.destroy_process_group()
    """
    assert told(tmp_path, text, "--ranks", "3") == [[rank, [9.0] * 5] for rank in range(3)]


def test_an_operation_that_starts_at_the_very_end_of_a_process(tmp_path):
    text = """
        import atexit, json, time
        def at_the_end():
            if dist.get_rank() == 1:
                time.sleep(0.3)
            total = dist.all_reduce(torch.ones(5), async_op=True).get_future().wait()[0]
            print(json.dumps([dist.get_rank(), total.tolist()]), flush=True)
        atexit.register(at_the_end)  # before torch, so it runs after everything of torch's
        import torch, torch.distributed as dist
        dist.init_process_group("unisono")
    """
    assert told(tmp_path, text, "--ranks", "2") == [[0, [2.0] * 5], [1, [2.0] * 5]]


def test_a_callback_under_way_at_the_end_of_a_process_does_not_abort_it(tmp_path):
    """The background thread runs it inside torch's C++, where the interpreter's end must not stop the thread."""
    text = """
        import json, threading, time, torch, torch.distributed as dist
        dist.init_process_group("unisono")
        begun = threading.Event()
        def callback(future):
            begun.set()
            time.sleep(0.3)  # while the main thread reaches the end
            return future.value()
        if dist.get_rank() == 1:
            time.sleep(0.3)  # so that rank 0 waits on its background thread
        following = dist.all_reduce(torch.ones(3), async_op=True).get_future().then(callback)
        assert begun.wait(60)
        print(json.dumps([dist.get_rank()]), flush=True)
    """
    assert told(tmp_path, text, "--ranks", "2") == [[0], [1]]


LIGHTNING = """
import json, torch, lightning, torch.distributed as dist
from lightning.pytorch.strategies import DDPStrategy
from torch.utils.data import DataLoader, TensorDataset

class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(5, 3)

    def training_step(self, batch, index):
        loss = self.net(batch[0]).square().mean()
        self.log("loss", loss, sync_dist=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def on_train_end(self):
        print(json.dumps([dist.get_rank(), dist.get_backend(), float(self.net.weight.sum())]), flush=True)

torch.manual_seed(0)
data = TensorDataset(torch.randn(40, 5))
trainer = lightning.Trainer(
    accelerator="cpu", devices=2, strategy=DDPStrategy(process_group_backend="unisono"), max_epochs=2, logger=False,
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
)
trainer.fit(Module(), DataLoader(data, 5))
"""

ACCELERATE = """
import json, torch, torch.distributed as dist
from accelerate import Accelerator

dist.init_process_group("unisono")
accelerator = Accelerator(cpu=True)
torch.manual_seed(0)
model = torch.nn.Linear(5, 3)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(40, 5)), 5)
model, optimizer, data = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), data)
for (x,) in data:
    optimizer.zero_grad()
    accelerator.backward(model(x).square().mean())
    optimizer.step()
gathered = accelerator.gather_for_metrics(torch.tensor([accelerator.process_index]))
weights = float(next(model.parameters()).sum())
print(json.dumps([dist.get_rank(), accelerator.num_processes, gathered.tolist(), weights]), flush=True)
dist.destroy_process_group()
"""

TRAINER = """
import json, tempfile, torch, torch.distributed as dist
from transformers import Trainer, TrainingArguments

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(5, 3)

    def forward(self, x, labels):
        out = self.net(x)
        return {"loss": torch.nn.functional.cross_entropy(out, labels), "logits": out}

torch.manual_seed(0)
rows = [{"x": x, "labels": torch.tensor(i % 3)} for i, x in enumerate(torch.randn(24, 5))]
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder, num_train_epochs=1, per_device_train_batch_size=4, use_cpu=True, ddp_backend="gloo", report_to=[],
        save_strategy="no", disable_tqdm=True, logging_strategy="no",
    )
    trainer = Trainer(Net(), arguments, train_dataset=rows)
    trainer.train()
    kind = type(dist.group.WORLD).__name__
    print(json.dumps([dist.get_rank(), kind, float(trainer.model.net.weight.sum())]), flush=True)
"""


@pytest.mark.parametrize(
    ("package", "text", "options", "facts"),
    [
        ("lightning", LIGHTNING, (), ["unisono"]),
        ("accelerate", ACCELERATE, (), [2, [0, 1]]),
        ("transformers", TRAINER, ("--replace-gloo",), ["UnisonoProcessGroup"]),
    ],
)
def test_frameworks(tmp_path, package, text, options, facts):
    """Each with the one or two lines that docs/unchanged-scripts.md shows; both ranks end with the same weights."""
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore"}
    first, second = told(tmp_path, text, "--ranks", "2", *options, environment=environment)
    assert first[1:-1] == second[1:-1] == facts
    assert first[-1] == second[-1]
