"""moved.py RATE A B: has each element moved by RATE, up to a hundredth, from one safetensors file to the
other? Elements that stay are those without a gradient; exit code 3 where another way was gone."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tensors import tensors  # noqa: E402

rate = float(sys.argv[1])
a, b = (tensors(path) for path in sys.argv[2:])
moved = [abs(x - y) for name in a for x, y in zip(a[name][1], b[name][1]) if x != y]
far = [m for m in moved if abs(m - rate) > 0.01 * rate]
print(f'{len(moved)} elements moved, {len(far)} of them by another length:', far[:3])
sys.exit(3 if far or len(moved) < 100 else 0)
