"""Two runs side by side: curves.py TOLERANCE A/metrics.jsonl B/metrics.jsonl

Compares every number of updates and validations but the seconds: |a - b| <= TOLERANCE max(1, |a|).
Prints the first that differs and ends with 1; else prints the largest difference.
"""
import json
import sys


def records(path):
    kept = {}
    for line in open(path):
        r = json.loads(line)
        kind = "train" if "train/loss" in r else "val" if "val/loss" in r else None
        if kind:
            kept[(kind, r["step"])] = {k: v for k, v in r.items()
                                       if isinstance(v, (int, float)) and "seconds" not in k}
    return kept


tolerance, a, b = float(sys.argv[1]), records(sys.argv[2]), records(sys.argv[3])
worst, n = 0.0, 0
if a.keys() != b.keys():
    sys.exit(f"other records: {sorted(a.keys() ^ b.keys())[:4]}")
for at in sorted(a, key=lambda k: (k[1], k[0])):
    for key in a[at]:
        if key not in b[at]:
            sys.exit(f"{at[0]} {at[1]}: no {key} in the second run")
        far = abs(a[at][key] - b[at][key]) / max(1.0, abs(a[at][key]))
        worst, n = max(worst, far), n + 1
        if not far <= tolerance:
            sys.exit(f"{at[0]} {at[1]}: {key} is {a[at][key]} and {b[at][key]}")
if n == 0:
    sys.exit("nothing to compare")
print(f"{n} numbers, at most {worst:.2g} apart")
