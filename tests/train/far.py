"""far.py LIMIT A B: how far two safetensors files are from each other, which is the largest
|a - b| / |a| (Euclidean norms of a whole tensor), and its tensor. Exit code 3 unless below LIMIT."""
import array
import json
import math
import sys


def tensors(path):
    data = open(path, 'rb').read()
    n = 8 + int.from_bytes(data[:8], 'little')
    for name, t in sorted(json.loads(data[8:n]).items()):
        if name != '__metadata__':
            begin, end = t['data_offsets']
            yield name, array.array({'F64': 'd', 'F32': 'f'}[t['dtype']], data[n + begin:n + end])


a, b = (dict(tensors(path)) for path in sys.argv[2:])
assert a.keys() == b.keys() and a, 'the names differ'
worst = (0.0, 'none')
for name, x in a.items():
    norm = math.sqrt(sum(v * v for v in x))
    far = math.sqrt(sum((v - w) ** 2 for v, w in zip(x, b[name])))
    far = far / norm if norm else far
    worst = max(worst, (far if far == far else math.inf, name))
print('%.3g %s' % worst)
sys.exit(0 if worst[0] < float(sys.argv[1]) else 3)
