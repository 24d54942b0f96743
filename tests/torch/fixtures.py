"""Writes tests/grad/*.fixture: parameters, inputs, loss and gradients of small models, computed by
PyTorch in fp64 from fp32 parameters. The format is described in tests/grad/harness.c.

    python3 tests/torch/fixtures.py
"""
import struct
from pathlib import Path

import torch
import torch.nn.functional as F

from gpt import Gpt

OUT = Path(__file__).resolve().parent.parent / "grad"
BATCH, T = 12, 7


def write(name, params, inputs, loss, grads):
    lines, data = [f"loss {loss:.9g}"], []
    for kind, table in (("param", params), ("input", inputs), ("grad", grads)):
        for key, value in table.items():
            lines.append(f"{kind} {key} {value.numel()}")
            flat = value.detach().reshape(-1).tolist()
            data.append(struct.pack(f"<{len(flat)}{'f' if value.is_floating_point() else 'i'}", *flat))
    (OUT / f"{name}.fixture").write_bytes(("\n".join(lines) + "\ndata\n").encode() + b"".join(data))


def fill(module, gen):
    """fp32 values, then the module becomes fp64; gains stay near 1."""
    for key, p in module.named_parameters():
        value = 0.2 * torch.randn(p.shape, generator=gen)
        if "ln_" in key and key.endswith("weight"):
            value = 1 + 0.5 * value
        p.data = value.float().double()


def run(name, module, inputs, loss_of):
    loss = loss_of(module)
    loss.backward()
    write(name, dict(module.named_parameters()), inputs, loss.item(),
          {k: p.grad for k, p in module.named_parameters()})


def gpt(name, conv1d, bias, ignore):
    gen = torch.Generator().manual_seed(7)
    model = Gpt(19, 16, 2, 3, 8, bias=bias, conv1d=conv1d).double()
    fill(model, gen)
    tokens = torch.randint(0, 19, (BATCH, T), generator=gen)
    targets = torch.randint(0, 19, (BATCH, T), generator=gen)
    if ignore:
        targets[torch.rand(BATCH, T, generator=gen) < 0.3] = -100
    run(name, model, {"tokens": tokens, "targets": targets}, lambda m: m(tokens, targets))


def digits():
    gen = torch.Generator().manual_seed(7)
    model = torch.nn.ModuleDict({"fc1": torch.nn.Linear(64, 128), "fc2": torch.nn.Linear(128, 10)}).double()
    fill(model, gen)
    pixels = torch.rand((BATCH, 64), generator=gen) * 16
    labels = torch.randint(0, 10, (BATCH,), generator=gen)
    run("digits_mlp", model, {"pixels": pixels, "digit": labels},
        lambda m: F.cross_entropy(m["fc2"](F.relu(m["fc1"](pixels.double() / 16))), labels))


digits()
gpt("chargpt", conv1d=False, bias=True, ignore=False)
gpt("gpt2", conv1d=True, bias=True, ignore=False)
gpt("ragged", conv1d=False, bias=True, ignore=True)
