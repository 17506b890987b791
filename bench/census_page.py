#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes docs/census.md of the tables that bench/pytorch_census.py printed:

    python bench/census_page.py TABLE.md ... > docs/census.md
"""
import datetime
import sys
import textwrap

COLUMNS = ["export", "import", "loss", "gradients", "5 steps", "another batch"]
FAMILIES = [("torchvision_", "torchvision"), ("timm_", "timm"), ("transformers_", "transformers"), ("forms_", "Many small questions in one model"), ("loss_", "Losses"), ("", "Models written by hand")]


def versions():
    import importlib.metadata
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("torch", "torchvision", "transformers", "timm"))


def read(paths):
    rows = {}
    for path in paths:
        with open(path) as file:
            for line in file:
                cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
                if line.startswith("| ") and len(cells) >= len(COLUMNS) and cells[0] != "model":
                    rows[cells[0]] = dict(zip(COLUMNS, cells[1:]))
    return rows


def kind(row):
    if row["export"] != "ok":
        return "not exported"
    if row["import"].startswith("refused"):
        return "refused"
    if all(cell in ("ok", "") for cell in row.values()):
        return "agrees"
    if all(cell in ("ok", "", "ok in float64") for cell in row.values()):
        return "agrees in float64"
    if all(cell in ("ok", "", "ok in float64") or cell.startswith("chaotic") for cell in row.values()):
        return "chaotic"
    return "differs after five steps" if all(cell in ("ok", "") for column, cell in row.items() if column != "5 steps") else "differs"


def listing(names, prefix):
    return ", ".join(f"`{name[len(prefix):]}`" for name in names) or "none"


def main():
    rows = read(sys.argv[1:])
    kinds = {name: kind(row) for name, row in rows.items()}
    count = lambda wanted: sum(found == wanted for found in kinds.values())
    print(f"""# PyTorch models that were run

`bench/pytorch_census.py` builds models of many families with small random configurations, exports each with `torch.export`, records loss, gradients and five optimizer
steps in PyTorch, and compares with `stepgraph check`, on {datetime.date.today():%d %B %Y} with
{versions()}. Dropout is off: random numbers differ by design. The models are in `bench/census/`; a name here is a name there.

| of {len(rows)} models | |
| --- | --- |
| agree in loss, every gradient, five steps (and another batch where sizes are symbols) | {count("agrees")} |
| agree in float64; in float32 a value beside a kink (ReLU, maximum) rounds to its other side, or rounding grows over the steps | {count("agrees in float64")} |
| are refused with a reason, as they should be | {count("refused")} |
| PyTorch does not export | {count("not exported")} |
| agree in loss and every gradient; after five steps PyTorch, from weights some last places apart in float64, is as far from itself | {count("chaotic")} |
| agree in loss and every gradient, differ after five steps of training | {count("differs after five steps")} |
| differ, or are not imported though they should be | {count("differs")} |
""")
    left = dict(rows)
    for prefix, title in FAMILIES:
        names = sorted(name for name in left if name.startswith(prefix))
        for name in names:
            del left[name]
        if not names:
            continue
        print(f"## {title}\n\n" + textwrap.fill(f"Agree: {listing([n for n in names if kinds[n] == 'agrees'], prefix)}.", 160, break_long_words=False, break_on_hyphens=False) + "\n")
        rest = [name for name in names if kinds[name] != "agrees"]
        if rest:
            print("| model | | |\n| --- | --- | --- |")
        for name in rest:
            row = rows[name]
            reasons = {"not exported": row["export"], "refused": row["import"].removeprefix("refused: ")}
            print(f"| `{name[len(prefix):]}` | {kinds[name]} | {reasons.get(kinds[name], '; '.join(f'{c}: {v}' for c, v in row.items() if v not in ('ok', '')))} |")
        if rest:
            print()


if __name__ == "__main__":
    main()
