"""Do the losses of two runs lie on top of each other? Prints the largest relative difference.

    python3 curve.py DIR DIR STEPS LIMIT
"""
import json
import sys


def losses(folder):
    records = map(json.loads, open(f"{folder}/metrics.jsonl"))
    return [r["train/loss"] for r in records if "train/loss" in r]


a, b = losses(sys.argv[1]), losses(sys.argv[2])
if not len(a) == len(b) == int(sys.argv[3]):
    sys.exit(f"{len(a)} and {len(b)} losses, wanted {sys.argv[3]}")
apart = [abs(x - y) / abs(x) for x, y in zip(a, b)]
print(f"{max(apart):.2g}")
sys.exit(not all(x <= float(sys.argv[4]) for x in apart))  # nan is not
