"""Do the newest checkpoints of two run directories have the same parameters, to 1e-12 or LIMIT?

    python3 same.py DIR DIR [LIMIT]
"""
import sys
from pathlib import Path

from tensors import tensors


def newest(folder):
    return tensors(sorted(Path(folder).glob("step-*"))[-1] / "model.safetensors")


a, b = newest(sys.argv[1]), newest(sys.argv[2])
limit = float(sys.argv[3]) if len(sys.argv) > 3 else 1e-12
if list(a) != list(b):
    sys.exit("other parameters")
for name in a:
    if len(a[name][1]) != len(b[name][1]):
        sys.exit(f"{name}: other sizes")
    for x, y in zip(a[name][1], b[name][1]):
        if not abs(x - y) <= limit:  # nan is no number that agrees
            sys.exit(f"{name}: {x:.17g} and {y:.17g}")
