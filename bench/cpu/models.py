# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of each workload, with the names of the zoo's parameters, its batches, and the files from which both sides start.

    python bench/cpu/models.py WORKLOAD SCALE FOLDER VIA
"""
import json
import os
import sys

import numpy
import torch
from torch import nn
from torch.nn import functional

from workloads import WORKLOADS, input_names

HERE = os.path.dirname(os.path.abspath(__file__))


class Mlp(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        widths = [sizes["channels"] * sizes["size"] ** 2, *sizes["hidden"], sizes["classes"]]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:]))
        self.activation = {"relu": functional.relu, "gelu": functional.gelu}[sizes["activation"]]

    def forward(self, image):
        x = image.flatten(1)
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
        return self.layers[-1](x)


class Attention(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.heads, width = sizes["heads"], sizes["width"]
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)

    def forward(self, x):
        batch, tokens, width = x.shape
        q, k, v = (part.view(batch, tokens, self.heads, -1).transpose(1, 2) for part in self.c_attn(x).split(width, dim=-1))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(batch, tokens, width))


class Feed(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc = nn.Linear(width, 4 * width)
        self.c_proj = nn.Linear(4 * width, width)

    def forward(self, x):
        return self.c_proj(functional.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        width = sizes["width"]
        self.ln_1, self.attn = nn.LayerNorm(width), Attention(sizes)
        self.ln_2, self.mlp = nn.LayerNorm(width), Feed(width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        width = sizes["width"]
        self.transformer = nn.ModuleDict(dict(
            wte=nn.Embedding(sizes["vocabulary"], width), wpe=nn.Embedding(sizes["positions"], width),
            h=nn.ModuleList(Block(sizes) for _ in range(sizes["layers"])), ln_f=nn.LayerNorm(width)))
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)

    def forward(self, tokens):
        t = self.transformer
        x = t["wte"](tokens) + t["wpe"].weight[: tokens.shape[1]]
        for block in t["h"]:
            x = block(x)
        return functional.linear(t["ln_f"](x), t["wte"].weight)


class Lstm(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        width, words = sizes["width"], sizes["vocabulary"]
        self.encoder = nn.Embedding(words, width)
        self.rnn = nn.LSTM(width, width, sizes["layers"], batch_first=True)
        self.decoder = nn.Linear(width, words)

    def forward(self, tokens):
        return self.decoder(self.rnn(self.encoder(tokens))[0])


def resnet(sizes):
    from torchvision.models import resnet18

    return resnet18(num_classes=sizes["classes"])


def vit(sizes):
    from torchvision.models import VisionTransformer

    model = VisionTransformer(sizes["size"], sizes["patch"], sizes["layers"], sizes["heads"], sizes["width"], sizes["inner"], num_classes=sizes["classes"])
    nn.init.normal_(model.heads.head.weight, std=0.02)  # torchvision's zeros would keep all gradients but the head's at zero in the first step
    return model


FAMILIES = {"mlp": Mlp, "gpt": Gpt, "lstm": Lstm, "resnet": resnet, "vit": vit}


class Training(nn.Module):
    """A network with its loss, as one program: what is compiled, and what is exported."""

    def __init__(self, net, words):
        super().__init__()
        self.net, self.words = net, words

    def forward(self, x, target):
        logits = self.net(x)
        if self.words:
            logits, target = logits.flatten(0, 1), target.flatten()
        return functional.cross_entropy(logits, target)


class ImageTraining(Training):
    def forward(self, image, label):
        return super().forward(image, label)


class TextTraining(Training):
    def forward(self, tokens, targets):
        return super().forward(tokens, targets)


def build(workload, sizes):
    model = FAMILIES[workload.family](sizes)
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)  # the default of 1 makes denormal numbers in softmax, on which some processors stall
    words = input_names(workload.family)[0] == "tokens"
    return (TextTraining if words else ImageTraining)(model.train(), words).train()


def digits():
    rows = numpy.loadtxt(os.path.join(HERE, "..", "..", "data", "digits.csv"), delimiter=",", comments="#", dtype=numpy.float32, ndmin=2)
    return (rows[:, :-1] / 16).reshape(-1, 1, 8, 8), rows[:, -1].astype(numpy.int64)


def samples(name, workload, sizes):
    """Inputs and targets of all batches, in order."""
    count = workload.batches * sizes["batch"]
    random = numpy.random.default_rng(7)
    if name == "digits-mlp":
        return [values[:count] for values in digits()]
    if "context" in sizes:
        return [random.integers(0, sizes["vocabulary"], (count, sizes["context"])) for _ in range(2)]
    images = random.standard_normal((count, sizes["channels"], sizes["size"], sizes["size"]), dtype=numpy.float32)
    return [images, random.integers(0, sizes["classes"], count)]


def prepare(name, scale, folder, via):
    """Writes the start of both sides to the folder; prints the number of parameters."""
    from safetensors.torch import save_file

    workload = WORKLOADS[name]
    sizes = workload.at(scale)
    torch.manual_seed(1)
    training = build(workload, sizes)
    state = {key: value.detach().clone().contiguous() for key, value in training.net.state_dict().items()}
    save_file(state, os.path.join(folder, "init.safetensors"))
    arrays = samples(name, workload, sizes)
    names = input_names(workload.family)
    # The zoo's models take tokens as i32, PyTorch's programs as i64.
    given = [values.astype(numpy.int32) if via == "zoo" and "context" in sizes else values for values in arrays]
    numpy.savez(os.path.join(folder, f"data-{via}.npz"), **dict(zip(names, given)))
    numpy.savez(os.path.join(folder, "data.npz"), **dict(zip(names, arrays)))
    if via == "pt2":
        example = {key: torch.from_numpy(values[: sizes["batch"]]) for key, values in zip(names, arrays)}
        torch.export.save(torch.export.export(training, (), example), os.path.join(folder, "model.pt2"))
    print(json.dumps({"parameters": sum(value.numel() for value in training.parameters())}))


def load(name, scale, folder):
    """The rival's model and its batches."""
    from safetensors.torch import load_file

    workload = WORKLOADS[name]
    sizes = workload.at(scale)
    training = build(workload, sizes)
    training.net.load_state_dict(load_file(os.path.join(folder, "init.safetensors")), strict=True)
    with numpy.load(os.path.join(folder, "data.npz")) as data:
        arrays = [torch.from_numpy(data[key]) for key in input_names(workload.family)]
    return training, list(zip(*(values.split(sizes["batch"]) for values in arrays)))


if __name__ == "__main__":
    prepare(*sys.argv[1:])
