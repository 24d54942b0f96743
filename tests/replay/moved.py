"""moved.py RATE A B: has each element moved by RATE, up to a hundredth, from one safetensors file to the
other? Elements that stay are those without a gradient; exit code 3 where another way was gone."""
import array
import json
import sys


def tensors(path):
    data = open(path, 'rb').read()
    n = 8 + int.from_bytes(data[:8], 'little')
    for name, t in sorted(json.loads(data[8:n]).items()):
        if name != '__metadata__':
            begin, end = t['data_offsets']
            yield name, array.array('f', data[n + begin:n + end])


rate = float(sys.argv[1])
a, b = (dict(tensors(path)) for path in sys.argv[2:])
moved = [abs(x - y) for name in a for x, y in zip(a[name], b[name]) if x != y]
far = [m for m in moved if abs(m - rate) > 0.01 * rate]
print(f'{len(moved)} elements moved, {len(far)} of them by another length:', far[:3])
sys.exit(3 if far or len(moved) < 100 else 0)
