"""Checks the average of the weights in the checkpoints of a run, of which every update is saved:
between two of them e = e + (1 - d) (p - e), d = min(EMA, (1 + t) / (10 + t)) with t updates applied
before, or nothing changes where an update was skipped. START: a checkpoint of the initial weights.
Prints how many updates and skipped ones it saw.

    python3 average.py EMA START DIR
"""
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tensors import tensors  # noqa: E402


def main(ema, start, folder):
    before, applied, skipped = tensors(Path(start) / "model.safetensors"), 0, 0
    steps = sorted(Path(folder).glob("step-????????"))
    for step in steps:
        manifest = json.loads((step / "manifest.json").read_text())
        p, e = tensors(step / "model.safetensors"), tensors(step / "ema.safetensors")
        if sorted(p) != sorted(e):
            sys.exit(f"{step}: other names")
        d = min(ema, (1 + applied) / (10 + applied))
        d = 1 if manifest["applied"] == applied else d
        skipped += d == 1
        for name in p:
            for was, x, now in zip(before[name][1], p[name][1], e[name][1]):
                want = was + (1 - d) * (x - was)
                if abs(now - want) > 3e-7 * abs(want) + 1e-9 * (d < 1):
                    sys.exit(f"{step}: {name}: {now}, wanted {want}")
        before, applied = e, manifest["applied"]
    print(f"{len(steps)} updates, {skipped} skipped")


main(float(sys.argv[1]), *sys.argv[2:])
