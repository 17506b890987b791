#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Made tests/samples/operators: a parameter and a term of the loss for each of PyTorch's rarer operators, by family, recorded as record.py does.
The programs are without the places of their source, so that they stay small. Run by hand, with PyTorch:

    python scripts/record_operators.py tests/samples/operators [FAMILY...]
"""
import json
import os
import shutil
import sys
import zipfile

import torch
from torch import nn

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from record import record  # noqa: E402

F = nn.functional
SGD = ("SGD", dict(lr=2.0**-20))


class Terms(nn.Module):
    """Each function's results are weighted differently in the sum, so that every gradient shows what its function does."""

    def __init__(self, terms):
        super().__init__()
        self.functions = {name: function for name, (_, function) in terms.items()}
        for name, (values, _) in terms.items():
            setattr(self, name, nn.Parameter(torch.tensor(values) if isinstance(values, (list, float)) else values))

    def forward(self, x):
        lines = []
        for name, function in self.functions.items():
            results = function(getattr(self, name))
            for y in results if isinstance(results, (tuple, list)) else [results]:
                lines.append(y.flatten().to(x.dtype))
        joined = torch.cat(lines)
        return (joined * (torch.arange(joined.numel()) % 7 + 1)).sum() * x


def slim(path):
    """Leaves out what only messages use, defaults, and the spaces of the JSON."""
    other = path + ".tmp"
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(other, "w", zipfile.ZIP_STORED) as new:
        for member in old.infolist():
            data = old.read(member)
            if member.filename.endswith(".json"):
                tree = json.loads(data)
                strip(tree)
                data = json.dumps(tree, separators=(",", ":")).encode()
            if "example_inputs" not in member.filename:
                new.writestr(zipfile.ZipInfo(member.filename), data)
    shutil.move(other, path)


def strip(tree):
    for node in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else []:
        if isinstance(node, dict) and "metadata" in node:
            node["metadata"] = {}
        if isinstance(node, dict):
            for key in ("is_hop_single_tensor_return", "kind", "device", "layout", "storage_offset"):
                node.pop(key, None)
        strip(node)
    graph = tree.get("graph_module", {}).get("graph") if isinstance(tree, dict) else None
    if graph:
        inputs = {value["as_tensor"]["name"] for value in graph["inputs"]}
        short = {name: f"t{i}" for i, name in enumerate(graph["tensor_values"]) if name not in inputs}
        graph["tensor_values"] = {short.get(name, name): value for name, value in graph["tensor_values"].items()}
        rename(tree, short)


def rename(tree, short):
    """Names of tensors, not of arguments."""
    if isinstance(tree, dict) and "arg" not in tree and isinstance(tree.get("name"), str):
        tree["name"] = short.get(tree["name"], tree["name"])
    for node in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else []:
        rename(node, short)


def numbers(*shape, low=-1.5, high=1.5):
    """Distinct, in no order, the same on every machine."""
    n = torch.Size(shape).numel()
    order = torch.tensor([(i * 7919) % n if n % 7919 else i for i in range(n)])
    return (low + (high - low) * (order + 0.5) / n).reshape(shape)


P = numbers(2, 3)
POSITIVE = numbers(2, 3, low=0.2, high=2.7)
UNIT = numbers(2, 3, low=-0.9, high=0.9)
NAN = float("nan")
math = {
    "inverse": (UNIT, lambda p: p.asin() + 2 * p.acos() + 3 * p.atanh()),
    "angles": (P, lambda p: p.atan() + 2 * p.asinh() + 3 * torch.atan2(p, p.flip(0) + 2) + p.tan()),
    "hyperbolic": (POSITIVE, lambda p: p.sinh() + 2 * p.cosh() + (p + 1).acosh()),
    "gamma": (POSITIVE, lambda p: p.lgamma() + 2 * p.digamma() + torch.polygamma(1, p) + torch.mvlgamma(p + 2, 3)),
    "gamma_negative": ([-0.3, -1.6, -2.5], lambda p: p.lgamma() + 2 * p.digamma() + torch.polygamma(2, p)),
    "error": (UNIT, lambda p: p.erfinv() + p.erfc() + (p * 3).erfc() * 64 + torch.special.ndtr(p)),
    "bases": (POSITIVE, lambda p: p.log2() + p.log10() + p.exp2() + torch.special.xlog1py(p, p)),
    "sinc": ([0.0, 0.5, -1.25], lambda p: p.sinc()),
    "entropy": ([0.125, 0.5, 2.0], lambda p: torch.special.entr(p)),
    "pairs": (P, lambda p: torch.copysign(p, p.flip(1)) + torch.logaddexp2(p, p.flip(0)) + torch.ldexp(p, torch.tensor([1, 2, 3]))),
    "signs": (P, lambda p: p * p.signbit() + torch.heaviside(p.detach(), p.detach()[0]) * p + torch.isclose(p, p.round()) * p),
    "rounded": ([0.449, -1.235, 2.5], lambda p: (p.round(decimals=1).detach() + p.trunc().detach()) * p + p.frac()),
    "bits": ([1.0, 2.0, 3.0], lambda p: p * ((p.long() << 3) + (torch.tensor([-9, 17, 5]) >> 1))),
    "celu": (P, lambda p: F.celu(p, 0.7) + F.rrelu(p, 0.1, 0.3, training=False) + F.logsigmoid(p * 9)),
    "nan_to_num": ([0.5, 1.0, -1.0], lambda p: torch.nan_to_num(torch.where(p > 0.7, NAN, p), nan=2.0) * p + torch.isposinf(p / (p - 1)) * p),
}
M = numbers(3, 4)
LEFT = torch.tensor([[0, 2, 1, 0], [1, 1, 0, 2]])
order = {
    "cummax": (M, lambda p: [*p.cummax(1), *p.cummin(0)]),
    "cummax_ties": ([1.0, 3.0, 3.0, 2.0], lambda p: [*p.cummax(0), *(-p).cummin(0)]),
    "kthvalue": (M, lambda p: [*p.kthvalue(2, 1), *p.kthvalue(3, 0, keepdim=True)]),
    "median": (M, lambda p: [*p.median(1), p.median(), *p.median(0, keepdim=True)]),
    "nanmedian": (M, lambda p: [*torch.where(p > 1, NAN, p).nanmedian(1), torch.where(p > 1, NAN, p).nanmedian(), torch.where(p > 1, NAN, p).nanmean(0)]),
    "search": (M, lambda p: p * torch.bucketize(p, torch.tensor([-1.0, 0.0, 0.5])) + p * torch.searchsorted(torch.tensor([-0.5, 0.25]), p, right=True)),
    "isin": (M, lambda p: p * torch.isin((p * 4).long(), torch.tensor([1, 2, -3]))),
    "amin_amax": (M, lambda p: [p.detach().aminmax(dim=1)[0] * p[:, 0], p.msort()]),
    "reduce_max": (M, lambda p: [p[:2].scatter_reduce(0, LEFT % 2, p[1:] * 1.5, "amax"), p[:2].scatter_reduce(1, LEFT[:, :2], p[:2, 2:] * 2, "amin", include_self=False)]),
    "reduce_product": (M, lambda p: [p[:2].scatter_reduce(1, LEFT, p[:2] + 2, "prod"), torch.zeros(2, 4).scatter_reduce(0, LEFT % 2, p[:2] * 1, "prod", include_self=False)]),
    "reduce_zeros": ([0.0, 2.0, 0.0, 3.0], lambda p: p[1:3].scatter_reduce(0, torch.tensor([0, 0, 1, 1]), p, "prod")),
    "reduce_ties": ([1.0, 2.0, 2.0, 2.0], lambda p: p[1:3].scatter_reduce(0, torch.tensor([0, 0, 1, 1]), p, "amax")),
    "reduce_mean": (M, lambda p: [p[:2].scatter_reduce(1, LEFT, p[1:] * 3, "mean"), p[:2].scatter_reduce(1, LEFT, p[1:] * 3, "mean", include_self=False)]),
    "index_reduce": (M, lambda p: [p.index_reduce(0, torch.tensor([0, 2, 0]), p * 2, "amax"), p.index_reduce(1, torch.tensor([1, 1]), p[:, :2], "mean")]),
    "index_copy": (M, lambda p: [p.index_copy(0, torch.tensor([2, 0]), p[:2] * 3), p.index_fill(1, torch.tensor([1, 3]), 2.0), p.index_add(0, torch.tensor([1, 1]), p[:2])]),
    "put": (M, lambda p: [p.put(torch.tensor([1, -1]), p[0, :2] * 5), p.put(torch.tensor([3, 3]), p[0, :2], accumulate=True)]),
    "masked_scatter": (M, lambda p: p.masked_scatter(p > 0.2, p.flip(0) * 3)),
    "deviation": ([[1.0, 1.0], [2.0, 5.0]], lambda p: [*torch.std_mean(p, 1), *torch.var_mean(p, 0, correction=0)]),
}
V = numbers(2, 3, 3)


def projected(p):
    """An LSTM of 3 hidden features with a projection to 2."""
    weights = [p[:, :2], p[:, 2:4], p[:, 4], p[:, 5], p[:6, 6].reshape(2, 3)]
    return torch._VF.lstm(numbers(3, 1, 2), (numbers(1, 1, 2), numbers(1, 1, 3)), weights, True, 1, 0.0, False, False, False)


algebra = {
    "sums": (V, lambda p: torch.addbmm(p[0], p, p.flip(0), beta=0.5, alpha=2) + torch.addr(p[1], p[0, 0], p[1, 1], beta=2, alpha=0.5)),
    "products": (V, lambda p: [torch.inner(p, p[0]), torch.kron(p[0], p[1, :2]), torch.linalg.multi_dot([p[0], p[1], p[0]]), torch.linalg.matrix_power(p, 3)]),
    "cross": (V, lambda p: [torch.linalg.cross(p, p.flip(0) + 1), torch.cross(p[0], p[1], dim=0), torch.linalg.vecdot(p, p.flip(1))]),
    "bilinear": (V, lambda p: F.bilinear(p[0, :2], p[1, 1:], p, p[0, 0, :2])),
    "norms": (V, lambda p: [p.norm(3, 2), torch.linalg.norm(p, dim=(1, 2)), torch.linalg.matrix_norm(p, 1), torch.linalg.matrix_norm(p, float("inf")), p.norm(0.5, 1)]),
    "zero_norms": ([[0.0, 0.0], [0.0, 2.0]], lambda p: [p.norm(dim=1), p.norm(3, 1), p.norm(float("inf"), 1)]),
    "distances": (V, lambda p: [torch.cdist(p, p.flip(0) + 1), torch.cdist(p[0], p[1], p=1.0), torch.pdist(p[0]), F.pairwise_distance(p[0], p[1], 3.0)]),
    "equal_rows": ([[1.0, 2.0], [1.0, 2.0]], lambda p: torch.cdist(p, p.detach())),
    "renorm": (V, lambda p: p.renorm(2, 1, 1.0)),
    "combined": ([0.5, -1.0, 2.0], lambda p: [torch.cartesian_prod(p, p[:2]), torch.block_diag(p, p[:2, None], p[0]), torch.linalg.vander(p)]),
    "trapezoids": (V, lambda p: [torch.trapezoid(p, dx=0.5), torch.cumulative_trapezoid(p, torch.tensor([0.0, 1.0, 3.0]), dim=1)]),
    "diagonals": (V, lambda p: [p[0].diag(1), p[0, 0].diag(-1), p[0, 0].diagflat(), torch.diag_embed(p, 1, 0, 2), torch.linalg.diagonal(p)]),
    "stacks": (V, lambda p: [torch.hstack([p[0, 0], p[1, 1]]), torch.vstack([p[0, 0], p[1, 1]]), torch.dstack([p[0], p[1]]), torch.column_stack([p[0, 0], p[1]])]),
    "splits": (V, lambda p: [*p.tensor_split(2, dim=2), *p.hsplit([1]), p.rot90(1, (1, 2)), p.fliplr(), p.ravel(), torch.atleast_3d(p[0])]),
    "shuffled": (numbers(1, 4, 2, 2), lambda p: [F.channel_shuffle(p, 2), p.movedim(1, 3), p.swapaxes(1, 2)]),
    "projected": (numbers(12, 7), projected),
    "trilinear": (V, lambda p: torch.ops.aten._trilinear(p[0], p[1], p[0], [0], [1], [2], [1])),
    "triangle": (V, lambda p: p[0][torch.tril_indices(3, 3, -1)[0], torch.tril_indices(3, 3, -1)[1]]),
}
IMAGE = numbers(1, 2, 5, 6)
GRID = numbers(1, 3, 2, 2, low=-1.37, high=1.41)
THETA = torch.tensor([[[0.8, 0.2, 0.1], [-0.3, 0.9, -0.2]]])


def sampled(mode, padding, align):
    return lambda p: F.grid_sample(IMAGE.to(p.dtype) * p.sum(), p, mode, padding, align)


def unpooled(p):
    values, indices = F.max_pool2d(p, 2, return_indices=True)
    return F.max_unpool2d(values * 2, indices, 2)


spatial = {
    "columns": (IMAGE, lambda p: F.unfold(p, (2, 3), dilation=(2, 1), padding=1, stride=2)),
    "image": (numbers(1, 12, 9), lambda p: F.fold(p, (4, 5), (2, 3), padding=1, stride=2, dilation=1)),
    "windows": (IMAGE, lambda p: p.unfold(2, 3, 2).unfold(3, 2, 3)),
    "bilinear_zeros": (GRID, sampled("bilinear", "zeros", False)),
    "bilinear_border": (GRID, sampled("bilinear", "border", True)),
    "bilinear_reflection": (GRID, sampled("bilinear", "reflection", False)),
    "nearest_zeros": (GRID, sampled("nearest", "zeros", True)),
    "bicubic_reflection": (GRID, sampled("bicubic", "reflection", True)),
    "bicubic_zeros": (GRID, sampled("bicubic", "zeros", False)),
    "sampled_volume": (numbers(1, 2, 1, 2, 3, low=-1.2, high=1.2), lambda p: F.grid_sample(numbers(1, 1, 2, 3, 4).to(p.dtype) * p.sum(), p, align_corners=False)),
    "affine": (THETA, lambda p: [F.affine_grid(p, [1, 1, 2, 3], False), F.affine_grid(p, [1, 1, 3, 2], True)]),
    "unpool": (IMAGE[:, :, :4], unpooled),
    "adaptive_max": (IMAGE, lambda p: [F.adaptive_max_pool2d(p, (3, 4)), F.adaptive_max_pool1d(p[0], 4), *F.adaptive_max_pool2d(p, (2, 3), return_indices=True)]),
    "adaptive_mean": (IMAGE, lambda p: [F.adaptive_avg_pool2d(p, (3, 4)), F.lp_pool2d(p + 2, 2.0, 2)]),
    "antialias": (IMAGE, lambda p: [F.interpolate(p, (2, 4), mode="bilinear", antialias=True), F.interpolate(p, (7, 3), mode="bicubic", antialias=True, align_corners=True)]),
    "area": (IMAGE, lambda p: [F.interpolate(p, (3, 2), mode="area"), F.interpolate(p[:, 0], 4, mode="nearest-exact"), F.interpolate(p, (7, 9), mode="bicubic")]),
    "response": (IMAGE, lambda p: F.local_response_norm(p, 3, alpha=0.5)),
}
ROWS = numbers(3, 4)
losses = {
    "margin_ranking": (ROWS, lambda p: F.margin_ranking_loss(p[0], p[1], torch.tensor([1.0, -1, 1, -1]), 0.3)),
    "hinge": (ROWS, lambda p: F.hinge_embedding_loss(p, torch.tensor([1.0, -1, 1, -1]), 0.7, reduction="none")),
    "cosine": (ROWS, lambda p: F.cosine_embedding_loss(p, p.flip(0) * 2 + 0.1, torch.tensor([1, -1, -1]), 0.1)),
    "triplet": (ROWS, lambda p: [F.triplet_margin_loss(p, p.flip(0), p.roll(1, 0), reduction="none"), F.triplet_margin_loss(p, p * 2, p.flip(1), p=1.0, swap=True)]),
    "multi_margin": (ROWS, lambda p: [F.multi_margin_loss(p, torch.tensor([0, 3, 1])), F.multi_margin_loss(p, torch.tensor([0, 3, 1]), p=2, margin=0.6, weight=torch.tensor([1.0, 2, 3, 4]), reduction="none")]),
    "multilabel_margin": (ROWS, lambda p: F.multilabel_margin_loss(p, torch.tensor([[3, 0, -1, 1], [-1, 0, 1, 2], [0, 1, 2, 3]]), reduction="none")),
    "multilabel_soft": (ROWS, lambda p: F.multilabel_soft_margin_loss(p, (ROWS > 0).float(), weight=torch.tensor([1.0, 2, 3, 4]))),
    "soft_margin": (ROWS, lambda p: F.soft_margin_loss(p, ROWS.sign(), reduction="sum")),
    "poisson": (ROWS, lambda p: [F.poisson_nll_loss(p, torch.tensor([0.0, 1, 3, 7]), full=True), F.poisson_nll_loss(p + 2, torch.tensor([0.0, 1, 3, 7]), log_input=False)]),
    "smooth": (ROWS, lambda p: [F.smooth_l1_loss(p, ROWS.flip(0), beta=0.5), F.huber_loss(p, ROWS.flip(0), delta=0.4, reduction="sum"), F.l1_loss(p, p.detach())]),
    "kl": (ROWS, lambda p: [F.kl_div(p.log_softmax(1), ROWS.softmax(1), reduction="batchmean"), F.kl_div(p, ROWS, log_target=True)]),
    "binary": (ROWS, lambda p: [F.binary_cross_entropy(p.sigmoid(), (ROWS > 0).float(), torch.tensor([1.0, 2, 3, 4])), F.binary_cross_entropy_with_logits(p, ROWS.sigmoid(), pos_weight=torch.tensor([1.0, 2, 3, 4]))]),
    "classes": (ROWS, lambda p: [F.cross_entropy(p, ROWS.softmax(1), label_smoothing=0.1), F.cross_entropy(p, torch.tensor([0, 3, -100]), torch.tensor([1.0, 2, 3, 4]), label_smoothing=0.2)]),
    "pixels": (numbers(1, 3, 2, 2), lambda p: F.nll_loss(p.log_softmax(1), torch.tensor([[[0, 2], [1, 1]]]), reduction="none")),
    "similarity": (ROWS, lambda p: [F.cosine_similarity(p, p.flip(0)), F.normalize(p, 3.0, 0), F.normalize(p * 0, dim=1)]),
}
DIVIDED = torch.tensor([[12, -18, 0], [7, 0, 64]])
special = {
    "other_names": (P, lambda p: [torch.absolute(p).negative(), p.moveaxis(0, 1), p.swapdims(0, 1), torch.linalg.matmul(p, p.T), torch.special.expit(p), torch.special.softmax(p, 1),
                                  torch.special.logsumexp(p, 1), torch.special.xlogy(p.exp(), p.exp()), torch.special.logit(p.sigmoid()), torch.fix(p.detach()) * p]),
    "scaled_error": ([-3.0, -0.5, 0.0, 1.0, 9.5, 12.0, 30.0], torch.special.erfcx),
    "log_normal": ([-15.0, -6.0, -1.0, -0.5, 0.0, 3.0], torch.special.log_ndtr),
    "bessel": ([-30.0, -2.0, 0.0, 0.5, 8.0, 24.9, 25.1], lambda p: [torch.special.i0(p) * (-p.abs()).exp().detach(), torch.special.i1(p) * (-p.abs()).exp().detach()]),
    "divisors": (P, lambda p: p * torch.gcd(DIVIDED, torch.tensor([18, 12, 0])) + p * torch.lcm(DIVIDED, torch.tensor([4, 6, 5])) * 2),
    "narrowed": (M, lambda p: p.narrow(1, -2, 2)),
    "rare_words": (M, lambda p: F.embedding(torch.tensor([0, 1, 1, 2, 1]), p, scale_grad_by_freq=True)),
    "quantized": ([[-1.26, 0.0, 0.14, 0.15], [0.25, 3.0, -20.0, 20.0]], lambda p: [torch.fake_quantize_per_tensor_affine(p, 0.1, 3, -10, 20), torch.fake_quantize_per_channel_affine(
        p, torch.tensor([0.1, 0.5]), torch.tensor([0, 1], dtype=torch.int32), 0, -4, 4)]),
    "small_pool": (numbers(1, 1, 2, 2), lambda p: [F.avg_pool2d(p, 4, ceil_mode=True), F.avg_pool2d(p, 3, 2, 1, ceil_mode=True, count_include_pad=False), F.max_pool2d(p, 3, 2, ceil_mode=True)]),
}
flat = {  # a gradient of zero decays a parameter, none leaves it alone
    "steps": (ROWS, lambda p: [p.floor(), p.ceil(), p.round(), p.sign(), p.trunc(), torch.div(p, 0.3, rounding_mode="floor")]),
    "compared": (ROWS, lambda p: (p > 0).float()),
    "sign_of": (ROWS, lambda p: torch.copysign(ROWS.detach(), p)),
    "zeros": ([0.0, 0.0, 0.0], lambda p: [p.abs(), torch.copysign(p, torch.ones(3)), torch.addmv(p, torch.eye(3), torch.ones(3), beta=0)]),
    "stopped": (ROWS, lambda p: p.detach() * 2),
    "used": (ROWS, lambda p: p * 2),
}


def half(function):
    """The value of a function of 16-bit numbers, both kinds, as a factor of p: the gradient shows it."""
    return lambda p: [function(p.detach().half()).float().flatten() * p.flatten()[0], function(p.detach().bfloat16()).float().flatten() * p.flatten()[1]]


PAIR = [[300.0, 400.0], [0.03, -0.04]]
SIGNAL = numbers(1, 3, 8)
WINDOWS = torch.tensor([[[1.0, 2**-7]], [[-0.5, 0.3]], [[0.7, 1.1]]])
halves = {
    "length": (PAIR, half(lambda x: x.norm(dim=1))),
    "lengths": (PAIR, half(lambda x: torch.stack([torch.linalg.vector_norm(x, 3, 1), torch.linalg.norm(x, dim=1), x.norm(0.5, 1)]))),
    "unit": (PAIR, half(lambda x: F.normalize(x, dim=1))),
    "deviation": ([[-300.0, 300.0, 1.0], [1e-4, 2e-4, 0.0]], half(lambda x: torch.stack([*torch.std_mean(x, 1), x.std(1, correction=0)]))),
    "variance": ([[-3.0, 3.1, 1.0], [0.01, 0.02, 0.0]], half(lambda x: torch.stack([*torch.var_mean(x, 1), x.var(1, correction=0)]))),
    "sums": (SIGNAL * 100, half(lambda x: torch.stack([x.sum(2), x.mean(2), x.cumsum(2)[:, :, -1], x.square().mean(2)]))),
    "products": (SIGNAL * 2, half(lambda x: x.cumprod(2))),
    "normed": (SIGNAL, half(lambda x: torch.stack([F.rms_norm(x * 0.01, (8,)), F.layer_norm(x, (8,)), x.softmax(2)]))),
    "linear": ([[1.0, 2**-7], [0.3, -0.7]], half(lambda x: F.linear(x, torch.tensor([[1.0, 0.5], [0.1, 0.9]]).to(x.dtype), torch.tensor([-1.0, 0.37]).to(x.dtype)))),
    "convolutions": (SIGNAL, half(lambda x: F.conv1d(x, WINDOWS.repeat(1, 3, 1).to(x.dtype), WINDOWS[:, 0, 0].to(x.dtype)))),
    "added_products": (PAIR, half(lambda x: torch.stack([torch.addmm(x[0], x[1:].mT @ x[1:], x / 64, beta=0.3, alpha=0.7), torch.baddbmm(x[None], x[None] / 64, x[None] / 7)[0]]))),
    "activations": (SIGNAL * 3, half(lambda x: torch.stack([F.mish(x), F.silu(x), F.softplus(x), F.elu(x), F.selu(x), F.celu(x, 0.7), F.hardswish(x),
                                                            F.hardsigmoid(x), F.leaky_relu(x, 0.3), F.logsigmoid(x), F.softshrink(x, 0.3), x.sigmoid(), x.tanh()]))),
    "activation_gradients": (SIGNAL * 3, lambda p: [f(p.half()) for f in (F.mish, F.silu, F.softplus, F.elu, F.hardswish, torch.tanh)]),
    "arithmetic": (SIGNAL, half(lambda x: torch.stack([torch.addcmul(x, x, x.flip(2), value=0.7), torch.addcdiv(x, x, x.flip(2), value=0.3), torch.lerp(x, x.flip(2), 0.3),
                                                       torch.hypot(x * 300, x.flip(2) * 300), torch.logaddexp(x, x.flip(2)), torch.sinc(x), x.deg2rad()]))),
}
TIED = [1.0, 1.0, 1.0, 1.0, 1.0]
INT = torch.tensor([-(2**31), 2**31 - 1, 5, -7], dtype=torch.int32)
NOT_READ = torch.tensor([NAN, 1.0])


def shifted(p):
    """Shifts by the width and more, as parts of the type's range."""
    some = torch.tensor([1, 33, -1, 2], dtype=torch.int32)
    wide = [INT >> 31, INT >> 40, INT >> some, INT >> 1, INT << 31, INT << 32, INT << some]
    return [p * y / 2**31 for y in wide] + [p * y for y in (INT.long() >> 63, INT.long() >> 64, INT.to(torch.int8) >> 7, INT.to(torch.uint8) >> 8, (INT.to(torch.uint8) << 7) / 64)]


def sloped(y):
    """Its gradient without its value."""
    return y - y.detach()


bounds = {
    "beta": ([[1.0, 2.0], [3.0, 4.0]], lambda p: [torch.addmv(NOT_READ, p, p[0], beta=0), torch.addmm(NOT_READ, p, p, beta=0), torch.addr(NOT_READ, p[0], p[1], beta=0),
                                                torch.addbmm(NOT_READ[None].expand(2, 2), p[None], p[None], beta=0), torch.baddbmm(NOT_READ, p[None], p[None], beta=0)]),
    "shifts": ([1.0, 2.0, 3.0, 4.0], shifted),
    "sinc": ([0.1, 0.2499, 0.2501, -0.5, 0.0], lambda p: p.sinc()),
    "xlogy": ([0.0, 0.0, 2.0], lambda p: [torch.xlogy(p, torch.tensor([0.0, 3.0, 0.5])), torch.special.xlog1py(p, torch.tensor([-1.0, 2.0, -0.5])), torch.xlogy(torch.tensor([0.0, 1.0, 2.0]), p + 1)]),
    "large": ([1e38, -1e38, 3e38, -3e38], lambda p: [sloped(F.silu(p)), sloped(F.mish(p)), sloped(F.softplus(p)), F.silu(p).detach() / 1e38, F.mish(p).detach() / 1e38]),
    "large_half": ([3e4, -3e4, 6e4, 1.0], lambda p: [F.mish(p.half()) / 4, F.silu(p.half()) / 4]),
    "entropy": ([0.125, 1.0, 4.0], lambda p: torch.special.entr(p)),
    "distances": ([[1.0, 2.0], [2.0, 3.0], [5.0, 6.0]], lambda p: [torch.cdist(p, p.detach().flip(0), p=float("inf")), torch.pdist(p, float("inf"))]),
    "clamp": ([-1.0, 0.0, 1.0, 2.0], lambda p: [p.detach().clamp(p.flip(0), p.flip(0)), p.clamp(p.detach() + 1, p.detach() + 1), torch.clamp(p, min=p.flip(0)), p.clamp(torch.tensor(1.0), torch.tensor(0.0))]),
    "clamp_equal": ([2.0, 2.0, 2.0], lambda p: torch.tensor([1.0, 2.0, 3.0]).clamp(p, p)),
    "clamp_nan": ([1.0, 2.0, -5.0], lambda p: [torch.nan_to_num((p + torch.tensor([NAN, 0.0, 0.0])).clamp(*bounds)) for bounds in ((-1.0, 1.0), (0.0, None), (None, torch.tensor(3.0)), (torch.tensor(-9.0), torch.tensor(9.0)))]),
    "roots": ([4.0, 0.25, 9.0], lambda p: [p**0.5, p**-0.5, torch.float_power(p, 0.5)]),
    "digamma": ([-1.5, -2.75], lambda p: torch.digamma(p) + torch.polygamma(2, p)),
    "digamma_near_zero": ([-1e-20], lambda p: [torch.digamma(p.detach()) * 1e-20 * p, torch.polygamma(1, p.detach() * 1e8) * 1e-24 * p]),
    "deviation": ([1e20, 0.0, 1.0], lambda p: [sloped(p.std()), sloped(p.std(correction=0)), p.std().detach() / 1e20]),
    "topk": (TIED, lambda p: [p.topk(2).values, *p.topk(3, largest=False), *p.topk(2, sorted=False)]),
    "topk_many": ([1.0, 2.0, 2.0, 1.0] * 50, lambda p: [*p.topk(3), *p.topk(60), *p.topk(5, largest=False), *p.topk(120, sorted=False)]),
    "kthvalue": ([2.0, 1.0, 2.0, 1.0, 2.0, 3.0, 2.0], lambda p: [r for k in range(1, 8) for r in p.kthvalue(k)]),
    "median": ([2.0, 1.0, 2.0, 1.0, 2.0, 3.0, 2.0], lambda p: [*p.median(0), *p.nanmedian(0), p.median()]),
    "copysign": ([0.0, -0.0, 2.0, -3.0], lambda p: [torch.copysign(p, torch.tensor([1.0, -1.0, -1.0, -0.0])), torch.copysign(torch.tensor([1.0, -2.0, 0.0, 3.0]), p)]),
}


def pulled(loss, *values):
    """The squared gradients of a loss that autograd itself wrote."""
    gradients = torch.autograd.grad(loss, values, create_graph=True)
    return sum((g * g).sum() for g in gradients)


A = torch.ops.aten
second = {
    "mse": (P, lambda p: pulled(F.mse_loss(p * 1, p.flip(0), reduction="sum"), p)),
    "mse_target": (P, lambda p: pulled(F.mse_loss(p.detach() * 2, p * p), p)),
    "smooth_l1": (P, lambda p: pulled(F.smooth_l1_loss(p * p, p.flip(1), beta=0.7, reduction="sum"), p)),
    "huber": (P, lambda p: pulled(F.huber_loss(p * p, p.flip(1), delta=0.6), p)),
    "soft_margin": (P, lambda p: pulled(F.soft_margin_loss(p * p, P.sign()), p)),
    "convolution": (numbers(2, 3, 5), lambda p: pulled((F.conv1d(p, p[:, :, 1:3] * p[:, :, 2:4], p[:, 0, 0], padding=1) ** 2).sum() / 64, p)),
    "transposed": (numbers(2, 2, 4), lambda p: pulled((F.conv_transpose1d(p, p[:, :, 1:3] * 2, stride=2) ** 2).sum() / 64, p)),
    "prelu": (P, lambda p: [g * g for g in A._prelu_kernel_backward(p * p, p.flip(0), p[0] * 2)]),
    "binary": (UNIT, lambda p: A.binary_cross_entropy_backward(p, p * p * 0.5 + 0.1, p.flip(0).abs(), None, 1)),
    "mse_by_name": (P, lambda p: A.mse_loss_backward(p * p, p, p.flip(0), 0) ** 2),
    "embedding": (M, lambda p: pulled((F.embedding(torch.tensor([0, 2, 2]), p, padding_idx=0) ** 3).sum(), p)),
    "elu": (P, lambda p: pulled(F.elu(p * p - 1).sum(), p)),
    "softplus": (P, lambda p: pulled(F.softplus(p * p).sum(), p)),
    "gelu": (P, lambda p: pulled(F.gelu(p * 2).sum(), p)),
    "hardswish": (P, lambda p: pulled(F.hardswish(p * p).sum(), p)),
    "reflected": (numbers(1, 2, 4), lambda p: pulled((F.pad(p, (2, 1), mode="reflect") ** 3).sum(), p)),
    "layer_norm": (P, lambda p: layer_norm_gradients(p)),
}


def layer_norm_gradients(p):
    result, mean, scale = A.native_layer_norm(p, [3], p[0], p[1], 1e-5)
    return [g * g for g in A.native_layer_norm_backward(p * p, p, [3], mean, scale, p[0], p[1], [True, True, True])]


families = {"math": math, "order": order, "algebra": algebra, "spatial": spatial, "losses": losses, "halves": halves, "bounds": bounds, "second": second, "special": special}


def main(folder, only):
    torch.manual_seed(0)
    x = torch.tensor(1.0)
    for name, terms in families.items():
        if only and name not in only:
            continue
        record(f"{folder}/{name}", Terms(terms), dict(x=x), optimizer=SGD, steps=1, core=False, what="rarer operators, each a term of the loss", float64=name == "spatial")
        slim(f"{folder}/{name}/model.pt2")
    if only and "zero_gradients" not in only:
        return
    decay = ("AdamW", dict(lr=0.125, weight_decay=0.25))
    record(f"{folder}/zero_gradients", Terms(flat), dict(x=x), optimizer=decay, steps=2, core=False, what="parameters with a gradient of zero, and without one", float64=False)
    slim(f"{folder}/zero_gradients/model.pt2")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
