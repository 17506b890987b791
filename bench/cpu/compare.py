#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the same models with Stepgraph and with PyTorch's CPU engine, eager and torch.compile, in one run: same weights, batches, threads, types.
Prints times, ratios, memory and how far the step is from the floor of the machine.

    python bench/cpu/compare.py [--stepgraph build/release/bin/stepgraph] [--rounds 3] [--json FILE] [WORKLOAD ...]

README.md beside this file says what the columns mean and what to mind. Needs PyTorch, torchvision, numpy and safetensors (about 5 GB): an extra, never part
of the tests. Exit code 1 if the losses of a workload do not agree, or a side failed.
"""
import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import floor  # noqa: E402
import sides as sides_module  # noqa: E402
import workloads as workloads_module  # noqa: E402
from workloads import WORKLOADS  # noqa: E402

CHECKED_STEPS = 5
TOLERANCE = {"f32": 1e-4, "bf16": 1e-3}  # relative; products of bf16 are rounded in another order on each side
SHAKY = 0.1  # spread of the minima of rounds
BUSY = 0.5  # load of a machine that something else works on
ROUNDING = 4  # times PyTorch's own distance from f64 are allowed where that is more


def say(text):
    print(time.strftime("%H:%M:%S ") + text, file=sys.stderr, flush=True)


def summary(runs, warmup):
    """Of the processes of one side, a round each."""
    rounds = [run["milliseconds"][warmup:] for run in runs]
    least = [min(steps) for steps in rounds]
    every = [step for steps in rounds for step in steps]
    return {
        "min_ms": min(least), "median_ms": statistics.median(every), "round_min_ms": least, "round_median_ms": [statistics.median(steps) for steps in rounds],
        "spread": max(least) / min(least) - 1, "growth_mib": max(run["rss_peak"] - run["rss_start"] for run in runs) / 2**20,
        "peak_mib": max(run["rss_peak"] for run in runs) / 2**20, "compile_seconds": runs[0].get("compile_seconds"), "losses": runs[0]["losses"],
        "rounded": any(run.get("rounded", False) for run in runs)}


def loss_check(row, workload, folder, arguments):
    """How far the first losses are from the rivals', and whether that is rounding.

    AdamW makes a whole step of a gradient that is all rounding, and batch norm enlarges it: a convolutional network leaves its own f64 by more than 1e-4 within
    five steps. So where losses differ by more, PyTorch is asked in f64, and its own f32 says how far rounding leads.
    """
    ours = row["sides"]["ours"]["losses"][:CHECKED_STEPS]
    others = [side["losses"][:CHECKED_STEPS] for name, side in row["sides"].items() if not name.startswith("ours")]
    differences = [max(abs(other[i] - loss) / abs(other[i]) for other in others) for i, loss in enumerate(ours)] if others else []
    check = {"differences": differences, "tolerance": TOLERANCE[workload.precision], "steps": len(ours)}
    check["agree"] = all(difference <= check["tolerance"] for difference in differences) if others else None  # one that is not a number is not
    if check["agree"] is False and workload.precision == "f32":
        say(f"{row['workload']}: losses differ, asking PyTorch in f64")
        exact = sides_module.run(row["workload"], sides_module.Side("f64", False, "f64"), folder, len(ours), arguments)["losses"]
        distance = lambda losses, i: abs(losses[i] - exact[i]) / abs(exact[i])
        check["from_f64"] = [distance(ours, i) for i in range(len(ours))]
        check["rivals_from_f64"] = [max(distance(other, i) for other in others) for i in range(len(ours))]
        allowed = [max(check["tolerance"], ROUNDING * max(check["rivals_from_f64"][: i + 1])) for i in range(len(ours))]
        check["agree"] = all(own <= most for own, most in zip(check["from_f64"], allowed))
    return check


def verdict(value, goal, larger_is_better=True):
    if value is None or goal is None:
        return None
    reached = (lambda wanted: value >= wanted) if larger_is_better else (lambda wanted: value <= wanted)
    return "goal" if reached(goal.goal) else "accepted" if reached(goal.accepted) else "missed"


def ratios(summaries, against):
    """Of minima, of medians, and of each round's minima: the best of the others over ours."""
    best = min(against, key=lambda name: summaries[name]["min_ms"])
    ours = summaries["ours"]
    paired = [min(summaries[name]["round_min_ms"][i] for name in against) / own for i, own in enumerate(ours["round_min_ms"])]
    return {
        "against": best, "ratio": summaries[best]["min_ms"] / ours["min_ms"],
        "of_medians": min(summaries[name]["median_ms"] for name in against) / ours["median_ms"], "paired": paired}


def measure(name, arguments):
    workload = WORKLOADS[name]
    folder = os.path.join(arguments.work, name)
    os.makedirs(folder, exist_ok=True)
    row = {"workload": name, **sides_module.prepare(name, folder, arguments), "via": sides_module.via_of(workload, arguments)}
    warmup, steps = workload.warmup, workload.warmup + workload.steps
    if arguments.scale == "small":
        warmup, steps = 2, 8
    if arguments.steps:
        steps = arguments.steps
        warmup = min(warmup, steps - 1)
    runs, floors = {}, []
    for number in range(arguments.rounds):
        for side in sides_module.sides_of(workload, arguments):
            say(f"{name}: round {number + 1} of {arguments.rounds}, {side.name}, {steps} steps")
            runs.setdefault(side.name, []).append(sides_module.run(name, side, folder, steps, arguments))
        if workload.precision == "f32" and not arguments.no_floor:
            say(f"{name}: round {number + 1} of {arguments.rounds}, floor")
            floors.append(floor.measure(workload.family, workload.at(arguments.scale), row["parameters"], arguments))
    row["steps"], row["warmup"] = steps, warmup
    row["sides"] = {side: summary(of, warmup) for side, of in runs.items()}
    row["losses"] = loss_check(row, workload, folder, arguments)
    if row["losses"]["agree"] is not False:
        judge(row, workload, floors, arguments)
    return row


def judge(row, workload, floors, arguments):
    rivals = [side for side in row["sides"] if not side.startswith("ours")]
    if rivals:
        row["to_pytorch"] = ratios(row["sides"], rivals)
    # A bf16 step on a processor without bf16 products is measured by our own f32: the rival's is no yardstick there.
    row["result"] = ratios(row["sides"], ["ours f32"]) if workload.precision != "f32" else row.get("to_pytorch")
    judged = arguments.scale == "full" and row["losses"]["agree"]  # without a rival nothing was compared
    row["verdict"] = verdict(row["result"]["ratio"], workload.ratio) if judged and row["result"] else None
    if floors:
        row["floor"] = floor.judge(floors, row["sides"]["ours"]["min_ms"])
        row["floor"]["verdict"] = verdict(row["floor"]["step_over_floor"], workload.floor, larger_is_better=False) if judged else None


def number(value, digits=3):
    """Three digits that count."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.{digits}g}"


def table(title, columns, rows):
    print(f"\n{title}\n\n| " + " | ".join(columns) + " |\n|---" + "|---" * (len(columns) - 1) + "|")
    for row in rows:
        print("| " + " | ".join(row) + " |")


def goal_text(goal):
    return f"{goal.accepted:g} / {goal.goal:g}" if goal else "–"


def time_cells(row):
    def cell(name):
        side = row["sides"].get(name)
        return "–" if side is None else f"{number(side['min_ms'])} / {number(side['median_ms'])} ± {100 * side['spread']:.0f} %"

    eager = [name for name in row["sides"] if name.startswith("eager")]
    compiled = [name for name in row["sides"] if name.startswith("compile")]
    best = lambda names: min(names, key=lambda name: row["sides"][name]["min_ms"]) if names else ""
    result = row.get("result")
    ratio, paired, medians = "no ratio", "–", "–"
    if result:
        ratio = f"{number(result['ratio'])} ({result['against']})"
        paired, medians = f"{number(min(result['paired']))} to {number(max(result['paired']))}", number(result["of_medians"])
    goal = WORKLOADS[row["workload"]].ratio
    return [row["workload"], cell("ours"), cell(best(eager)), cell(best(compiled)), ratio, paired, medians, goal_text(goal), row.get("verdict") or "–"]


def memory_cells(row):
    growth = lambda name: number(row["sides"][name]["growth_mib"]) if name in row["sides"] else "–"
    seconds = lambda name: number(row["sides"][name]["compile_seconds"]) if name in row["sides"] else "–"
    other = next((name for name in row["sides"] if name.startswith("eager")), "")
    third = next((name for name in row["sides"] if name.startswith("compile")), "")
    return [row["workload"], f"{row['parameters']:,}", row["via"], growth("ours"), growth(other), growth(third), seconds("ours"), seconds(third)]


def loss_cells(row):
    losses = lambda name: " ".join(f"{loss:.6f}" for loss in row["sides"][name]["losses"][:CHECKED_STEPS]) if name in row["sides"] else "–"
    rivals = [name for name in row["sides"] if not name.startswith("ours")]
    check = row["losses"]
    text = "–" if not check["differences"] else f"{max(check['differences']):.1e}"
    if "from_f64" in check:
        text += f" (from f64: ours {max(check['from_f64']):.1e}, PyTorch's {max(check['rivals_from_f64']):.1e})"
    return [row["workload"], losses("ours"), losses(rivals[0] if rivals else ""), text, {True: "yes", False: "NO", None: "not compared"}[check["agree"]]]


def floor_cells(row):
    f = row["floor"]
    rest = ", ".join(f"{name} {number(ms)}" for name, ms in sorted(f["passes_ms"].items(), key=lambda item: -item[1]))
    return [
        row["workload"], number(f["floor_ms"]), number(f["step_over_floor"]), goal_text(WORKLOADS[row["workload"]].floor), f["verdict"] or "–",
        f"{100 * f['library_share']:.0f} %", number(f["products_ms"]), number(f["attention_ms"]), rest, number(f["unexplained_ms"])]


def report(rows):
    print("Times in ms a step, minimum / median ± how far the minima of the rounds lie apart.")
    table("## Steps", ["workload", "ours", "eager", "torch.compile", "ratio (best of)", "paired", "of medians", "accepted / goal", "so"], map(time_cells, rows))
    table("## Memory and compilation", ["workload", "parameters", "via", "growth MiB: ours", "eager", "compile", "compile s: ours", "torch.compile"],
          map(memory_cells, rows))
    table(f"## Losses of the first {CHECKED_STEPS} steps", ["workload", "ours", "PyTorch", "largest relative difference", "agree"], map(loss_cells, rows))
    with_floor = [row for row in rows if "floor" in row]
    if with_floor:
        table("## Floor", ["workload", "floor", "step / floor", "accepted / goal", "so", "share of our step at library rate", "products, convolutions", "attention",
                           "passes", "beyond the floor"], map(floor_cells, with_floor))
    shaky = [row["workload"] for row in rows if max(side["spread"] for side in row["sides"].values()) > SHAKY]
    if shaky:
        print(f"\nRounds lie more than {100 * SHAKY:.0f} % apart, so the ratio is not certain: {', '.join(shaky)}.")
    if any(row["sides"]["ours"]["rounded"] for row in rows):
        print("\nOur times are made of samples_per_s, whole microseconds: too coarse below 0.1 ms.")


def machine(arguments):
    with open("/proc/cpuinfo") as file:
        model = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), platform.processor())
    version = subprocess.run([arguments.stepgraph, "version"], capture_output=True, text=True).stdout.strip()
    return {"processor": model, "cores": os.cpu_count(), "system": platform.platform(), "stepgraph": version, "load": os.getloadavg()[0]}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help="default: all of " + ", ".join(WORKLOADS))
    parser.add_argument("--stepgraph", default="build/release/bin/stepgraph")
    parser.add_argument("--rounds", type=int, default=3, help="each side in a process of its own, in turn")
    parser.add_argument("--steps", type=int, help="of a process, warm-up included; default: by the workload")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--scale", choices=["full", "small"], default="full", help="small: tiny sizes, to check the harness itself")
    parser.add_argument("--via", choices=["zoo", "pt2"], help="what Stepgraph trains: a model of the zoo, or the exported program; default: by the workload")
    parser.add_argument("--unrestricted", action="store_true", help="all instructions of the processor; default: both sides stop at AVX2")
    parser.add_argument("--malloc", choices=["default", "tuned", "both"], default="default", help="of PyTorch's processes")
    parser.add_argument("--without", action="append", default=[], choices=["eager", "compile"], help="leave a rival out; may be repeated")
    parser.add_argument("--backend", default="full", help="of our command")
    parser.add_argument("--tuning", help="file with a record of tuning for our command; default: none, the rule by shape chooses")
    parser.add_argument("--flush-denormals", action="store_true", help="on both sides")
    parser.add_argument("--plain-command", action="store_true", help="our command without --backend, --threads, --tuning and --flush-denormals")
    parser.add_argument("--train-flag", action="append", default=[], metavar="FLAG", help="one more word for `stepgraph train`, e.g. --train-flag=--skip=cse")
    parser.add_argument("--no-floor", action="store_true")
    parser.add_argument("--seconds", type=float, default=1800, help="limit of one process")
    parser.add_argument("--work", help="folder for jobs, weights and batches, which stay; default: a temporary one")
    parser.add_argument("--json", metavar="FILE", help="everything that was measured")
    arguments = parser.parse_args()
    unknown = set(arguments.workloads) - set(WORKLOADS)
    if unknown:
        parser.error(f"no workload {', '.join(sorted(unknown))}; there are {', '.join(WORKLOADS)}")
    if not shutil.which(arguments.stepgraph):
        parser.error(f"{arguments.stepgraph}: no such program; build it, or name it by --stepgraph")
    if arguments.rounds < 1 or arguments.threads < 1 or (arguments.steps is not None and arguments.steps < 1):
        parser.error("--rounds, --threads and --steps are at least 1")
    return arguments


def main():
    arguments = parse()
    arguments.workloads = arguments.workloads or list(WORKLOADS)
    keep = arguments.work is not None
    arguments.work = os.path.abspath(arguments.work) if keep else tempfile.mkdtemp(prefix="stepgraph-compare-")
    rows, failures = [], []
    try:
        about = machine(arguments)
        for name in arguments.workloads:
            try:
                rows.append(measure(name, arguments))
            except RuntimeError as error:
                failures.append({"workload": name, "error": str(error)})
                say(str(error))
    finally:
        if not keep:
            shutil.rmtree(arguments.work, ignore_errors=True)
    settings = {key: value for key, value in vars(arguments).items() if key not in ("json", "work")}
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"machine": about, "settings": settings, "workloads": rows, "failures": failures}, file, indent=1)
    print(f"{about['processor']}, {arguments.threads} threads, {'all instructions' if arguments.unrestricted else 'AVX2'}, scale {arguments.scale}, "
          f"load {about['load']:.1f} at the start, {about['stepgraph']}")
    if about["load"] > BUSY:
        print("The machine was busy: no time below means anything. PyTorch's threads wait for each other, and lose several times over when one has no core.")
    if rows:
        report(rows)
    for failure in failures:
        print(f"\nFAILED {failure['workload']}: {failure['error']}")
    return 0 if not failures and all(row["losses"]["agree"] is not False for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
