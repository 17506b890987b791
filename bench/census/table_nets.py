# SPDX-License-Identifier: Apache-2.0
"""Recommenders, tables, graphs, mixtures of experts."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from .common import Case, Classifier, Lambda, model, register

AUTO = torch.export.Dim.AUTO


@model
def mixture_of_experts():
    """Every expert on every token, masked by the chosen gates; load-balancing loss."""
    def run(m, x, target):
        shares = m.gate(x).softmax(-1)
        values, chosen = shares.topk(2, -1)
        weights = torch.zeros_like(shares).scatter(-1, chosen, values / values.sum(-1, keepdim=True))
        balance = (F.one_hot(chosen[:, 0], 4).float().mean(0) * shares.mean(0)).sum() * 4
        return F.cross_entropy(m.head(sum(weights[:, k:k + 1] * expert(x) for k, expert in enumerate(m.experts))), target) + 0.01 * balance
    experts = nn.ModuleList([nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)) for _ in range(4)])
    return Lambda(run, gate=nn.Linear(8, 4), experts=experts, head=nn.Linear(8, 5)), dict(x=torch.randn(6, 8), target=torch.randint(0, 5, (6,)))


@model
def mixture_of_experts_by_capacity():
    """Switch routing: places within an expert by a cumulative sum, dispatch and combine by one-hot matrices, tokens over the capacity dropped."""
    def run(m, x, target):
        shares = m.gate(x).softmax(-1)
        gate, chosen = shares.max(-1)
        mask = F.one_hot(chosen, 4)
        place = (mask.cumsum(0) - 1) * mask
        kept = mask * (place < 2)
        dispatch = kept[..., None].float() * F.one_hot((place * kept).sum(-1), 2)[:, None].float()
        inside = torch.einsum("nec,nd->ecd", dispatch, x)
        hidden = F.relu(torch.bmm(inside, m.first) + m.bias[:, None])
        combined = torch.einsum("nec,ecd->nd", dispatch * gate[:, None, None], torch.bmm(hidden, m.second))
        return F.cross_entropy(m.head(x + combined), target) + 1e-3 * torch.logsumexp(m.gate(x), -1).square().mean()
    return Lambda(run, gate=nn.Linear(8, 4), first=nn.Parameter(torch.randn(4, 8, 16) * 0.3), bias=nn.Parameter(torch.zeros(4, 16)), second=nn.Parameter(torch.randn(4, 16, 8) * 0.3), head=nn.Linear(8, 5)), dict(
        x=torch.randn(9, 8), target=torch.randint(0, 5, (9,)))


@model
def expert_choice_routing():
    """Each expert takes its best tokens; results are added back by index."""
    def run(m, x, target):
        scores = m.gate(x).softmax(-1)
        values, chosen = scores.t().topk(3, -1)
        taken = x[chosen]
        made = torch.einsum("ecd,edf->ecf", taken, m.weights) * values[..., None]
        y = torch.zeros_like(x).index_add(0, chosen.reshape(-1), made.reshape(-1, 8))
        return F.cross_entropy(m.head(y + x), target)
    return Lambda(run, gate=nn.Linear(8, 4), weights=nn.Parameter(torch.randn(4, 8, 8) * 0.3), head=nn.Linear(8, 5)), dict(x=torch.randn(7, 8), target=torch.randint(0, 5, (7,)))


@model
def deep_learning_recommender():
    """DLRM: embedding bags with offsets, pairwise dot products of the lower triangle."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.bags = nn.ModuleList([nn.EmbeddingBag(10, 4, mode="sum") for _ in range(3)])
            self.bottom, self.top = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 4), nn.ReLU()), nn.Sequential(nn.Linear(10, 8), nn.ReLU(), nn.Linear(8, 1), nn.Sigmoid())

        def forward(self, x, ids, offsets, target):
            dense = self.bottom(x)
            every = torch.stack([dense] + [bag(ids[i], offsets[i]) for i, bag in enumerate(self.bags)], 1)
            pairs = torch.bmm(every, every.transpose(1, 2))
            rows, columns = torch.tensor([i for i in range(4) for j in range(i)]), torch.tensor([j for i in range(4) for j in range(i)])
            return F.binary_cross_entropy(self.top(torch.cat([dense, pairs[:, rows, columns]], 1)).squeeze(1), target)
    return Net(), dict(x=torch.randn(4, 5), ids=torch.randint(0, 10, (3, 9)), offsets=torch.tensor([[0, 2, 2, 5]] * 3), target=torch.rand(4).round())


@model
def embedding_bag_modes():
    def run(m, x, target):
        a, b, c = m.mean(x), m.most(x), m.weighed(x, per_sample_weights=torch.linspace(0.5, 2, x.numel()).view_as(x))
        return F.cross_entropy(a + b + c, target)
    return Lambda(run, mean=nn.EmbeddingBag(10, 4, mode="mean", padding_idx=0), most=nn.EmbeddingBag(10, 4, mode="max"), weighed=nn.EmbeddingBag(10, 4, mode="sum", include_last_offset=False)), dict(
        x=torch.randint(0, 10, (3, 5)), target=torch.randint(0, 4, (3,)))


@model
def deep_factorisation():
    """DeepFM with field offsets into one table, and a cross network."""
    def run(m, x, target):
        ids = x + torch.tensor([0, 5, 12])
        e = m.table(ids)
        second = 0.5 * (e.sum(1).pow(2) - e.pow(2).sum(1)).sum(1)
        deep = cross = e.flatten(1)
        start = cross
        for layer in m.crosses:
            cross = start * layer(cross) + cross
        return F.binary_cross_entropy_with_logits(m.first(ids).sum((1, 2)) + second + m.deep(deep).squeeze(1) + cross.sum(1), target, pos_weight=torch.tensor(2.0))
    deep = nn.Sequential(nn.Linear(12, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
    return Lambda(run, table=nn.Embedding(20, 4), first=nn.Embedding(20, 1), deep=deep, crosses=nn.ModuleList([nn.Linear(12, 12) for _ in range(2)])), dict(
        x=torch.stack([torch.randint(0, 5, (6,)), torch.randint(0, 7, (6,)), torch.randint(0, 8, (6,))], 1), target=torch.rand(6).round())


@model
def two_towers():
    """In-batch negatives with a temperature, correction by frequency, masked duplicates."""
    def run(m, x, target):
        a, b = F.normalize(m.user(m.users(x)), dim=-1), F.normalize(m.item(m.items(target)), dim=-1)
        logits = a @ b.t() / 0.1 - torch.log(m.frequency[target])
        same = (target[:, None] == target[None]) & ~torch.eye(x.shape[0], dtype=torch.bool)
        return F.cross_entropy(logits.masked_fill(same, -1e9), torch.arange(x.shape[0]))
    return Case(Lambda(run, users=nn.Embedding(9, 6), items=nn.Embedding(7, 6), user=nn.Linear(6, 4), item=nn.Linear(6, 4), frequency=torch.linspace(0.1, 0.4, 7)), dict(x=torch.randint(0, 9, (6,)), target=torch.randint(0, 7, (6,))),
                alt=dict(x=torch.randint(0, 9, (4,)), target=torch.randint(0, 7, (4,))), dynamic=dict(x={0: AUTO}, target={0: AUTO}))


@model
def session_recommender():
    """SASRec: causal attention over items, with padding and sampled negatives (an input)."""
    def run(m, x, target):
        seen = x != 0
        mask = torch.ones(5, 5, dtype=torch.bool).triu(1)
        y = (m.items(x) * 8**0.5 + m.places.weight) * seen[..., None]
        y = y + m.attention(m.norm(y), y, y, attn_mask=mask, need_weights=False)[0]
        positive, negative = (y * m.items(target[:, 0])).sum(-1), (y * m.items(target[:, 1])).sum(-1)
        loss = F.logsigmoid(positive) + F.logsigmoid(-negative)
        return -(loss * seen).sum() / seen.sum()
    return Lambda(run, items=nn.Embedding(12, 8, padding_idx=0), places=nn.Embedding(5, 8), attention=nn.MultiheadAttention(8, 2, batch_first=True), norm=nn.LayerNorm(8)), dict(
        x=torch.tensor([[0, 0, 3, 4, 5], [0, 7, 8, 1, 2], [2, 3, 4, 5, 6]]), target=torch.randint(1, 12, (3, 2, 5)))


@model
def tabular_transformer():
    """FT-Transformer: a token for each feature, ReGLU."""
    def run(m, x, target):
        y = torch.cat([m.summary.expand(x.shape[0], 1, -1), x[..., None] * m.weights + m.biases], 1)
        y = y + m.attention(m.norm(y), m.norm(y), m.norm(y))[0]
        a, b = m.widen(y).chunk(2, -1)
        return F.mse_loss(m.head(F.relu((y + m.narrow(a * F.relu(b)))[:, 0])).squeeze(-1), target)
    return Lambda(run, weights=nn.Parameter(torch.randn(4, 8)), biases=nn.Parameter(torch.randn(4, 8)), summary=nn.Parameter(torch.randn(1, 1, 8)), attention=nn.MultiheadAttention(8, 2, batch_first=True),
                  norm=nn.LayerNorm(8), widen=nn.Linear(8, 16), narrow=nn.Linear(8, 8), head=nn.Linear(8, 1)), dict(x=torch.randn(5, 4), target=torch.randn(5))


@model
def soft_decision_forest():
    def run(m, x, target):
        choices = torch.sigmoid(m.splits(x).view(-1, 2, 7))
        reach = torch.ones(x.shape[0], 2, 1)
        first = 0
        for depth in range(3):
            p = choices[:, :, first:first + 2**depth]
            reach = torch.stack([reach * p, reach * (1 - p)], -1).flatten(2)
            first += 2**depth
        return F.nll_loss(torch.log(torch.einsum("btl,tlc->bc", reach, m.leaves.softmax(-1)) / 2), target)
    return Lambda(run, splits=nn.Linear(5, 14), leaves=nn.Parameter(torch.randn(2, 8, 3))), dict(x=torch.randn(6, 5), target=torch.randint(0, 3, (6,)))


EDGES = torch.tensor([[0, 1, 2, 3, 4, 0, 2, 2, 5], [1, 2, 3, 4, 0, 3, 1, 3, 2]])


@model
def graph_convolution():
    """Messages by index_select, summed by index_add; symmetric normalisation by degrees."""
    def run(m, x, target):
        source, sink = EDGES
        degree = torch.zeros(6).scatter_add(0, sink, torch.ones(9)) + 1
        scale = degree.rsqrt()
        y = m.first(x)
        gathered = torch.zeros_like(y).index_add_(0, sink, y.index_select(0, source) * (scale[source] * scale[sink])[:, None]) + y / degree[:, None]
        return F.cross_entropy(m.second(F.relu(gathered)), target)
    return Lambda(run, first=nn.Linear(4, 8), second=nn.Linear(8, 3)), dict(x=torch.randn(6, 4), target=torch.randint(0, 3, (6,)))


@model
def graph_attention():
    """Softmax over the edges of each node: scatter_reduce amax, then sums."""
    def run(m, x, target):
        source, sink = EDGES
        h = m.project(x).view(-1, 2, 4)
        e = F.leaky_relu((h[source] * m.a).sum(-1) + (h[sink] * m.b).sum(-1), 0.2)
        places = sink[:, None].expand_as(e)
        top = torch.full((6, 2), -1e30).scatter_reduce(0, places, e, "amax")
        weight = torch.exp(e - top.detach()[sink])
        total = torch.zeros(6, 2).scatter_add_(0, places, weight)
        y = torch.zeros(6, 2, 4).index_put((sink,), h[source] * (weight / (total[sink] + 1e-16))[..., None], accumulate=True)
        return F.cross_entropy(F.elu(y.flatten(1)), target)
    return Lambda(run, project=nn.Linear(4, 8, bias=False), a=nn.Parameter(torch.randn(2, 4)), b=nn.Parameter(torch.randn(2, 4))), dict(x=torch.randn(6, 4), target=torch.randint(0, 8, (6,)))


@model
def graph_pooling():
    """GraphSAGE with max, mean of a batch of graphs by scatter_reduce, and dense adjacency for a GIN layer."""
    def run(m, x, target):
        source, sink = EDGES
        index = sink[:, None].expand(-1, 4)
        most = torch.zeros(6, 4).scatter_reduce(0, index, x[source], "amax", include_self=False)
        average = torch.zeros(6, 4).scatter_reduce(0, index, m.first(x)[source], "mean", include_self=False)
        adjacency = torch.zeros(6, 6).index_put((source, sink), torch.tensor(1.0))
        y = m.second(torch.cat([most, average, (1 + m.epsilon) * x + adjacency.t() @ x], 1))
        graphs = torch.zeros(2, 8).index_add(0, torch.tensor([0, 0, 0, 1, 1, 1]), F.relu(y)) / 3
        return F.cross_entropy(graphs, target)
    return Lambda(run, first=nn.Linear(4, 4), second=nn.Linear(12, 8), epsilon=nn.Parameter(torch.zeros(1))), dict(x=torch.randn(6, 4), target=torch.randint(0, 8, (2,)))


@model
def graph_with_given_edges():
    """The edges are an input whose number is a symbol."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.message, self.update, self.head = nn.Linear(9, 8), nn.GRUCell(8, 4), nn.Linear(4, 3)

        def forward(self, x, edges, weights, target):
            sent = F.relu(self.message(torch.cat([x[edges[0]], x[edges[1]], weights[:, None]], 1)))
            return F.cross_entropy(self.head(self.update(torch.zeros(x.shape[0], 8).index_add(0, edges[1], sent), x)), target)
    more = torch.randint(0, 6, (2, 14))
    return Case(Net(), dict(x=torch.randn(6, 4), edges=EDGES, weights=torch.rand(9), target=torch.randint(0, 3, (6,))), alt=dict(x=torch.randn(6, 4), edges=more, weights=torch.rand(14), target=torch.randint(0, 3, (6,))),
                dynamic=dict(x=None, edges={1: AUTO}, weights={0: AUTO}, target=None))


@model
def multi_task_uncertainty():
    """A dict of inputs and a weighted sum of tasks by learnt variances."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.trunk, self.kinds, self.value, self.log_variance = nn.Linear(4, 8), nn.Linear(8, 3), nn.Linear(8, 1), nn.Parameter(torch.zeros(2))

        def forward(self, x, kind, value):
            h = torch.tanh(self.trunk(x))
            losses = torch.stack([F.cross_entropy(self.kinds(h), kind, label_smoothing=0.1, weight=torch.tensor([1.0, 2.0, 0.5])), F.huber_loss(self.value(h)[:, 0], value, delta=0.5)])
            return (torch.exp(-self.log_variance) * losses + self.log_variance).sum()
    return Net(), dict(x=torch.randn(5, 4), kind=torch.randint(0, 3, (5,)), value=torch.randn(5))


@model
def neural_ordinary_equation():
    """Runge-Kutta steps unrolled."""
    def run(m, x, target):
        def f(y):
            return m.second(torch.tanh(m.first(y)))
        y, h = x, 0.25
        for _ in range(3):
            a = f(y)
            b = f(y + h / 2 * a)
            c = f(y + h / 2 * b)
            y = y + h / 6 * (a + 2 * b + 2 * c + f(y + h * c))
        return F.mse_loss(y, target)
    return Lambda(run, first=nn.Linear(3, 6), second=nn.Linear(6, 3)), dict(x=torch.randn(4, 3), target=torch.randn(4, 3))


@model
def mixer_of_everything():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.bilinear, self.low = nn.Linear(4, 6), nn.Bilinear(6, 6, 5), nn.Parameter(torch.randn(6, 2))

        def forward(self, x):
            h = self.first(x)
            h = h + h @ self.low @ self.low.t() * 0.5
            return self.bilinear(h, h.flip(-1)) + torch.linalg.vector_norm(h, dim=-1, keepdim=True) + h.std(-1, keepdim=True)
    return Classifier(Net()), dict(x=torch.randn(5, 4), target=torch.randint(0, 5, (5,)))
