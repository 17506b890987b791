# SPDX-License-Identifier: Apache-2.0
"""What the families share: the registry, wrappers that return a loss, random batches, and switching random layers off."""
import dataclasses
import os
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))
from record_cases import Rows as Lambda  # noqa: E402,F401

MODELS = {}  # name -> function that builds a Case, or (net, inputs)


@dataclasses.dataclass
class Case:
    net: nn.Module
    inputs: dict
    alt: dict = None        # another batch of other sizes
    dynamic: dict = None    # dynamic_shapes of torch.export.export
    refused: str = ""       # what the error must say, where the import is meant to refuse
    float64: bool = True    # measure the tolerances against float64
    optimizer: tuple = None
    loose: float = 1        # factor of all tolerances, for what rounds to 16 bits


def model(function):
    assert function.__name__ not in MODELS, function.__name__
    MODELS[function.__name__] = function
    return function


def register(name, build):
    assert name not in MODELS, name
    MODELS[name] = build


class Loss(nn.Module):
    """Base of wrappers around a net. Parts with layer drop stay in evaluation mode: in training they draw a number for each layer, and branch on it, even
    where its rate is 0; that cannot be exported."""

    def __init__(self, net, **options):
        super().__init__()
        self.net, self.options = net, options

    def train(self, mode=True):
        super().train(mode)
        for part in self.modules():
            if hasattr(part, "layerdrop") or hasattr(part, "layer_dropout") or hasattr(getattr(part, "config", None), "layerdrop"):
                part.training = False
        return self


class Classifier(Loss):

    def forward(self, x, target):
        return F.cross_entropy(self.net(x), target)


class Language(Loss):
    def forward(self, ids, target):
        return F.cross_entropy(self.net(ids).flatten(0, 1), target.flatten())


class Regression(Loss):
    def forward(self, x, target):
        return F.mse_loss(self.net(x), target)


def images(batch, size, classes=10, channels=3):
    return dict(x=torch.randn(batch, channels, size, size), target=torch.randint(0, classes, (batch,)))


def tokens(batch=3, length=7, vocabulary=20):
    return dict(ids=torch.randint(0, vocabulary, (batch, length)), target=torch.randint(0, vocabulary, (batch, length)))


def without_randomness(net):
    """Dropout, stochastic depth and layer drop off, in whatever attribute they are kept: random numbers differ by design."""
    for part in net.modules():
        if "drop" in type(part).__name__.lower() or type(part).__name__ == "StochasticDepth":
            for name in ("p", "drop_prob", "prob"):
                if isinstance(getattr(part, name, None), float):
                    setattr(part, name, 0.0)
        for name, value in list(vars(part).items()):
            if "drop" in name and isinstance(value, float):
                setattr(part, name, 0.0)
    return net
