"""decayed.py BEFORE AFTER FACTOR: are matrices of AFTER those of BEFORE times FACTOR, and vectors
the same? Prints what is not."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tensors import tensors  # noqa: E402

after = tensors(sys.argv[2])
for name, (shape, values) in tensors(sys.argv[1]).items():
    factor = float(sys.argv[3]) if len(shape) == 2 else 1
    for x, y in zip(values, after[name][1]):
        if abs(y - factor * x) > 1e-7 * abs(x) + 1e-25:
            print(f"{name}: {x} became {y}")
            break
