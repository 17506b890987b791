#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Made the rest of tests/samples/cases: what whole models showed (bench/census), each as a small model of its own. Run by hand, with PyTorch:

    python scripts/record_model_cases.py tests/samples/cases
"""
import os
import sys

import torch
from torch import nn

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import record as recorder  # noqa: E402
from record import record  # noqa: E402
from record_cases import Net, Rows, Terms  # noqa: E402

F = nn.functional
whole_save = recorder.save
AUTO = torch.export.Dim.AUTO
MOMENTUM = ("SGD", dict(lr=2.0**-6, momentum=0.5, weight_decay=2.0**-4))


def save(exported, path):
    """Without what is only for messages: most of the file."""
    for module in exported.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else []:
            for key in ("stack_trace", "nn_module_stack", "torch_fn", "source_fn_stack", "from_node"):
                node.meta.pop(key, None)
    whole_save(exported, path)


recorder.save = save


def frozen(m, x, target):
    return F.mse_loss(m.base(x) + x @ m.down @ m.up + m.offset, target)


def out_arguments(m, x, target):
    y = m.first(x)
    with torch.no_grad():
        torch.mul(m.mean, 0.5, out=m.mean)
        torch.add(m.mean, y.mean(0), alpha=0.5, out=m.mean)
        torch.maximum(m.most, y.amax(0), out=m.most)
    z = (y - m.mean) / (m.most.abs() + 1)
    z.unsqueeze_(1)
    z.transpose_(1, 2)
    z.squeeze_(2)
    return F.mse_loss(z, target)


def cells(m, x, target):
    a = m.lstm(x, (torch.zeros_like(target), target))
    a = m.lstm(x, a)
    b = m.gru(a[0], a[1])
    return F.mse_loss(m.relu(m.tanh(b, target), b), target)


def parametrized(m, x, target):
    return F.mse_loss(m.spectral(m.weighted(x)), target)


def instances(m, x, target):
    return F.mse_loss(m.norm(x), target)


def numbers(m, x, target):
    steps = torch.arange(6, 0, -2.0, dtype=torch.long)
    scale = target.abs().max().item()
    return F.mse_loss(m.first(x)[:, :3] * steps / scale + torch.arange(0, 1.5, 0.5), target[:, :3])


def shifted(m, ids, target):
    logits = m.head(m.embed(ids))
    return F.cross_entropy(logits[:, :-1].reshape(-1, 5), target[:, 1:].reshape(-1)) + F.cross_entropy(logits.view(-1, 5), target.view(-1))


class Tokens(Net):
    def forward(self, ids, target):
        return self.function(self, ids, target)


def resampled(m, x, target):
    y = F.max_pool2d(m.first(x), 2)
    size = x.shape[-2:]
    modes = [dict(mode="nearest"), dict(mode="nearest-exact"), dict(mode="bilinear"), dict(mode="bilinear", align_corners=True), dict(mode="bicubic")]
    up = sum(F.interpolate(y, size=size, **mode) * (i + 1) for i, mode in enumerate(modes))
    return F.mse_loss(F.adaptive_avg_pool2d(up, (2, 3)).flatten(1), target)


def bags(m, x, target):
    offsets = torch.tensor([0, 2, 2, 5])
    return F.mse_loss(F.embedding_bag(x, m.table, offsets, mode="max") + F.embedding_bag(x, m.table, offsets, mode="max", padding_idx=1), target)


def from_the_end(m, ids, target):
    length = ids.shape[1]
    x = m.embed(ids)
    return F.cross_entropy(m.head(x[:, -length:] + x[:, -1:]).transpose(1, 2), target[:, -length:])


def clamped_parameter(m, x, target):
    with torch.no_grad():
        m.first.weight.clamp_(-0.1, 0.1)
    return F.mse_loss(m.first(x), target)


GRID = [[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]]


def through(view):
    """Writes through a view, or a copy, and shows the tensor."""
    def run(p):
        x = p * 1.0
        view(x).mul_(3.0)
        return x
    return run


def silently(function):
    """Writes where no gradient is recorded: values change, gradients do not."""
    def run(p):
        x = p * p
        with torch.no_grad():
            function(x)
        return x
    return run


aliases = {
    "reshape_view": (GRID, through(lambda x: x.reshape(-1))), "reshape_copy": (GRID, through(lambda x: x.t().reshape(-1))), "reshape_rows": (GRID, through(lambda x: x[1:].reshape(3, 1))),
    "reshape_columns": (GRID, through(lambda x: x[:, 1:].reshape(-1))), "flatten_copy": (GRID, through(lambda x: x.t().flatten())), "contiguous_copy": (GRID, through(lambda x: x.t().contiguous())),
    "ravel_copy": (GRID, through(lambda x: x.t().ravel())), "same_type": (GRID, through(lambda x: x.to(x.dtype))), "other_type": (GRID, through(lambda x: x.half().float())),
    "no_dropout": (GRID, through(lambda x: F.dropout(x, 0.5, training=False))), "detached": (GRID, through(lambda x: x.detach())), "silent": (GRID, silently(lambda x: x.mul_(2.0))), "silent_part": (GRID, silently(lambda x: x[0].zero_())),
}
halves = {
    "times_number": ([1.0, 2.0, 3.0], lambda p: (p.half() * 1.1).float()), "plus_number": ([1.0, 2.0, 3.0], lambda p: (p.half() + 1.1).float()), "times_scalar": ([1.0, 2.0, 3.0], lambda p: (p.half() * torch.tensor(1.1)).float()),
    "over_number": ([1.0, 2.0, 3.0], lambda p: (p.bfloat16() / 1.1).float()), "from_number": ([1.0, 2.0, 3.0], lambda p: (1.1 - p.half()).float()),
    "sign_of_nan": ([1.0, 2.0, 3.0], lambda p: p * torch.sign(torch.tensor([float("nan"), -2.0, 0.0]))), "clamp_at_bound": ([1.0, 2.0, 3.0], lambda p: p.clamp(torch.tensor([1.0, 2.5, 0.0]), torch.tensor([3.0, 3.0, 3.0]))),
}

ZEROS = [0.0, -1.0, 2.0]
corners = {
    "softplus": (ZEROS, F.softplus), "logsigmoid": (ZEROS, F.logsigmoid), "logits": (ZEROS, lambda p: F.binary_cross_entropy_with_logits(p, torch.tensor([0.0, 1.0, 0.5]), reduction="none")),
    "weighted_logits": (ZEROS, lambda p: F.binary_cross_entropy_with_logits(p, torch.ones(3), pos_weight=torch.tensor([2.0, 3.0, 1.0]), reduction="none")),
    "saturated": ([20.0, -1.0, 2.0], lambda p: F.binary_cross_entropy(p.sigmoid(), torch.tensor([0.0, 1.0, 0.5]), reduction="none")),
    "fmax": ([1.0, 2.0], lambda p: torch.fmax(p, p.flip(0) * 0 + torch.tensor([1.0, float("nan")]))), "fmin": ([1.0, 2.0], lambda p: torch.fmin(p, p * 1.0)),
    "shrinks": (ZEROS, lambda p: F.hardshrink(p, 1.0) + F.softshrink(p, 1.0) + F.threshold(p, 0.0, 3.0)),
    "hypot": ([3.0, 4.0, 1.0], lambda p: torch.hypot(p * 1e30, torch.tensor([4e30, 3.0, 0.0])) * 1e-30), "fmod": ([5.0, -3.0, 7.0], lambda p: torch.fmod(p, torch.tensor([float("inf"), 2.0, float("-inf")]))),
    "nan_bounds": ([1.0, 2.0], lambda p: p.clamp(min=torch.tensor([float("nan"), 3.0])).nan_to_num(7.0) + p.clamp(max=torch.tensor([1.5, float("nan")])).nan_to_num(5.0)),
    "scattered_most": ([0.0, 0.0, -1.0, 2.0], lambda p: torch.zeros(3).scatter_reduce(0, torch.tensor([0, 0, 0, 1]), p, "amax", include_self=False)),
    "scattered_least": ([5.0, 5.0, 7.0], lambda p: (p.detach() * 0 + 5 + p * 0).scatter_reduce(0, torch.tensor([0, 0, 2]), p, "amin", include_self=False)),
    "copied": (GRID, through(lambda x: x.to(torch.float32, copy=True))), "windows": (GRID, through(lambda x: x.unfold(1, 1, 2))), "one_grid": (ZEROS, through(lambda x: torch.meshgrid(x, indexing="ij")[0])),
    "no_channel_dropout": (GRID, through(lambda x: F.dropout1d(x, 0.5, training=False))),
}


def parts(m, x, target):
    """Rows in halves, of which the exporter knows by its guards that there are two."""
    y, rows = m.first(x), x.shape[0]
    low, high = y[: rows // 2], y[rows // 2:]
    a, b = y.chunk(2)
    c, d = y.split(rows // 2)
    e, f = torch.tensor_split(y, 2)
    return F.mse_loss(y, target) + (low * high).sum() + (a * 2 - b).square().sum() + (c * d * 3).sum() + (e / (f.abs() + 2)).sum() + y.reshape(rows // 2, 2, -1).prod(1).sum()


def odd_parts(m, x, target):
    y = m.first(x)
    weighed = sum(part.sum() * (i + 1) for i, part in enumerate([*y.chunk(2), *y.tensor_split(3), *y.tensor_split([2, -1], 1)]))
    return F.mse_loss(y, target) + weighed


def moved(m, x, target):
    y = m.first(x)
    diagonals = y.diagonal().sum() + 2 * y.diagonal(-1).square().sum() + 3 * torch.diag(y, 2).sum()
    windows = y.unfold(0, 3, 2).prod(2).sum() + y.unfold(1, 2, 1).prod(2).sum()
    return F.mse_loss(y, target) + (y.roll(3, 0) * x).sum() + (y.roll(-2) * x).sum() + (y.roll((1, -7), (1, 0)) * x).sum() + diagonals + windows + torch.pdist(y).sum()


def bordered(m, x, target):
    y = m.first(x)
    pads = [F.pad(y, (2, 1, 1, 2), mode=mode).square() for mode in ("reflect", "replicate", "circular")]
    pools = [F.max_pool2d(y, 2, ceil_mode=True), F.avg_pool2d(y, 3, 2, 1, ceil_mode=True), F.avg_pool2d(y, 2, ceil_mode=True, count_include_pad=False)]
    values, places = F.max_pool2d(y, 2, ceil_mode=True, return_indices=True)
    return F.mse_loss(y.mean((2, 3)), target) + sum((i + 1) * part.mean() for i, part in enumerate(pads + pools)) + (values * places).mean()


def rescaled(m, x, target):
    y = m.first(x)
    sizes = [F.interpolate(y, scale_factor=(1.5, 0.5)), F.interpolate(y, scale_factor=0.75, mode="bilinear", recompute_scale_factor=True), F.interpolate(y, scale_factor=0.6, mode="bilinear")]
    return F.mse_loss(y.mean((2, 3)), target) + sum((i + 1) * part.square().mean() for i, part in enumerate(sizes))


def symbolic(folder):
    """Operators over sizes that are symbols, and another batch of other sizes."""
    torch.manual_seed(0)

    def case(name, what, net, inputs, alt_inputs, dims):
        record(f"{folder}/{name}", net, inputs, alt_inputs, dict(x={d: AUTO for d in dims}, target={0: AUTO}), optimizer=MOMENTUM, steps=2, core=False, what=what)

    rows = lambda count: dict(x=torch.randn(count, 4), target=torch.randn(count, 4))
    pictures = lambda count, height, width: dict(x=torch.randn(count, 2, height, width), target=torch.randn(count, 2))
    conv = lambda: nn.Conv2d(2, 2, 3, padding=1)
    case("parts", "rows in halves by guards of the program", Rows(parts, first=nn.Linear(4, 4)), rows(4), rows(10), (0,))
    case("odd_parts", "unequal parts of rows", Rows(odd_parts, first=nn.Linear(4, 4)), rows(8), rows(11), (0,))
    case("moved", "rolls, diagonals, windows and distances over symbols", Rows(moved, first=nn.Linear(4, 4)), rows(5), rows(8), (0,))
    case("bordered", "padding by mirrors and pooling that rounds up, over symbols", Rows(bordered, first=conv()), pictures(2, 7, 9), pictures(1, 11, 5), (0, 2, 3))
    case("rescaled", "resampling by fractions of symbols", Rows(rescaled, first=conv()), pictures(2, 8, 12), pictures(3, 14, 10), (0, 2, 3))


def main(folder):
    symbolic(folder)
    torch.manual_seed(0)
    from torch.nn.utils.parametrizations import spectral_norm, weight_norm

    def rows(size=4):
        return dict(x=torch.randn(3, 4), target=torch.randn(3, size))

    def case(name, what, net, inputs, **options):
        record(f"{folder}/{name}", net, inputs, optimizer=MOMENTUM, steps=2, core=False, what=what, **options)

    case("frozen", "parameters without requires_grad stay as they are, weight decay or not",
         Rows(frozen, base=nn.Linear(4, 4).requires_grad_(False), down=nn.Parameter(torch.randn(4, 2)), up=nn.Parameter(torch.randn(2, 4)), offset=nn.Parameter(torch.ones(4), requires_grad=False)), rows())
    case("out_arguments", "results written into arguments, and shapes changed in place", Rows(out_arguments, first=nn.Linear(4, 4), mean=torch.zeros(4), most=torch.zeros(4)), rows())
    case("cells", "single steps of recurrences", Rows(cells, lstm=nn.LSTMCell(4, 4), gru=nn.GRUCell(4, 4), tanh=nn.RNNCell(4, 4), relu=nn.RNNCell(4, 4, nonlinearity="relu")), rows())
    case("parametrized", "weight norm, and a power iteration that writes to its buffers", Rows(parametrized, weighted=weight_norm(nn.Linear(4, 4)), spectral=spectral_norm(nn.Linear(4, 4))), rows())
    case("instances", "instance norm with running statistics", Rows(instances, norm=nn.InstanceNorm1d(3, affine=True, track_running_stats=True)), dict(x=torch.randn(2, 3, 5), target=torch.randn(2, 3, 5)))
    case("numbers", "ranges of integers with a floating step, a number taken from data", Rows(numbers, first=nn.Linear(4, 4)), rows())
    words = lambda rows, length: dict(ids=torch.randint(0, 5, (rows, length)), target=torch.randint(0, 5, (rows, length)))
    case("own_sizes", "inputs with symbols of their own that a guard makes equal", Tokens(shifted, embed=nn.Embedding(5, 3), head=nn.Linear(3, 5)), words(2, 4), alt_inputs=words(3, 6),
         dynamic=dict(ids={0: AUTO, 1: AUTO}, target={0: AUTO, 1: AUTO}))
    pictures = lambda rows, height, width: dict(x=torch.randn(rows, 2, height, width), target=torch.randn(rows, 12))
    case("resampled", "resampling and adaptive pooling of sizes that are symbols", Rows(resampled, first=nn.Conv2d(2, 2, 3, padding=1)), pictures(2, 6, 8), alt_inputs=pictures(1, 10, 12),
         dynamic=dict(x={0: AUTO, 2: AUTO, 3: AUTO}, target={0: AUTO}))
    for name, terms, what in (("aliases", aliases, "what shares memory and what is a copy, seen by writes in place"), ("halves", halves, "16-bit products with numbers round once, sums each operand; signs and bounds"),
                              ("corners", corners, "gradients at zero and beyond what floats tell apart; the first of equals; copies and windows")):
        record(f"{folder}/{name}", Terms(terms), dict(x=torch.ones(2)), optimizer=("SGD", dict(lr=2.0**-10)), steps=1, core=False, what=what, float64=False)
    case("bags", "the largest of each bag, of empty ones too", Rows(bags, table=nn.Parameter(torch.randn(4, 3))), dict(x=torch.tensor([0, 1, 3, 1, 3, 1]), target=torch.randn(4, 3)))
    case("from_the_end", "slices from as far behind as a symbolic size", Tokens(from_the_end, embed=nn.Embedding(5, 3), head=nn.Linear(3, 5)), words(2, 4), alt_inputs=words(3, 6),
         dynamic=dict(ids={0: AUTO, 1: AUTO}, target={0: AUTO, 1: AUTO}))
    os.makedirs(folder + "/clamped_parameter", exist_ok=True)
    net, inputs = Rows(clamped_parameter, first=nn.Linear(4, 4)), rows()
    save(torch.export.export(net, (), inputs), folder + "/clamped_parameter/model.pt2")


if __name__ == "__main__":
    main(sys.argv[1])
