#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Made tests/samples/cases: small models about one question each, recorded as record.py does. Run by hand, with PyTorch:

    python scripts/record_cases.py tests/samples/cases
"""
import os
import sys

import torch
from torch import nn

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from record import record, save  # noqa: E402

F = nn.functional
SGD = ("SGD", dict(lr=0.125))


class Net(nn.Module):
    """`function(self, **inputs)` is the loss; the parts are attributes."""

    def __init__(self, function, **parts):
        super().__init__()
        self.function = function
        for name, part in parts.items():
            if isinstance(part, torch.Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)


class Rows(Net):
    def forward(self, x, target):
        return self.function(self, x, target)


class Terms(nn.Module):
    """A parameter and a term of the loss for each function; every gradient shows what its function does."""

    def __init__(self, terms):
        super().__init__()
        self.terms = terms
        for name, (values, _) in terms.items():
            setattr(self, name, nn.Parameter(torch.tensor(values)))

    def forward(self, x):
        total = (x * 0.0).sum()
        for name, (_, function) in self.terms.items():
            y = function(getattr(self, name)).float()
            weight = torch.arange(1, y.numel() + 1, dtype=torch.float32).reshape(y.shape)
            total = total + (y * weight).sum()
        return total


TIES = [2.0, 5.0, 5.0, 1.0]
LOW = [2.0, 1.0, 1.0, 4.0]
ties = {
    "amax": (TIES, lambda p: p.amax()),
    "amin": (LOW, lambda p: p.amin()),
    "amax_dim": ([TIES, LOW], lambda p: p.amax(1)),
    "max_all": (TIES, lambda p: p.max()),
    "min_all": (LOW, lambda p: p.min()),
    "max_dim": (TIES, lambda p: p.max(0).values),
    "min_dim": (LOW, lambda p: p.min(0).values),
    "maximum": (TIES, lambda p: torch.maximum(p, torch.tensor([2.0, 4.0, 5.0, 3.0]))),
    "minimum": (TIES, lambda p: torch.minimum(p, torch.tensor([2.0, 4.0, 5.0, 3.0]))),
    "max_other": (TIES, lambda p: torch.max(p, p.flip(0))),
    "clamp": (TIES, lambda p: p.clamp(2.0, 5.0)),
    "clamp_min": (TIES, lambda p: p.clamp(min=5.0)),
    "hardtanh": ([-1.0, 0.0, 1.0, 2.0], lambda p: F.hardtanh(p)),
    "relu6": ([-1.0, 0.0, 6.0, 2.0], lambda p: F.relu6(p)),
    "absolute": ([-1.0, 0.0, 3.0], lambda p: p.abs()),
    "relu": ([-1.0, 0.0, 3.0], lambda p: p.relu()),
    "leaky": ([-1.0, 0.0, 3.0], lambda p: F.leaky_relu(p, 0.25)),
    "sign": ([-1.0, 0.0, 3.0], lambda p: p.sign() * p),
    "topk": (TIES, lambda p: p.topk(2).values),
    "sort": ([3.0, 1.0, 3.0, 2.0], lambda p: p.sort(stable=True).values),
    "prod": ([2.0, 0.0, 3.0], lambda p: p.prod()),
    "cumprod": ([2.0, 0.0, 3.0], lambda p: p.cumprod(0)),
    "power": ([0.0, 2.0, -3.0], lambda p: p.pow(2.0)),
    "pool": ([[[1.0, 4.0, 4.0, 2.0]]], lambda p: F.max_pool1d(p, 2, 1)),
    "argmax": (TIES, lambda p: p * (p.argmax() + 1)),
    "where": ([-1.0, 0.0, 3.0], lambda p: torch.where(p > 0, p, p * 0.5)),
}
casts = {
    "bf16": ([1 + 2**-9, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-16], lambda p: p.bfloat16().float() * p.detach()),
    "f16": ([1 + 2**-12, 1 + 3 * 2**-11, 65519.0], lambda p: p.half().float() * 0.5),
    "bf16_f16": ([1 + 2**-9, 3.14159265], lambda p: p.bfloat16().half().float()),
    "matmul": ([[1 + 2**-7, 2**-8], [3.0, 1 + 2**-6]], lambda p: (p.bfloat16() @ p.bfloat16()).float() + p),
    "integer": ([1.75, -1.75, 3.0], lambda p: p * p.to(torch.int32)),
    "boolean": ([0.0, 0.5, -2.0], lambda p: p * p.bool() + p),
    "promotion": ([1.5, 2.5], lambda p: p.bfloat16() * 3 + p.bfloat16() * torch.tensor(2.0)),
}

SQUARE = [[0.5, -1.0, 2.0], [1.5, 0.25, -0.75], [-2.0, 1.0, 3.0]]
PICK = torch.tensor([[0, 2, 1], [1, 1, 0], [2, 0, 0]])


def write_diagonal(p):
    x = p * 2
    x.diagonal(1).mul_(3.0)                # through a view, of which x sees the write
    return x


rare = {
    "xlogy": ([0.0, 0.5, 2.0], lambda p: torch.xlogy(p, p + 1)),
    "logaddexp": (SQUARE, lambda p: torch.logaddexp(p, p.flip(0) * 2)),
    "fmax": (SQUARE, lambda p: torch.fmax(p, p.flip(0) * 2) + 3 * torch.fmin(p, p.flip(1) * 2)),
    "hypot": (SQUARE, lambda p: torch.hypot(p, p.flip(0) + 5)),
    "hardshrink": (SQUARE, lambda p: F.hardshrink(p, 0.6)),
    "degrees": (SQUARE, lambda p: torch.deg2rad(p) + torch.rad2deg(p)),
    "logit": ([0.25, 0.5, 0.875], lambda p: torch.logit(p) + torch.logit(p, eps=0.3)),
    "nansum": (SQUARE, lambda p: torch.where(p > 2.5, float("nan"), p).nansum(1)),
    "diagonal": (SQUARE, lambda p: p.diagonal() + p.diagonal(-1).sum() + torch.stack([p, p * 2]).diagonal(1, 0, 2).sum()),
    "diagonal_write": (SQUARE, write_diagonal),
    "trace": (SQUARE, lambda p: p.trace()),
    "diag_embed": (SQUARE, lambda p: torch.diag_embed(p)),
    "addmv": (SQUARE, lambda p: torch.addmv(p[0], p, p[1], beta=0.5, alpha=2)),
    "take": (SQUARE, lambda p: p.take(torch.tensor([0, -1, 4])) + p.take_along_dim(PICK, 1).sum()),
    "meshgrid": ([1.0, 2.0, 4.0], lambda p: torch.meshgrid(p, p[:2] * 3, indexing="ij")[0] + torch.meshgrid(p[:2] * 3, p, indexing="xy")[0] * 2),
    "tensordot": (SQUARE, lambda p: torch.tensordot(p, p, dims=([0], [1])) + torch.tensordot(p, p, dims=2)),
    "transposed": (SQUARE, lambda p: p.mT @ p + p.swapaxes(0, 1)),
}


class Buffered(nn.Module):
    """`function(self, x)` gives what is summed up with a weight; it writes to its buffers."""

    def __init__(self, function, **buffers):
        super().__init__()
        self.function = function
        self.w = nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))
        for name, values in buffers.items():
            self.register_buffer(name, torch.tensor(values))

    def forward(self, x):
        return (self.function(self, x) * self.w).sum()


def write_last(m, x):
    out = 2 * x
    m.buf.copy_(x)
    return out


def write_first(m, x):
    m.buf *= 2
    return x + m.buf


def write_views(m, x):
    before = m.buf.clone()
    m.buf[0].add_(x[0])                    # through a select
    m.buf[1:].mul_(0.5)                    # through a slice
    m.table.t()[1].copy_(x)                # a column, through a transpose
    m.table.view(-1)[-1:].fill_(9.0)
    m.count += 1
    return before + m.buf + m.table.sum(1)


def write_between(m, x):
    y = x * m.w
    z = y + 1
    y.mul_(2.0)                            # z keeps what it read
    y[0] = 7.0
    r = (x * m.w - 9.0).relu_()
    m.buf.zero_()
    m.buf.add_(y.detach(), alpha=0.5)
    return y * z + m.buf + r


def write_masked(m, x):
    m.buf.masked_fill_(x > 4.5, -1.0)
    m.table.index_put_((m.count.reshape(1) % 3,), x.reshape(1, 3))
    m.count.add_(1)
    return m.buf + m.table.sum(0)


def stop_parts(m, x):
    with torch.no_grad():
        scale = (m.w * x).sum()
    return x * scale + m.w.detach() * m.w + (m.w * 2).detach_()


TABLE = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
ONES = [1.0, 1.0, 1.0]
buffered = {
    "write_last": Buffered(write_last, buf=ONES),
    "write_first": Buffered(write_first, buf=ONES),
    "write_views": Buffered(write_views, buf=ONES, table=TABLE, count=0),
    "write_between": Buffered(write_between, buf=ONES),
    "write_masked": Buffered(write_masked, buf=ONES, table=TABLE, count=0),
    "stop_parts": Buffered(stop_parts, buf=ONES),
}


class Unknown(nn.Module):
    """Operators that nobody imports yet, one of them twice."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.eye(3))

    def forward(self, x):
        a = torch.special.bessel_j0(x) + torch.special.bessel_j0(x * self.w)
        return (torch.linalg.matrix_exp(self.w) + a).sum()


class Noise(nn.Module):
    """A bias before batch norm and the keys' part of an attention's bias: their gradients are zero, and Adam steps by what rounding makes of them."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm1d(4)
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x):
        y = self.norm(self.conv(x)).transpose(1, 2)
        return (y + self.attention(y, y, y, need_weights=False)[0]).square().mean(1)[:, :3].sin().sum()


def record_noise(folder):
    torch.manual_seed(0)
    x = torch.randn(6, 3, 5)
    record(folder + "/noise", Noise(), dict(x=x), dict(x=x.flip(0) + 0.1), core=False, what="parameters and parts of them whose gradient is zero, under AdamW")


class Returns(nn.Module):
    """What a model may return beside its loss, or instead of it."""

    FORMS = {
        "under_loss": lambda loss, accuracy, logits: {"accuracy": accuracy, "loss": loss},
        "deep": lambda loss, accuracy, logits: {"parts": [logits, {"accuracy": accuracy}], "loss": loss, "twice": loss * 2},
        "several": lambda loss, accuracy, logits: {"accuracy": accuracy, "entropy": loss},
        "pair": lambda loss, accuracy, logits: (accuracy, loss),
        "one": lambda loss, accuracy, logits: (logits, loss),
        "vector": lambda loss, accuracy, logits: {"loss": logits[:, 0], "accuracy": accuracy},
        "detached": lambda loss, accuracy, logits: loss.detach(),
    }

    def __init__(self, form):
        super().__init__()
        torch.manual_seed(0)  # all forms start alike
        self.fc, self.unread, self.form = nn.Linear(3, 2), nn.Linear(3, 2), form

    def forward(self, x, y):
        logits = self.fc(x)
        accuracy = (logits.argmax(1) == y).float().mean()
        return self.FORMS[self.form](F.cross_entropy(logits, y), accuracy, logits)


class NormOfRows(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.bn, self.out = nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)

    def forward(self, x, y):
        return F.cross_entropy(self.out(self.bn(self.fc(x))), y)


def save_programs(folder):
    """Programs alone: what they are asked is how they are refused, or which of their outputs is the loss."""
    rows = ({0: torch.export.Dim.AUTO}, {0: torch.export.Dim.AUTO})
    batch = (torch.randn(8, 3), torch.randint(0, 2, (8,)))
    models = {"returns/" + form: Returns(form) for form in Returns.FORMS} | {"batch_norm_rows/model": NormOfRows()}
    for name, model in models.items():
        os.makedirs(os.path.dirname(f"{folder}/{name}"), exist_ok=True)
        save(torch.export.export(model, batch, dynamic_shapes=rows), f"{folder}/{name}.pt2")


def main(folder):
    torch.manual_seed(0)
    x = torch.tensor([4.0, 5.0, 6.0])
    record(folder + "/ties", Terms(ties), dict(x=x), optimizer=SGD, steps=2, what="ties, bounds and zeros: which element gets the gradient")
    record(folder + "/casts", Terms(casts), dict(x=x), optimizer=SGD, steps=1, what="explicit casts round, each of them", float64=False)
    record(folder + "/rare", Terms(rare), dict(x=x), optimizer=("SGD", dict(lr=2.0**-10)), steps=1, what="operators that are rare in models", float64=False)
    for name, model in buffered.items():
        record(f"{folder}/{name}", model, dict(x=x), optimizer=SGD, steps=2, what="writes in place, to buffers and between")
    record_noise(folder)
    os.makedirs(folder + "/unknown", exist_ok=True)
    save(torch.export.export(Unknown(), (torch.ones(3, 3),)), folder + "/unknown/model.pt2")
    torch.manual_seed(0)
    save_programs(folder)


if __name__ == "__main__":
    main(sys.argv[1])
