# SPDX-License-Identifier: Apache-2.0
"""The measured processes of a comparison: Stepgraph's command and PyTorch, each in a process of its own, and their environment."""
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass

import workloads

HERE = os.path.dirname(os.path.abspath(__file__))
AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2", "DNNL_MAX_CPU_ISA": "AVX2", "OPENBLAS_CORETYPE": "Haswell"}
# Huge pages, nothing by mmap, nothing given back: PyTorch's tensors come from a warm heap.
TUNED_MALLOC = "glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=17179869184:glibc.malloc.top_pad=67108864"


@dataclass(frozen=True)
class Side:
    name: str
    ours: bool
    precision: str  # f32, bf16; of the rival also f64
    compiled: bool = False
    tuned_malloc: bool = False


def sides_of(workload, arguments):
    """In the order of a round. The first is the one that the others are compared with."""
    sides = [Side("ours", True, workload.precision)]
    if workload.precision != "f32":
        sides.append(Side("ours f32", True, "f32"))
    mallocs = {"default": [False], "tuned": [True], "both": [False, True]}[arguments.malloc]
    for compiled in (False, True):
        for tuned in mallocs:
            name = ("compile" if compiled else "eager") + (" tuned malloc" if tuned else "")
            if name.split()[0] not in arguments.without:
                sides.append(Side(name, False, workload.precision, compiled, tuned))
    return sides


def environment(arguments, extra=()):
    result = dict(os.environ)
    for key in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        result[key] = str(arguments.threads)
    if not arguments.unrestricted:
        result.update(AVX2)
    result["PYTHONPATH"] = HERE
    result["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(arguments.work, "inductor")  # empty at first: the first round compiles cold
    result["STEPGRAPH_CACHE"] = "off"  # and we in each
    result.update(extra)
    return result


def failed(what, code, text):
    lines = text.strip().splitlines() or ["it printed nothing"]
    return RuntimeError(f"{what} ended with {code}: " + " / ".join(lines[-4:]))


def status_bytes(pid, key):
    """VmRSS or VmHWM; 0 when the process has ended."""
    try:
        with open(f"/proc/{pid}/status") as status:
            return next((int(line.split()[1]) * 1024 for line in status if line.startswith(key + ":")), 0)
    except (FileNotFoundError, ProcessLookupError):
        return 0


def run_watched(command, folder, env, seconds):
    """Standard output as text, resident bytes soon after the start, and the largest seen.

    Output goes to a file and is read at the end, and memory is looked at a few times a second: who reads along takes time from one of two cores. The usage
    that wait4 tells is no help: on Linux it begins with the size of the process that started this one.
    """
    with open(os.path.join(folder, "stdout"), "w+") as out, open(os.path.join(folder, "stderr"), "w+") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, env=env)
        start = status_bytes(process.pid, "VmRSS")
        peak, end = start, time.monotonic() + seconds
        while process.poll() is None:
            peak = max(peak, status_bytes(process.pid, "VmHWM"))
            if time.monotonic() > end:
                process.kill()
                process.wait()
                raise RuntimeError(f"{command[0]}: no end within {seconds} s")
            time.sleep(0.005 if time.monotonic() < end - seconds + 0.5 else 0.1)
        out.seek(0)
        err.seek(0)
        if process.returncode != 0:
            raise failed(command[0], process.returncode, err.read())
        return out.read(), start, peak


def train_command(name, side, folder, steps, arguments):
    workload = workloads.WORKLOADS[name]
    via = via_of(workload, arguments)
    path = os.path.join(folder, f"job-{side.precision}.toml")
    with open(path, "w") as file:
        file.write(workloads.job(workload, workload.at(arguments.scale), via, side.precision, folder, steps))
    command = [arguments.stepgraph, "train", "--config", path, "--json"]
    if via == "zoo":
        command += ["--weights", os.path.join(folder, "init.safetensors")]
    if not arguments.plain_command:
        command += ["--backend", arguments.backend, "--threads", str(arguments.threads)]
        if arguments.tuning:
            command += ["--tuning", arguments.tuning]
        if arguments.flush_denormals:
            command += ["--flush-denormals"]
    return command + arguments.train_flag


def run_ours(name, side, folder, steps, arguments):
    text, start, peak = run_watched(train_command(name, side, folder, steps, arguments), folder, environment(arguments), arguments.seconds)
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    made, last = [line for line in lines if "loss" in line and "step" in line], lines[-1]
    if len(made) != steps:
        raise RuntimeError(f"{name}: Stepgraph made {len(made)} steps, wanted {steps}")
    batch = workloads.WORKLOADS[name].at(arguments.scale)["batch"]
    return {
        # The command of today tells a rate only, made of whole microseconds.
        "milliseconds": [line["elapsed_ms"] if "elapsed_ms" in line else 1000 * batch / line["samples_per_s"] for line in made],
        "losses": [line["loss"] for line in made[:16]], "rss_start": last.get("rss_before_state_bytes", start), "rss_peak": max(peak, last.get("rss_peak_bytes", 0)),
        "rounded": "elapsed_ms" not in made[0], "compile_seconds": last["compile"]["ms"] / 1000 if "compile" in last else None}


def run_rival(name, side, folder, steps, arguments):
    command = [
        sys.executable, os.path.join(HERE, "rival.py"), "--workload", name, "--scale", arguments.scale, "--folder", folder, "--steps", str(steps), "--threads",
        str(arguments.threads)]
    command += ["--double"] if side.precision == "f64" else ["--precision", side.precision]
    command += ["--compile"] * side.compiled + ["--flush-denormals"] * arguments.flush_denormals
    extra = {"GLIBC_TUNABLES": TUNED_MALLOC} if side.tuned_malloc else {}
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment(arguments, extra), timeout=arguments.seconds)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{name}, {side.name}: no end within {arguments.seconds} s")
    if done.returncode != 0:
        raise failed(f"{name}, {side.name}", done.returncode, done.stderr)
    result = json.loads(done.stdout.strip().splitlines()[-1])
    if side.compiled:
        result["compile_seconds"] = result["milliseconds"][0] / 1000
    return result


def run(name, side, folder, steps, arguments):
    return (run_ours if side.ours else run_rival)(name, side, folder, steps, arguments)


def via_of(workload, arguments):
    if arguments.via == "zoo" and workloads.zoo_model(workload.family, workload.at(arguments.scale)) is None:
        raise RuntimeError(f"--via zoo: no model of the zoo is equal ({workload.notes})")
    return arguments.via or workload.via


def prepare(name, folder, arguments):
    via = via_of(workloads.WORKLOADS[name], arguments)
    command = [sys.executable, os.path.join(HERE, "models.py"), name, arguments.scale, folder, via]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(arguments))
    if done.returncode != 0:
        raise failed(f"{name}: preparing", done.returncode, done.stderr)
    return json.loads(done.stdout.strip().splitlines()[-1])
