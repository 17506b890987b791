#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Made tests/samples/losses: programs of one weight whose losses are divided in different ways. Run by hand, with PyTorch:

    python scripts/record_losses.py tests/samples/losses
"""
import os
import sys

import torch
from torch import nn

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from record import save  # noqa: E402
from record_operators import slim  # noqa: E402

F = nn.functional


def classes(y, v, **options):
    """Two classes by the sign of y; rows without v have no target."""
    return F.cross_entropy(torch.stack([y, -y], 1), torch.where(v > 0, 1, -100), **options)


losses = {
    "mean": lambda w, x, v: (w * x).mean(),
    "sum": lambda w, x, v: (w * x * v).sum(),
    "over_rows": lambda w, x, v: (w * x * v).sum() / x.shape[0],
    "masked": lambda w, x, v: (w * x * v).sum() / v.sum(),
    "weights": lambda w, x, v: ((v / v.sum()) * (w * x)).sum(),
    "means": lambda w, x, v: (w * x * v).mean() / v.mean(),
    "product": lambda w, x, v: torch.dot(w * x, v) / v.sum(),
    "inverse": lambda w, x, v: (w * x * v).sum() * (1 / v.sum()),
    "at_least": lambda w, x, v: (w * x * v).sum() / v.sum().clamp(min=2),
    "shifted": lambda w, x, v: (w * x * v).sum() / (v.sum() + 0.5),
    "counted": lambda w, x, v: torch.where(v > 0, w * x, 0).sum() / (v > 0).sum(),
    "classes": lambda w, x, v: classes(w * x, v),
    "weighted_classes": lambda w, x, v: F.cross_entropy(torch.stack([w * x, -w * x], 1), v.long(), torch.tensor([1.0, 3.0])),
    "summed_classes": lambda w, x, v: classes(w * x, v, reduction="sum"),
    "several": lambda w, x, v: 2 * (w * x * v).sum() / v.sum() + 0.5 * (w * x).mean() - (w * v).sum() + w.square() + 0.25 * classes(w * x, v),
    "stacked": lambda w, x, v: torch.stack([(w * x).mean(), (w * x * v).sum() / v.sum()]).sum(),
    # Of the whole batch alone.
    "root": lambda w, x, v: (w * x - 1).square().mean().sqrt(),
    "largest": lambda w, x, v: (w * x * v).sum() / v.max(),
    "normalised": lambda w, x, v: (w * x / x.std()).sum(),
    "learned": lambda w, x, v: (w * x).sum() / (1 + (w * v).sum()),
    "below_largest": lambda w, x, v: (w * x * torch.exp(v - v.max())).sum() / torch.exp(v - v.max()).sum(),
    "softmax_rows": lambda w, x, v: (w * x * torch.softmax(v, 0)).sum(),
    "power": lambda w, x, v: (w * x * v.sum() ** -0.5).sum(),
    "detached": lambda w, x, v: ((w * x + 1) / (w * x + 1).detach().sum()).sum(),
    "own_sum": lambda w, x, v: ((w * x + 1).square() / (w * x + 1).sum()).sum(),
    "spread_sum": lambda w, x, v: ((w * x).sum() * torch.ones_like(x)).sum(),
}


class OneWeight(nn.Module):
    def __init__(self, loss):
        super().__init__()
        self.loss = loss
        self.w = nn.Parameter(torch.tensor(0.0))

    def forward(self, x, v):
        return self.loss(self.w, x, v)


def main(folder):
    os.makedirs(folder, exist_ok=True)
    rows = torch.export.Dim("rows")
    for name, loss in losses.items():
        inputs = dict(x=torch.tensor([8.0, 5, 2, 2]), v=torch.tensor([1.0, 0, 1, 1]))
        exported = torch.export.export(OneWeight(loss), (), inputs, dynamic_shapes=dict(x={0: rows}, v={0: rows}))
        exported._example_inputs = None
        save(exported, f"{folder}/{name}.pt2")
        slim(f"{folder}/{name}.pt2")


if __name__ == "__main__":
    main(sys.argv[1])
