# SPDX-License-Identifier: Apache-2.0
"""The workloads: sizes, how Stepgraph gets the same model, and what we ask of the ratio. Plain data, without PyTorch."""
from dataclasses import dataclass, field

LEARNING_RATE, WEIGHT_DECAY = 3e-4, 0.01  # AdamW, all else PyTorch's defaults


@dataclass(frozen=True)
class Goal:
    accepted: float
    goal: float


@dataclass(frozen=True)
class Workload:
    family: str  # mlp, gpt, resnet, lstm, vit: a class of models.py and a list of products in products.py
    sizes: dict  # scale "full"
    small: dict  # what scale "small" has instead, to check the harness
    steps: int  # measured in a process of scale "full"
    warmup: int
    ratio: Goal
    floor: Goal | None = None  # step / floor
    via: str = "zoo"  # or pt2: what Stepgraph trains
    precision: str = "f32"
    notes: str = ""
    batches: int = 8  # different ones, in turn

    def at(self, scale):
        return {**self.sizes, **self.small} if scale == "small" else self.sizes


GPT = dict(batch=8, context=256, positions=256, layers=6, heads=6, width=384, vocabulary=256)
SMALL_GPT = dict(batch=2, context=16, positions=16, layers=2, heads=2, width=32, vocabulary=64)

WORKLOADS = {
    "digits-mlp": Workload(
        "mlp", dict(batch=32, channels=1, size=8, classes=10, hidden=[128, 64], activation="relu"), {}, 4000, 500, Goal(7, 9), batches=44,
        notes="the images of data/digits.csv"),
    "mlp": Workload(
        "mlp", dict(batch=256, channels=2, size=16, classes=10, hidden=[512] * 8, activation="gelu"), dict(batch=8, hidden=[64] * 3), 100, 10,
        Goal(1.1, 1.2), Goal(1.12, 1.07), notes="exact GELU; 512 inputs are images of 2 x 16 x 16 to the zoo"),
    "gpt": Workload("gpt", GPT, SMALL_GPT, 8, 2, Goal(1.05, 1.15), Goal(1.12, 1.07)),
    "gpt2": Workload(
        "gpt", dict(batch=1, context=256, positions=1024, layers=12, heads=12, width=768, vocabulary=50304), {**SMALL_GPT, "positions": 32}, 8, 2,
        Goal(1.1, 1.2), Goal(1.2, 1.1), via="pt2", notes="the zoo's gpt has as many positions as tokens, GPT-2 has 1024"),
    "resnet18": Workload("resnet", dict(batch=16, channels=3, size=64, classes=10), dict(batch=4), 30, 4, Goal(1.2, 1.5), Goal(1.2, 1.1)),
    "lstm": Workload(
        "lstm", dict(batch=32, context=64, layers=2, width=256, vocabulary=256), dict(batch=4, context=8, width=32, vocabulary=32), 40, 4, Goal(1.05, 1.2)),
    "vit-tiny": Workload(
        "vit", dict(batch=8, channels=3, size=128, patch=16, layers=12, heads=3, width=192, inner=768, classes=100),
        dict(batch=2, size=32, layers=2, heads=2, width=32, inner=64, classes=10), 30, 4, Goal(1.2, 1.35), Goal(1.2, 1.1), via="pt2",
        notes="the zoo's vit is that of transformers: norms with 1e-12, and three products for q, k and v"),
    "gpt-bf16": Workload("gpt", GPT, SMALL_GPT, 8, 2, Goal(0.85, 1.0), precision="bf16", notes="autocast; the ratio is to our own f32"),
}


def zoo_model(family, sizes):
    """The zoo's model and its options, or None where it has no equal one."""
    images = {key: sizes.get(key) for key in ("channels", "size", "classes")}
    text = {key: sizes.get(key) for key in ("vocabulary", "context", "layers", "width")}
    if family == "mlp":
        return "mlp", {**images, "hidden": ",".join(map(str, sizes["hidden"])), "activation": sizes["activation"]}
    if family == "gpt" and sizes["positions"] == sizes["context"]:
        return "gpt", {**text, "heads": sizes["heads"]}
    if family == "resnet":
        return "resnet", images
    if family == "lstm":
        return "lstm", text
    return None


def input_names(family):
    return ("tokens", "targets") if family in ("gpt", "lstm") else ("image", "label")


def toml_value(value):
    return "true" if value is True else "false" if value is False else str(value) if isinstance(value, (int, float)) else f'"{value}"'


def job(workload, sizes, via, precision, folder, steps):
    """The text of the job file."""
    if via == "pt2":
        name, options = f"{folder}/model.pt2", {}
    else:
        name, options = zoo_model(workload.family, sizes)
    tables = {
        "model": {"name": name, **options},
        # A test set of its own, never evaluated: else a part of the batches would be held out.
        "data": {"kind": "npz", "path": f"{folder}/data-{via}.npz", "test_path": f"{folder}/data-{via}.npz"},
        "optimizer": {"name": "adamw", "lr": LEARNING_RATE, "weight_decay": WEIGHT_DECAY},
        # Without prefetch batches are ready between two steps, as the rival's are: a thread that loads would take a core of two.
        "train": {"batch": sizes["batch"], "steps": steps, "shuffle": False, "prefetch": 0, "eval_every": -1, "precision": precision},
    }
    return "\n".join(f"[{table}]\n" + "".join(f"{key} = {toml_value(value)}\n" for key, value in keys.items()) for table, keys in tables.items())
