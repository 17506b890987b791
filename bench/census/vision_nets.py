# SPDX-License-Identifier: Apache-2.0
"""Convolutional nets by hand: U-Nets, generators, autoencoders, diffusion, capsules, points, fields."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from .common import Case, Classifier, Lambda, Regression, images, model, register

AUTO = torch.export.Dim.AUTO


class UNet(nn.Module):
    def __init__(self, mode):
        super().__init__()
        self.mode = mode
        self.first, self.down = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, 2, 1)
        self.norm, self.last = nn.GroupNorm(2, 8), nn.Conv2d(16, 4, 3, padding=1)
        self.up = nn.ConvTranspose2d(8, 8, 2, 2) if mode == "transposed" else nn.Upsample(scale_factor=2, mode=mode, **({} if mode == "nearest" else dict(align_corners=mode == "bicubic")))

    def forward(self, x):
        a = F.relu(self.first(x))
        b = F.silu(self.norm(self.down(F.max_pool2d(a, 3, 1, 1))))
        up = self.up(b)
        up = F.pad(up, [0, a.shape[-1] - up.shape[-1], 0, a.shape[-2] - up.shape[-2]])
        return self.last(torch.cat([a, up], 1))


def segments(batch, height, width):
    return dict(x=torch.randn(batch, 3, height, width), target=torch.randint(0, 4, (batch, height, width)))


for upsampling in ("nearest", "bilinear", "bicubic", "transposed"):
    register("unet_" + upsampling, lambda mode=upsampling: (Classifier(UNet(mode)), segments(2, 8, 8)))


@model
def unet_any_batch():
    return Case(Classifier(UNet("bilinear")), segments(2, 8, 12), alt=segments(3, 8, 12), dynamic=dict(x={0: AUTO}, target={0: AUTO}))


@model
def convolutions_any_size():
    """Height and width are symbols, with strides, pooling, resizing to the input's size, and a global mean."""
    def run(m, x, target):
        y = F.max_pool2d(F.relu(m.norm(m.first(x))), 2)
        y = F.interpolate(m.second(y), size=x.shape[-2:], mode="nearest") + x[:, :1]
        return F.cross_entropy(m.head(torch.cat([F.adaptive_avg_pool2d(y, 1).flatten(1), F.adaptive_max_pool2d(y, (1, 2)).flatten(1), y.mean((2, 3))], 1)), target)
    net = Lambda(run, first=nn.Conv2d(3, 8, 3, 2, 1), norm=nn.BatchNorm2d(8), second=nn.Conv2d(8, 4, 3, padding=1), head=nn.Linear(16, 10))
    return Case(net, images(4, 16), alt=dict(x=torch.randn(3, 3, 24, 20), target=torch.randint(0, 10, (3,))), dynamic=dict(x={0: AUTO, 2: AUTO, 3: AUTO}, target={0: AUTO}))


@model
def resizing_any_size():
    """Every kind of resampling between sizes that are symbols, and adaptive pooling of them."""
    def run(m, x, target):
        y = F.max_pool2d(m.first(x), 2)
        size = x.shape[-2:]
        up = [F.interpolate(y, size=size, mode="nearest"), F.interpolate(y, size=size, mode="nearest-exact"), F.interpolate(y, size=size, mode="bilinear"),
              F.interpolate(y, size=size, mode="bilinear", align_corners=True), F.interpolate(y, size=size, mode="bicubic"), F.interpolate(x, size=(7, 9), mode="bilinear").mean((2, 3), keepdim=True)]
        y = F.adaptive_avg_pool2d(m.second(sum(u * (i + 1) for i, u in enumerate(up))), (2, 3))
        return F.cross_entropy(m.head(y.flatten(1)), target)
    # PyTorch's own guard of pooling: sizes stay even.
    net = Lambda(run, first=nn.Conv2d(3, 3, 3, padding=1), second=nn.Conv2d(3, 4, 1), head=nn.Linear(24, 10))
    return Case(net, images(2, 10), alt=dict(x=torch.randn(3, 3, 14, 16), target=torch.randint(0, 10, (3,))), dynamic=dict(x={0: AUTO, 2: AUTO, 3: AUTO}, target={0: AUTO}))


@model
def three_dimensional_unet():
    net = nn.Sequential(nn.Conv3d(1, 4, 3, padding=1), nn.InstanceNorm3d(4, affine=True), nn.LeakyReLU(0.1), nn.MaxPool3d(2), nn.Conv3d(4, 8, 3, padding=1), nn.BatchNorm3d(8), nn.PReLU(8),
                        nn.Upsample(scale_factor=2, mode="trilinear"), nn.ConvTranspose3d(8, 4, 3, padding=1), nn.AvgPool3d(2), nn.AdaptiveAvgPool3d((2, 1, 3)), nn.Flatten(), nn.Linear(24, 3))
    return Classifier(net), dict(x=torch.randn(2, 1, 4, 8, 8), target=torch.randint(0, 3, (2,)))


@model
def generator_and_critic():
    def run(m, x, target):
        return F.binary_cross_entropy_with_logits(m.judge(m.make(x)).squeeze(1), target)
    make = nn.Sequential(nn.ConvTranspose2d(8, 16, 4, 1, 0, bias=False), nn.BatchNorm2d(16), nn.ReLU(True), nn.ConvTranspose2d(16, 3, 4, 2, 1, bias=False), nn.Tanh())
    judge = nn.Sequential(nn.Conv2d(3, 8, 4, 2, 1), nn.LeakyReLU(0.2, inplace=True), nn.Flatten(), nn.Linear(128, 1))
    return Lambda(run, make=make, judge=judge), dict(x=torch.randn(4, 8, 1, 1), target=torch.rand(4))


@model
def critic_with_spectral_norm():
    """The power iteration writes to its buffers in training."""
    from torch.nn.utils.parametrizations import spectral_norm

    def run(m, x, target):
        fake = x + m.noise
        return F.relu(1.0 - m.critic(x)).mean() + F.relu(1.0 + m.critic(fake.detach())).mean() - 0.1 * m.critic(fake).mean() + 0.0 * target.sum()
    critic = nn.Sequential(spectral_norm(nn.Conv2d(3, 8, 3, 2, 1)), nn.LeakyReLU(0.2), nn.Flatten(), spectral_norm(nn.Linear(128, 1)))
    return Lambda(run, critic=critic, noise=nn.Parameter(torch.randn(3, 8, 8) * 0.1)), dict(x=torch.randn(4, 3, 8, 8), target=torch.rand(4))


@model
def style_modulated_convolution():
    """StyleGAN2: the batch becomes groups of one convolution; blur by a buffer; minibatch deviation."""
    def run(m, x, target):
        b = x.shape[0]
        scale = m.style(x)
        w = m.weight[None] * scale[:, None, :, None, None]
        w = w * torch.rsqrt(w.square().sum((2, 3, 4), keepdim=True) + 1e-8)
        y = m.constant.expand(b, -1, -1, -1).reshape(1, b * 4, 8, 8)
        y = F.conv2d(y, w.reshape(b * 6, 4, 3, 3), padding=1, groups=b).reshape(b, 6, 8, 8)
        y = F.conv2d(F.leaky_relu(y, 0.2), m.blur.expand(6, 1, 3, 3), padding=1, groups=6)
        deviation = y.var(0, unbiased=False).add(1e-8).sqrt().mean()
        return F.mse_loss(y.mean((2, 3)), target) + deviation
    return Lambda(run, style=nn.Linear(5, 4), weight=nn.Parameter(torch.randn(6, 4, 3, 3)), constant=nn.Parameter(torch.randn(1, 4, 8, 8)), blur=torch.tensor([[1.0, 2, 1], [2, 4, 2], [1, 2, 1]]) / 16), dict(
        x=torch.randn(3, 5), target=torch.randn(3, 6))


@model
def variational_autoencoder():
    """The noise is an input, so that both sides see the same."""
    def run(m, x, target):
        mean, log_variance = m.encode(x).chunk(2, -1)
        z = mean + target * torch.exp(0.5 * log_variance)
        kl = -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp(), 1)
        return (F.binary_cross_entropy(m.decode(z), x, reduction="none").sum(1) + kl).mean()
    return Lambda(run, encode=nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 6)), decode=nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 12), nn.Sigmoid())), dict(
        x=torch.rand(4, 12), target=torch.randn(4, 3))


@model
def vector_quantised_autoencoder():
    """Straight-through estimator, code book by squared distances, commitment loss."""
    def run(m, x, target):
        z = m.encode(x).permute(0, 2, 3, 1)
        flat = z.reshape(-1, 4)
        distances = flat.pow(2).sum(1, keepdim=True) - 2 * flat @ m.codes.weight.t() + m.codes.weight.pow(2).sum(1)
        chosen = m.codes(distances.argmin(1)).view_as(z)
        commit = F.mse_loss(chosen.detach(), z) * 0.25 + F.mse_loss(chosen, z.detach())
        straight = (z + (chosen - z).detach()).permute(0, 3, 1, 2)
        return F.mse_loss(m.decode(straight), x) + commit + 0.0 * target.sum()
    return Lambda(run, encode=nn.Conv2d(3, 4, 4, 2, 1), decode=nn.ConvTranspose2d(4, 3, 4, 2, 1), codes=nn.Embedding(6, 4)), dict(x=torch.randn(2, 3, 8, 8), target=torch.rand(2))


class Residual(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.first, self.second = nn.Sequential(nn.GroupNorm(4, a), nn.SiLU(), nn.Conv2d(a, b, 3, padding=1)), nn.Sequential(nn.GroupNorm(4, b), nn.SiLU(), nn.Conv2d(b, b, 3, padding=1))
        self.time, self.skip = nn.Linear(16, 2 * b), nn.Conv2d(a, b, 1) if a != b else nn.Identity()

    def forward(self, x, t):
        scale, shift = self.time(F.silu(t))[:, :, None, None].chunk(2, 1)
        return self.skip(x) + self.second(self.first(x) * (1 + scale) + shift)


@model
def diffusion_unet():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 16))
            self.start, self.down, self.halve = nn.Conv2d(3, 8, 3, padding=1), Residual(8, 8), nn.Conv2d(8, 16, 3, 2, 1)
            self.middle, self.qkv, self.project, self.norm = Residual(16, 16), nn.Conv2d(16, 48, 1), nn.Conv2d(16, 16, 1), nn.GroupNorm(4, 16)
            self.up, self.end = Residual(24, 8), nn.Conv2d(8, 3, 3, padding=1)
            self.register_buffer("alphas", torch.cumprod(1 - torch.linspace(1e-4, 0.02, 50), 0))

        def forward(self, x, noise, step):
            a = self.alphas[step].view(-1, 1, 1, 1)
            y = a.sqrt() * x + (1 - a).sqrt() * noise
            angles = step[:, None].float() * torch.exp(-math.log(10000.0) * torch.arange(4, dtype=torch.float32) / 4)[None]
            t = self.embed(torch.cat([angles.sin(), angles.cos()], -1))
            d = self.down(self.start(y), t)
            m = self.middle(self.halve(d), t)
            b, c, h, w = m.shape
            q, k, v = self.qkv(self.norm(m)).reshape(b, 3, 2, c // 2, h * w).unbind(1)
            attention = torch.einsum("bhci,bhcj->bhij", q * (c // 2) ** -0.5, k).softmax(-1)
            m = m + self.project(torch.einsum("bhij,bhcj->bhci", attention, v).reshape(b, c, h, w))
            return F.mse_loss(self.end(self.up(torch.cat([F.interpolate(m, scale_factor=2.0), d], 1), t)), noise)
    return Net(), dict(x=torch.randn(2, 3, 8, 8), noise=torch.randn(2, 3, 8, 8), step=torch.tensor([3, 40]))


@model
def radiance_field():
    """NeRF: positional encoding, skip connection, densities composed along rays by exclusive products."""
    def run(m, x, target):
        angles = x[..., None, :] * (2.0 ** torch.arange(3))[:, None] * math.pi
        encoded = torch.cat([x, angles.sin().flatten(-2), angles.cos().flatten(-2)], -1)
        h = F.relu(m.first(encoded))
        found = m.second(torch.cat([h, encoded], -1))
        colour, density = torch.sigmoid(found[..., :3]), F.softplus(found[..., 3])
        alpha = 1 - torch.exp(-density * 0.3)
        through = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], -1), -1)[:, :-1]
        return F.mse_loss(((alpha * through)[..., None] * colour).sum(1), target)
    return Lambda(run, first=nn.Linear(21, 16), second=nn.Linear(37, 4)), dict(x=torch.rand(3, 5, 3), target=torch.rand(3, 3))


@model
def sine_field_with_hash():
    """SIREN, and a table looked up by hashed corners with trilinear weights."""
    def run(m, x, target):
        y = torch.sin(30 * m.first(x))
        low = torch.floor(x * 4).long()
        inside = x * 4 - low
        total = 0
        for corner in range(4):
            step = torch.tensor([corner & 1, corner >> 1])
            place = ((low + step) * torch.tensor([1, 2654435761])).sum(-1) % 16
            weight = torch.where(step == 1, inside, 1 - inside).prod(-1, keepdim=True)
            total = total + weight * m.table(place)
        return F.mse_loss(m.last(torch.cat([torch.sin(30 * m.second(y)), total], -1)), target)
    first, second = nn.Linear(2, 8), nn.Linear(8, 8)
    nn.init.uniform_(second.weight, -0.02, 0.02)
    return Lambda(run, first=first, second=second, table=nn.Embedding(16, 2), last=nn.Linear(10, 1)), dict(x=torch.rand(6, 2), target=torch.rand(6, 1))


@model
def point_net():
    def run(m, x, target):
        transform = m.align(F.relu(m.before(x.transpose(1, 2))).amax(-1)).view(-1, 3, 3) + torch.eye(3)
        y = F.relu(m.norm(m.local(torch.bmm(x, transform).transpose(1, 2))))
        pooled = torch.max(y, 2, keepdim=True)[0].view(-1, 8)
        regular = (transform @ transform.transpose(1, 2) - torch.eye(3)[None]).norm(dim=(1, 2)).mean()
        return F.nll_loss(F.log_softmax(m.head(pooled), 1), target) + 0.001 * regular
    return Lambda(run, before=nn.Conv1d(3, 8, 1), align=nn.Linear(8, 9), local=nn.Conv1d(3, 8, 1), norm=nn.BatchNorm1d(8), head=nn.Linear(8, 4)), dict(x=torch.randn(3, 10, 3), target=torch.randint(0, 4, (3,)))


@model
def point_neighbours():
    """Edge convolution: k nearest neighbours by distance, gathered."""
    def run(m, x, target):
        distance = torch.cdist(x, x)
        near = distance.topk(3, dim=-1, largest=False).indices
        around = torch.gather(x[:, None].expand(-1, 6, -1, -1), 2, near[..., None].expand(-1, -1, -1, 3))
        edges = torch.cat([around - x[:, :, None], x[:, :, None].expand_as(around)], -1)
        return F.cross_entropy(m.head(F.leaky_relu(m.edge(edges), 0.2).max(2).values.mean(1)), target)
    return Lambda(run, edge=nn.Linear(6, 8), head=nn.Linear(8, 4)), dict(x=torch.randn(2, 6, 3), target=torch.randint(0, 4, (2,)))


@model
def capsules():
    def squash(s):
        squares = (s**2).sum(-1, keepdim=True)
        return squares / (1 + squares) * s / (squares.sqrt() + 1e-8)

    def run(m, x, target):
        u = squash(m.primary(x).view(x.shape[0], 4, -1).transpose(1, 2))
        hats = torch.einsum("nijk,bnk->bnij", m.weight, u)
        logits = torch.zeros(x.shape[0], u.shape[1], 3)
        for turn in range(3):
            v = squash((logits.softmax(2)[..., None] * hats).sum(1))
            if turn < 2:
                logits = logits + (hats.detach() * v.detach()[:, None]).sum(-1)
        length = v.norm(dim=-1)
        wanted = F.one_hot(target, 3).float()
        return (wanted * F.relu(0.9 - length) ** 2 + 0.5 * (1 - wanted) * F.relu(length - 0.1) ** 2).sum(1).mean()
    return Lambda(run, primary=nn.Conv2d(3, 8, 3, 2), weight=nn.Parameter(torch.randn(18, 3, 5, 4) * 0.5)), dict(x=torch.randn(2, 3, 8, 8), target=torch.randint(0, 3, (2,)))


@model
def spatial_transformer():
    def run(m, x, target):
        theta = m.theta(x.flatten(1)).view(-1, 2, 3) * 0.1 + torch.tensor([[1.0, 0, 0.1], [0, 1, -0.2]])
        moved = F.grid_sample(x, F.affine_grid(theta, x.size(), align_corners=False), align_corners=False)
        return F.cross_entropy(m.head(moved.flatten(1)), target)
    return Lambda(run, theta=nn.Linear(75, 6), head=nn.Linear(75, 4)), dict(x=torch.randn(2, 3, 5, 5), target=torch.randint(0, 4, (2,)))


@model
def super_resolution():
    """Sub-pixel convolution, residual scaling, and a Charbonnier loss with total variation."""
    def run(m, x, target):
        y = m.head(x)
        y = y + 0.1 * m.body(y)
        y = F.pixel_shuffle(m.tail(y), 2) + F.interpolate(x, scale_factor=2, mode="bicubic", align_corners=False)
        variation = (y[..., 1:] - y[..., :-1]).abs().mean() + (y[..., 1:, :] - y[..., :-1, :]).abs().mean()
        return torch.sqrt((y - target) ** 2 + 1e-6).mean() + 0.1 * variation
    return Lambda(run, head=nn.Conv2d(3, 8, 3, padding=1, padding_mode="reflect"), body=nn.Sequential(nn.Conv2d(8, 8, 3, padding="same"), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1, padding_mode="replicate")),
                  tail=nn.Conv2d(8, 12, 3, padding=1, padding_mode="circular")), dict(x=torch.rand(2, 3, 6, 6), target=torch.rand(2, 3, 12, 12))


@model
def style_transfer_gram():
    def run(m, x, target):
        def gram(image):
            y = F.relu(m.features(image)).flatten(2)
            return y @ y.mT / y.shape[-1]
        return F.mse_loss(gram(x + m.image), gram(target).detach())
    return Lambda(run, features=nn.Conv2d(3, 6, 3), image=nn.Parameter(torch.randn(3, 8, 8))), dict(x=torch.randn(2, 3, 8, 8), target=torch.randn(2, 3, 8, 8))


@model
def detection_head():
    """YOLO-like: anchors and a grid as constants, targets picked by advanced indexing, box and objectness losses."""
    def run(m, x, target):
        y = m.head(F.relu(m.stem(x))).view(x.shape[0], 2, 7, 4, 4).permute(0, 1, 3, 4, 2).contiguous()
        rows, columns = torch.meshgrid(torch.arange(4), torch.arange(4), indexing="ij")
        centre = (y[..., 0:2].sigmoid() * 2 - 0.5 + torch.stack((columns, rows), 2)) / 4
        size = (y[..., 2:4].sigmoid() * 2) ** 2 * m.anchors[:, None, None]
        picked = torch.cat([centre, size], -1)[torch.arange(x.shape[0]), 1, target % 4, target // 4]
        objects = torch.zeros_like(y[..., 4])
        objects[torch.arange(x.shape[0]), 1, target % 4, target // 4] = 1.0
        return F.binary_cross_entropy_with_logits(y[..., 4], objects) + F.smooth_l1_loss(picked, torch.full_like(picked, 0.5)) + F.cross_entropy(y[:, 1, 0, 0, 5:], target % 2)
    return Lambda(run, stem=nn.Conv2d(3, 8, 3, 2, 1), head=nn.Conv2d(8, 14, 1), anchors=torch.tensor([[0.1, 0.2], [0.4, 0.3]])), dict(x=torch.randn(3, 3, 8, 8), target=torch.tensor([3, 8, 14]))


@model
def deformable_offsets():
    """Bilinear sampling written with gathers."""
    def run(m, x, target):
        b, c, h, w = x.shape
        offset = torch.tanh(m.offset(x))
        ys = (torch.arange(h).view(1, h, 1) + offset[:, 0]).clamp(0, h - 1.001)
        xs = (torch.arange(w).view(1, 1, w) + offset[:, 1]).clamp(0, w - 1.001)
        y0, x0 = ys.floor(), xs.floor()
        flat = x.flatten(2)

        def at(y, z):
            return flat.gather(2, (y * w + z).long().flatten(1)[:, None].expand(-1, c, -1)).view(b, c, h, w)
        fy, fx = (ys - y0)[:, None], (xs - x0)[:, None]
        y = (1 - fy) * ((1 - fx) * at(y0, x0) + fx * at(y0, x0 + 1)) + fy * ((1 - fx) * at(y0 + 1, x0) + fx * at(y0 + 1, x0 + 1))
        return F.mse_loss(m.mix(y), target)
    return Lambda(run, offset=nn.Conv2d(3, 2, 3, padding=1), mix=nn.Conv2d(3, 4, 1)), dict(x=torch.randn(2, 3, 5, 6), target=torch.randn(2, 4, 5, 6))


@model
def patches_by_unfolding():
    def run(m, x, target):
        columns = F.unfold(x, 3, padding=1, stride=2)
        y = F.fold(m.mix(columns.transpose(1, 2)).transpose(1, 2), (8, 8), 3, padding=1, stride=2)
        tiles = x.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5).reshape(x.shape[0], 4, 48)
        return F.cross_entropy(m.head(tiles).mean(1) + y.mean((2, 3)), target)
    return Lambda(run, mix=nn.Linear(27, 27), head=nn.Linear(48, 3)), dict(x=torch.randn(2, 3, 8, 8), target=torch.randint(0, 3, (2,)))


@model
def pooling_and_padding():
    net = nn.Sequential(nn.ZeroPad2d((1, 2, 0, 1)), nn.Conv2d(3, 6, 3, dilation=2, groups=3), nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False), nn.ReflectionPad2d(1), nn.Conv2d(6, 8, (3, 1), (2, 1)), nn.Hardswish(),
                        nn.MaxPool2d(3, 2, 1, ceil_mode=True), nn.ReplicationPad2d(1), nn.LPPool2d(2, 2), nn.AdaptiveAvgPool2d((3, 2)), nn.ConstantPad2d(1, 0.5), nn.AdaptiveMaxPool2d(2), nn.ChannelShuffle(2), nn.LocalResponseNorm(3), nn.Flatten(), nn.Linear(32, 5))
    return Classifier(net), dict(x=torch.randn(2, 3, 13, 15), target=torch.randint(0, 5, (2,)))


@model
def all_activations():
    kinds = [nn.ELU(), nn.CELU(0.5), nn.SELU(), nn.GELU(), nn.GELU("tanh"), nn.SiLU(), nn.Mish(), nn.Softplus(2.0), nn.Softsign(), nn.Softshrink(0.1), nn.Hardshrink(0.1), nn.Tanhshrink(), nn.Hardsigmoid(), nn.Hardswish(), nn.Hardtanh(),
             nn.ReLU6(), nn.LeakyReLU(), nn.PReLU(4), nn.LogSigmoid(), nn.Sigmoid(), nn.Tanh(), nn.Threshold(0.1, 0.2), nn.GLU(1), nn.Softmax(1), nn.Softmin(1), nn.LogSoftmax(1)]

    def run(m, x, target):
        y = m.first(x)
        total = sum((kind(y) * (i % 5 + 1)).mean(1) for i, kind in enumerate(m.kinds))
        return F.mse_loss(total, target)
    return Case(Lambda(run, first=nn.Linear(3, 4), kinds=nn.ModuleList(kinds)), dict(x=torch.randn(5, 3) * 0.3, target=torch.randn(5)), optimizer=("SGD", dict(lr=1e-4)))


@model
def siamese_contrastive():
    def run(m, x, target):
        a, b = m.net(x[:, 0]), m.net(x[:, 1])
        distance = F.pairwise_distance(a, b)
        return (target * distance.pow(2) + (1 - target) * torch.clamp(1.0 - distance, min=0).pow(2)).mean()
    return Lambda(run, net=nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 6))), dict(x=torch.randn(4, 2, 1, 8, 8), target=torch.tensor([0.0, 1, 1, 0]))


@model
def batch_norm_variants():
    def run(m, x, target):
        y = m.without_statistics(m.without_affine(m.cumulative(x)))
        return F.cross_entropy(m.head(m.instance(y).mean((2, 3)) + m.frozen(y).amax((2, 3))), target)
    frozen = nn.BatchNorm2d(4)
    frozen.running_mean.uniform_(-1, 1), frozen.running_var.uniform_(0.5, 2)
    frozen.train = lambda mode=True: frozen
    frozen.training = False
    parts = dict(cumulative=nn.BatchNorm2d(4, momentum=0.3, eps=1e-3), without_affine=nn.BatchNorm2d(4, affine=False), without_statistics=nn.BatchNorm2d(4, track_running_stats=False),
                 instance=nn.InstanceNorm2d(4, affine=True, track_running_stats=True), frozen=frozen, head=nn.Linear(4, 3))
    return Lambda(run, **parts), dict(x=torch.randn(4, 4, 5, 5), target=torch.randint(0, 3, (4,)))
