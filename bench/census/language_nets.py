# SPDX-License-Identifier: Apache-2.0
"""Recurrent nets, transformers of torch.nn, and sequence models written by hand."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from .common import Case, Classifier, Lambda, Language, Regression, model, register, tokens

AUTO = torch.export.Dim.AUTO


class Recurrent(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.rnn = kind(8, 16, options.pop("layers", 2), batch_first=True, **options)
        self.head = nn.Linear((options.get("proj_size") or 16) * (2 if options.get("bidirectional") else 1), 20)

    def forward(self, ids):
        return self.head(self.rnn(self.embed(ids))[0])


RECURRENT = {
    "lstm": (nn.LSTM, {}), "lstm_bidirectional": (nn.LSTM, dict(bidirectional=True)), "lstm_projected": (nn.LSTM, dict(proj_size=4)), "lstm_projected_both": (nn.LSTM, dict(proj_size=4, bidirectional=True)),
    "lstm_without_bias": (nn.LSTM, dict(bias=False, layers=1)), "gru": (nn.GRU, {}), "gru_bidirectional": (nn.GRU, dict(bidirectional=True)), "gru_without_bias": (nn.GRU, dict(bias=False)),
    "rnn_tanh": (nn.RNN, {}), "rnn_relu": (nn.RNN, dict(nonlinearity="relu", bidirectional=True)),
}
for recurrent_name, (recurrent_kind, recurrent_options) in RECURRENT.items():
    register(recurrent_name, lambda kind=recurrent_kind, options=recurrent_options: (Language(Recurrent(kind, **options)), tokens()))


@model
def lstm_any_size():
    # PyTorch 2.11 makes the length of a recurrence a constant: the other batch has the same.
    return Case(Language(Recurrent(nn.LSTM)), tokens(), alt=tokens(4, 7), dynamic=dict(ids={0: AUTO, 1: AUTO}, target={0: AUTO, 1: AUTO}))


@model
def lstm_states():
    """Given and returned states, time first, cells called by hand."""
    def run(m, x, target):
        h, c = torch.zeros(2, x.shape[1], 6), m.start[:, None].expand(-1, x.shape[1], -1).contiguous()
        y, (h, c) = m.lstm(x, (h, c))
        cell = (y[0], y[1])
        for t in range(3):
            cell = m.cell(y[t], cell)
        g = m.gru(cell[0], y[-1])
        return F.mse_loss(m.rnn(g, cell[1]), target) + h.square().mean() + c.sum()
    return Lambda(run, lstm=nn.LSTM(4, 6, 2), cell=nn.LSTMCell(6, 6), gru=nn.GRUCell(6, 6), rnn=nn.RNNCell(6, 6), start=nn.Parameter(torch.randn(2, 6))), dict(x=torch.randn(5, 3, 4), target=torch.randn(3, 6))


@model
def lstm_packed():
    def run(m, x, target):
        packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 4, 2]), batch_first=True)
        y, _ = nn.utils.rnn.pad_packed_sequence(m.lstm(packed)[0], batch_first=True)
        return F.mse_loss(y, target)
    return Lambda(run, lstm=nn.LSTM(4, 6, batch_first=True)), dict(x=torch.randn(3, 5, 4), target=torch.randn(3, 5, 6))


@model
def encoder_decoder():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(20, 16)
            self.transformer = nn.Transformer(16, 4, 2, 2, 32, dropout=0.0, batch_first=True)
            self.head = nn.Linear(16, 20)

        def forward(self, ids):
            x = self.embed(ids)
            mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
            return self.head(self.transformer(x, x, tgt_mask=mask, tgt_is_causal=True))
    return Language(Net()), tokens()


@model
def encoder_norm_first_padding():
    def run(m, x, target):
        padding = torch.arange(x.shape[1])[None] >= torch.tensor([6, 4, 5])[:, None]
        return F.mse_loss(m.encoder(x, src_key_padding_mask=padding).masked_fill(padding[..., None], 0.0), target)
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, activation="gelu", norm_first=True, batch_first=True)
    return Lambda(run, encoder=nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(16), enable_nested_tensor=False)), dict(x=torch.randn(3, 6, 16), target=torch.randn(3, 6, 16))


@model
def attention_layer_options():
    """nn.MultiheadAttention: other key and value sizes, bias_kv, zero attention, returned weights, masks of both kinds."""
    def run(m, x, target):
        k, v = x[..., :6], x[..., 2:7]
        y, weights = m.plain(x, x, x, attn_mask=torch.ones(5, 5, dtype=torch.bool).triu(1), average_attn_weights=False)
        z, _ = m.sizes(x, k, v, need_weights=False)
        w, mean = m.biased(x, x, x, attn_mask=torch.zeros(5, 5).fill_diagonal_(-2.0), key_padding_mask=torch.tensor([[0, 0, 0, 0, 1], [0, 0, 0, 0, 0], [0, 0, 0, 1, 1]]).float() * -1e4)
        return F.mse_loss(y + z + w, target) + weights.square().mean() + mean.square().mean()
    parts = dict(plain=nn.MultiheadAttention(8, 2, batch_first=True), sizes=nn.MultiheadAttention(8, 2, batch_first=True, kdim=6, vdim=5, bias=False),
                 biased=nn.MultiheadAttention(8, 2, batch_first=True, add_bias_kv=True, add_zero_attn=True))
    return Case(Lambda(run, **parts), dict(x=torch.randn(3, 5, 8), target=torch.randn(3, 5, 8)), float64=False)


class Block(nn.Module):
    def __init__(self, size, attend, norm=nn.LayerNorm):
        super().__init__()
        self.before, self.after, self.attend = norm(size), norm(size), attend
        self.widen, self.narrow = nn.Linear(size, 2 * size), nn.Linear(2 * size, size)

    def forward(self, x):
        x = x + self.attend(self.before(x))
        return x + self.narrow(F.gelu(self.widen(self.after(x)), approximate="tanh"))


class SelfAttention(nn.Module):
    """`kind`: fused, written out with a buffer as mask, ALiBi, rotary, linear, relative (T5)."""

    def __init__(self, size=16, heads=2, kind="fused", length=32):
        super().__init__()
        self.heads, self.kind = heads, kind
        self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.register_buffer("mask", torch.tril(torch.ones(length, length)).view(1, 1, length, length), persistent=False)
        if kind == "alibi":
            self.register_buffer("slopes", torch.tensor([2.0 ** (-8.0 * (h + 1) / heads) for h in range(heads)]))
        if kind == "relative":
            self.table = nn.Embedding(8, heads)
        if kind == "rotary":
            angles = torch.outer(torch.arange(length).float(), 1.0 / 10000 ** (torch.arange(0, size // heads, 2).float() / (size // heads)))
            self.register_buffer("cos", angles.cos(), persistent=False)
            self.register_buffer("sin", angles.sin(), persistent=False)

    def rotate(self, x):
        cos, sin = self.cos[: x.shape[2]], self.sin[: x.shape[2]]
        even, odd = x[..., ::2], x[..., 1::2]
        return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)

    def bias(self, length):
        distance = torch.arange(length)[None, :] - torch.arange(length)[:, None]
        if self.kind == "alibi":
            return self.slopes[:, None, None] * distance.clamp(max=0)
        far = 4 + (torch.log(distance.abs().clamp(min=1).float() / 4) / math.log(4) * 4).long()
        bucket = torch.where(distance.abs() < 4, distance.abs(), far.clamp(max=7))
        return self.table(bucket).permute(2, 0, 1)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in self.qkv(x).split(c, dim=2))
        if self.kind == "fused":
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        elif self.kind == "linear":
            q, k = F.elu(q) + 1, F.elu(k) + 1
            states = torch.cumsum(k[..., :, None] * v[..., None, :], 2)
            y = (q[..., None, :] @ states).squeeze(-2) / (q * k.cumsum(2)).sum(-1, keepdim=True)
        else:
            if self.kind == "rotary":
                q, k = self.rotate(q), self.rotate(k)
            scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            if self.kind in ("alibi", "relative"):
                scores = scores + self.bias(t)
            y = scores.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf")).softmax(-1) @ v
        return self.out(y.transpose(1, 2).contiguous().view(b, t, c))


class SmallGpt(nn.Module):
    def __init__(self, kind="fused", tied=True, norm=nn.LayerNorm):
        super().__init__()
        self.parts = nn.ModuleDict(dict(tokens=nn.Embedding(20, 16), places=nn.Embedding(32, 16), blocks=nn.ModuleList([Block(16, SelfAttention(kind=kind), norm) for _ in range(2)]), norm=norm(16)))
        self.head = nn.Linear(16, 20, bias=False)
        if tied:
            self.parts.tokens.weight = self.head.weight

    def forward(self, ids, target):
        x = self.parts.tokens(ids) + self.parts.places(torch.arange(0, ids.size(1), dtype=torch.long, device=ids.device))
        for block in self.parts.blocks:
            x = block(x)
        logits = self.head(self.parts.norm(x))
        return F.cross_entropy(logits.view(-1, logits.size(-1)), target.view(-1), ignore_index=-1)


def some_ignored(batch=3, length=7):
    found = tokens(batch, length)
    found["target"][:, 0] = -1
    return found


for attention_kind in ("fused", "written", "alibi", "rotary", "linear", "relative"):
    register("gpt_" + attention_kind, lambda kind=attention_kind: (SmallGpt(kind), some_ignored()))
    register("gpt_" + attention_kind + "_any_size", lambda kind=attention_kind: Case(SmallGpt(kind, tied=False), some_ignored(), alt=some_ignored(2, 11),
                                                                                 dynamic=dict(ids={0: AUTO, 1: AUTO}, target={0: AUTO, 1: AUTO})))
register("gpt_rms_norm", lambda: (SmallGpt(norm=nn.RMSNorm), some_ignored()))


@model
def gpt_named_sizes():
    """Batch 4k, and two symbols for lengths that are equal."""
    rows, length = 4 * torch.export.Dim("k", max=8), torch.export.Dim("length", min=2, max=32)
    return Case(SmallGpt(), some_ignored(8, 6), alt=some_ignored(4, 10), dynamic=dict(ids={0: rows, 1: length}, target={0: rows, 1: length}))


@model
def sequence_to_sequence_attention():
    """A GRU encoder, and a decoder cell with additive attention, fed with the truth."""
    def run(m, x, target):
        states, h = m.encoder(m.embed(x))
        h = h[0]
        losses = []
        for t in range(target.shape[1]):
            energy = m.energy(torch.tanh(m.query(h)[:, None] + m.key(states))).squeeze(-1)
            context = torch.bmm(energy.softmax(1)[:, None], states).squeeze(1)
            previous = m.embed(target[:, t - 1]) if t else torch.zeros_like(context[:, :8])
            h = m.decoder(torch.cat([previous, context], -1), h)
            losses.append(F.cross_entropy(m.head(h), target[:, t]))
        return torch.stack(losses).mean()
    parts = dict(embed=nn.Embedding(20, 8), encoder=nn.GRU(8, 12, batch_first=True), decoder=nn.GRUCell(20, 12), query=nn.Linear(12, 6), key=nn.Linear(12, 6, bias=False), energy=nn.Linear(6, 1), head=nn.Linear(12, 20))
    return Lambda(run, **parts), dict(x=torch.randint(0, 20, (3, 6)), target=torch.randint(0, 20, (3, 4)))


@model
def temporal_convolutions():
    """Causal dilated convolutions, cut at the right, with weight norm."""
    from torch.nn.utils.parametrizations import weight_norm

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([weight_norm(nn.Conv1d(4 if d == 1 else 8, 8, 3, padding=2 * d, dilation=d)) for d in (1, 2, 4)])
            self.skip, self.head = nn.Conv1d(4, 8, 1), nn.Linear(8, 5)

        def forward(self, x):
            y = x
            for layer in self.layers:
                y = F.relu(layer(y)[..., : x.shape[-1]])
            return self.head((y + self.skip(x))[:, :, -1])
    return Classifier(Net()), dict(x=torch.randn(3, 4, 12), target=torch.randint(0, 5, (3,)))


@model
def wavenet():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Conv1d(20, 8, 1)
            self.gates = nn.ModuleList([nn.Conv1d(8, 16, 2, dilation=d) for d in (1, 2, 4)])
            self.rests, self.skips = nn.ModuleList([nn.Conv1d(8, 8, 1) for _ in range(3)]), nn.ModuleList([nn.Conv1d(8, 8, 1) for _ in range(3)])
            self.last = nn.Sequential(nn.ReLU(), nn.Conv1d(8, 20, 1))

        def forward(self, ids, target):
            x = self.first(F.one_hot(ids, 20).float().transpose(1, 2))
            total = 0
            for gate, rest, skip in zip(self.gates, self.rests, self.skips):
                a, b = gate(F.pad(x, (gate.dilation[0], 0))).chunk(2, 1)
                y = torch.tanh(a) * torch.sigmoid(b)
                total = total + skip(y)
                x = x + rest(y)
            return F.cross_entropy(self.last(total), target)
    return Net(), tokens(2, 12)


@model
def selective_scan():
    """A Mamba-like layer: the scan in closed form through cumulative sums of logarithms."""
    def run(m, x, target):
        u, gate = m.project(x).chunk(2, -1)
        u = F.silu(m.conv(u.transpose(1, 2))[..., : x.shape[1]]).transpose(1, 2)
        step = F.softplus(m.step(u))
        b, c = m.inputs(u), m.outputs(u)
        decay = torch.einsum("bld,dn->bldn", step, -torch.exp(m.a_log))
        total = decay.cumsum(1)
        states = torch.exp(total) * torch.cumsum(torch.einsum("bld,bln,bld->bldn", step, b, u) * torch.exp(-total), 1)
        y = torch.einsum("bldn,bln->bld", states, c) + m.d * u
        return F.mse_loss(m.last(y * F.silu(gate)), target)
    parts = dict(project=nn.Linear(6, 16), conv=nn.Conv1d(8, 8, 3, padding=2, groups=8), step=nn.Linear(8, 8), inputs=nn.Linear(8, 4), outputs=nn.Linear(8, 4), last=nn.Linear(8, 6),
                 a_log=nn.Parameter(torch.log(torch.arange(1, 5).float() / 4).repeat(8, 1)), d=nn.Parameter(torch.ones(8)))
    return Lambda(run, **parts), dict(x=torch.randn(2, 7, 6), target=torch.randn(2, 7, 6))


@model
def time_mixing():
    """RWKV-like: token shift by padding, exponential decay kept in a loop over time."""
    def run(m, x, target):
        before = F.pad(x, (0, 0, 1, -1))
        k, v, r = (layer(x * mix + before * (1 - mix)) for layer, mix in zip((m.k, m.v, m.r), m.mix))
        numerator = denominator = torch.zeros_like(k[:, 0])
        outputs = []
        for t in range(x.shape[1]):
            current = torch.exp(m.bonus + k[:, t])
            outputs.append((numerator + current * v[:, t]) / (denominator + current))
            decay = torch.exp(-torch.exp(m.decay))
            numerator, denominator = decay * numerator + torch.exp(k[:, t]) * v[:, t], decay * denominator + torch.exp(k[:, t])
        return F.mse_loss(m.o(torch.sigmoid(r) * torch.stack(outputs, 1)), target)
    parts = dict(k=nn.Linear(6, 6, False), v=nn.Linear(6, 6, False), r=nn.Linear(6, 6, False), o=nn.Linear(6, 6, False), mix=nn.Parameter(torch.rand(3, 6)), bonus=nn.Parameter(torch.randn(6)), decay=nn.Parameter(torch.randn(6)))
    return Lambda(run, **parts), dict(x=torch.randn(2, 5, 6), target=torch.randn(2, 5, 6))


@model
def convolutional_recurrent():
    """CRNN: columns of a convolutional map as time steps of a bidirectional LSTM."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.features = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(True), nn.MaxPool2d(2, 2), nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(True), nn.MaxPool2d((2, 2), (2, 1), (0, 1)))
            self.rnn, self.head = nn.LSTM(16, 6, bidirectional=True), nn.Linear(12, 5)

        def forward(self, x):
            y = self.features(x)
            b, c, h, w = y.shape
            y, _ = self.rnn(y.permute(3, 0, 1, 2).reshape(w, b, c * h))
            return self.head(y).log_softmax(-1).mean(0)
    return Classifier(Net()), dict(x=torch.randn(2, 1, 8, 12), target=torch.randint(0, 5, (2,)))


@model
def fast_weights_outer_product():
    def run(m, x, target):
        q, k, v = (layer(x) for layer in (m.q, m.k, m.v))
        memory = torch.zeros(x.shape[0], 6, 6)
        outputs = []
        for t in range(x.shape[1]):
            key = F.normalize(k[:, t], dim=-1)
            memory = memory + torch.einsum("bi,bj->bij", v[:, t] - torch.einsum("bij,bj->bi", memory, key), key)
            outputs.append(torch.einsum("bij,bj->bi", memory, q[:, t]))
        return F.mse_loss(torch.stack(outputs, 1), target)
    return Lambda(run, q=nn.Linear(6, 6), k=nn.Linear(6, 6), v=nn.Linear(6, 6)), dict(x=torch.randn(2, 4, 6), target=torch.randn(2, 4, 6))


@model
def regression_any_size():
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2))
    return Case(Regression(net), dict(x=torch.randn(6, 4), target=torch.randn(6, 2)), alt=dict(x=torch.randn(9, 4), target=torch.randn(9, 2)), dynamic=dict(x={0: AUTO}, target={0: AUTO}))
