# SPDX-License-Identifier: Apache-2.0
"""The floor of a workload on this machine, measured: the best library time of each product and convolution of its step (hot), attention at the rate of the
products, and the passes over elements at the measured cost of each.

    python bench/cpu/floor.py WORKLOAD [--scale full] [--threads 2] [--unrestricted]     prints the parts
"""
import argparse
import json
import os
import subprocess
import sys
import time

import products

HERE = os.path.dirname(os.path.abspath(__file__))
SECONDS, LEAST_CALLS, MOST_CALLS = 0.12, 3, 200  # of one measurement
GRADIENT_FREE = 24 / 28  # of AdamW's bytes: a gradient that is used where it is made is never stored


def timed(call):
    """Least milliseconds of a call, by groups of calls that last long enough for the clock."""
    call()
    start = time.perf_counter_ns()
    call()
    once = time.perf_counter_ns() - start
    group = max(1, min(1000, 20_000 // max(once, 1)))
    best, end, groups = float("inf"), time.perf_counter() + SECONDS, 0
    while groups < LEAST_CALLS or (time.perf_counter() < end and groups < MOST_CALLS):
        start = time.perf_counter_ns()
        for _ in range(group):
            call()
        best = min(best, (time.perf_counter_ns() - start) / group)
        groups += 1
    return best / 1e6


def orientations(form, m, n, k):
    """A weight may live as [out, in] or [in, out]: the better one counts."""
    if form == "weight":
        return (m, n, k, True, False), (n, m, k, True, False)
    return (m, n, k, False, True), (m, n, k, False, False)


def worker(name):
    """In a process of its own, so that each library's threads are alone: reads what to measure from standard input, prints milliseconds."""
    import libraries

    asked = json.load(sys.stdin)
    library = libraries.LIBRARIES[name](asked["threads"])
    overhead = timed(library.product(1, 1, 1, False, False))
    result = {"name": library.name, "products": [], "convolutions": [], "passes": {}}
    for key in asked["products"]:
        whole = min(timed(library.product(*how)) for how in orientations(*key))
        result["products"].append(max(whole - overhead, whole / 2))  # a tiny one is mostly the way from Python to the library
    if hasattr(library, "convolution"):
        result["convolutions"] = [timed(library.convolution(*key)) for key in asked["convolutions"]]
    if hasattr(library, "passes"):
        result["passes"] = {what: 1e6 * timed(call) / elements for what, (call, elements) in library.passes().items()}  # ns an element
    print(json.dumps(result))


def openblas_core():
    """OpenBLAS of Debian does not know newer processors and then takes the slowest of its kernels: the core is named for it."""
    with open("/proc/cpuinfo") as file:
        flags = next((line.split() for line in file if line.startswith("flags")), [])
    return {"OPENBLAS_CORETYPE": "SkylakeX" if "avx512f" in flags else "Haswell"} if "avx2" in flags else {}


def measure(family, sizes, parameters, arguments):
    """One round. A library that is not on this machine is left out, and said to be."""
    from sides import environment

    work = products.work_of(family, sizes, parameters)
    asked = {"threads": arguments.threads, "products": list(work.products), "convolutions": list(work.convolutions)}
    result = {"work": work, "libraries": {}, "missing": {}}
    for name in ("torch", "openblas", "onednn"):
        done = subprocess.run([sys.executable, os.path.abspath(__file__), "--worker", name], input=json.dumps(asked), capture_output=True, text=True,
                              env=environment(arguments, openblas_core() if arguments.unrestricted else {}))
        if done.returncode == 0:
            result["libraries"][name] = json.loads(done.stdout.strip().splitlines()[-1])
        else:
            result["missing"][name] = (done.stderr.strip().splitlines() or ["?"])[-1]
    if "torch" not in result["libraries"]:
        raise RuntimeError("floor: " + result["missing"]["torch"])
    return result


def least(rounds, part, keys):
    """Key -> (milliseconds, library), the least of all rounds and libraries."""
    best = {}
    for measured in rounds:
        for name, library in measured["libraries"].items():
            for key, milliseconds in zip(keys, library[part]):
                best[key] = min(best.get(key, (float("inf"), "")), (milliseconds, name))
    return best


def last_level_cache():
    try:
        with open("/sys/devices/system/cpu/cpu0/cache/index3/size") as file:
            return int(file.read().strip().rstrip("K")) * 1024
    except (OSError, ValueError):
        return 32 << 20


def costs(rounds, parameters):
    """ns an element of each pass."""
    measured = [library["passes"] for one in rounds for library in one["libraries"].values() if library["passes"]]
    best = {what: min(passes[what] for passes in measured) for what in measured[0]}
    # One exponential each way and some multiplications, if that is less than what the library's own pair of passes needs.
    for what in ("gelu tanh", "gelu exact", "gates"):
        best[what] = min(best[what], 2 * best["exp"] + 2 * best["relu"])
    in_memory = 16 * parameters > last_level_cache()
    best["adamw"] = best["adamw in memory"] * GRADIENT_FREE if in_memory else best["adamw in cache"]
    return best


def judge(rounds, step_ms=None):
    work = rounds[0]["work"]
    best = {**least(rounds, "products", work.products), **least(rounds, "convolutions", work.convolutions)}
    counts = {**work.products, **work.convolutions}
    flop = {**{key: products.product_flop(key) for key in work.products}, **{key: products.convolution_flop(key) for key in work.convolutions}}
    products_ms = sum(best[key][0] * count for key, count in counts.items())
    rate = sum(flop[key] * count for key, count in counts.items()) / products_ms / 1e6  # GFLOP/s
    attention_ms = work.attention_flop / rate / 1e6
    cost = costs(rounds, work.elements["adamw"])
    passes_ms = {what: elements * cost[what] / 1e6 for what, elements in work.elements.items()}
    floor_ms = products_ms + attention_ms + sum(passes_ms.values())
    result = {
        "floor_ms": floor_ms, "products_ms": products_ms, "gflop_per_second": rate, "attention_ms": attention_ms, "passes_ms": passes_ms,
        "ns_an_element": cost, "libraries": {name: library["name"] for name, library in rounds[0]["libraries"].items()}, "missing": rounds[0]["missing"],
        "each": [{"what": list(key), "count": count, "ms": best[key][0], "library": best[key][1], "gflop_per_second": flop[key] / best[key][0] / 1e6}
                 for key, count in counts.items()]}
    if step_ms is not None:
        result.update(step_over_floor=step_ms / floor_ms, library_share=(products_ms + attention_ms) / step_ms, unexplained_ms=step_ms - floor_ms)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", nargs="?")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--scale", choices=["full", "small"], default="full")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--parameters", type=int, help="default: as many as the products have")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--unrestricted", action="store_true")
    arguments = parser.parse_args()
    if arguments.worker:
        return worker(arguments.worker)
    from workloads import WORKLOADS

    if arguments.workload not in WORKLOADS:
        parser.error(f"wanted a workload of {', '.join(WORKLOADS)}")
    arguments.work = "/nonexistent"  # nothing is compiled here
    workload = WORKLOADS[arguments.workload]
    sizes = workload.at(arguments.scale)
    work = products.work_of(workload.family, sizes, 0)
    weights = sum(m * n * count for (form, m, n, _), count in work.products.items() if form == "weight")
    weights += sum(key[2] * key[4] * key[5] ** 2 * count for key, count in work.convolutions.items() if key[0] == "weights")
    found = judge([measure(workload.family, sizes, arguments.parameters or weights, arguments) for _ in range(arguments.rounds)])
    for row in found["each"]:
        print(f"{' '.join(map(str, row['what'])):40} x {row['count']:<4} {row['ms']:9.4f} ms  {row['gflop_per_second']:6.0f} GFLOP/s  {row['library']}")
    for what, milliseconds in found["passes_ms"].items():
        print(f"{what:40}        {milliseconds:9.4f} ms  {found['ns_an_element'][what]:6.2f} ns an element")
    print(f"products and convolutions {found['products_ms']:.4g} ms at {found['gflop_per_second']:.0f} GFLOP/s, attention {found['attention_ms']:.4g} ms, "
          f"floor {found['floor_ms']:.4g} ms; " + ", ".join(found["libraries"].values()))
    for name, why in found["missing"].items():
        print(f"without {name}: {why}")


if __name__ == "__main__":
    sys.exit(main())
