"""Compares the checkpoints of two runs, tensor by tensor: compare.py A B BOUND. The bound is of the
largest difference of a tensor, against its largest value."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from tensors import tensors  # noqa: E402

a, b, bound = sys.argv[1], sys.argv[2], float(sys.argv[3])
files = sorted(f for f in os.listdir(a) if f.endswith('.safetensors'))
if files != sorted(f for f in os.listdir(b) if f.endswith('.safetensors')):
    sys.exit('other files')
worst = 0
for f in files:
    one, other = tensors(os.path.join(a, f)), tensors(os.path.join(b, f))
    if list(one) != list(other):
        sys.exit(f + ': other tensors')
    for name, (shape, x) in one.items():
        y = other[name][1]
        size = max([abs(v) for v in x] + [1e-30])
        gap = max([abs(v - w) for v, w in zip(x, y)] + [0])
        if not gap <= bound * size:
            sys.exit('%s: %s differs by %.3g of %.3g' % (f, name, gap, size))
        worst = max(worst, gap / size)
print('%d files, %.3g at most' % (len(files), worst))
