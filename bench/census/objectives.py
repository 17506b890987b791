# SPDX-License-Identifier: Apache-2.0
"""Losses, and questions of meaning: gradients that are stopped, teachers, writes in place, precision, and what must be refused."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from .common import Case, Lambda, model, register

AUTO = torch.export.Dim.AUTO


def objective(name, function, target, **options):
    """A loss on six rows of four outputs of a linear layer."""
    def build():
        return Case(Lambda(lambda m, x, t: function(m.net(x), t), net=nn.Linear(5, 4)), dict(x=torch.randn(6, 5), target=target()), **options)
    register("loss_" + name, build)


def classes():
    return torch.tensor([0, 3, 1, 1, 2, 0])


def rows():
    return torch.randn(6, 4)


def signs():
    return torch.randn(6, 4).sign()


def focal(y, t):
    p = torch.sigmoid(y)
    wanted = F.one_hot(t, 4).float()
    ce = F.binary_cross_entropy_with_logits(y, wanted, reduction="none")
    p_t = p * wanted + (1 - p) * (1 - wanted)
    return ((0.25 * wanted + 0.75 * (1 - wanted)) * ce * (1 - p_t) ** 2).mean()


def dice(y, t):
    p, wanted = y.softmax(1), F.one_hot(t, 4).float()
    return 1 - ((2 * (p * wanted).sum(0) + 1) / (p.sum(0) + wanted.sum(0) + 1)).mean()


def tversky(y, t):
    p, wanted = torch.sigmoid(y), F.one_hot(t, 4)
    hit, false, missed = (p * wanted).sum(), (p * (1 - wanted)).sum(), ((1 - p) * wanted).sum()
    return (1 - hit / (hit + 0.3 * false + 0.7 * missed + 1e-6)) ** 0.75


def contrast(y, t):
    z = F.normalize(torch.cat([y, t]), dim=1)
    similar = (z @ z.T / 0.5).masked_fill(torch.eye(12, dtype=torch.bool), float("-inf"))
    return F.cross_entropy(similar, (torch.arange(12) + 6) % 12)


def supervised_contrast(y, t):
    z = F.normalize(y, dim=1)
    logits = z @ z.T / 0.2
    logits = logits - logits.max(1, keepdim=True).values.detach()
    other = 1 - torch.eye(6)
    same = (t[:, None] == t[None]).float() * other
    log_p = logits - torch.log((torch.exp(logits) * other).sum(1, keepdim=True))
    return -((same * log_p).sum(1) / same.sum(1).clamp(min=1)).mean()


def hardest_triplet(y, t):
    d = (y[:, None] - y[None]).pow(2).sum(-1).clamp(min=1e-12).sqrt()
    same = t[:, None] == t[None]
    return F.relu(d.masked_fill(~same, 0).max(1).values - d.masked_fill(same, float("inf")).min(1).values + 0.5).mean()


def large_margin(y, t):
    cosine = F.normalize(y, dim=1)
    sine = torch.sqrt((1 - cosine**2).clamp(0, 1))
    phi = cosine * 0.87758 - sine * 0.47943
    chosen = torch.zeros_like(cosine).scatter_(1, t.view(-1, 1), 1)
    return F.cross_entropy(torch.where(chosen.bool(), torch.where(cosine > -0.87758, phi, cosine - 0.2397), cosine) * 8, t)


def redundancy(y, t):
    a, b = (y - y.mean(0)) / y.std(0), (t - t.mean(0)) / t.std(0)
    c = a.T @ b / 6
    return (torch.diagonal(c) - 1).pow(2).sum() + 0.005 * (c - torch.diag(torch.diagonal(c))).pow(2).sum()


def policy(y, t):
    """Clipped policy ratio, value clipping and entropy."""
    log_p = F.log_softmax(y, 1)
    taken = log_p.gather(1, classes()[:, None]).squeeze(1)
    ratio, advantage = torch.exp(taken - t[:, 0].abs().neg()), (t[:, 1] - t[:, 1].mean()) / (t[:, 1].std() + 1e-8)
    return -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean() + 0.01 * (log_p.exp() * log_p).sum(1).mean()


def preference(y, t):
    a, b = F.log_softmax(y, 1)[::2].sum(1), F.log_softmax(y, 1)[1::2].sum(1)
    return -F.logsigmoid(0.1 * ((a - b) - (t[::2, 0] - t[1::2, 0]))).mean()


def quantiles(y, t):
    q = torch.tensor([0.1, 0.4, 0.6, 0.9])
    error = t[:, :1] - y
    return torch.max(q * error, (q - 1) * error).sum(1).mean()


def mixture_density(y, t):
    log_pi = F.log_softmax(y[:, :2], 1)
    return -torch.logsumexp(log_pi + torch.distributions.Normal(y[:, 2:4], 0.5 + F.softplus(y[:, :2])).log_prob(t[:, :1]), 1).mean()


def listwise(y, t):
    order = t.sort(1, descending=True).indices
    scores = y.gather(1, order)
    return (torch.logcumsumexp(scores.flip(1), 1).flip(1) - scores).sum(1).mean()


def distil(y, t):
    return F.kl_div(F.log_softmax(y / 2, 1), F.softmax(t / 2, 1), reduction="batchmean") * 4 + F.kl_div(F.log_softmax(y, 1), F.log_softmax(t, 1), reduction="batchmean", log_target=True)


def discrepancy(y, t):
    """Maximum mean discrepancy with Gaussian kernels."""
    def kernel(a, b):
        d = (a[:, None] - b[None]).square().sum(-1)
        return sum(torch.exp(-d / s) for s in (1.0, 4.0))
    return kernel(y, y).mean() + kernel(t, t).mean() - 2 * kernel(y, t).mean()


def sinkhorn(y, t):
    """Three rounds of optimal transport in logarithms."""
    cost = torch.cdist(y, t) ** 2
    f, g = torch.zeros(6), torch.zeros(6)
    for _ in range(3):
        f = -torch.logsumexp(g[None] - cost, 1)
        g = -torch.logsumexp(f[:, None] - cost, 0)
    return (torch.exp(f[:, None] + g[None] - cost) * cost).sum()


OBJECTIVES = {
    "focal": (focal, classes), "dice": (dice, classes), "tversky": (tversky, classes), "contrast": (contrast, rows), "supervised_contrast": (supervised_contrast, classes),
    "hardest_triplet": (hardest_triplet, classes), "large_margin": (large_margin, classes), "redundancy": (redundancy, rows), "policy": (policy, rows), "preference": (preference, rows), "quantiles": (quantiles, rows),
    "mixture_density": (mixture_density, rows), "listwise": (listwise, rows), "distil": (distil, rows), "discrepancy": (discrepancy, rows), "sinkhorn": (sinkhorn, rows),
    "triplet": (lambda y, t: F.triplet_margin_loss(y, t, t.flip(0), swap=True), rows), "margin_ranking": (lambda y, t: F.margin_ranking_loss(y[:, 0], y[:, 1], t[:, 0], margin=0.3), signs),
    "cosine_embedding": (lambda y, t: F.cosine_embedding_loss(y, y.flip(0).detach() + 1, t[:, 0], margin=0.1), signs), "hinge_embedding": (lambda y, t: F.hinge_embedding_loss(y, t, margin=0.5), signs),
    "multi_margin": (lambda y, t: F.multi_margin_loss(y, t, p=2, margin=0.5), classes), "multilabel_margin": (lambda y, t: F.multilabel_margin_loss(y, t), lambda: torch.tensor([[0, 2, -1, 1]] * 6)),
    "multilabel_soft_margin": (lambda y, t: F.multilabel_soft_margin_loss(y, (t > 0).float()), signs), "soft_margin": (F.soft_margin_loss, signs), "smooth_l1": (lambda y, t: F.smooth_l1_loss(y, t, beta=0.3), rows),
    "huber_sum": (lambda y, t: F.huber_loss(y, t, reduction="sum", delta=0.7), rows), "poisson": (lambda y, t: F.poisson_nll_loss(y, t.abs(), full=True), rows), "gaussian": (lambda y, t: F.gaussian_nll_loss(y, t, F.softplus(y.flip(1)), full=True), rows),
    "cross_entropy_soft": (lambda y, t: F.cross_entropy(y, t.softmax(1), label_smoothing=0.1, weight=torch.tensor([1.0, 2, 3, 4])), rows), "nll_weighted": (lambda y, t: F.nll_loss(F.log_softmax(y, 1), t, weight=torch.tensor([1.0, 2, 3, 4]), ignore_index=1), classes),
    "cross_entropy_sum": (lambda y, t: F.cross_entropy(y, t, reduction="sum", ignore_index=3) / 5, classes), "l1_none": (lambda y, t: F.l1_loss(y, t, reduction="none").pow(1.5).mean(), rows),
    "log_cosh": (lambda y, t: (y - t + F.softplus(-2 * (y - t)) - 0.6931).mean(), rows), "wing": (lambda y, t: torch.where((y - t).abs() < 1, 2 * torch.log1p((y - t).abs() / 0.5), (y - t).abs() + 1.197).mean(), rows),
    "bce_masked_rows": (lambda y, t: F.binary_cross_entropy_with_logits(y, (t > 0).float(), weight=t.abs(), reduction="none")[:, t[0].abs() < 9].mean(), rows),
    "hinge_by_index": (lambda y, t: F.relu(1 + y - y[torch.arange(6), t][:, None]).sum() - 6, classes), "gradient_reversal": (lambda y, t: F.mse_loss(2 * y.detach() - y, t), rows),
    "straight_through": (lambda y, t: F.mse_loss(y + (y.round() - y).detach(), t) + F.mse_loss((y > 0).float() + y.sigmoid() - y.sigmoid().detach(), t), rows),
    "correlation": (lambda y, t: 1 - torch.corrcoef(torch.stack([y.flatten(), t.flatten()]))[0, 1], rows), "determinant": (lambda y, t: torch.logdet(y.T @ y + torch.eye(4)) + 0 * t.sum(), rows),
    "top_k_mean": (lambda y, t: F.mse_loss(y, t, reduction="none").flatten().topk(7).values.mean(), rows), "trimmed_median": (lambda y, t: (y - t).abs().median(1).values.mean(), rows),
    "fourier": (lambda y, t: torch.fft.rfft(y).abs().mean() + 0 * t.sum(), rows),
    "connectionist": (lambda y, t: F.ctc_loss(F.log_softmax(y[:, None], -1), t[None], (6,), (2,)), lambda: torch.tensor([1, 2])),
}
REFUSED = {"fourier": "aten.fft_rfft.default", "determinant": "aten.logdet.default", "bce_masked_rows": "a bool mask gives a size that depends on data"}
for objective_name, (objective_function, objective_target) in OBJECTIVES.items():
    objective(objective_name, objective_function, objective_target, refused=REFUSED.get(objective_name, ""))


@model
def teacher_by_moving_average():
    """DINO-like: the teacher's parameters are buffers that follow the student in the forward pass; centring and sharpening."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.student = nn.Linear(4, 6)
            self.register_buffer("weight", self.student.weight.detach().clone())
            self.register_buffer("bias", self.student.bias.detach().clone())
            self.register_buffer("centre", torch.zeros(6))

        def forward(self, x, y):
            with torch.no_grad():
                self.weight.mul_(0.9).add_(self.student.weight, alpha=0.1)
                self.bias.lerp_(self.student.bias, 0.1)
                truth = F.linear(y, self.weight, self.bias)
                wanted = F.softmax((truth - self.centre) / 0.04, -1)
                self.centre.copy_(self.centre * 0.9 + truth.mean(0) * 0.1)
            return torch.sum(-wanted * F.log_softmax(self.student(x) / 0.1, -1), -1).mean()
    return Net(), dict(x=torch.randn(5, 4), y=torch.randn(5, 4))


@model
def queue_of_negatives():
    """MoCo-like: a buffer of keys and a pointer, written at a place that is data."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.query = nn.Linear(4, 3)
            self.register_buffer("queue", F.normalize(torch.randn(8, 3), dim=1))
            self.register_buffer("pointer", torch.zeros(1, dtype=torch.long))

        def forward(self, x, y):
            q = F.normalize(self.query(x), dim=1)
            with torch.no_grad():
                k = F.normalize(self.query(y), dim=1)
            logits = torch.cat([torch.einsum("nc,nc->n", q, k)[:, None], q @ self.queue.clone().detach().t()], 1) / 0.2
            places = (self.pointer + torch.arange(x.shape[0])) % 8
            self.queue[places] = k
            self.pointer[0] = (self.pointer[0] + x.shape[0]) % 8
            return F.cross_entropy(logits, torch.zeros(x.shape[0], dtype=torch.long))
    return Net(), dict(x=torch.randn(3, 4), y=torch.randn(3, 4))


@model
def actor_and_critic_with_target():
    def run(m, x, target):
        value = m.critic(torch.cat([x, target[:, :2]], 1)).squeeze(1)
        with torch.no_grad():
            wanted = target[:, 2] + 0.9 * m.slow(torch.cat([x.flip(0), torch.tanh(m.actor(x.flip(0)))], 1)).squeeze(1)
        for p in m.slow.parameters():
            p.requires_grad_(False)
        return F.mse_loss(value, wanted) - m.slow(torch.cat([x, torch.tanh(m.actor(x))], 1)).mean()
    slow = nn.Linear(5, 1).requires_grad_(False)
    return Lambda(run, critic=nn.Linear(5, 1), slow=slow, actor=nn.Linear(3, 2)), dict(x=torch.randn(4, 3), target=torch.randn(4, 3))


@model
def frozen_backbone():
    net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU())
    net[0].requires_grad_(False)
    return Lambda(lambda m, x, t: F.cross_entropy(m.head(m.net(x)), t), net=net, head=nn.Linear(6, 3)), dict(x=torch.randn(5, 4), target=torch.randint(0, 3, (5,)))


@model
def low_rank_adapters():
    def run(m, x, target):
        y = F.linear(x, m.base.weight, m.base.bias) + (x @ m.down.T @ m.up.T) * 2.0
        return F.mse_loss(y, target)
    return Lambda(run, base=nn.Linear(4, 6).requires_grad_(False), down=nn.Parameter(torch.randn(2, 4)), up=nn.Parameter(torch.zeros(6, 2))), dict(x=torch.randn(5, 4), target=torch.randn(5, 6))


@model
def writes_in_place():
    def run(m, x, target):
        y = m.first(x)
        y += 1
        y[:, 0] = y[:, 1] * 2
        y[1:3, 2:] *= 0.5
        y[target > 1] = 0.25
        z = torch.empty_like(y)
        z[::2] = y[::2].sin()
        z[1::2] = y[1::2].cos()
        z.clamp_(-0.9, 0.9)
        flat = z.view(-1)
        flat[3:9].add_(y.view(-1)[:6])
        z.t()[0].zero_()
        w = torch.zeros(5, 6)
        for i in range(5):
            w[i, : i + 1] = z[i, : i + 1]
        w.masked_fill_(w == 0, -1.0).index_copy_(1, torch.tensor([5, 0]), z[:, :2])
        return F.cross_entropy(w + z, target)
    return Lambda(run, first=nn.Linear(4, 6)), dict(x=torch.randn(5, 4), target=torch.tensor([0, 1, 2, 3, 4]))


@model
def chosen_by_masks():
    """where, boolean masks that fill, nan handling, comparisons that carry no gradient."""
    def run(m, x, target):
        y = m.first(x)
        safe = torch.where(y > 0, y, 1.0)
        a = torch.where(y > 0, torch.log(safe), 0.0)
        b = torch.where(x[:, :1] > 0, y.relu(), y * 0.1)
        c = torch.nan_to_num(torch.sqrt(y.clamp(min=1e-3)), nan=0.0)
        order = y.detach().argsort(1, descending=True)
        ranks = torch.zeros_like(order).scatter_(1, order, torch.arange(6).expand_as(order))
        return F.cross_entropy(a + b + c + y * ranks.float() * (y > y.mean(1, keepdim=True)), target)
    return Lambda(run, first=nn.Linear(4, 6)), dict(x=torch.randn(5, 4), target=torch.tensor([0, 1, 2, 3, 4]))


@model
def mixed_precision_by_hand():
    def run(m, x, target):
        h = F.linear(x.bfloat16(), m.first.weight.bfloat16(), m.first.bias.bfloat16())
        h = F.layer_norm(h.float(), (6,)).to(torch.bfloat16)
        return F.cross_entropy((h @ m.second.bfloat16()).float(), target)
    return Case(Lambda(run, first=nn.Linear(4, 6), second=nn.Parameter(torch.randn(6, 3))), dict(x=torch.randn(5, 4), target=torch.tensor([0, 1, 2, 1, 0])), float64=False, loose=10000)


@model
def integer_arithmetic():
    def run(m, x, target):
        a = (target * 7 - 9) // 4 + (target * 7 - 9) % 4 + torch.div(target * 7 - 9, 4, rounding_mode="trunc")
        b = (target & 1) + (target | 2) + (target ^ 3) + (target << 1) + (target >> 1) + (~target)
        c = target.clamp(1, 3)
        return (m.table[(a + b + c) % 6] * x).sum() / 10
    return Lambda(run, table=nn.Parameter(torch.randn(6, 4))), dict(x=torch.randn(5, 4), target=torch.tensor([0, 1, 2, 3, 4]))


@model
def unused_and_tied_parameters():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.unused = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
            self.b.weight = self.a.weight
            self.rows = nn.Parameter(torch.randn(6, 4))

        def forward(self, x, target):
            with torch.no_grad():
                self.unused(x)
            return F.mse_loss(self.b(torch.tanh(self.a(x))) @ self.a.weight.t() + self.rows[:5], target)
    return Net(), dict(x=torch.randn(5, 4), target=torch.randn(5, 4))


@model
def checkpointed_blocks():
    from torch.utils.checkpoint import checkpoint

    def run(m, x, target):
        y = x
        for block in m.blocks:
            y = y + checkpoint(block, y, use_reentrant=False)
        return F.mse_loss(y, target)
    return Lambda(run, blocks=nn.ModuleList([nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4)) for _ in range(2)])), dict(x=torch.randn(5, 4), target=torch.randn(5, 4))


@model
def writes_to_parameter():
    def run(m, x, target):
        with torch.no_grad():
            m.first.weight.clamp_(-0.1, 0.1)
        return F.mse_loss(m.first(x), target)
    return Case(Lambda(run, first=nn.Linear(4, 4)), dict(x=torch.randn(5, 4), target=torch.randn(5, 4)), refused="writes to parameter first.weight")


@model
def writes_into_out_and_geometry():
    """Results put into given tensors, and shapes changed in place."""
    def run(m, x, target):
        y = m.first(x)
        with torch.no_grad():
            torch.mul(m.mean, 0.9, out=m.mean)
            torch.add(m.mean, y.mean(0), alpha=0.1, out=m.mean)
            torch.maximum(m.most, y.amax(0), out=m.most)
        z = (y - m.mean) / (m.most.abs() + 1)
        z.unsqueeze_(1)
        z.transpose_(1, 2)
        z.squeeze_(2)
        return F.mse_loss(z, target)
    return Lambda(run, first=nn.Linear(4, 4), mean=torch.zeros(4), most=torch.zeros(4)), dict(x=torch.randn(5, 4), target=torch.randn(5, 4))


@model
def branch_on_data():
    def run(m, x, target):
        y = torch.cond(x.sum() > 0, lambda v: v * 2, lambda v: v - 1, (m.first(x),))
        return F.mse_loss(y, target)
    return Case(Lambda(run, first=nn.Linear(4, 4)), dict(x=torch.randn(5, 4), target=torch.randn(5, 4)), refused="higher_order.cond")


@model
def complex_rotary():
    """Rotary embedding by complex numbers: refused, with all operators named."""
    def run(m, x, target):
        y = torch.view_as_complex(m.first(x).reshape(5, 2, 2))
        angles = torch.polar(torch.ones(5, 2), torch.arange(10.0).view(5, 2))
        return F.mse_loss(torch.view_as_real(y * angles).flatten(1), target)
    return Case(Lambda(run, first=nn.Linear(4, 4)), dict(x=torch.randn(5, 4), target=torch.randn(5, 4)), refused="complex numbers")


@model
def length_from_data():
    def run(m, x, target):
        kept = torch.masked_select(m.first(x), x > 0)
        return kept.square().mean() + 0 * target.sum()
    return Case(Lambda(run, first=nn.Linear(4, 4)), dict(x=torch.randn(5, 4), target=torch.randn(5, 4)), refused="masked_select")


@model
def sizes_of_their_own():
    """Ids and targets with lengths of their own, which meet only in a product."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(10, 6), nn.Linear(6, 10)

        def forward(self, ids, target):
            return F.cross_entropy(self.head(self.embed(ids)).view(-1, 10), target.view(-1))
    return Case(Net(), dict(ids=torch.randint(0, 10, (3, 4)), target=torch.randint(0, 10, (3, 4))), alt=dict(ids=torch.randint(0, 10, (2, 7)), target=torch.randint(0, 10, (2, 7))),
                dynamic=dict(ids={0: AUTO, 1: AUTO}, target={0: AUTO, 1: AUTO}))
