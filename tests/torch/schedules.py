"""Writes tests/runtime/schedules.h: learning rates of PyTorch's schedulers in fp64, at steps around
every bend and between them, for settings that runtime/optim/schedule.c takes too.

    python3 tests/torch/schedules.py
"""
import warnings
from pathlib import Path

import torch
from torch.optim import lr_scheduler as S

OUT = Path(__file__).resolve().parent.parent / "runtime" / "schedules.h"
HEAD = '''/* schedules.h -- rates of PyTorch's schedulers; written by tests/torch/schedules.py. */
/* clang-format off */
typedef struct {
    const char *name;
    RtTrain train;
    struct { int step; double lr; } at[24]; /* step -1 ends it */
} ScheduleCase;

static const ScheduleCase schedule_cases[] = {
'''
STEPS = 1000


def rates(lr, make, n):
    """The rate of each of n updates: make(optimizer) is the scheduler."""
    optimizer = torch.optim.SGD([torch.zeros(1, dtype=torch.float64)], lr=lr)
    scheduler, found = make(optimizer), []
    for i in range(n):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if i + 1 < n:
            scheduler.step()
    return found


def warmed(w, make):
    """w updates of warm-up as gradcc has it, then make(optimizer)."""
    def both(optimizer):
        if w == 0:
            return make(optimizer)
        rise = S.LinearLR(optimizer, start_factor=1 / (w + 1), end_factor=1.0, total_iters=w)
        return S.SequentialLR(optimizer, [rise, make(optimizer)], milestones=[w])
    return both


def around(*bends):
    near = {0, 1, 2, 377, STEPS - 2, STEPS - 1}
    for b in bends:
        near |= {b - 1, b, b + 1}
    return sorted(i for i in near if 0 <= i < STEPS)


def row(name, fields, found, steps):
    points = ", ".join(f"{{ {i}, {found[i]!r} }}" for i in steps)
    return f'{{ "{name}", {{ .steps = {STEPS}, {fields} }},\n  {{ {points}, {{ -1, 0 }} }} }},\n'


def main():
    warnings.simplefilter("ignore")        # the order of step() at a scheduler's start
    text = HEAD
    for w in (0, 100):
        found = rates(1e-3, warmed(w, lambda o: S.ConstantLR(o, factor=1.0)), STEPS)
        text += row(f"constant, warm-up {w}", f".schedule = RT_CONSTANT, .lr = 1e-3, .warmup = {w}",
                    found, around(w))
        for end, last in ((0.0, STEPS), (1e-4, 700)):
            own = "" if last == STEPS else f", .decay_steps = {last}"
            fields = f".lr = 1e-3, .lr_end = {end}, .warmup = {w}{own}"
            linear = warmed(w, lambda o: S.LinearLR(o, 1.0, end / 1e-3, total_iters=last - w))
            text += row(f"linear to {end}, warm-up {w}", f".schedule = RT_LINEAR, {fields}",
                        rates(1e-3, linear, STEPS), around(w, last))
            # CosineAnnealingLR rises again behind T_max, so only until there
            cosine = warmed(w, lambda o: S.CosineAnnealingLR(o, T_max=last - w, eta_min=end))
            text += row(f"cosine to {end}, warm-up {w}", f".schedule = RT_COSINE, {fields}",
                        rates(1e-3, cosine, STEPS),
                        [i for i in around(w, (w + last) // 2, last) if i <= last])
    found = rates(0.5, lambda o: S.StepLR(o, step_size=150, gamma=0.3), STEPS)
    text += row("step", ".schedule = RT_STEP, .lr = 0.5, .drop_every = 150, .drop_factor = 0.3",
                found, around(150, 300, 900))
    found = rates(0.5, lambda o: S.MultiStepLR(o, milestones=[3, 400, 401], gamma=0.1), STEPS)
    text += row("step at", '.schedule = RT_STEP, .lr = 0.5, .drop_at = "3,400,401", .drop_factor = 0.1',
                found, around(3, 400))
    for pct, div, final, three in ((0.3, 25.0, 1e4, False), (0.1, 10.0, 50.0, False), (0.4, 4.0, 100.0, True)):
        found = rates(0.1, lambda o: S.OneCycleLR(o, max_lr=0.1, total_steps=STEPS, pct_start=pct, div_factor=div,
                                                  final_div_factor=final, three_phase=three), STEPS)
        top = int(pct * STEPS)
        text += row(f"one_cycle {pct}{', three phases' if three else ''}",
                    f".schedule = RT_ONE_CYCLE, .lr = 0.1, .pct_start = {pct}, .div_factor = {div}, "
                    f".final_div_factor = {final}, .three_phase = {'true' if three else 'false'}",
                    found, around(top, 2 * top))
    OUT.write_text(text + "};\n/* clang-format on */\n")


main()
