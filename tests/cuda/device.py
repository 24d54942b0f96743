"""What device.sh measures: steps of gradcc's programs against PyTorch compiled, in turns.

    python3 device.py speed CASE     one JSON object: ms per update of both sides, MFU, memory
    python3 device.py kernels CASE   time of each kernel of an update (RT_CUDA_PROFILE)
    python3 device.py report DIR     report.md from the files of the parts

The programs are compiled by $GRADCC --target=cuda, or by tests/cudasim/cc.sh with DEVICE=simulator
(a rehearsal: PyTorch on the CPU, toy sizes). MFU: (6 N + 6 L C T) FLOP per token against the dense
bf16 peak of the device, n/a where that is not known.
"""
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "tests/bench"))
from tokens import write_tokens  # noqa: E402

BUILD = Path(os.environ.get("BUILD", ROOT / "build")).resolve()
WORK = Path(os.environ.get("WORK", BUILD / "device")).resolve()
SIMULATED = os.environ.get("DEVICE", "cuda") == "simulator"
SMALL = SIMULATED or os.environ.get("DEVICE_SMALL") == "1"
ROUNDS = 2 if SMALL else 3

RESULT = os.path.join(os.environ.get("OUT", "."), "speed-{}.json")      # after each round

PEAK_TFLOPS = {"H100 PCIe": 756, "H100": 989, "H200": 989, "GH200": 989, "A100": 312}


def gpt(V, C, H, L, T, B, precision="bf16", steps=12):
    return dict(model="models/gpt2.model", D=dict(V=V, C=C, H=H, L=L, Tmax=T), V=V, C=C, L=L, B=B, T=T,
                precision=precision, steps=steps,
                torch=["model=gpt2", f"sizes={V},{C},{H},{L},{T}", f"B={B}", f"T={T}",
                       f"autocast={int(precision != 'fp32')}"])


def mlp(B, sizes, steps=400, precision="fp32"):
    return dict(model="tests/bench/mlp.model", D=dict(D=sizes[0], S=sizes[1], K=sizes[-1]), B=B, T=None,
                precision=precision, steps=steps, rows=(4096, sizes[0], sizes[-1]),
                torch=["model=mlp", f"sizes={','.join(map(str, sizes))}", f"B={B}",
                       f"autocast={int(precision != 'fp32')}"])


CASES = {
    "gpt2-124m": gpt(50304, 768, 12, 12, 1024, 64),
    "gpt2-350m": gpt(50304, 1024, 16, 24, 1024, 64, steps=8),
    "gpt2-b1": gpt(50304, 768, 12, 12, 256, 1, steps=60),
    "mlp": mlp(256, [784, 1024, 1024, 10]),
}
TOY = {
    "gpt2-124m": gpt(96, 64, 2, 2, 16, 2, steps=4),
    "gpt2-350m": gpt(96, 64, 2, 3, 16, 2, steps=4),
    "gpt2-b1": gpt(96, 64, 2, 2, 8, 1, steps=4),
    "mlp": mlp(8, [16, 32, 32, 4], steps=6),
}


def case_of(name):
    return (TOY if SMALL else CASES)[name]


# ---- our side --------------------------------------------------------------------------------------

def compile_program(name, case):
    WORK.mkdir(parents=True, exist_ok=True)
    program = WORK / name
    flags = [f for key, value in case["D"].items() for f in ("-D", f"{key}={value}")]
    command = [os.environ["GRADCC"], "--target=cuda", f"--precision={case['precision']}", *flags,
               str(ROOT / case["model"])]
    if SIMULATED:
        source = WORK / f"{name}.cu"
        subprocess.run([*command, "--emit=cuda", "-o", source], check=True)
        subprocess.run([ROOT / "tests/cudasim/cc.sh", "--runtime", "-o", program, source], check=True)
    else:
        subprocess.run([*command, "-o", program], check=True)
    return program


def make_data(name, case):
    if case["T"]:
        path = WORK / f"{name}.bin"
        write_tokens(path, case["V"], 2_000_000 if not SMALL else 5_000)
        return path
    rows, width, kinds = case["rows"]
    path, rng = WORK / f"{name}.csv", random.Random(1)
    with open(path, "w") as f:
        for _ in range(rows if not SMALL else 64):
            f.write(",".join(f"{rng.random():.3f}" for _ in range(width)))
            f.write(f",{rng.randrange(kinds)}\n")
    return path


def run_ours(name, program, data, case, more=()):
    """ms per update behind the first third of the run, the text it printed."""
    out = WORK / f"{name}.run"
    shutil.rmtree(out, ignore_errors=True)
    dims = ["--dims", f"T={case['T']}"] if case["T"] else []
    val = ["--val-data", data] if case["T"] else []
    done = subprocess.run([program, "--data", data, *val, "--batch", str(case["B"]), "--accumulate",
                           "1", *dims, "--steps", str(case["steps"]), "--eval", "0", "--save", "0",
                           "--out", out, *more], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{program} ended with exit code {done.returncode}:\n{done.stdout}{done.stderr}")
    records = [json.loads(s) for s in (out / "metrics.jsonl").read_text().splitlines()]
    shutil.rmtree(out, ignore_errors=True)
    updates = [r for r in records if "train/loss" in r]
    seconds = [r["seconds"] * 1e3 for r in updates]
    return seconds[len(seconds) // 3:], done.stdout, [r["train/loss"] for r in updates]


# ---- PyTorch's side --------------------------------------------------------------------------------

class Opponent:
    def __init__(self, case):
        device = "cpu" if SIMULATED else "cuda"
        compiled = os.environ.get("TORCH_COMPILE", "0" if SIMULATED else "1")
        self.process = subprocess.Popen(
            [sys.executable, ROOT / "tests/bench/torch_server.py", *case["torch"],
             f"device={device}", f"compile={compiled}"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line.startswith("ready"):
            raise SystemExit("PyTorch's side did not start")
        self.versions = json.loads(line[6:])
        self.versions["compiled"] = compiled == "1"

    def run(self, n):
        self.process.stdin.write(f"{n}\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def end(self):
        self.process.stdin.close()
        self.process.wait()


# ---- parts -----------------------------------------------------------------------------------------

def device_name():
    if SIMULATED:
        return "simulator"
    done = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],
                          capture_output=True, text=True)
    return done.stdout.splitlines()[0].strip() if done.stdout else "unknown"


def mfu(case, text, ms):
    """Share of the peak in percent, or None. N is what the program says it has."""
    peak = next((p for n, p in PEAK_TFLOPS.items() if n in device_name()), None)
    if not peak or not case["T"] or case["precision"] == "fp32":
        return None
    n = int(re.search(r"(\d+) parameters", text).group(1))
    flop = (6 * n + 6 * case["L"] * case["C"] * case["T"]) * case["B"] * case["T"]
    return 100 * flop / (ms / 1e3) / (peak * 1e12)


def speed(name):
    case = case_of(name)
    program, data = compile_program(name, case), make_data(name, case)
    have_torch = subprocess.run([sys.executable, "-c", "import torch"],
                                capture_output=True).returncode == 0
    opponent = Opponent(case) if have_torch else None
    ours, theirs, rows, peak = [], [], [], None
    for turn in range(ROUNDS):
        ms, text, losses = run_ours(name, program, data, case)
        ours += ms
        if opponent:
            result = opponent.run(len(ms))
            theirs += result["ms"]
            rows.append(result["row_ms"])
            peak = result["peak_mib"]
        print(f"round {turn + 1}: gradcc {statistics.median(ms):.2f} ms, PyTorch "
              + (f"{rows[-1]:.2f} ms in a row" if rows else "not installed"), file=sys.stderr)
        mine = statistics.median(ours)
        result = dict(case=name, device=device_name(), rounds=turn + 1, B=case["B"], T=case["T"],
                      precision=case["precision"], gradcc_ms=mine, gradcc_min_ms=min(ours),
                      mfu_percent=mfu(case, text, mine), last_loss=losses[-1],
                      lines=[s for s in text.splitlines()
                             if s.split(" ")[0] in ("memory", "device", "products", "done")])
        if theirs:
            best = min(statistics.median(theirs), statistics.median(rows))
            result.update(torch=opponent.versions, torch_ms=statistics.median(theirs),
                          torch_row_ms=statistics.median(rows), torch_min_ms=min(theirs),
                          torch_peak_mib=peak, ratio=best / mine)
        Path(RESULT.format(name)).write_text(json.dumps(result, indent=1))
    if opponent:
        opponent.end()
    print(json.dumps(result, indent=1))


def kernels(name):
    """Every launch of three updates, timed one by one: graphs are off then."""
    case = dict(case_of(name), steps=3)
    program, data = compile_program(name, case), make_data(name, case)
    profile = WORK / f"{name}.profile"
    os.environ["RT_CUDA_PROFILE"] = str(profile)
    run_ours(name, program, data, case)
    print(profile.read_text())


def number(value, form="{:.1f}"):
    return form.format(value) if value is not None else "n/a"


def report(where):
    where = Path(where)
    lines = ["# gradcc on a device", ""]
    info = where / "info.txt"
    if info.exists():
        lines += ["```", info.read_text().strip(), "```", ""]
    lines += ["| case | precision | gradcc ms (min) | PyTorch ms (min; in a row) | ratio | MFU % |",
              "| --- | --- | --- | --- | --- | --- |"]
    for name in CASES:
        path = where / f"speed-{name}.json"
        if not path.exists():
            lines.append(f"| {name} | | not measured | | | |")
            continue
        r = json.loads(path.read_text())
        torch = (f"{r['torch_ms']:.2f} ({r['torch_min_ms']:.2f}; {r['torch_row_ms']:.2f})"
                 if "torch_ms" in r else "not installed")
        lines.append(f"| {name} | {r['precision']} | {r['gradcc_ms']:.2f} ({r['gradcc_min_ms']:.2f}) "
                     f"| {torch} | {number(r.get('ratio'), '{:.2f}')} | {number(r['mfu_percent'])} |")
    lines += ["", "Ratio: PyTorch's better median / gradcc's median.", ""]
    for path in sorted(where.glob("*.txt")):
        if path.stem in ("info",) or path.stem.startswith("speed-"):
            continue
        state = "done" if path.with_suffix(".done").exists() else "NOT done"
        tail = path.read_text().strip().splitlines()[-60:]
        lines += [f"## {path.stem} ({state})", "", "```", *tail, "```", ""]
    (where / "report.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines[:20]))


if __name__ == "__main__":
    {"speed": speed, "kernels": kernels, "report": report}[sys.argv[1]](sys.argv[2])
