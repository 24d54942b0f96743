"""Writes tests/rules/rules.h: parameters after updates by optimizers that work element by element,
in fp64, as PyTorch updates them. PyTorch has no Lion: that is the formula of its paper.

    python3 tests/torch/rules.py
"""
import math
from pathlib import Path

import torch

OUT = Path(__file__).resolve().parent.parent / "rules" / "rules.h"
HEAD = '''/* rules.h -- parameters after updates; written by tests/torch/rules.py. */
/* clang-format off */
typedef struct {
    const char *optimizer;      /* as the train block has it */
    double after[4][RULE_ELEMS]; /* 1, 2, 10, 100 updates */
} RuleCase;

static const RuleCase rule_cases[] = {
'''
ELEMS, DECAYED = 12, 7                          # elements 0..6 have a weight decay
STEPS = (1, 2, 10, 100)
LR, DECAY = 0.01, 0.1


class Lion:
    """Chen et al. 2023, algorithm 2."""
    def __init__(self, groups, lr, betas):
        self.groups, self.lr, self.betas = groups, lr, betas
        self.m = [torch.zeros_like(g["params"][0]) for g in groups]

    @torch.no_grad()
    def step(self):
        b1, b2 = self.betas
        for group, m in zip(self.groups, self.m):
            p = group["params"][0]
            c = b1 * m + (1 - b1) * p.grad
            p.sub_(self.lr * (torch.sign(c) + group["weight_decay"] * p))
            m.mul_(b2).add_(p.grad, alpha=1 - b2)


CASES = [
    ("sgd(lr: 0.01, weight_decay: 0.1)", torch.optim.SGD, {}),
    ("sgd(lr: 0.01, momentum: 0.9, weight_decay: 0.1)", torch.optim.SGD, {"momentum": 0.9}),
    ("sgd(lr: 0.01, momentum: 0.9, nesterov: true, weight_decay: 0.1)", torch.optim.SGD,
     {"momentum": 0.9, "nesterov": True}),
    ("rmsprop(lr: 0.01, alpha: 0.95, eps: 1e-6, weight_decay: 0.1)", torch.optim.RMSprop,
     {"alpha": 0.95, "eps": 1e-6}),
    ("rmsprop(lr: 0.01, momentum: 0.8, centered: true, weight_decay: 0.1)", torch.optim.RMSprop,
     {"momentum": 0.8, "centered": True}),
    ("adagrad(lr: 0.01, lr_decay: 0.02, weight_decay: 0.1)", torch.optim.Adagrad,
     {"lr_decay": 0.02}),
    ("adam(lr: 0.01, betas: (0.8, 0.99), weight_decay: 0.1)", torch.optim.Adam,
     {"betas": (0.8, 0.99)}),
    ("adamw(lr: 0.01, betas: (0.9, 0.95), eps: 1e-5, weight_decay: 0.1)", torch.optim.AdamW,
     {"betas": (0.9, 0.95), "eps": 1e-5}),
    ("lion(lr: 0.01, beta1: 0.85, weight_decay: 0.1)", Lion, {"betas": (0.85, 0.99)}),
]


def updates(kind, numbers):
    start = [math.sin(1 + i) for i in range(ELEMS)]
    params = [torch.tensor(part, dtype=torch.float64, requires_grad=True)
              for part in (start[:DECAYED], start[DECAYED:])]
    groups = [{"params": [params[0]], "weight_decay": DECAY},
              {"params": [params[1]], "weight_decay": 0.0}]
    optimizer = kind(groups, lr=LR, **numbers)
    for step in range(max(STEPS)):
        at = 0
        for p in params:                        # 0.3 p + 0.5 cos(0.37 i + 0.2 step)
            wave = [0.5 * math.cos(0.37 * (at + i) + 0.2 * step) for i in range(p.numel())]
            p.grad = 0.3 * p.detach() + torch.tensor(wave, dtype=torch.float64)
            at += p.numel()
        optimizer.step()
        if step + 1 in STEPS:
            yield torch.cat([p.detach() for p in params]).tolist()


def main():
    text = HEAD
    for optimizer, kind, numbers in CASES:
        rows = "".join("    { " + ", ".join(f"{x:.17g}" for x in row) + " },\n"
                       for row in updates(kind, numbers))
        text += f'{{ "{optimizer}", {{\n{rows}  }} }},\n'
    OUT.write_text(text + "};\n/* clang-format on */\n")


if __name__ == "__main__":
    main()
