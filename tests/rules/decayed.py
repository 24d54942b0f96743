"""decayed.py BEFORE AFTER FACTOR: are matrices of AFTER those of BEFORE times FACTOR, and vectors
the same? Prints what is not."""
import json, struct, sys


def tensors(path):
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    for name, t in json.loads(data[8:8 + n]).items():
        if name != "__metadata__":
            lo, hi = t["data_offsets"]
            yield name, t["shape"], struct.unpack(f"<{(hi - lo) // 4}f", data[8 + n + lo:8 + n + hi])


after = {name: values for name, _, values in tensors(sys.argv[2])}
for name, shape, values in tensors(sys.argv[1]):
    factor = float(sys.argv[3]) if len(shape) == 2 else 1
    for x, y in zip(values, after[name]):
        if abs(y - factor * x) > 1e-7 * abs(x) + 1e-25:
            print(f"{name}: {x} became {y}")
            break
