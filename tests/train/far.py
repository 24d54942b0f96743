"""far.py LIMIT A B: how far two safetensors files are from each other, which is the largest
|a - b| / |a| (Euclidean norms of a whole tensor), and its tensor. Exit code 3 unless below LIMIT."""
import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tensors import tensors  # noqa: E402

a, b = (tensors(path) for path in sys.argv[2:])
assert a.keys() == b.keys() and a, 'the names differ'
worst = (0.0, 'none')
for name, (_, x) in a.items():
    norm = math.sqrt(sum(v * v for v in x))
    far = math.sqrt(sum((v - w) ** 2 for v, w in zip(x, b[name][1])))
    far = far / norm if norm else far
    worst = max(worst, (far if far == far else math.inf, name))
print('%.3g %s' % worst)
sys.exit(0 if worst[0] < float(sys.argv[1]) else 3)
