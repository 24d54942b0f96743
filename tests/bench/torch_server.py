"""PyTorch's training step, compiled, as a server: it stays ready while the opponent runs.

    python3 torch_server.py model=gpt2 sizes=50304,768,12,12,1024 B=64 T=1024 device=cuda compile=1

Prints "ready {versions}" after warm-up; then for each line N of stdin runs N updates and prints "ran"
and one JSON object: ms of each, peak MiB of the device (of the process on a CPU). Ends with its stdin.
"""
import json
import resource
import sys
import time
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "torch"))
from gpt import Gpt  # noqa: E402

WARM_UP = 3


class Mlp(nn.Module):
    """relu layers and a cross entropy: the twin of mlp.model."""

    def __init__(self, sizes):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))

    def forward(self, x, y):
        for layer in self.layers[:-1]:
            x = F.relu(layer(x))
        return F.cross_entropy(self.layers[-1](x).float(), y)


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


def release(device):
    """The opponent's turn needs the room."""
    if device == "cuda":
        torch.cuda.empty_cache()


def peak_mib(device):
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main():
    opt = dict(a.split("=") for a in sys.argv[1:])
    device, b = opt.get("device", "cpu"), int(opt["B"])
    sizes = [int(s) for s in opt["sizes"].split(",")]
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("highest")
    if "threads" in opt:
        torch.set_num_threads(int(opt["threads"]))
    gpt = opt.get("model", "gpt2") == "gpt2"
    model = Gpt(*sizes, bias=True, conv1d=True) if gpt else Mlp(sizes)
    model = model.to(device)
    adamw = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=True)
    forward = torch.compile(model) if opt.get("compile") == "1" else model
    half = opt.get("autocast", "0") == "1"

    def batch():
        if gpt:
            tokens = torch.randint(0, sizes[0], (b, int(opt["T"]) + 1), device=device)
            return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
        return (torch.rand((b, sizes[0]), device=device),
                torch.randint(0, sizes[-1], (b,), device=device))

    def step():
        x, y = batch()
        with torch.autocast(device, torch.bfloat16, enabled=half):
            loss = forward(x, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adamw.step()
        adamw.zero_grad(set_to_none=True)

    start = time.perf_counter()
    for _ in range(WARM_UP):
        step()
    wait(device)
    seconds = time.perf_counter() - start
    release(device)
    print("ready", json.dumps({"torch": torch.__version__, "first_seconds": seconds}), flush=True)
    for line in sys.stdin:
        times = []
        step()                                  # what it released is allocated again
        for _ in range(int(line)):
            wait(device)
            start = time.perf_counter()
            step()
            wait(device)
            times.append((time.perf_counter() - start) * 1e3)
        start, n = time.perf_counter(), int(line)
        for _ in range(n):                      # in a row, without a wait between: as training runs
            step()
        wait(device)
        row_ms = (time.perf_counter() - start) * 1e3 / n
        release(device)
        print("ran", json.dumps({"ms": times, "row_ms": row_ms,
                                 "peak_mib": peak_mib(device)}), flush=True)


main()
