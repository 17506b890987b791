#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Says what a build costs: the ten dearest units, and on request the ten dearest files and headers. Standard library only.

    tools/build_cost.py [PRESET]              units of the last build of build/PRESET (release), from ninja's own log: seconds of a clock, so build with
                                              `-j1`, or on a machine with nothing else to do, and without a compiler cache (CCACHE_DISABLE=1)
    tools/build_cost.py [PRESET] --files      the files of the ten dearest units, each compiled by itself: seconds of processor time
    tools/build_cost.py [PRESET] --headers    every header of the project by itself, times the number of units that include it

A unit is what the compiler sees at once: with STEPGRAPH_UNITY several files of a folder.
"""

import argparse
import json
import os
import re
import resource
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHOWN = 10


def unit_seconds(build):
    """Object -> seconds of its last compilation."""
    log = build / ".ninja_log"
    if not log.exists():
        sys.exit(f"error: found no {log}, wanted a finished build: cmake --preset {build.name} && cmake --build --preset {build.name}")
    seconds = {}
    for line in log.read_text().splitlines():
        fields = line.split("\t")
        if len(fields) >= 4 and fields[3].endswith(".o"):
            seconds[fields[3]] = (int(fields[1]) - int(fields[0])) / 1000
    return seconds


def commands(build):
    """Object -> (source, arguments, folder) from compile_commands.json."""
    found = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        arguments = shlex.split(entry["command"])
        if Path(arguments[0]).name == "ccache":
            arguments = arguments[1:]
        output = arguments[arguments.index("-o") + 1]
        found[output] = (Path(entry["directory"]) / entry["file"], arguments, entry["directory"])
    return found


def members(source):
    """The project's files in a unity unit, or the file itself."""
    if "Unity" not in source.parts:
        return [source]
    return [Path(name) for name in re.findall(r'^#include "(.*)"', source.read_text(), re.MULTILINE)]


def shown(path):
    path = Path(path)
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.as_posix()


def cpu_seconds(arguments, folder):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(arguments, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime) if done.returncode == 0 else None


def compile_alone(source, arguments, folder, flags):
    """Seconds of `source` under the flags of a unit."""
    kept, skip = [], False
    for argument in arguments:
        if skip or argument in ("-c", "-MD"):
            skip = False
        elif argument in ("-o", "-MT", "-MF"):
            skip = True
        elif not argument.endswith((".cxx", ".cpp")):
            kept.append(argument)
    with tempfile.TemporaryDirectory() as scratch:
        return cpu_seconds([*kept, *flags, "-c", str(source), "-o", os.path.join(scratch, "out.o")], folder)


def print_units(seconds, known):
    print(f"{len(seconds)} units, {sum(seconds.values()):.0f} s in all; the {SHOWN} dearest:")
    for output, spent in sorted(seconds.items(), key=lambda item: -item[1])[:SHOWN]:
        files = members(known[output][0]) if output in known else []
        names = ", ".join(file.name for file in files)
        print(f"  {spent:7.1f} s  {output}\n             {names}")


def print_files(seconds, known):
    costs = []
    for output, _ in sorted(seconds.items(), key=lambda item: -item[1])[:SHOWN]:
        if output not in known:
            continue
        source, arguments, folder = known[output]
        for file in members(source):
            spent = compile_alone(file, arguments, folder, [])
            if spent is not None:
                costs.append((spent, shown(file)))
    print(f"the {SHOWN} dearest of {len(costs)} files, each by itself:")
    for spent, name in sorted(costs, reverse=True)[:SHOWN]:
        print(f"  {spent:7.1f} s  {name}")


def included_by(build):
    """Header -> number of units that include it, from ninja's dependency log."""
    text = subprocess.run(["ninja", "-C", str(build), "-t", "deps"], capture_output=True, text=True, check=False).stdout
    counts = {}
    for line in text.splitlines():
        if line.startswith("    "):
            path = os.path.normpath(build / line.strip())
            counts[path] = counts.get(path, 0) + 1
    return counts


def print_headers(build, known):
    counts = included_by(build)
    arguments, folder = next((arguments, folder) for source, arguments, folder in known.values() if "stepgraph_command" in arguments[arguments.index("-o") + 1])
    costs = []
    for header in sorted((ROOT / "stepgraph").rglob("*.h")):
        with tempfile.NamedTemporaryFile("w", suffix=".cpp", delete=False) as file:
            file.write(f'#include "{shown(header)}"\n')
        spent = compile_alone(file.name, arguments, folder, ["-fsyntax-only"])
        os.unlink(file.name)
        if spent is not None:
            costs.append((spent * counts.get(str(header), 0), spent, counts.get(str(header), 0), shown(header)))
    print(f"the {SHOWN} dearest of {len(costs)} headers: seconds by itself x units that include it")
    for total, spent, count, name in sorted(costs, reverse=True)[:SHOWN]:
        print(f"  {total:7.1f} s = {spent:.1f} x {count:3}  {name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset", nargs="?", default="release")
    parser.add_argument("--files", action="store_true", help="compile the files of the dearest units by themselves")
    parser.add_argument("--headers", action="store_true", help="compile every header by itself")
    options = parser.parse_args()
    build = ROOT / "build" / options.preset
    seconds, known = unit_seconds(build), commands(build)
    print_units(seconds, known)
    if options.files:
        print_files(seconds, known)
    if options.headers:
        print_headers(build, known)


if __name__ == "__main__":
    main()
