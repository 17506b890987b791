# SPDX-License-Identifier: Apache-2.0
"""What goes in and comes out: types of inputs, constants among the arguments, tuples and dicts as results, modules in evaluation mode."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from .common import Case, model

AUTO = torch.export.Dim.AUTO


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.first, self.second = nn.Embedding(10, 4), nn.Linear(4, 6), nn.Linear(6, 3)


@model
def inputs_of_many_types():
    class Mixed(Net):
        def forward(self, ids, pixels, keep, scale, target):
            h = self.embed(ids) + pixels.float().div(255).mean((1, 2))[:, None] * scale
            h = torch.tanh(self.first(h)) * keep[:, None]
            return F.cross_entropy(self.second(h), target)
    return Mixed(), dict(ids=torch.randint(0, 10, (5,), dtype=torch.int32), pixels=torch.randint(0, 256, (5, 3, 4), dtype=torch.uint8), keep=torch.tensor([True, False, True, True, False]), scale=torch.tensor(0.5),
                         target=torch.randint(0, 3, (5,)))


@model
def results_in_a_tuple():
    """The logits first, the loss second: the loss is the first scalar."""
    class Tuple(Net):
        def forward(self, ids, target):
            logits = self.second(torch.relu(self.first(self.embed(ids))))
            return logits.detach(), F.cross_entropy(logits, target), ids + 1
    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = Tuple()

        def forward(self, ids, target):
            return self.net(ids, target)[1]
    return Loss(), dict(ids=torch.randint(0, 10, (5,)), target=torch.randint(0, 3, (5,)))


@model
def partly_in_evaluation_mode():
    class Frozen(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.5)), nn.Linear(6, 3)
            self.body[1].running_mean.uniform_(), self.body[1].running_var.uniform_(0.5, 2)

        def train(self, mode=True):
            super().train(mode)
            self.body.eval()
            return self

        def forward(self, x, target):
            return F.cross_entropy(self.head(self.body(x)), target)
    return Frozen(), dict(x=torch.randn(5, 4), target=torch.randint(0, 3, (5,)))


@model
def parameters_of_16_bits():
    class Half(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.norm, self.second = nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 3)

        def forward(self, x, target):
            return F.cross_entropy(self.second(self.norm(torch.tanh(self.first(x.bfloat16())))).float(), target)
    return Case(Half().bfloat16(), dict(x=torch.randn(5, 4), target=torch.randint(0, 3, (5,))), float64=False, loose=10000)


@model
def inside_autocast():
    class Region(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.norm, self.second = nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 3)

        def forward(self, x, target):
            with torch.autocast("cpu", torch.bfloat16):
                logits = self.second(F.gelu(self.norm(self.first(x)))) * 1.3
                with torch.autocast("cpu", enabled=False):
                    extra = self.second(self.first(x))
            return F.cross_entropy(logits.float() + extra, target)
    return Case(Region(), dict(x=torch.randn(5, 4), target=torch.randint(0, 3, (5,))), float64=False, loose=1000)


@model
def shared_and_reused_modules():
    """A block that is called three times, a linear layer used as it is and transposed, a buffer that two modules share."""
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.block, self.out = nn.Sequential(nn.Linear(4, 4), nn.Tanh()), nn.Linear(4, 4, bias=False)
            self.register_buffer("scale", torch.tensor([1.0, 2.0, 0.5, 1.5]))
            self.inner = nn.Module()
            self.inner.register_buffer("scale", self.scale)

        def forward(self, x, target):
            for _ in range(3):
                x = x + self.block(x) * self.inner.scale.clone()
            y = self.out(x)
            scale = self.scale.clone()
            self.scale.mul_(0.9)
            return F.mse_loss(F.linear(y, self.out.weight.t()) * scale, target)
    return Shared(), dict(x=torch.randn(5, 4), target=torch.randn(5, 4))


@model
def empty_batch_parts():
    """Slices that hold nothing, and a mean over what is left."""
    class Empty(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(4, 4)

        def forward(self, x, target):
            y = self.first(x)
            none = y[:0]
            return F.mse_loss(torch.cat([none, y, none]), target) + none.sum() + torch.zeros(0, 4).sum() + F.relu(none).square().sum()
    return Empty(), dict(x=torch.randn(5, 4), target=torch.randn(5, 4))


@model
def sizes_as_numbers():
    """Sizes that are symbols, in arithmetic with values, in shapes and as slice bounds. (The exporter makes the length a constant all the same.)"""
    class Sizes(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(10, 4), nn.Linear(4, 10)

        def forward(self, ids, target):
            rows, length = ids.shape
            x = self.embed(ids) * length / rows
            half = length // 2
            x = torch.cat([x[:, half:], x[:, :half]], 1) + torch.arange(length)[None, :, None] / length
            x = x.reshape(rows * length, -1).view(rows, length, 2, 2).transpose(2, 3).reshape(rows, -1, 4)
            x = x + x.new_zeros(rows, 1, 4) + torch.full((rows, length, 1), float(length))
            mask = torch.ones(length, length).tril()[None].expand(rows, -1, -1)
            x = (mask / mask.sum(-1, keepdim=True)) @ x
            return F.cross_entropy(self.head(x[:, : length - 1]).transpose(1, 2), target[:, 1:])
    batch = lambda rows, length: dict(ids=torch.randint(0, 10, (rows, length)), target=torch.randint(0, 10, (rows, length)))
    return Case(Sizes(), batch(3, 6), alt=batch(2, 6), dynamic=dict(ids={0: AUTO, 1: AUTO}, target={0: AUTO, 1: AUTO}))
