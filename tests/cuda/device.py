"""What device.sh measures: steps of gradcc's programs against PyTorch compiled, in turns.

    python3 device.py prepare        compiles the programs of all cases, at once, and writes their data
    python3 device.py warm           PyTorch compiles its side of each case into a folder of $WORK,
                                     until there is a file warm.stop
    python3 device.py speed CASE     one JSON object: ms per update of both sides, MFU, memory
    python3 device.py kernels CASE   time of each kernel of an update (RT_CUDA_PROFILE)
    python3 device.py report DIR     report.md from the files of the parts
    python3 device.py cublaslt       the file of cuBLASLt, if programs do not find it by themselves
    python3 device.py headers        the folder of its headers, if the toolkit has none
    python3 device.py nccl           the file of NCCL, if it is not found
    python3 device.py cudnn          the folders of cuDNN and of what it loads, if it is not found

The programs are compiled by $GRADCC --target=cuda, or by tests/cudasim/cc.sh with DEVICE=simulator
(a rehearsal: PyTorch on the CPU, toy sizes). MFU: (6 N + 6 L C T) FLOP per token against the dense
bf16 peak of the device, n/a where that is not known.
"""
import ctypes
import importlib.util
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
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

RESULT = os.path.join(os.environ.get("RESULTS", "."), "speed-{}.json")  # after each round
ROOM_OF_A_RUN = 8 << 30                 # the last step leaves a checkpoint, of 12 bytes per parameter

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


CASES = {   # cudnn: also with the attention of cuDNN, where it is
    "gpt2-124m": dict(gpt(50304, 768, 12, 12, 1024, 64), cudnn=True),
    "gpt2-350m": gpt(50304, 1024, 16, 24, 1024, 64, steps=8),
    "gpt2-b1": gpt(50304, 768, 12, 12, 256, 1, steps=60),
    "mlp": mlp(256, [784, 1024, 1024, 10]),
}
WARM_TOGETHER = ("gpt2-124m", "gpt2-350m"), ("mlp", "gpt2-b1")      # a GPU has room for one large one
TOY = {
    "gpt2-124m": dict(gpt(96, 64, 2, 2, 16, 2, steps=4), cudnn=True),
    "gpt2-350m": gpt(96, 64, 2, 3, 16, 2, steps=4),
    "gpt2-b1": gpt(96, 64, 2, 2, 8, 1, steps=4),
    "mlp": mlp(8, [16, 32, 32, 4], steps=6),
}


def case_of(name):
    return (TOY if SMALL else CASES)[name]


# ---- our side --------------------------------------------------------------------------------------

def program_of(name):
    return WORK / (name + ("-small" if SMALL else ""))


def compile_program(name):
    WORK.mkdir(parents=True, exist_ok=True)
    case, program = case_of(name), program_of(name)
    flags = [f for key, value in case["D"].items() for f in ("-D", f"{key}={value}")]
    command = [os.environ["GRADCC"], "--target=cuda", f"--precision={case['precision']}", *flags,
               str(ROOT / case["model"])]
    if SIMULATED:
        source = program.with_suffix(".cu")
        subprocess.run([*command, "--emit=cuda", "-o", source], check=True)
        subprocess.run([ROOT / "tests/cudasim/cc.sh", "--runtime", "-o", program, source], check=True)
    else:
        subprocess.run([*command, "-o", program], check=True)
    return program


def run_folder(name):
    """In memory where there is room, so that no disk is timed."""
    memory = Path("/dev/shm")
    room = shutil.disk_usage(memory).free if memory.is_dir() else 0
    return (memory if room > ROOM_OF_A_RUN and not SMALL else WORK) / f"gradcc-{name}.run"


def data_of(name):
    return program_of(name).with_suffix(".bin" if case_of(name)["T"] else ".csv")


def make_data(name):
    WORK.mkdir(parents=True, exist_ok=True)
    case, path = case_of(name), WORK / f"{name}.part"
    if case["T"]:
        write_tokens(path, case["V"], 2_000_000 if not SMALL else 5_000)
    else:
        rows, width, kinds = case["rows"]
        rng = random.Random(1)
        with open(path, "w") as f:
            for _ in range(rows if not SMALL else 64):
                f.write(",".join(f"{rng.random():.3f}" for _ in range(width)))
                f.write(f",{rng.randrange(kinds)}\n")
    path.rename(data_of(name))


def prepare():
    """What fails here is made again, and told, by the part that needs it."""
    with ThreadPoolExecutor(1 if SIMULATED else len(CASES)) as pool:
        compiled = [pool.submit(compile_program, name) for name in CASES]
        for name in CASES:
            make_data(name)
        for done in compiled:
            done.result()


def parts_of(name):
    """The program and its data."""
    if not program_of(name).exists():
        compile_program(name)
    if not data_of(name).exists():
        make_data(name)
    return program_of(name), data_of(name)


def environment(cudnn):
    if not cudnn:
        return None
    folders = [f for f in (os.environ.get("CUDNN_FOLDERS"), os.environ.get("LD_LIBRARY_PATH")) if f]
    return dict(os.environ, RT_ATTENTION="cudnn", **({"LD_LIBRARY_PATH": ":".join(folders)} if folders else {}))


def run_ours(name, program, data, case, cudnn=False):
    """ms per update behind the first third of the run, the text it printed, the losses. cudnn: with
    its attention; None where that does not start."""
    out = run_folder(name)
    shutil.rmtree(out, ignore_errors=True)
    dims = ["--dims", f"T={case['T']}"] if case["T"] else []
    val = ["--val-data", data] if case["T"] else []
    done = subprocess.run([program, "--data", data, *val, "--batch", str(case["B"]), "--accumulate",
                           "1", *dims, "--steps", str(case["steps"]), "--eval", "0", "--save", "0",
                           "--out", out], capture_output=True, text=True,
                          env=environment(cudnn))
    if done.returncode != 0 and cudnn:
        print(f"no attention of cuDNN: {done.stderr.strip()}", file=sys.stderr)
        return None
    if done.returncode != 0:
        sys.exit(f"{program} ended with exit code {done.returncode}:\n{done.stdout}{done.stderr}")
    records = [json.loads(s) for s in (out / "metrics.jsonl").read_text().splitlines()]
    shutil.rmtree(out, ignore_errors=True)
    updates = [r for r in records if "train/loss" in r]
    seconds = [r["seconds"] * 1e3 for r in updates]
    return seconds[len(seconds) // 3:], done.stdout, [r["train/loss"] for r in updates]


# ---- PyTorch's side --------------------------------------------------------------------------------

class Opponent:
    """Raises OSError where PyTorch's side ended."""

    def __init__(self, case):
        device = "cpu" if SIMULATED else "cuda"
        compiled = os.environ.get("TORCH_COMPILE", "0" if SIMULATED else "1")
        kept = {"TORCHINDUCTOR_CACHE_DIR": str(WORK / "inductor"), "TORCHINDUCTOR_FX_GRAPH_CACHE": "1",
                "TORCHINDUCTOR_AUTOGRAD_CACHE": "1"}
        self.process = subprocess.Popen(
            [sys.executable, ROOT / "tests/bench/torch_server.py", *case["torch"],
             f"device={device}", f"compile={compiled}"], env={**kept, **os.environ},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.versions = self.line("ready ")
        self.versions["compiled"] = compiled == "1"

    def line(self, start):
        """The object of the next line that starts so; others, of PyTorch's own, are passed over."""
        for line in self.process.stdout:
            if line.startswith(start):
                return json.loads(line[len(start):])
        raise OSError(f"PyTorch's side ended with exit code {self.process.wait()}")

    def run(self, n):
        self.process.stdin.write(f"{n}\n")
        self.process.stdin.flush()
        return self.line("ran ")

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def have_torch():
    return importlib.util.find_spec("torch") is not None


def warm():
    if not have_torch():
        return print("no PyTorch")
    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(warm_these, names) for names in WARM_TOGETHER]:
            done.result()


def warm_these(names):
    for name in names:
        if (WORK / "warm.stop").exists():
            break
        try:
            opponent = Opponent(case_of(name))
            opponent.end()
            print(f"{name}: first three updates in {opponent.versions['first_seconds']:.1f} s", flush=True)
        except OSError as error:
            print(f"{name}: {error}", flush=True)


# ---- parts -----------------------------------------------------------------------------------------

def device_name(text):
    """By what the program printed."""
    found = re.search(r"^device +cuda:\d+, (.*?), [0-9.]+ ", text, re.M)
    return "simulator" if SIMULATED else found.group(1) if found else "unknown"


def mfu(case, text, ms):
    """Share of the peak in percent, or None. N is what the program says it has."""
    peak = next((p for n, p in PEAK_TFLOPS.items() if n in device_name(text)), None)
    if not peak or not case["T"] or case["precision"] == "fp32":
        return None
    n = int(re.search(r"(\d+) parameters", text).group(1))
    flop = (6 * n + 6 * case["L"] * case["C"] * case["T"]) * case["B"] * case["T"]
    return 100 * flop / (ms / 1e3) / (peak * 1e12)


def speed(name):
    case, opponent, absent = case_of(name), None, "not installed"
    program, data = parts_of(name)
    ours, theirs, rows, peak = [], [], [], None
    by_cudnn, told = [], []
    for turn in range(ROUNDS):
        ms, text, losses = run_ours(name, program, data, case)
        ours += ms
        other = run_ours(name, program, data, case, cudnn=True) if case.get("cudnn") else None
        if other:
            by_cudnn += other[0]
            told = [s for s in other[1].splitlines() if s.startswith(("attention", "memory"))]
        try:
            if turn == 0 and have_torch():
                opponent = Opponent(case)
            if opponent:
                result = opponent.run(len(ms))
                theirs += result["ms"]
                rows.append(result["row_ms"])
                peak = result["peak_mib"]
        except OSError as error:
            opponent, absent = None, str(error)
        print(f"round {turn + 1}: gradcc {statistics.median(ms):.2f} ms, PyTorch "
              + (f"{rows[-1]:.2f} ms in a row" if opponent else absent), file=sys.stderr, flush=True)
        mine = statistics.median(ours)
        result = dict(case=name, device=device_name(text), rounds=turn + 1, B=case["B"], T=case["T"],
                      precision=case["precision"], gradcc_ms=mine, gradcc_min_ms=min(ours),
                      mfu_percent=mfu(case, text, mine), last_loss=losses[-1],
                      lines=[s for s in text.splitlines()
                             if s.split(" ")[0] in ("memory", "device", "products", "attention",
                                                    "done")])
        if by_cudnn:
            result.update(cudnn_ms=statistics.median(by_cudnn), cudnn_min_ms=min(by_cudnn),
                          cudnn_lines=told)
        if theirs:
            best = min(statistics.median(theirs), statistics.median(rows))
            result.update(torch=opponent.versions, torch_ms=statistics.median(theirs),
                          torch_row_ms=statistics.median(rows), torch_min_ms=min(theirs),
                          torch_peak_mib=peak, ratio=best / mine)
        else:
            result.update(absent=absent)
        Path(RESULT.format(name)).write_text(json.dumps(result, indent=1))
    if opponent:
        opponent.end()
    print(json.dumps(result, indent=1))


def kernels(name):
    """Every launch of three updates, timed one by one: graphs are off then. Again with the attention of
    cuDNN."""
    case = dict(case_of(name), steps=3)
    program, data = parts_of(name)
    profile = WORK / f"{name}.profile"
    os.environ["RT_CUDA_PROFILE"] = str(profile)
    run_ours(name, program, data, case)
    print(profile.read_text())
    if case.get("cudnn") and run_ours(name, program, data, case, cudnn=True):
        print(profile.read_text())


def number(value, form="{:.1f}"):
    return form.format(value) if value is not None else "n/a"


def report(where):
    where = Path(where)
    lines = ["# gradcc on a device", ""]
    info = where / "info.txt"
    if info.exists():
        lines += ["```", info.read_text().strip(), "```", ""]
    lines += ["| case | precision | gradcc ms (min) | with cuDNN's attention | PyTorch ms (min; in a row) "
              "| ratio | MFU % |", "| --- | --- | --- | --- | --- | --- | --- |"]
    for name in CASES:
        path = where / f"speed-{name}.json"
        if not path.exists():
            lines.append(f"| {name} | | not measured | | | | |")
            continue
        r = json.loads(path.read_text())
        torch = (f"{r['torch_ms']:.2f} ({r['torch_min_ms']:.2f}; {r['torch_row_ms']:.2f})"
                 if "torch_ms" in r else r["absent"])
        cudnn = f"{r['cudnn_ms']:.2f} ({r['cudnn_min_ms']:.2f})" if "cudnn_ms" in r else ""
        lines.append(f"| {name} | {r['precision']} | {r['gradcc_ms']:.2f} ({r['gradcc_min_ms']:.2f}) "
                     f"| {cudnn} | {torch} | {number(r.get('ratio'), '{:.2f}')} | {number(r['mfu_percent'])} |")
    lines += ["", "Ratio: PyTorch's better median / gradcc's median.", ""]
    for path in sorted(where.glob("*.txt")):
        if path.stem in ("info",) or path.stem.startswith("speed-"):
            continue
        state = "done" if path.with_suffix(".done").exists() else "NOT done"
        title = "PyTorch's first updates" if path.stem == "warm" else f"{path.stem} ({state})"
        tail = path.read_text().strip().splitlines()[-60:]
        lines += [f"## {title}", "", "```", *tail, "```", ""]
    (where / "report.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines[:20]))


def packaged(pattern):
    """Files of NVIDIA's Python packages, which come with PyTorch."""
    package = importlib.util.find_spec("nvidia")
    folders = list(package.submodule_search_locations) if package else []
    return [p for folder in folders for p in sorted(Path(folder).glob(pattern))]


def cublaslt():
    """Of the generation that the toolkit's headers have, or 13."""
    home = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
    headers = [*home.glob("include/cublas_api.h"), *packaged("*/include/cublas_api.h")]
    found = re.search(r"define CUBLAS_VER_MAJOR (\d+)", headers[0].read_text() if headers else "")
    name = f"libcublasLt.so.{found.group(1) if found else 13}"
    try:
        ctypes.CDLL(name)
    except OSError:
        if not any((Path(f) / name).exists() for f in (home / "lib64", "/usr/local/cuda/lib64")):
            print(*packaged(f"*/lib/{name}")[:1])


def headers():
    if not Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "include/cublasLt.h").exists():
        print(*[p.parent for p in packaged("*/include/cublasLt.h")[:1]])


def cudnn():
    """A folder of libraries, not a file: cuDNN loads parts of itself, and NVRTC, by their names."""
    homes = [os.environ.get("CUDA_HOME", "/usr/local/cuda"), "/usr/local/cuda"]
    try:
        ctypes.CDLL("libcudnn.so.9")
    except OSError:
        if not any(Path(home, folder, "libcudnn.so.9").exists() for home in homes for folder in ("lib64", "lib")):
            parts = packaged("cudnn/lib/libcudnn.so.9") and [
                *packaged("cudnn/lib/libcudnn.so.9"), *packaged("*/lib/libnvrtc.so.*"), *packaged("*/lib/libcublasLt.so.*")]
            print(":".join(dict.fromkeys(str(p.parent) for p in parts)))


def nccl():
    try:
        ctypes.CDLL("libnccl.so.2")
    except OSError:
        if not any((Path(f) / "libnccl.so.2").exists() for f in (os.environ.get("CUDA_HOME", "/usr/local/cuda") + "/lib64", "/usr/local/cuda/lib64")):
            print(*packaged("nccl/lib/libnccl.so.2")[:1])


if __name__ == "__main__":
    parts = (prepare, warm, speed, kernels, report, cublaslt, headers, cudnn, nccl)
    {f.__name__: f for f in parts}[sys.argv[1]](*sys.argv[2:])
