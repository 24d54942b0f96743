"""Side-by-side timings: gradcc's program and PyTorch's eager step, in interleaved runs.

    python3 tests/bench/bench.py gpt2 [B=4 T=64 steps=8 rounds=3]
    python3 tests/bench/bench.py nanogpt
    python3 tests/bench/bench.py gpt2-1024         one window of 1024 tokens: attention, large logits
    python3 tests/bench/bench.py gpt2-head         4 such windows: logits 512 rows at a time and whole
    python3 tests/bench/bench.py gpt2-bf16         gradcc in bf16 and in fp32, PyTorch's bf16 autocast

Prints, per side, minimum and median of the step in ms over all rounds (the first two steps of a run
left out), the peak resident memory, and the ratios. Without PyTorch only gradcc's side runs.
"""
import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

from tokens import write_tokens

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BUILD = Path(os.environ.get("BUILD", ROOT / "build")).resolve()
WORK = BUILD / "bench"
WARM_UP = 2

#          model file, -D flags, vocabulary, sizes and options of the opponent
CASES = {
    "gpt2": dict(model="gpt2.model", flags=[], vocab=50257, sizes="50257,768,12,12,1024",
                 torch=["conv1d=1", "bias=1"], B=4, T=64, steps=8),
    "gpt2-bf16": dict(model="gpt2.model", flags=[], vocab=50257, sizes="50257,768,12,12,1024",
                      torch=["conv1d=1", "bias=1", "autocast=1"], B=4, T=64, steps=8,
                      variants=["bf16", "fp32"]),
    "gpt2-1024": dict(model="gpt2.model", flags=[], vocab=50257, sizes="50257,768,12,12,1024",
                      torch=["conv1d=1", "bias=1"], B=1, T=1024, steps=6),
    "gpt2-head": dict(model="gpt2.model", flags=[], vocab=50257, sizes="50257,768,12,12,1024",
                      torch=None, B=4, T=1024, steps=4, variants=["fp32", "whole-head"]),
    "nanogpt": dict(model="gpt2.model", flags=["C=128", "H=4", "L=4", "V=65", "Tmax=64"], vocab=65,
                    sizes="65,128,4,4,64", torch=["conv1d=1", "bias=1"], B=12, T=64, steps=200),
}


# What gradcc is told in a variant.
VARIANTS = {
    "fp32": ["--precision=fp32"],
    "bf16": ["--precision=bf16"],
    "whole-head": ["--precision=fp32", "--head-rows=0"],
}


def build(name, case, variant):
    WORK.mkdir(parents=True, exist_ok=True)
    program = WORK / f"{name}-{variant}"
    flags = [f for d in case["flags"] for f in ("-D", d)]
    subprocess.run([BUILD / "gradcc", *VARIANTS[variant], *flags,
                    ROOT / "models" / case["model"], "-o", program], check=True)
    tokens = WORK / f"{name}.bin"
    write_tokens(tokens, case["vocab"], 200_000)
    return program, tokens


def run_ours(name, program, tokens, case):
    out = WORK / f"{name}.run"
    shutil.rmtree(out, ignore_errors=True)
    subprocess.run([program, "--data", tokens, "--val-data", tokens, "--batch", str(case["B"]),
                    "--accumulate", "1", "--dims", f"T={case['T']}", "--steps", str(case["steps"]),
                    "--eval", "0", "--save", "0", "--out", out],
                   check=True, stdout=subprocess.DEVNULL)
    lines = [json.loads(s) for s in (out / "metrics.jsonl").read_text().splitlines()]
    shutil.rmtree(out, ignore_errors=True)
    return [s["seconds"] * 1e3 for s in lines if "train/loss" in s and "seconds" in s]


def run_torch(case):
    done = subprocess.run([sys.executable, HERE / "torch_gpt2.py", f"B={case['B']}", f"T={case['T']}",
                           f"steps={case['steps']}", f"sizes={case['sizes']}", *case["torch"]],
                          check=True, capture_output=True, text=True)
    result = json.loads(done.stdout.splitlines()[-1])
    return result["ms"], result["peak_mib"]


def measure_peak(command):
    """Peak MiB of a child process, by its own resource usage."""
    pid = os.fork()
    if pid == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.execv(command[0], command)
    _, status, usage = os.wait4(pid, 0)
    if status != 0:
        raise SystemExit(f"{command[0]} failed")
    return usage.ru_maxrss / 1024


def show(side, ms, peak):
    print(f"  {side:14s} min {min(ms):8.1f} ms   median {statistics.median(ms):8.1f} ms   "
          f"peak {peak:7.0f} MiB")


def compare(what, theirs, ours):
    print(f"  {what}: min {min(theirs) / min(ours):.2f}, "
          f"median {statistics.median(theirs) / statistics.median(ours):.2f}")


def peak_of(name, program, tokens, case):
    out = WORK / f"{name}.peak"
    shutil.rmtree(out, ignore_errors=True)
    peak = measure_peak([str(program), "--data", str(tokens), "--val-data", str(tokens), "--batch",
                         str(case["B"]), "--accumulate", "1", "--dims", f"T={case['T']}", "--steps", "4",
                         "--eval", "0", "--save", "0", "--out", str(out)])
    shutil.rmtree(out, ignore_errors=True)
    return peak


def main():
    name = sys.argv[1] if len(sys.argv) > 1 else "gpt2"
    case = dict(CASES[name])
    rounds = 3
    for a in sys.argv[2:]:
        key, value = a.split("=")
        if key == "rounds":
            rounds = int(value)
        else:
            case[key] = int(value)
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    have_torch = case["torch"] is not None and subprocess.run(
        [sys.executable, "-c", "import torch"], capture_output=True).returncode == 0
    kinds = case.get("variants", ["fp32"])
    programs = {kind: build(name, case, kind) for kind in kinds}
    ours, theirs, peak_torch = {kind: [] for kind in kinds}, [], 0.0
    for _ in range(rounds):
        for kind in kinds:
            ours[kind] += run_ours(name, *programs[kind], case)[WARM_UP:]
        if have_torch:
            ms, peak_torch = run_torch(case)
            theirs += ms[WARM_UP:]
    print(f"{name} B={case['B']} T={case['T']}, {os.environ['OMP_NUM_THREADS']} threads, {rounds} rounds")
    peak = {kind: peak_of(name, *programs[kind], case) for kind in kinds}
    for kind in kinds:
        show(f"gradcc {kind}", ours[kind], peak[kind])
    if len(kinds) > 1:
        compare(f"gradcc {kinds[1]} / {kinds[0]}", ours[kinds[1]], ours[kinds[0]])
        print(f"  memory gradcc {kinds[1]} / {kinds[0]}: {peak[kinds[1]] / peak[kinds[0]]:.2f}")
    if theirs:
        show("PyTorch", theirs, peak_torch)
        compare(f"PyTorch / gradcc {kinds[0]}", theirs, ours[kinds[0]])
        print(f"  memory gradcc {kinds[0]} / PyTorch {peak[kinds[0]] / peak_torch:.2f}")
    elif case["torch"] is not None:
        print("  PyTorch is not installed: nothing to compare with")


main()
