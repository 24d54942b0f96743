"""Budgets of memory on GPT-2: what was promised and what a run takes.

    python3 tests/bench/recompute.py [B=4 T=1024 steps=2 threads=2 at_once=0] [-D NAME=VALUE ...]

For recompute = auto and budgets with 75, 50 and 35 % of its arena: the bytes of the budget, the peak
resident memory, the time that the compiler predicts and the processor time that the run took, both
against auto, and whether the parameters have the same bytes afterwards. at_once=1 runs all of them
side by side, which is fair on a busy machine; OMP_NUM_THREADS=1 and processor time say most there.
"""
import hashlib
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tokens import write_tokens

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = Path(os.environ.get("BUILD", ROOT / "build")).resolve()
WORK = BUILD / "bench-recompute"
PARTS = [None, 75, 50, 35]


def gradcc(*args):
    return subprocess.run([BUILD / "gradcc", *args, ROOT / "models/gpt2.model"], check=True,
                          capture_output=True, text=True).stdout


def bytes_in(row, text):
    return int(re.search(rf"^ +{row} +([\d,]+)", text, re.M).group(1).replace(",", ""))


def build(part, flags):
    """The program, its budget in bytes, and the slowdown in percent that is predicted."""
    program = WORK / f"gpt2-{part or 'auto'}"
    memory = gradcc("--explain=memory", *flags)
    total, arena = bytes_in("total", memory), bytes_in("arena", memory)
    budget = total - arena + arena * (part or 100) // 100
    told = [] if part is None else [f"--recompute=budget:{budget}"]
    explained = gradcc("--explain=recompute", *flags, *told)
    gradcc(*flags, *told, "-o", program)
    return program, budget, float(re.search(r"micro-step: \+?(-?[\d.]+) %", explained).group(1))


def run(program, sizes):
    """Peak MiB, seconds of processor time, hash of the parameters."""
    out = program.with_suffix(".run")
    shutil.rmtree(out, ignore_errors=True)
    child = subprocess.Popen([program, "--data", WORK / "tokens.bin", "--val-data", WORK / "tokens.bin",
                              "--steps", str(sizes["steps"]), "--warmup", "0", "--eval", "0", "--save", "0",
                              "--out", out], stdout=subprocess.DEVNULL,
                             env=dict(os.environ, OMP_NUM_THREADS=str(sizes["threads"])))
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        raise SystemExit(f"{program} failed")
    params = next(out.glob("step-*/model.safetensors")).read_bytes()
    shutil.rmtree(out)
    return usage.ru_maxrss / 1024, usage.ru_utime, hashlib.sha256(params).hexdigest()


def main():
    sizes = dict(B=4, T=1024, steps=2, threads=2, at_once=0)
    flags = [a for a in sys.argv[1:] if "=" not in a or sys.argv[sys.argv.index(a) - 1] == "-D"]
    for a in sys.argv[1:]:
        key, _, value = a.partition("=")
        if key in sizes:
            sizes[key] = int(value)
    flags += ["-D", f"batch={sizes['B']}", "-D", "accumulate=1", "-D", f"dims=(T:{sizes['T']})"]
    WORK.mkdir(parents=True, exist_ok=True)
    write_tokens(WORK / "tokens.bin", 50257, 4 * sizes["B"] * sizes["T"] + 1)
    built = [build(part, flags) for part in PARTS]
    with ThreadPoolExecutor(len(PARTS) if sizes["at_once"] else 1) as pool:
        done = list(pool.map(lambda b: run(b[0], sizes), built))
    print(f"gpt2 B={sizes['B']} T={sizes['T']}, {sizes['steps']} updates, {sizes['threads']} threads")
    print("  arena   budget MiB   peak MiB   ratio   time predicted   measured   parameters")
    for part, (_, budget, slower), (peak, seconds, params) in zip(PARTS, built, done):
        print(f"  {part or 100:3d} %   {budget / 2**20:10.0f} {peak:10.0f} {peak / (budget / 2**20):7.3f}"
              f"   {slower:+12.1f} % {100 * (seconds / done[0][1] - 1):+8.1f} %   "
              + ("the same bytes" if params == done[0][2] else "OTHER BYTES"))
    return any(d[2] != done[0][2] for d in done)


sys.exit(main())
