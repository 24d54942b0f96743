"""GPT-2 124M on two cores: one process with two threads, and two processes with one thread each.

    python3 tests/bench/ranks.py [B=8 T=256 steps=4 rounds=3 quiet=10 tries=3] [OPTION ...]

Rounds are interleaved: one process, two by mpirun (MPI), two by flags (Gloo). Prints, per way, the
minimum and median of an update in ms over all rounds (the first update of a run left out), the
ratios to one process, and what the runs said about sums of gradients. Options that begin with -
go to every run. Where others use more than `quiet` percent of the processors' time meanwhile, a run
is tried again, and the quietest one counts.
"""
import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

from tokens import write_tokens

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = Path(os.environ.get("BUILD", ROOT / "build")).resolve()
WORK = BUILD / "bench-ranks"
ENV = dict(os.environ, CI="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
WAYS = {"one": "1 process x 2 threads", "mpi": "2 x 1, MPI", "gloo": "2 x 1, Gloo"}


def commands(way, command):
    """What is started for a way; the first one is, or holds, rank 0."""
    if way == "one":
        return [command]
    if way == "mpi":
        return [["mpirun", "-n", "2", *command]]
    meet = ["--world-size", "2", "--rendezvous", f"localhost:{20000 + os.getpid() % 20000}"]
    return [[*command, *meet, "--rank", str(r)] for r in range(2)]


def used():
    """Seconds of the processors' time: all that was used, by anyone, and by children of this one."""
    t = [int(x) for x in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    own = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (sum(t) - t[3] - t[4]) / os.sysconf("SC_CLK_TCK"), own.ru_utime + own.ru_stime


def run(way, sizes, options):
    """Percent of the processors' time that others used, and milliseconds of each update but the first."""
    out = WORK / f"{way}.run"
    shutil.rmtree(out, ignore_errors=True)
    command = [str(x) for x in (
        WORK / "gpt2", "--data", WORK / "tokens.bin", "--val-data", WORK / "tokens.bin", "--batch",
        sizes["B"], "--accumulate", 1, "--dims", f"T={sizes['T']}", "--steps", sizes["steps"],
        "--warmup", 0, "--eval", 0, "--save", 0, "--out", out, *options)]
    env = dict(ENV, OMP_NUM_THREADS="2" if way == "one" else "1")
    before, start = used(), time.monotonic()
    children = [subprocess.Popen(c, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                for c in commands(way, command)]
    said = [c.communicate()[0] for c in children]
    if any(c.returncode for c in children):
        raise SystemExit(f"{WAYS[way]} failed:\n{''.join(said)}")
    after, took = used(), time.monotonic() - start
    others = 100 * max(0, after[0] - before[0] - after[1] + before[1]) / took / os.cpu_count()
    records = [json.loads(s) for s in (out / "metrics.jsonl").read_text().splitlines()]
    shutil.rmtree(out)
    ms = [r["seconds"] * 1e3 for r in records if "train/loss" in r][1:]
    sums = re.search(r"^ranks +sums of gradients took (.*)", said[0], re.M)
    print(f"  {WAYS[way]:22s} {' '.join(f'{x:6.0f}' for x in ms)} ms   "
          f"others: {others:3.0f} %   {sums.group(1) if sums else ''}", flush=True)
    return others, ms


def main():
    sizes = dict(B=8, T=256, steps=4, rounds=3, quiet=10, tries=3)
    options = []
    for a in sys.argv[1:]:
        key, _, value = a.partition("=")
        if key in sizes:
            sizes[key] = int(value)
        else:
            options.append(a)
    WORK.mkdir(parents=True, exist_ok=True)
    write_tokens(WORK / "tokens.bin", 50257, 200_000)
    subprocess.run([BUILD / "gradcc", ROOT / "models/gpt2.model", "-o", WORK / "gpt2"], check=True)
    have = {"one": True, "gloo": (BUILD / "libgradcc_gloo.so").exists(),
            "mpi": (BUILD / "libgradcc_mpi.so").exists() and shutil.which("mpirun")}
    ways = [w for w in WAYS if have[w]]
    print(f"gpt2 B={sizes['B']} T={sizes['T']}, {sizes['rounds']} rounds of {sizes['steps']} updates")
    ms = {w: [] for w in ways}
    for _ in range(sizes["rounds"]):
        for w in ways:
            runs = []
            while not runs or (min(runs)[0] > sizes["quiet"] and len(runs) < sizes["tries"]):
                runs.append(run(w, sizes, options))
            ms[w] += min(runs)[1]
    for w in ways:
        print(f"  {WAYS[w]:22s} min {min(ms[w]):8.1f} ms   median {statistics.median(ms[w]):8.1f} ms   "
              f"speed of one process: {min(ms['one']) / min(ms[w]):.3f} by minima, "
              f"{statistics.median(ms['one']) / statistics.median(ms[w]):.3f} by medians")


main()
