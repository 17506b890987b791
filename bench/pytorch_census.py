#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exports models of many families from PyTorch with small random configurations, records loss, gradients and five optimizer steps, and checks each with
`stepgraph check`. Prints a table: model x {export, import, loss, gradients, 5 steps, another batch}.

    python bench/pytorch_census.py [--stepgraph build/release/bin/stepgraph] [--folder build/census] [--list] [NAME or PREFIX* ...]

The models are in bench/census/, a file a family. Needs PyTorch, torchvision, transformers and timm (about 5 GB): an extra, never part of the tests.
Dropout is off: random numbers differ by design. Exit code 1 if something that PyTorch exported does not agree, or is not refused where it should be.
"""
import argparse
import fnmatch
import importlib
import json
import os
import pkgutil
import shutil
import subprocess
import sys
import traceback
import warnings

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "scripts")]
import census  # noqa: E402
import record  # noqa: E402
from census.common import MODELS, Case  # noqa: E402

COLUMNS = {"loss": ("loss",), "gradients": ("grad",), "5 steps": ("losses", "after"), "another batch": ("alt",)}
for part in sorted(module.name for module in pkgutil.iter_modules(census.__path__)):
    importlib.import_module("census." + part)


def check(command, folder, seconds):
    """Column -> "ok" or what is wrong; and tensor -> (difference, what is allowed), of the tensors that are off."""
    try:
        done = subprocess.run([command, "check", folder, "--json"], capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return {"import": f"no end within {seconds} s"}, {}
    if done.returncode not in (0, 1):
        lines = done.stderr.strip().splitlines() or [f"ended with {done.returncode}"]
        return {"import": " ".join(line.strip() for line in lines)[:300].replace("|", "/")}, {}
    report = json.loads(done.stdout.strip().split("\n")[-1])
    found = {"import": "ok"}
    for column, prefixes in COLUMNS.items():
        rows = [row for row in report["rows"] if row["tensor"].split(" ")[0].split(".")[0] in prefixes]
        bad = [row for row in rows if not row["ok"]]
        worst = max(bad, key=lambda row: row.get("max_abs") or 0, default=None)
        found[column] = "" if not rows else "ok" if not bad else f"{len(bad)} of {len(rows)} off: {worst['tensor']} by {worst.get('max_abs') or worst['rms']:.1e}"
    return found, {row["tensor"].split(" ")[0]: (row.get("max_abs") or row["rms"], row["allowed"]) for row in report["rows"] if not row["ok"]}


# Numbers that float32 holds exactly: a learning rate is a float32 scalar of the step, and in float64 its rounding would grow over five steps of a chaotic model.
SGD = ("SGD", {"lr": 2.0**-7, "momentum": 0.875})


def record_case(folder, case, float64):
    # SGD: a step does not turn the rounding noise of a zero gradient into a whole step, as AdamW's does.
    record.record(folder, case.net, case.inputs, case.alt, case.dynamic, case.optimizer or SGD, core=False, float64=float64,
                  anyway=True)
    loosen(folder, case.loose * (1 if float64 else 10))  # without float64 the tolerances are floors


def loosen(folder, factor):
    path = os.path.join(os.path.dirname(folder), "manifest.json")
    with open(path) as file:
        manifest = json.load(file)
    for group in manifest["samples"][0]["tolerance"].values():
        group.update({name: value * factor for name, value in group.items() if name.startswith("suggest_")})
    with open(path, "w") as file:
        json.dump(manifest, file)


def recorded(name, folder, arguments, double):
    """The case, recorded in the folder; in float64 if `double`."""
    shutil.rmtree(os.path.dirname(folder), ignore_errors=True)
    torch.manual_seed(arguments.seed)
    case = MODELS[name]()
    case = case if isinstance(case, Case) else Case(*case)
    if double:
        case.net.double()
        case.inputs, case.alt = record.in_float64(case.inputs), record.in_float64(case.alt)
    try:
        record_case(folder, case, case.float64)
    except Exception:  # a model that makes f32 tensors of its own does not run in f64: tolerances are the floors then
        if not case.float64 or os.path.exists(os.path.join(folder, "data.safetensors")) or not os.path.exists(os.path.join(folder, "model.pt2")):
            raise
        record_case(folder, case, False)
    return case


def own_distances(case, steps=5, trials=3):
    """Tensor -> the largest difference in PyTorch between training from the case's weights and from weights times 1 + 1e-14 u, u uniform in [-1, 1]: some units of
    the last place, as another order of summation gives."""
    kind, options = case.optimizer or SGD
    options = {**record.DEFAULTS[kind], **options}
    first, distances = record.run(case.net, case.inputs, None, kind, options, steps), {}
    for trial in range(trials):
        generator, net = torch.Generator().manual_seed(trial), record.copied(case.net)
        with torch.no_grad():
            for parameter in record.unique_parameters(net)[0].values():
                parameter.mul_(1 + 1e-14 * (2 * torch.rand(parameter.shape, generator=generator, dtype=torch.float64) - 1))
        for name, tensor in record.run(net, case.inputs, None, kind, options, steps).items():
            apart = (tensor.double() - first[name].double()).abs().max().item() if tensor.numel() else 0.0
            distances[name] = max(distances.get(name, 0.0), apart)
    return distances


def is_chaotic(case, off):
    """Whether PyTorch, from weights that differ in their last bits, ends as far beyond what is allowed as we do: then no engine can agree after these steps. By the
    worst tensor of each: a kink that is crossed or not moves some tensors far and others little."""
    distances = own_distances(case)
    # A row may be a group's: then that of its tensors that is farthest.
    own = {name: max((d for tensor, d in distances.items() if tensor == name or tensor.startswith(name + ".")), default=0.0) / allowed
           for name, (_, allowed) in off.items()}
    ours = {name: found / allowed for name, (found, allowed) in off.items()}
    worst, worst_own = max(ours, key=ours.get), max(own, key=own.get)
    print(f"# {len(off)} off: {worst} by {ours[worst]:.3g} times what is allowed, PyTorch from itself {worst_own} by {own[worst_own]:.3g}", file=sys.stderr, flush=True)
    return ours[worst] <= 10 * own[worst_own]


def first_line(error):
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:100]}".replace("|", "/")


def one(name, arguments):
    """The cells of a model's row, and whether they are as they should be."""
    folder = os.path.join(arguments.folder, name, name)  # each with a manifest of its own
    try:
        case = recorded(name, folder, arguments, arguments.double)
    except Exception as error:  # the exporter's own limits are part of the table
        if arguments.trace:
            traceback.print_exc()
        return {"export": first_line(error)}, True
    found, off = check(arguments.stepgraph, folder, arguments.seconds)
    if case.refused:
        right = case.refused in found["import"]
        found = {"import": "refused: " + case.refused if right else f"not refused with '{case.refused}': {found['import']}"}
    else:
        right = all(cell in ("ok", "") for cell in found.values())
    if not right and found["import"] == "ok" and not arguments.double:
        # A value beside a kink (ReLU, maximum) rounds to the one side or the other: in float64 it does not.
        try:
            case = recorded(name, folder, arguments, True)
            precise, off = check(arguments.stepgraph, folder, arguments.seconds)
            bad = [column for column, cell in precise.items() if cell not in ("ok", "")]
            word = "ok in float64"
            if bad == ["5 steps"] and is_chaotic(case, off):
                bad, word = [], "chaotic: PyTorch from itself as far"
            if not bad:
                found, right = {column: cell if cell in ("ok", "") else word for column, cell in found.items()}, True
        except Exception as error:
            found["import"] += f" (float64: {first_line(error)})"
    if not arguments.keep:
        shutil.rmtree(os.path.dirname(folder))
    return {"export": "ok", **found}, right


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="models or patterns; default: all")
    parser.add_argument("--stepgraph", default="build/release/bin/stepgraph")
    parser.add_argument("--folder", default="build/census")
    parser.add_argument("--seconds", type=int, default=300, help="limit of one check")
    parser.add_argument("--seed", type=int, default=1, help="of weights and batches")
    parser.add_argument("--double", action="store_true", help="in float64: tells a rounding error, which vanishes then, from a wrong rule")
    parser.add_argument("--keep", action="store_true", help="keep what was recorded")
    parser.add_argument("--trace", action="store_true", help="print the exporter's errors in full")
    parser.add_argument("--list", action="store_true", help="print the models' names")
    arguments = parser.parse_args()
    names = [name for name in sorted(MODELS) if not arguments.names or any(fnmatch.fnmatch(name, pattern) for pattern in arguments.names)]
    if arguments.list:
        print("\n".join(names))
        return 0
    warnings.filterwarnings("ignore")
    columns = ["export", "import", *COLUMNS]
    print("| model | " + " | ".join(columns) + " |\n|---" + "|---" * len(columns) + "|")
    wrong = exported = 0
    for name in names:
        found, right = one(name, arguments)
        wrong += not right
        exported += found["export"] == "ok"
        print(f"| {name} | " + " | ".join(found.get(column, "") for column in columns) + " |", flush=True)
    print(f"\n{len(names)} models, {exported} exported, {wrong} of them not as they should be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
