"""Writes tests/runtime/optimizers.h: parameters after updates by optimizers that work on whole
tensors, in fp64. PyTorch has Adafactor and Muon; LAMB is the formula of its paper.

    python3 tests/torch/optimizers.py
"""
import math
from pathlib import Path

import torch
from torch.optim import _muon

OUT = Path(__file__).resolve().parent.parent / "runtime" / "optimizers.h"
HEAD = '''/* optimizers.h -- parameters after updates; written by tests/torch/optimizers.py. */
/* clang-format off */
typedef struct {
    const char *name;
    RtTrain train;
    double after[3][OPTIMIZER_ELEMS]; /* 1, 10, 100 updates */
} OptimizerCase;

static const OptimizerCase optimizer_cases[] = {
'''
# Name, shape, weight decay applies: as `params` of test_optimizers.c has them. Tall, wide, square in
# two repetitions of a stack, an embedding, a head, two matrices in one, two biases: one begins
# at 0.
PARAMS = [("wide", (2, 5), True), ("h.0", (3, 3), True), ("h.1", (3, 3), True),
          ("tall", (6, 2), True), ("table", (4, 3), True), ("head", (2, 2), True), ("cube", (2, 3, 4), True),
          ("b", (5,), False), ("zero", (3,), False)]
STEPS = (1, 10, 100)


def start():
    at, found = 0, []
    for name, shape, _ in PARAMS:
        n = math.prod(shape)
        scale = 0 if name == "zero" else 0.5
        found.append(torch.tensor([scale * math.sin(at + i) for i in range(n)], dtype=torch.float64)
                     .reshape(shape).requires_grad_())
        at += n
    return found


def gradients(params, step):
    """Of element i of the flat buffer: 0.3 p + 0.2 cos(0.37 i^2 + step)."""
    at = 0
    for p in params:
        wave = torch.tensor([0.2 * math.cos(0.37 * (at + i) ** 2 + step) for i in range(p.numel())],
                            dtype=torch.float64)
        p.grad = (0.3 * p.detach() + wave.reshape(p.shape))
        at += p.numel()


class Lamb:
    """You et al. 2019, algorithm 2, with bias correction; phi is the identity."""
    def __init__(self, params, lr, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01):
        self.p, self.lr, self.betas, self.eps, self.decay = params, lr, betas, eps, weight_decay
        self.m, self.v = [torch.zeros_like(p) for p in params], [torch.zeros_like(p) for p in params]
        self.t = 0

    @torch.no_grad()
    def step(self):
        self.t += 1
        b1, b2 = self.betas
        for p, m, v, (_, _, decays) in zip(self.p, self.m, self.v, PARAMS):
            m.mul_(b1).add_(p.grad, alpha=1 - b1)
            v.mul_(b2).add_(p.grad ** 2, alpha=1 - b2)
            r = m / (1 - b1 ** self.t) / ((v / (1 - b2 ** self.t)).sqrt() + self.eps)
            u = r + (self.decay if decays else 0) * p
            own, move = p.norm().item(), u.norm().item()
            p.sub_(u, alpha=self.lr * (own / move if own > 0 and move > 0 else 1))


def row(name, fields, optimizers):
    """optimizers(params): a list of them, which share the parameters."""
    params = start()
    all_of_them, text = optimizers(params), ""
    for step in range(max(STEPS)):
        gradients(params, step)
        for optimizer in all_of_them:
            optimizer.step()
        if step + 1 in STEPS:
            flat = torch.cat([p.detach().flatten() for p in params]).tolist()
            text += "    { " + ", ".join(f"{x:.17g}" for x in flat) + " },\n"
    return f'{{ "{name}", {{ {fields} }}, {{\n{text}  }} }},\n'


def split(kind, params, weight_decay, **arguments):
    """One of PyTorch's, with decay for those that have it."""
    return [kind([{"params": [p for p, row in zip(params, PARAMS) if row[2] == decays],
                   "weight_decay": weight_decay if decays else 0} for decays in (True, False)],
                 **arguments)]


def newton_schulz(u, coefficients, steps, eps):
    """That of torch.optim.Muon, without its rounding to bf16."""
    a, b, c = coefficients
    x = u.T if u.size(0) > u.size(1) else u
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if u.size(0) > u.size(1) else x


def muon(params, nesterov, adjust, decay):
    """Muon for matrices of role weight, AdamW for the rest, at a quarter of the rate."""
    _muon._zeropower_via_newtonschulz = newton_schulz
    hidden = [p for p, row in zip(params, PARAMS) if row[0] in ("wide", "h.0", "h.1", "tall")]
    rest = [(p, row[2]) for p, row in zip(params, PARAMS) if all(p is not q for q in hidden)]
    return [torch.optim.Muon(hidden, lr=0.02, weight_decay=decay, nesterov=nesterov,
                             adjust_lr_fn=adjust),
            torch.optim.AdamW([{"params": [p for p, d in rest if d == decays],
                                "weight_decay": decay if decays else 0} for decays in (True, False)],
                              lr=0.005, betas=(0.9, 0.99), eps=1e-8)]


def hypers(**numbers):
    rows = ", ".join(f'{{ "{k.replace("_", "-")}", {v!r}, 0, 1e30 }}' for k, v in numbers.items())
    return f".hyper = {{ {rows} }}, .n_hypers = {len(numbers)}"


def main():
    text = HEAD
    for eps, decay in ((1e-6, 0.0), (1e-3, 0.1)):
        fields = f".optimizer = RT_LAMB, .lr = 0.01, .weight_decay = {decay}, "
        text += row(f"lamb, eps {eps}, decay {decay}",
                    fields + hypers(beta1=0.9, beta2=0.99, eps=eps),
                    lambda p: [Lamb(p, 0.01, (0.9, 0.99), eps, decay)])
    for eps, d, decay in (((None, 1e-3), 1.0, 0.0), ((1e-2, 0.1), 1.2, 0.1)):
        fields = f".optimizer = RT_ADAFACTOR, .lr = 0.03, .weight_decay = {decay}, "
        text += row(f"adafactor, eps {eps}, d {d}, decay {decay}",
                    fields + hypers(beta2_decay=-0.8, eps1=eps[0] or 0, eps2=eps[1], d=d),
                    lambda p: split(torch.optim.Adafactor, p, lr=0.03, eps=eps, d=d,
                                    weight_decay=decay))
    for nesterov, adjust, decay in ((True, "original", 0.1), (False, "match_rms_adamw", 0.0)):
        rms = "true" if adjust == "match_rms_adamw" else "false"
        fields = (f".optimizer = RT_MUON, .lr = 0.02, .weight_decay = {decay}, .match_rms = {rms}, "
                  f".nesterov = {str(nesterov).lower()}, ")
        text += row(f"muon, nesterov {nesterov}, {adjust}, decay {decay}",
                    fields + hypers(momentum=0.95, adamw_factor=0.25, beta1=0.9, beta2=0.99, eps=1e-8),
                    lambda p: muon(p, nesterov, adjust, decay))
    OUT.write_text(text + "};\n/* clang-format on */\n")


if __name__ == "__main__":
    main()
