#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Made tests/samples/joint: a small model as a program that holds its gradients, and one that calls PyTorch's backward operators by name, recorded as record.py
does. Run by hand, with PyTorch:

    python scripts/record_joint.py tests/samples/joint
"""
import os
import sys

import torch
from torch import nn

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from record import record  # noqa: E402


class Net(nn.Module):
    """Batch statistics, a detached gate, one weight under two names and a symbolic batch."""

    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(2, 4, 3, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.first = nn.Linear(16, 6)
        self.again = nn.Linear(16, 6, bias=False)
        self.again.weight = self.first.weight

    def forward(self, x, target):
        y = nn.functional.max_pool2d(self.norm(self.convolution(x)), 2).flatten(1)
        z = self.first(y).tanh() + self.again(y.detach())
        return nn.functional.cross_entropy(z, target)


A = torch.ops.aten


def series(*shape, start=-1.9, step=0.31):
    """Numbers of both signs that differ, none a bound of anything."""
    count = torch.Size(shape).numel()
    return ((torch.arange(count) * step + start + 2) % 4 - 2).reshape(shape)


def normalised(x, dims):
    mean = x.mean(dims, keepdim=True)
    return mean, (x.var(dims, correction=0, keepdim=True) + 1e-5).rsqrt()


def operands():
    """What the operators below read: gradients, operands, statistics."""
    x, image = series(2, 3, 4), series(2, 4, 5, 5)
    mean, scale = normalised(x, (2,))
    group_mean, group_scale = normalised(image.reshape(2, 2, 50), (2,))
    channel_mean, channel_scale = normalised(image, (0, 2, 3))
    pooled, at = A.max_pool2d_with_indices(image, [3, 3], [2, 2], [1, 1])
    return dict(
        g=series(2, 3, 4, step=0.37), x=x, y=x.sigmoid(), tanh=x.tanh(), elu=torch.nn.functional.elu(x, 1.5) * 1.25, kept=x > 0, softmax=x.softmax(1), logs=x.log_softmax(-1),
        weight=series(4), positive=series(4).abs(), mean=mean, scale=scale, image=image, image_g=image.flip(0), kernel=series(4, 2, 3, 3, start=-0.8),
        group_mean=group_mean.reshape(2, 2), group_scale=group_scale.reshape(2, 2), channel_mean=channel_mean.reshape(4), channel_scale=channel_scale.reshape(4),
        small_g=series(2, 4, 3, 3), large_g=series(2, 4, 10, 10), log_probabilities=x.reshape(6, 4).log_softmax(1), classes=torch.tensor([0, 3, -100, 1, 2, 2]),
        padded_g=series(2, 4, 8, 8), map=series(2, 3, 2, 2), map_classes=torch.tensor([[[0, 1], [2, 2]], [[1, 1], [0, 2]]]), rows=torch.tensor([[0, 4, 2], [2, 2, 1]]), pooled=pooled, at=at,
        one=torch.tensor(0.75), sigmoid_buffer=A.log_sigmoid_forward(x)[1], total=torch.tensor(5.0))


def o_attention(o):
    """Result and log-sum-exp, as the backward operator wants them."""
    return A._scaled_dot_product_flash_attention_for_cpu(o.image, o.image, o.image * 0.5, 0.0, True)


def backward_terms(o):
    """The value of each operator."""
    g, x, mask = o.g, o.x, [True, True, True]
    return [
        A.threshold_backward(g, x, 0), A.sigmoid_backward(g, o.y), A.tanh_backward(g, o.tanh), A.elu_backward(g, 1.5, 1.25, 0.75, False, x), A.elu_backward(g, 1.5, 1.25, 1.0, True, o.elu),
        A.gelu_backward(g, x), A.gelu_backward(g, x, approximate="tanh"), A.silu_backward(g, x), A.mish_backward(g, x), A.hardswish_backward(g, x * 2), A.hardsigmoid_backward(g, x * 2),
        A.hardtanh_backward(g, x, -1.0, 0.5), A.leaky_relu_backward(g, x, 0.2, False), A.softplus_backward(g, x, 2.0, 3.0), A.log_sigmoid_backward(g, x, o.sigmoid_buffer),
        A.native_dropout_backward(g, o.kept, 1.25), A._softmax_backward_data(g, o.softmax, 1, x.dtype), A._log_softmax_backward_data(g, o.logs, -1, x.dtype),
        *A.native_layer_norm_backward(g, x, [4], o.mean, o.scale, o.weight, o.weight, mask),
        *A.native_group_norm_backward(o.image_g, o.image, o.group_mean, o.group_scale, o.weight, 2, 4, 25, 2, mask),
        *A.native_batch_norm_backward(o.image_g, o.image, o.weight, o.weight, o.positive, o.channel_mean, o.channel_scale, True, 1e-5, mask),
        *A.native_batch_norm_backward(o.image_g, o.image, o.weight, o.weight, o.positive, o.channel_mean, o.channel_scale, False, 1e-5, mask),
        *A.convolution_backward(o.small_g, o.image, o.kernel, [4], [2, 2], [1, 1], [1, 1], False, [0, 0], 2, mask), A.mse_loss_backward(g, x, o.y, 0),
        A.smooth_l1_loss_backward(o.one, x, o.y, 1, 0.5), A.huber_loss_backward(o.one, x, o.y, 2, 0.75), A.binary_cross_entropy_backward(g, o.y, o.kept.to(x.dtype), None, 0),
        A.nll_loss_backward(o.one, o.log_probabilities, o.classes, None, 1, -100, o.total), A.nll_loss2d_backward(o.one, o.map, o.map_classes, None, 2, -100, o.total),
        A.embedding_dense_backward(g, o.rows, 5, 1, False), A.slice_backward(g, [2, 3, 11], 2, 1, 9, 2), A.select_backward(g, [2, 3, 5, 4], 2, -2),
        A.max_pool2d_with_indices_backward(o.pooled, o.image, [3, 3], [2, 2], [1, 1], [1, 1], False, o.at),
        A.avg_pool2d_backward(o.small_g, o.image, [3, 3], [2, 2], [1, 1], False, False, None), A._adaptive_avg_pool2d_backward(o.small_g, o.image),
        A.upsample_nearest2d_backward(o.large_g, [10, 10], [2, 4, 5, 5]), A.upsample_bilinear2d_backward(o.large_g, [10, 10], [2, 4, 5, 5], False),
        A.glu_backward(g[:, :, :2], x, 2), A.logit_backward(g, o.y, 0.2), A.hardshrink_backward(g, x, 0.7), A.softshrink_backward(g, x, 0.7), *A._prelu_kernel_backward(g, x, x * 0.3),
        A.reflection_pad2d_backward(o.padded_g, o.image, [2, 1, 0, 3]), A.replication_pad2d_backward(o.padded_g, o.image, [2, 1, 0, 3]),
        *A._scaled_dot_product_flash_attention_for_cpu_backward(o.image, o.image, o.image, o.image * 0.5, *o_attention(o), 0.0, True), A.mse_loss_backward(g, x, x * 0.5, 0),
        A.upsample_linear1d_backward(o.y, [4], [2, 3, 2], False),
        A.upsample_bicubic2d_backward(o.large_g, [10, 10], [2, 4, 5, 5], True),
    ]


class Backward(nn.Module):
    """The gradient of s is the values of all operators, one after the other."""

    def __init__(self):
        super().__init__()
        for name, value in operands().items():
            self.register_buffer(name, value, persistent=False)
        with torch.no_grad():
            self.s = nn.Parameter(torch.zeros(sum(term.numel() for term in backward_terms(self))))

    def forward(self, x):
        return (torch.cat([term.flatten() for term in backward_terms(self)]).detach() * self.s).sum() + x.sum()


def without_places(path):
    exported = torch.export.load(path)
    for node in exported.graph.nodes:
        for key in ("stack_trace", "nn_module_stack", "from_node", "torch_fn"):
            node.meta.pop(key, None)
    exported._example_inputs = None
    torch.export.save(exported, path)


def batch(size):
    return dict(x=torch.randn(size, 2, 6, 6), target=torch.randint(0, 6, (size,)))


if __name__ == "__main__":
    torch.manual_seed(0)
    folder = os.path.join(sys.argv[1], "net")
    size = torch.export.Dim("size", min=2, max=64)
    record(folder, Net(), batch(8), batch(5), dict(x={0: size}, target={0: size}), core=False, joint=True, what="a joint program")
    os.remove(os.path.join(folder, "model.pt2"))
    folder = os.path.join(sys.argv[1], "backward")
    record(folder, Backward(), dict(x=torch.zeros(1)), optimizer=("SGD", dict(lr=2**-10)), steps=1, core=False, what="backward operators by name")
    without_places(os.path.join(folder, "model.pt2"))
