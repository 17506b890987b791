# SPDX-License-Identifier: Apache-2.0
"""Many small questions in one model each: a parameter and a term of the loss for each, so that the name of a wrong gradient says which."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from .common import Case, register


class Terms(nn.Module):
    def __init__(self, terms):
        super().__init__()
        self.functions = {name: function for name, (_, function) in terms.items()}
        for name, (shape, _) in terms.items():
            setattr(self, name, nn.Parameter(torch.randn(shape)))

    def forward(self, x):
        total = (x * 0.0).sum()
        for name, function in self.functions.items():
            y = function(getattr(self, name))
            weight = torch.linspace(-1, 2, max(y.numel(), 1), dtype=y.dtype if y.is_floating_point() else torch.float32)[: y.numel()].reshape(y.shape)
            total = total + (y * weight).sum()
        return total


FORMS = {}


def runs_in_pytorch(term):
    """Whether PyTorch differentiates and exports it: some it does not."""
    net, inputs = Terms({"term": term}), dict(x=torch.ones(2))
    try:
        net(**inputs).backward()
        torch.export.export(net, (), inputs)
    except Exception:
        return False
    return True


def forms(name, terms, **options):
    FORMS[name] = terms

    def build():
        kept = {term: made for term, made in terms.items() if runs_in_pytorch(made)}
        return Case(Terms(kept), dict(x=torch.ones(2)), optimizer=("SGD", dict(lr=2.0**-8, momentum=0.5)), **options)
    register("forms_" + name, build)


def written(function):
    """Writes to a copy of the parameter; what other views of the copy see is the result."""
    def run(p):
        x = p * 1.0
        function(x)
        return x
    return run


def through(view):
    return written(lambda x: view(x).mul_(3.0))


forms("aliases", {
    "transposed_reshape": ((3, 4), through(lambda x: x.t().reshape(-1))), "plain_reshape": ((3, 4), through(lambda x: x.reshape(-1))), "plain_flatten": ((3, 4), through(lambda x: x.flatten())),
    "transposed_flatten": ((3, 4), through(lambda x: x.t().flatten())), "sliced_reshape": ((3, 4), through(lambda x: x[:, 1:].reshape(-1))), "sliced_rows_reshape": ((3, 4), through(lambda x: x[1:].reshape(-1))),
    "transposed_contiguous": ((3, 4), through(lambda x: x.t().contiguous())), "plain_contiguous": ((3, 4), through(lambda x: x.contiguous())), "same_type": ((3, 4), through(lambda x: x.to(x.dtype))),
    "as_float": ((3, 4), through(lambda x: x.type_as(x))), "other_type": ((3, 4), through(lambda x: x.to(torch.float16).to(torch.float32))), "cloned": ((3, 4), through(lambda x: x.clone())),
    "ravelled": ((3, 4), through(torch.ravel)), "ravelled_transposed": ((3, 4), through(lambda x: x.t().ravel())), "moved": ((2, 3, 4), through(lambda x: x.movedim(0, 2)[..., 0])),
    "viewed": ((3, 4), through(lambda x: x.view(2, 6)[1])), "unflattened": ((3, 4), through(lambda x: x.unflatten(1, (2, 2))[:, :, 1])), "chunks": ((4, 4), through(lambda x: x.chunk(2, 1)[1])),
    "splits": ((4, 4), through(lambda x: x.split([1, 3], 0)[1])), "unbound": ((3, 4), through(lambda x: x.unbind(1)[2])), "diagonal": ((4, 4), through(lambda x: x.diagonal(1))), "narrowed": ((3, 4), through(lambda x: x.narrow(1, 1, 2))),
    "strided": ((3, 5), through(lambda x: x[::2, 1::2])), "squeezed": ((3, 1, 4), through(lambda x: x.squeeze(1)[1])), "expanded": ((3, 4), lambda p: (p * 1.0)[:, None].expand(3, 2, 4).clone().mul_(2.0)),
    "picked": ((3, 4), through(lambda x: x[torch.tensor([0, 2])])), "masked": ((3, 4), written(lambda x: x.__setitem__(x > 0, -1.0))), "indexed": ((3, 4), written(lambda x: x.__setitem__((torch.tensor([0, 2]), torch.tensor([1, -1])), 5.0))),
    "added_at": ((3, 4), written(lambda x: x.index_put_((torch.tensor([0, 0, 2]),), torch.ones(4), accumulate=True))), "twice": ((3, 4), written(lambda x: (x.t()[1].zero_(), x[2].add_(x[0]), x.view(-1)[::3].neg_()))),
    "self_copy": ((6,), written(lambda x: x[:3].copy_(x[3:] * 2))), "swapped": ((2, 3), lambda p: torch.stack((lambda x: (x, x.t().contiguous().t().mul_(2)))(p * 1.0))),
    "reshaped_expanded": ((3, 1), lambda p: (lambda x: (x.expand(3, 4).reshape(-1).mul_(2.0).sum() + x.sum()).reshape(1))(p * 1.0)), "real_part": ((3,), through(lambda x: x.view_as(x))),
    "dropout_off": ((3, 4), through(lambda x: F.dropout(x, 0.5, training=False))), "detached": ((3, 4), through(lambda x: x.detach())), "no_gradient": ((3, 4), written(lambda x: None)),
})

INTEGERS = torch.tensor([-7, -3, 0, 2, 5])
forms("types", {
    "int_true": ((5,), lambda p: p * (INTEGERS / 2)), "int_floor": ((5,), lambda p: p * (INTEGERS // 2)), "int_remainder": ((5,), lambda p: p * (INTEGERS % 4)), "int_negative_divisor": ((5,), lambda p: p * (INTEGERS // -2 + INTEGERS % -4)),
    "int_trunc": ((5,), lambda p: p * torch.div(INTEGERS, 2, rounding_mode="trunc")), "int_fmod": ((5,), lambda p: p * torch.fmod(INTEGERS, 3)), "int_power": ((5,), lambda p: p * INTEGERS**2 + p * 2**INTEGERS.abs()),
    "int_clamp_float": ((5,), lambda p: p * INTEGERS.clamp(-1.5, 2.5)), "int_compare_float": ((5,), lambda p: p * (INTEGERS > 0.5)), "int_mean": ((5,), lambda p: p * INTEGERS.float().mean()), "int_prod": ((5,), lambda p: p * INTEGERS[1:].prod()),
    "bool_add": ((5,), lambda p: p * ((INTEGERS > 0) + (INTEGERS > 1))), "bool_multiply": ((5,), lambda p: p * ((INTEGERS > 0) * (INTEGERS > 2))), "bool_sum": ((5,), lambda p: p * (INTEGERS > 0).sum()), "bool_cumsum": ((5,), lambda p: p * (INTEGERS > 0).cumsum(0)),
    "bool_not": ((5,), lambda p: p * ~(INTEGERS > 0)), "bool_xor": ((5,), lambda p: p * ((INTEGERS > 0) ^ (INTEGERS < 3))), "bool_mean": ((5,), lambda p: p * (INTEGERS > 0).float().mean()), "bool_max": ((5,), lambda p: p * (INTEGERS > 0).amax()),
    "small_overflow": ((5,), lambda p: p * (INTEGERS.to(torch.int8) * 50).float()), "unsigned": ((5,), lambda p: p * (INTEGERS.to(torch.uint8) - 1).float() * 0.01), "int32_sum": ((5,), lambda p: p * INTEGERS.int().sum()),
    "half_scalar": ((5,), lambda p: (p.half() * 1.1).float()), "half_tensor": ((5,), lambda p: (p.half() * torch.tensor(1.1)).float()), "half_vector": ((5,), lambda p: (p.half() * torch.full((5,), 1.1)).float()), "half_int": ((5,), lambda p: (p.half() * INTEGERS).float()),
    "double_scalar": ((5,), lambda p: p * torch.tensor(1.1, dtype=torch.float64)), "double_vector": ((5,), lambda p: (p * torch.full((5,), 1.1, dtype=torch.float64)).float()), "where_scalars": ((5,), lambda p: p * torch.where(INTEGERS > 0, 1.5, 2)),
    "where_mixed": ((5,), lambda p: torch.where(p > 0, p, 1)), "maximum_mixed": ((5,), lambda p: torch.maximum(p, torch.tensor(0))), "float_floor": ((5,), lambda p: p * (p.detach() // 0.3)), "float_remainder": ((5,), lambda p: p % 0.7 + p % -0.7), "float_fmod": ((5,), lambda p: torch.fmod(p, 0.7)),
    "remainder_tensor": ((5,), lambda p: torch.remainder(2.0, p + 3)), "round_even": ((5,), lambda p: p * torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5]).round()), "round_decimals": ((5,), lambda p: p * torch.tensor([0.125, 1.255, 2.5, -0.555, 123.456]).round(decimals=2)),
    "to_int": ((5,), lambda p: p * (p.detach() * 3).long()), "to_bool": ((5,), lambda p: p * p.detach().bool()), "scalar_power": ((5,), lambda p: 2.0**p + p.abs() ** p), "tensor_power_int": ((5,), lambda p: p**3 + p**-1 + p**0 + p.abs() ** 0.5),
    "subtract_from": ((5,), lambda p: 3 - p * 2 - torch.rsub(p, 1, alpha=2)), "alpha": ((5,), lambda p: torch.add(p, p, alpha=3) - torch.sub(p, p * 2, alpha=0.5)), "sum_type": ((5,), lambda p: p.sum(dtype=torch.float64).float().reshape(1)), "full_int": ((5,), lambda p: p * torch.full((5,), 3)),
    "arange_float": ((5,), lambda p: p * torch.arange(0.5, 3, 0.5)), "arange_int": ((5,), lambda p: p * torch.arange(10, 0, -2)), "linspace": ((5,), lambda p: p * torch.linspace(-1, 1, 5)), "ones_like_int": ((5,), lambda p: p * torch.ones_like(INTEGERS)),
    "mixed_cat": ((5,), lambda p: torch.cat([p, INTEGERS])), "mixed_stack": ((5,), lambda p: torch.stack([p, INTEGERS.float()])), "lerp": ((5,), lambda p: torch.lerp(p, p * 2, 0.3) + torch.lerp(p, p * 3, p.sigmoid())), "one_hot": ((5,), lambda p: F.one_hot(INTEGERS.abs() % 3, 3) * p[:, None]),
    "isclose": ((5,), lambda p: p * torch.isclose(p, p + 1e-9)), "sign_zero": ((5,), lambda p: p * torch.sign(torch.tensor([0.0, -0.0, 2.0, -3.0, float("nan")])).nan_to_num(7.0)), "logical": ((5,), lambda p: p * torch.logical_and(INTEGERS, INTEGERS > -5).logical_or(INTEGERS == 0)),
}, float64=False)

forms("indexing", {
    "negative": ((4, 5), lambda p: p[-1] + p[-2]), "slices": ((4, 5), lambda p: p[1:-1, ::2]), "stepped": ((4, 5), lambda p: p[::3, 1:5:2]), "beyond": ((4, 5), lambda p: p[2:99, -99:3]), "empty": ((4, 5), lambda p: p[3:1].sum().reshape(1) + p[0, :1]), "new_dims": ((4, 5), lambda p: p[None, :, None, 2]),
    "dots": ((2, 3, 4), lambda p: p[..., 1] + p[:, ..., 0]), "by_list": ((4, 5), lambda p: p[[0, 2, 2]]), "by_two": ((4, 5), lambda p: p[torch.tensor([0, 1, -1]), torch.tensor([1, 1, -2])]), "by_broadcast": ((4, 5), lambda p: p[torch.tensor([[0], [2]]), torch.tensor([1, 3, 4])]),
    "apart": ((3, 4, 5), lambda p: p[torch.tensor([0, 2]), :, torch.tensor([1, 4])]), "together": ((3, 4, 5), lambda p: p[:, torch.tensor([0, 2]), torch.tensor([1, 4])]), "mixed": ((3, 4, 5), lambda p: p[1:, torch.tensor([0, 2, 2]), None, ::2]), "constant_mask": ((4, 5), lambda p: p * torch.tensor([True, False, True, True])[:, None]),
    "gather": ((4, 5), lambda p: p.gather(1, torch.tensor([[0, 0, 4], [1, 2, 3], [4, 4, 4], [0, 1, 0]]))), "gather_small": ((4, 5), lambda p: p.gather(0, torch.tensor([[1, 2], [3, 3]]))), "take_along": ((4, 5), lambda p: torch.take_along_dim(p, p.detach().argsort(1), 1)),
    "select_repeated": ((4, 5), lambda p: p.index_select(1, torch.tensor([1, 1, 0]))), "scatter_source": ((4, 5), lambda p: torch.zeros(4, 5).scatter(1, torch.tensor([[0, 1], [2, 3], [4, 0], [1, 2]]), p)), "scatter_value": ((4, 5), lambda p: p.scatter(1, torch.tensor([[0], [2], [4], [1]]), 1.5)),
    "scatter_add": ((4, 5), lambda p: torch.zeros(3, 5).scatter_add(0, torch.tensor([[0, 1, 2, 0, 0]] * 4), p)), "scatter_reduce_sum": ((4, 5), lambda p: torch.ones(3, 5).scatter_reduce(0, torch.tensor([[0, 1, 2, 0, 0]] * 4), p, "sum")),
    "scatter_reduce_mean": ((4, 5), lambda p: torch.ones(3, 5).scatter_reduce(0, torch.tensor([[0, 1, 2, 0, 0]] * 4), p, "mean")), "scatter_reduce_max": ((4, 5), lambda p: torch.ones(3, 5).scatter_reduce(0, torch.tensor([[0, 1, 2, 0, 0]] * 4), p, "amax")),
    "scatter_reduce_min": ((4, 5), lambda p: torch.ones(3, 5).scatter_reduce(0, torch.tensor([[0, 1, 2, 0, 0]] * 4), p, "amin", include_self=False)), "scatter_reduce_prod": ((4, 5), lambda p: torch.ones(3, 5).scatter_reduce(0, torch.tensor([[0, 1, 2, 0, 0]] * 4), p, "prod")),
    "index_add": ((4, 5), lambda p: torch.ones(3, 5).index_add(0, torch.tensor([0, 2, 2, 1]), p, alpha=2)), "index_fill": ((4, 5), lambda p: p.index_fill(1, torch.tensor([0, 3]), 2.0)), "index_copy": ((4, 5), lambda p: torch.zeros(6, 5).index_copy(0, torch.tensor([5, 0, 2, 3]), p)),
    "put_values": ((4, 5), lambda p: torch.zeros(4, 5).index_put((torch.tensor([0, 1]), torch.tensor([2, 3])), p[0, :2])), "put_rows": ((4, 5), lambda p: torch.zeros(4, 5).index_put((torch.tensor([0, 3]),), p[1])), "put_into": ((4, 5), lambda p: (p * 1).index_put((torch.tensor([0, 3]),), torch.tensor(0.5))),
    "topk_smallest": ((4, 5), lambda p: p.topk(3, largest=False).values), "topk_first_dim": ((4, 5), lambda p: p.topk(2, 0).values), "sort_descending": ((4, 5), lambda p: p.sort(1, descending=True).values), "argsort_gather": ((4, 5), lambda p: p.gather(1, p.argsort(1).argsort(1))), "kth": ((4, 5), lambda p: p.kthvalue(2, 1).values),
    "median": ((4, 5), lambda p: p.median(1).values + p.median()), "cummax": ((4, 5), lambda p: p.cummax(1).values), "roll": ((4, 5), lambda p: p.roll((1, -2), (0, 1)) + p.roll(3)), "flip": ((4, 5), lambda p: p.flip(0, 1)), "rot90": ((4, 5), lambda p: p.rot90(1, (0, 1))), "tril": ((4, 5), lambda p: p.tril(-1) + p.triu(1)),
    "repeat": ((2, 3), lambda p: p.repeat(2, 1, 2)), "interleave": ((2, 3), lambda p: p.repeat_interleave(2, 1)), "interleave_counts": ((3, 2), lambda p: p.repeat_interleave(torch.tensor([1, 0, 2]), 0, output_size=3)), "tile": ((2, 3), lambda p: p.tile(2, 2)), "unfold": ((3, 6), lambda p: p.unfold(1, 3, 2)), "diagonal": ((3, 4), lambda p: p.diagonal(1)),
    "block_diagonal": ((2, 3), lambda p: torch.block_diag(p, p * 2)), "kron": ((2, 3), lambda p: torch.kron(p, p[:, :2])), "cartesian": ((3,), lambda p: torch.cartesian_prod(p, p[:2])), "combinations": ((4,), lambda p: torch.combinations(p)), "masked_fill": ((4, 5), lambda p: p.masked_fill(p > 0.5, 0.5).masked_fill(torch.eye(4, 5, dtype=torch.bool), -2.0)),
    "bucketize": ((5,), lambda p: p * torch.bucketize(p.detach(), torch.tensor([-1.0, 0.0, 1.0]))), "searchsorted": ((5,), lambda p: p * torch.searchsorted(torch.tensor([-1.0, 0.0, 1.0]), p.detach(), right=True)),
})

Q = (2, 2, 3, 4)


def attend(**options):
    return lambda p: F.scaled_dot_product_attention(p, p.roll(1, 2) * 1.5, p.flip(3), **options)


forms("attention", {
    "plain": (Q, attend()), "causal": (Q, attend(is_causal=True)), "scaled": (Q, attend(scale=0.3)), "bool_mask": (Q, attend(attn_mask=torch.tensor([[True, False, True], [True, True, False], [False, False, True]]))), "float_mask": (Q, attend(attn_mask=torch.arange(9.0).view(3, 3).sin())),
    "masked_heads": (Q, attend(attn_mask=torch.arange(18.0).view(2, 1, 3, 3).cos())), "empty_row": (Q, attend(attn_mask=torch.tensor([[True, False, True], [False, False, False], [False, True, True]]))), "infinite_mask": (Q, attend(attn_mask=torch.full((3, 3), float("-inf")).triu(1))),
    "wide_causal": ((2, 2, 5, 4), lambda p: F.scaled_dot_product_attention(p[:, :, :3], p, p * 2, is_causal=True)), "long_causal": ((2, 2, 5, 4), lambda p: F.scaled_dot_product_attention(p, p[:, :, :3], p[:, :, 1:4], is_causal=True)), "three_dims": ((2, 3, 4), lambda p: F.scaled_dot_product_attention(p, p * 2, p.flip(2))),
    "grouped": ((2, 4, 3, 4), lambda p: F.scaled_dot_product_attention(p, p[:, :2], p[:, 2:], enable_gqa=True)), "grouped_causal": ((2, 4, 3, 4), lambda p: F.scaled_dot_product_attention(p, p[:, :1], p[:, 3:], enable_gqa=True, is_causal=True)), "other_width": ((2, 2, 3, 6), lambda p: F.scaled_dot_product_attention(p[..., :4], p[..., 2:], p)),
    "broadcast_batch": ((2, 2, 3, 4), lambda p: F.scaled_dot_product_attention(p, p[:1] * 2, p[:1])), "learned_mask": ((3, 3), lambda p: F.scaled_dot_product_attention(torch.ones(1, 1, 3, 3), torch.eye(3)[None, None], torch.arange(9.0).view(1, 1, 3, 3), attn_mask=p)),
})

forms("layers", {
    "conv_same_even": ((2, 3, 7), lambda p: F.conv1d(p, torch.arange(24.0).view(2, 3, 4) / 9, padding="same")), "conv_same_dilated": ((1, 2, 6, 6), lambda p: F.conv2d(p, torch.ones(2, 1, 3, 2), padding="same", dilation=2, groups=2)), "conv_valid": ((1, 2, 6, 5), lambda p: F.conv2d(p, torch.arange(24.0).view(3, 2, 2, 2), padding="valid", stride=(2, 1))),
    "conv_unbatched": ((2, 6, 5), lambda p: F.conv2d(p, torch.arange(24.0).view(3, 2, 2, 2) / 9, torch.ones(3), padding=(1, 0))), "weights_of_conv": ((4, 1, 3), lambda p: F.conv1d(torch.arange(12.0).view(1, 2, 6) / 5, p, groups=2, stride=2, padding=1, dilation=2)), "depth_multiplier": ((1, 2, 5, 5), lambda p: F.conv2d(p, torch.arange(36.0).view(4, 1, 3, 3) / 9, groups=2)),
    "transposed": ((1, 4, 3, 3), lambda p: F.conv_transpose2d(p, torch.arange(72.0).view(4, 2, 3, 3) / 30, stride=2, padding=1, output_padding=1, groups=2, dilation=1)), "transposed_dilated": ((1, 2, 4), lambda p: F.conv_transpose1d(p, torch.arange(12.0).view(2, 2, 3) / 9, torch.ones(2), stride=3, dilation=2, output_padding=2)),
    "weights_of_transposed": ((2, 2, 3), lambda p: F.conv_transpose1d(torch.arange(8.0).view(1, 2, 4), p, stride=2, padding=1)), "pool_ceil": ((1, 2, 7), lambda p: F.max_pool1d(p, 3, 2, 1, ceil_mode=True)), "pool_dilated": ((1, 2, 7, 7), lambda p: F.max_pool2d(p, 2, 2, dilation=2)), "average_padded": ((1, 1, 5, 5), lambda p: F.avg_pool2d(p, 3, 2, 1)),
    "average_uncounted": ((1, 1, 5, 5), lambda p: F.avg_pool2d(p, 3, 2, 1, count_include_pad=False)), "average_ceil": ((1, 1, 6, 6), lambda p: F.avg_pool2d(p, 3, 2, 1, ceil_mode=True)), "average_divisor": ((1, 1, 5, 5), lambda p: F.avg_pool2d(p, 2, divisor_override=3)), "unpool": ((1, 1, 4, 4), lambda p: F.max_unpool2d(*F.max_pool2d(p, 2, return_indices=True), 2)),
    "adaptive_average": ((1, 2, 7, 5), lambda p: F.adaptive_avg_pool2d(p, (3, 2))), "adaptive_max": ((1, 2, 7, 5), lambda p: F.adaptive_max_pool2d(p, (3, None))), "lp_pool": ((1, 2, 6), lambda p: F.lp_pool1d(p.abs() + 0.1, 3, 2)), "reflect": ((1, 2, 4, 4), lambda p: F.pad(p, (1, 2, 3, 0), "reflect")), "replicate": ((1, 2, 4), lambda p: F.pad(p, (2, 3), "replicate")),
    "circular": ((1, 2, 4, 4), lambda p: F.pad(p, (1, 2, 3, 0), "circular")), "cropped": ((2, 5), lambda p: F.pad(p, (-1, 2, 1, -1), value=0.5)), "replicate_3d": ((1, 1, 3, 3, 3), lambda p: F.pad(p, (1, 1, 0, 2, 1, 0), "replicate")), "upscale": ((1, 2, 3, 4), lambda p: F.interpolate(p, scale_factor=1.7, mode="bilinear")),
    "upscale_recomputed": ((1, 2, 3, 4), lambda p: F.interpolate(p, scale_factor=1.7, mode="bilinear", recompute_scale_factor=True)), "downscale_nearest": ((1, 2, 7), lambda p: F.interpolate(p, size=4, mode="nearest")), "exact_nearest": ((1, 2, 7), lambda p: F.interpolate(p, scale_factor=0.6, mode="nearest-exact")), "linear_corners": ((1, 2, 5), lambda p: F.interpolate(p, size=9, mode="linear", align_corners=True)),
    "cubic": ((1, 1, 4, 4), lambda p: F.interpolate(p, size=(7, 3), mode="bicubic", align_corners=True)), "area": ((1, 1, 6, 6), lambda p: F.interpolate(p, size=(4, 3), mode="area")), "trilinear": ((1, 1, 2, 3, 2), lambda p: F.interpolate(p, scale_factor=2, mode="trilinear")), "grid": ((1, 2, 4, 4), lambda p: F.grid_sample(p, torch.linspace(-1.2, 0.9, 18).sin().view(1, 3, 3, 2), align_corners=True, padding_mode="border")),
    "grid_of": ((1, 3, 3, 2), lambda p: F.grid_sample(torch.arange(16.0).view(1, 1, 4, 4), p * 0.4, align_corners=False, padding_mode="zeros")), "shuffle": ((1, 8, 2, 2), lambda p: F.pixel_shuffle(p, 2)), "unshuffle": ((1, 2, 4, 4), lambda p: F.pixel_unshuffle(p, 2)), "layer_norm_plain": ((3, 4), lambda p: F.layer_norm(p, (4,))), "layer_norm_two": ((2, 3, 4), lambda p: F.layer_norm(p, (3, 4), torch.linspace(0.5, 2, 12).view(3, 4), torch.ones(3, 4))),
    "rms_default": ((3, 4), lambda p: F.rms_norm(p, (4,))), "group_plain": ((2, 4, 3), lambda p: F.group_norm(p, 2)), "local_response": ((1, 5, 3), lambda p: F.local_response_norm(p, 3)), "batch_norm_given": ((4, 3), lambda p: F.batch_norm(p, torch.zeros(3), torch.ones(3), training=False)), "normalize": ((3, 4), lambda p: F.normalize(p, p=1, dim=0) + F.normalize(p, dim=-1)),
    "embedding_padding": ((5, 3), lambda p: F.embedding(torch.tensor([0, 1, 1, 4]), p, padding_idx=1)), "bag_offsets": ((5, 3), lambda p: F.embedding_bag(torch.tensor([0, 1, 1, 4]), p, torch.tensor([0, 0, 3]), mode="mean")),
    "bag_last": ((5, 3), lambda p: F.embedding_bag(torch.tensor([0, 1, 1, 4]), p, torch.tensor([0, 3, 4]), mode="sum", include_last_offset=True, per_sample_weights=torch.tensor([1.0, 2, 3, 4]))), "bilinear": ((3, 4), lambda p: F.bilinear(p, p[:, :2], torch.arange(16.0).view(2, 4, 2) / 9)), "linear_plain": ((3, 4), lambda p: F.linear(p, p)), "channel_dropout": ((2, 3, 4), lambda p: F.dropout1d(p, 0.0)),
    "glu": ((3, 4), lambda p: F.glu(p, 0 - 1)), "softmax_type": ((3, 4), lambda p: F.softmax(p, 1, dtype=torch.float64).float()), "softmax_infinite": ((3, 4), lambda p: F.softmax(p.masked_fill(torch.eye(3, 4, dtype=torch.bool), float("-inf")), 1)), "gumbel": ((3, 4), lambda p: F.softmax((p + 0.3) / 0.5, -1)), "log_softmax": ((3, 4), lambda p: F.log_softmax(p, 0)),
    "rrelu_off": ((3, 4), lambda p: F.rrelu(p, training=False)), "prelu_channels": ((3,), lambda p: F.prelu(torch.linspace(-2, 2, 12).view(2, 3, 2), p)), "fold": ((1, 8, 4), lambda p: F.fold(p, (3, 3), (2, 2))), "unfold": ((1, 2, 4, 4), lambda p: F.unfold(p, (2, 3), dilation=(1, 1), padding=1, stride=(2, 1))), "channel_shuffle": ((1, 6, 2), lambda p: F.channel_shuffle(p[..., None], 3)),
}, float64=False)

forms("reductions", {
    "variance": ((3, 4), lambda p: p.var(1) + p.var((0, 1)) + p.var(1, correction=0) + p.std(1, correction=2)), "standard_all": ((3, 4), lambda p: p.std().reshape(1)), "variance_mean": ((3, 4), lambda p: torch.cat(torch.var_mean(p, 0))), "keepdim": ((2, 3, 4), lambda p: p.mean((0, 2), keepdim=True) + p.sum(1, keepdim=True)), "norms": ((3, 4), lambda p: p.norm(dim=1) + p.norm(p=1, dim=1) + p.norm(p=3, dim=1) + p.norm(p=float("inf"), dim=1)),
    "norm_all": ((3, 4), lambda p: p.norm().reshape(1) + torch.linalg.norm(p) + torch.linalg.matrix_norm(p)), "norm_of_zero": ((3, 4), lambda p: (p * 0.0).norm(dim=1)), "logsumexp": ((3, 4), lambda p: p.logsumexp(1) + p.logsumexp((0, 1))), "logsumexp_infinite": ((3, 4), lambda p: torch.where(torch.eye(3, 4) > 0, float("-inf"), p).logsumexp(1)), "products": ((3, 4), lambda p: p.prod(1) + p.prod()),
    "cumulative": ((3, 4), lambda p: p.cumsum(0) + p.cumprod(1) + p.flip(1).cumsum(1).flip(1)), "extremes": ((3, 4), lambda p: p.amax(1) - p.amin(1) + p.max() + p.min(1).values + p.amax((0, 1))), "aminmax": ((3, 4), lambda p: torch.stack(torch.aminmax(p, dim=1))), "quantile": ((3, 5), lambda p: p.quantile(0.3, dim=1) + p.quantile(0.5)), "nansum": ((3, 4), lambda p: torch.where(p > 1, float("nan"), p).nansum(1)),
    "nanmean": ((3, 4), lambda p: torch.where(p > 1, float("nan"), p).nanmean(1)), "matmuls": ((3, 4), lambda p: p @ p.mT + torch.mv(p, p[0]) + torch.dot(p[0], p[1]) + torch.outer(p[:, 0], p[:, 1])), "batched": ((2, 3, 4), lambda p: p @ p.mT @ p[0] + torch.bmm(p, p.mT) @ p), "vector_matmul": ((3, 4), lambda p: p[:, 0] @ p + p[0] @ p[1]), "broadcast_matmul": ((2, 1, 3, 4), lambda p: p @ p[0, 0].t().expand(5, 4, 3)),
    "addmm": ((3, 4), lambda p: torch.addmm(p[:, :3], p, p.t(), beta=0.5, alpha=2) + torch.baddbmm(p[None, :, :3], p[None], p.t()[None], beta=2)[0]), "einsum": ((2, 3, 4), lambda p: torch.einsum("bij,bkj->bik", p, p) + torch.einsum("...ij->...", p)[:, None, None]), "einsum_diagonal": ((3, 3), lambda p: torch.einsum("ii->i", p) + torch.einsum("ij,jk,kl->il", p, p, p).sum(0)),
    "einsum_outer": ((2, 3), lambda p: torch.einsum("a,b->ba", p[0], p[1]) + torch.einsum("ab,ab->", p, p)), "tensordot": ((2, 3, 4), lambda p: torch.tensordot(p, p, dims=([0, 2], [0, 2]))), "cross": ((2, 3), lambda p: torch.linalg.cross(p, p.flip(0))), "distances": ((3, 4), lambda p: torch.cdist(p, p + 1) + torch.cdist(p, p * 2 + 1, p=1.0)), "distance_to_self": ((3, 4), lambda p: torch.pdist(p)),
    "similarity": ((3, 4), lambda p: F.cosine_similarity(p, p.flip(0) + 1) + F.pairwise_distance(p, p.flip(0) * 2)), "trace": ((3, 3), lambda p: p.trace().reshape(1)), "any_all": ((3, 4), lambda p: p * (p > 0).any(1, keepdim=True) + p * (p > -9).all()), "count": ((3, 4), lambda p: p * torch.count_nonzero(p > 0, 1)[:, None]), "argmax": ((3, 4), lambda p: p * p.argmax() + p * p.argmin(1, keepdim=True)),
    "renorm": ((3, 4), lambda p: p.renorm(2, 0, 1.0)), "multi_dot": ((3, 4), lambda p: torch.linalg.multi_dot([p, p.t(), p])), "chain": ((3, 3), lambda p: torch.matrix_power(p, 3)), "logcumsumexp": ((3, 4), lambda p: p.logcumsumexp(1)), "diff": ((3, 4), lambda p: torch.diff(p, dim=1)), "trapezoid": ((3, 4), lambda p: torch.trapezoid(p, dx=0.5)), "softmin": ((3, 4), lambda p: F.softmin(p, 1)),
    "weighted_mean": ((3, 4), lambda p: (p * torch.arange(4.0)).sum(1) / torch.arange(4.0).sum()), "std_of_one": ((3, 1), lambda p: p.var(1, correction=0)),
})

forms("functions", {
    name: ((7,), function) for name, function in {
        "exp": torch.exp, "exp2": torch.exp2, "expm1": torch.expm1, "log": lambda p: torch.log(p.abs() + 0.1), "log1p": lambda p: torch.log1p(p.abs()), "log2": lambda p: torch.log2(p.abs() + 0.1), "log10": lambda p: torch.log10(p.abs() + 0.1), "sqrt": lambda p: p.abs().sqrt(), "rsqrt": lambda p: (p.abs() + 0.1).rsqrt(),
        "cbrt": lambda p: p.abs() ** (1 / 3), "sin": torch.sin, "cos": torch.cos, "tan": torch.tan, "asin": lambda p: torch.asin(p.tanh()), "acos": lambda p: torch.acos(p.tanh()), "atan": torch.atan, "atan2": lambda p: torch.atan2(p, p.flip(0)), "sinh": torch.sinh, "cosh": torch.cosh, "tanh": torch.tanh, "asinh": torch.asinh, "acosh": lambda p: torch.acosh(p.abs() + 1.1),
        "atanh": lambda p: torch.atanh(p.tanh() * 0.9), "erf": torch.erf, "erfc": torch.erfc, "erfinv": lambda p: torch.erfinv(p.tanh() * 0.9), "lgamma": lambda p: torch.lgamma(p.abs() + 0.5), "digamma": lambda p: torch.digamma(p.abs() + 0.5), "sigmoid": torch.sigmoid, "logit": lambda p: torch.logit(p.sigmoid()), "softplus": F.softplus, "sinc": torch.sinc, "abs": torch.abs,
        "sign": lambda p: p * p.sign(), "square": torch.square, "reciprocal": lambda p: 1 / (p.abs() + 0.5), "clamp": lambda p: p.clamp(-0.5, 0.5) + p.clamp(min=0.1) + p.clamp(max=torch.linspace(-1, 1, 7)), "copysign": lambda p: torch.copysign(p, p.flip(0)), "frac": lambda p: p.frac() * p, "trunc": lambda p: p.trunc() * p, "hypot": lambda p: torch.hypot(p, p.flip(0)),
        "logaddexp": lambda p: torch.logaddexp(p, p.flip(0)) + torch.logaddexp2(p, p.flip(0)), "xlogy": lambda p: torch.xlogy(p, p.abs() + 0.1) + torch.special.entr(p.abs()), "nan_to_num": lambda p: torch.nan_to_num(torch.where(p > 0, float("nan"), p) , 1.0) * p, "heaviside": lambda p: p * torch.heaviside(p, torch.tensor(0.5)), "ndtr": lambda p: torch.special.ndtr(p),
        "gelu": F.gelu, "gelu_tanh": lambda p: F.gelu(p, approximate="tanh"), "silu": F.silu, "mish": F.mish, "elu": lambda p: F.elu(p, 0.7), "celu": lambda p: F.celu(p, 0.7), "selu": F.selu, "hardswish": F.hardswish, "hardsigmoid": F.hardsigmoid, "softshrink": F.softshrink, "tanhshrink": F.tanhshrink, "logsigmoid": F.logsigmoid, "softsign": F.softsign, "relu6": F.relu6,
        "threshold": lambda p: F.threshold(p, 0.1, 0.3), "multigamma": lambda p: torch.mvlgamma(p.abs() + 2, 2), "polar": lambda p: torch.stack([p.cos() * p, p.sin() * p]), "quick_gelu": lambda p: p * torch.sigmoid(1.702 * p), "addcmul": lambda p: torch.addcmul(p, p, p.flip(0), value=0.5) + torch.addcdiv(p, p, p.abs() + 1, value=2), "float_power": lambda p: torch.float_power(p.abs(), 1.5).float(),
        "ldexp": lambda p: torch.ldexp(p, torch.tensor(2)), "deg2rad": torch.deg2rad, "positive": lambda p: +p, "true_divide": lambda p: torch.true_divide(p, 3), "floor_ceil": lambda p: p * (p.floor() + p.ceil()), "pow_pi": lambda p: p.abs() ** math.pi, "where": lambda p: torch.where(p.abs() > 0.5, p.sin(), p.cos()), "rsub": lambda p: torch.rsub(p, 2),
    }.items()
}, float64=False)
