"""Times PyTorch's GPT-2 step (eager, fused AdamW). Prints one JSON object: ms per step, peak MiB."""
import json
import resource
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "torch"))
from gpt import Gpt  # noqa: E402


def main():
    opt = dict(a.split("=") for a in sys.argv[1:])
    b, t, steps = int(opt.get("B", 4)), int(opt.get("T", 64)), int(opt.get("steps", 10))
    sizes = [int(s) for s in opt.get("sizes", "50257,768,12,12,1024").split(",")]
    torch.manual_seed(1)
    torch.set_num_threads(int(opt.get("threads", 2)))
    model = Gpt(*sizes, bias=opt.get("bias", "1") == "1", conv1d=opt.get("conv1d", "1") == "1")
    adamw = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=True)
    times = []
    for _ in range(steps):
        tokens = torch.randint(0, sizes[0], (b, t + 1))
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=opt.get("autocast") == "1"):
            loss = model(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adamw.step()
        adamw.zero_grad(set_to_none=True)
        float(loss)
        times.append((time.perf_counter() - start) * 1e3)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"ms": times, "peak_mib": peak}))


main()
