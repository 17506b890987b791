#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records tests/samples/autocast: small models exported inside torch.autocast("cpu", bfloat16) and plain, with what PyTorch computes inside it.

    python scripts/record_autocast.py tests/samples/autocast

For each model M: M_region.pt2, M_plain.pt2, and in recorded.safetensors M.input.*, M.loss, M.grad.*, M.loss_f32 (without autocast).
"""
import os
import sys

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

from record import save


class Mixed(nn.Module):
    """What the lists tell apart: products, norms, a sum of both, a part without autocast, the loss."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 8, 3, padding=1)
        self.batch_norm = nn.BatchNorm2d(8)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.qkv = nn.Linear(16, 48)
        self.norm = nn.LayerNorm(16)
        self.gate = nn.Parameter(torch.randn(16, 16) * 0.3)
        self.head = nn.Linear(16, 5)

    def forward(self, x, label):
        y = F.gelu(self.batch_norm(self.conv(x)))
        y = self.up(y).reshape(x.shape[0], 16, 16)
        q, k, v = self.qkv(self.norm(y)).chunk(3, -1)
        y = y + F.scaled_dot_product_attention(q, k, v)
        y = torch.einsum("btc,cd->btd", y, self.gate) + y.softmax(-1)
        with torch.autocast("cpu", enabled=False):
            logits = self.head(y.float().mean(1))  # nothing else reads y: without autocast float() is y itself, and so would be traced
        return F.cross_entropy(logits, label) + F.mse_loss(v, torch.zeros_like(v)) * 0.1


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(6, 8, num_layers=2, batch_first=True)
        self.gru = nn.GRU(8, 8, batch_first=True)
        self.head = nn.Linear(8, 5)

    def forward(self, x, label):
        y, _ = self.lstm(x)
        y, _ = self.gru(y.float())
        return F.cross_entropy(self.head(y[:, -1]), label)


class Inside(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, label):
        with torch.autocast("cpu", torch.bfloat16):
            return self.model(x, label)


def main(folder):
    os.makedirs(folder, exist_ok=True)
    torch.manual_seed(0)
    recorded = {}
    for name, model, x in (("mixed", Mixed(), torch.randn(4, 2, 4, 4)), ("recurrent", Recurrent(), torch.randn(4, 7, 6))):
        inputs = (x, torch.randint(0, 5, (4,)))
        save(torch.export.export(model, inputs), f"{folder}/{name}_plain.pt2")
        save(torch.export.export(Inside(model), inputs), f"{folder}/{name}_region.pt2")
        for key, value in zip(("x", "label"), inputs):
            recorded[f"{name}.input.{key}"] = value
        recorded[f"{name}.loss_f32"] = model(*inputs).detach()
        loss = Inside(model)(*inputs)
        loss.backward()
        recorded[f"{name}.loss"] = loss.detach()
        for key, parameter in model.named_parameters():
            recorded[f"{name}.grad.{key}"] = parameter.grad
    save_file(recorded, f"{folder}/recorded.safetensors", metadata={"torch": torch.__version__})


if __name__ == "__main__":
    main(sys.argv[1])
