# SPDX-License-Identifier: Apache-2.0
"""What a step of each workload cannot avoid: its matrix products, convolutions, attention and passes over elements. Counted from the sizes alone."""
from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Work:
    products: Counter = field(default_factory=Counter)  # (form, m, n, k) -> how often; form: plain, or weight, where both operands are read along rows
    convolutions: Counter = field(default_factory=Counter)  # (pass, batch, channels, height, out channels, kernel, stride, padding) -> how often
    attention_flop: float = 0
    elements: Counter = field(default_factory=Counter)  # pass over elements -> how many

    def linear(self, rows, inputs, outputs, count=1, input_gradient=True):
        self.products["plain", rows, outputs, inputs] += count
        self.products["weight", outputs, inputs, rows] += count
        if input_gradient:
            self.products["plain", rows, inputs, outputs] += count

    def convolution(self, batch, channels, height, out, kernel, stride, input_gradient=True):
        for name in ("forward", "weights", "data") if input_gradient else ("forward", "weights"):
            self.convolutions[name, batch, channels, height, out, kernel, stride, kernel // 2] += 1
        return (height + 2 * (kernel // 2) - kernel) // stride + 1

    def attention(self, batch, heads, tokens, size, layers, causal):
        """Seven products over the scores: two forward, five backward with the scores made again. Half of a causal one is never looked at."""
        scores = layers * batch * heads * tokens * ((tokens + 1) / 2 if causal else tokens)
        self.attention_flop += 7 * 2 * size * scores
        self.elements["exp"] += 2 * scores

    def transformer(self, s, batch, tokens, layers, inner, causal, gelu):
        rows, width = batch * tokens, s["width"]
        for inputs, outputs in ((width, 3 * width), (width, width), (width, inner), (inner, width)):
            self.linear(rows, inputs, outputs, layers)
        self.attention(batch, s["heads"], tokens, width // s["heads"], layers, causal)
        self.elements[gelu] += layers * rows * inner
        self.elements["norm"] += (2 * layers + 1) * rows * width


def mlp(work, s):
    widths = [s["channels"] * s["size"] ** 2, *s["hidden"], s["classes"]]
    for i, (inputs, outputs) in enumerate(zip(widths, widths[1:])):
        work.linear(s["batch"], inputs, outputs, input_gradient=i > 0)
    work.elements["gelu exact" if s["activation"] == "gelu" else "relu"] += s["batch"] * sum(s["hidden"])
    work.elements["loss"] += s["batch"] * s["classes"]


def gpt(work, s):
    work.transformer(s, s["batch"], s["context"], s["layers"], 4 * s["width"], True, "gelu tanh")
    rows = s["batch"] * s["context"]
    work.linear(rows, s["width"], s["vocabulary"])
    work.elements["loss"] += rows * s["vocabulary"]


def vit(work, s):
    patches = (s["size"] // s["patch"]) ** 2
    work.linear(s["batch"] * patches, s["channels"] * s["patch"] ** 2, s["width"], input_gradient=False)
    work.transformer(s, s["batch"], patches + 1, s["layers"], s["inner"], False, "gelu exact")
    work.linear(s["batch"], s["width"], s["classes"])
    work.elements["loss"] += s["batch"] * s["classes"]


def lstm(work, s):
    rows, width, gates = s["batch"] * s["context"], s["width"], 4 * s["width"]
    for layer in range(s["layers"]):
        # The first layer's inputs are rows of a table: where it has fewer than there are tokens, the product is made of the table.
        work.linear(min(rows, s["vocabulary"]) if layer == 0 else rows, width, gates)
        work.products["plain", s["batch"], gates, width] += s["context"]
        work.products["plain", s["batch"], width, gates] += s["context"]
        work.products["weight", gates, width, rows] += 1
    work.linear(rows, width, s["vocabulary"])
    work.elements["gates"] += s["layers"] * rows * gates
    work.elements["loss"] += rows * s["vocabulary"]


def resnet(work, s):
    batch, norm = s["batch"], 0

    def convolved(channels, height, out, kernel, stride, **options):
        nonlocal norm
        height = work.convolution(batch, channels, height, out, kernel, stride, **options)
        norm += batch * out * height**2
        return height

    height = convolved(s["channels"], s["size"], 64, 7, 2, input_gradient=False)
    height, channels = (height - 1) // 2 + 1, 64
    for out in (64, 128, 256, 512):
        for block in range(2):
            stride = 2 if block == 0 and out > 64 else 1
            if stride == 2:
                convolved(channels, height, out, 1, 2)
            height = convolved(channels, height, out, 3, stride)
            convolved(out, height, out, 3, 1)
            channels = out
    work.linear(batch, 512, s["classes"])
    work.elements["norm"] += norm
    work.elements["loss"] += batch * s["classes"]


FAMILIES = {"mlp": mlp, "gpt": gpt, "vit": vit, "lstm": lstm, "resnet": resnet}


def work_of(family, sizes, parameters):
    work = Work()
    FAMILIES[family](work, sizes)
    work.elements["adamw"] += parameters
    return work


def product_flop(key):
    return 2.0 * key[1] * key[2] * key[3]


def convolution_flop(key):
    _, batch, channels, height, out, kernel, stride, padding = key
    return 2.0 * batch * out * channels * kernel**2 * ((height + 2 * padding - kernel) // stride + 1) ** 2
