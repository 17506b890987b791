#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exports models of many families from PyTorch with small random configurations, records loss, gradients and five optimizer steps, and checks each with
`stepgraph check`. Prints a table: model x {export, import, loss, gradients, 5 steps}.

    python bench/pytorch_census.py [--stepgraph build/release/bin/stepgraph] [--folder build/census] [NAME ...]

Needs PyTorch, torchvision, transformers and timm (about 5 GB): an extra, never part of the tests. Dropout is off: random numbers differ by design.
"""
import argparse
import json
import os
import subprocess
import sys
import traceback
import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "scripts"))
import record  # noqa: E402

MODELS = {}


def model(function):
    MODELS[function.__name__] = function
    return function


class Classifier(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x, target):
        return F.cross_entropy(self.net(x), target)


class Language(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, ids, target):
        return F.cross_entropy(self.net(ids).flatten(0, 1), target.flatten())


def images(batch, size, classes=10):
    return dict(x=torch.randn(batch, 3, size, size), target=torch.randint(0, classes, (batch,)))


def tokens(batch=3, length=7, vocabulary=20):
    return dict(ids=torch.randint(0, vocabulary, (batch, length)), target=torch.randint(0, vocabulary, (batch, length)))


def without_randomness(net):
    for part in net.modules():
        if isinstance(part, nn.Dropout) or type(part).__name__ == "StochasticDepth":
            part.p = 0.0
    return net


def torchvision_model(name, size):
    def build():
        import torchvision
        return Classifier(without_randomness(getattr(torchvision.models, name)(weights=None, num_classes=10))), images(8, size)
    MODELS["torchvision_" + name] = build


for vision_name, vision_size in [("resnet18", 64), ("resnet50", 64), ("mobilenet_v2", 64), ("mobilenet_v3_small", 64), ("efficientnet_b0", 64), ("regnet_y_400mf", 64),
                                 ("convnext_tiny", 32), ("swin_t", 32), ("densenet121", 64), ("squeezenet1_0", 64), ("shufflenet_v2_x0_5", 64), ("vgg11_bn", 32),
                                 ("mnasnet0_5", 64), ("alexnet", 64)]:
    torchvision_model(vision_name, vision_size)


@model
def torchvision_vit():
    import torchvision
    return Classifier(torchvision.models.VisionTransformer(image_size=32, patch_size=8, num_layers=3, num_heads=4, hidden_dim=32, mlp_dim=64, num_classes=10)), images(4, 32)


@model
def timm_mixer():
    import timm
    return Classifier(timm.create_model("mixer_s32_224", num_classes=10, img_size=64)), images(2, 64)


@model
def timm_convnextv2():
    import timm
    return Classifier(timm.create_model("convnextv2_atto", num_classes=10)), images(2, 64)


class Recurrent(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.rnn = kind(8, 16, 2, batch_first=True, **options)
        self.head = nn.Linear(32 if options.get("bidirectional") else 16, 20)

    def forward(self, ids):
        return self.head(self.rnn(self.embed(ids))[0])


@model
def lstm_bidirectional():
    return Language(Recurrent(nn.LSTM, bidirectional=True)), tokens()


@model
def gru():
    return Language(Recurrent(nn.GRU)), tokens()


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
def generator_and_critic():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.make = nn.Sequential(nn.ConvTranspose2d(8, 16, 4, 1, 0, bias=False), nn.BatchNorm2d(16), nn.ReLU(True),
                                      nn.ConvTranspose2d(16, 3, 4, 2, 1, bias=False), nn.Tanh())
            self.judge = nn.Sequential(nn.Conv2d(3, 8, 4, 2, 1), nn.LeakyReLU(0.2, inplace=True), nn.Flatten(), nn.Linear(128, 1))

        def forward(self, x, target):
            return F.binary_cross_entropy_with_logits(self.judge(self.make(x)).squeeze(1), target)
    return Net(), dict(x=torch.randn(4, 8, 1, 1), target=torch.rand(4))


@model
def mixture_of_experts():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate = nn.Linear(8, 4)
            self.experts = nn.ModuleList([nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)) for _ in range(4)])
            self.head = nn.Linear(8, 5)

        def forward(self, x):
            shares = self.gate(x).softmax(-1)
            values, chosen = shares.topk(2, -1)
            weights = torch.zeros_like(shares).scatter(-1, chosen, values / values.sum(-1, keepdim=True))
            return self.head(sum(weights[:, k:k + 1] * expert(x) for k, expert in enumerate(self.experts)))
    return Classifier(Net()), dict(x=torch.randn(6, 8), target=torch.randint(0, 5, (6,)))


@model
def unet_bilinear():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.down = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, 2, 1)
            self.norm, self.last = nn.GroupNorm(2, 8), nn.Conv2d(16, 4, 3, padding=1)
            self.up = nn.Upsample(scale_factor=2, mode="bilinear")

        def forward(self, x):
            a = F.relu(self.first(x))
            b = F.silu(self.norm(self.down(F.max_pool2d(a, 3, 1, 1))))
            return self.last(torch.cat([a, self.up(b)], 1))
    return Classifier(Net()), dict(x=torch.randn(2, 3, 8, 8), target=torch.randint(0, 4, (2, 8, 8)))


class WithMask(nn.Module):
    """A decoder of transformers with a 4-d mask of its own, since the one it builds cannot be saved."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, ids):
        mask = torch.full((ids.shape[1], ids.shape[1]), -1e9).triu(1)[None, None].expand(ids.shape[0], 1, -1, -1)
        return self.net(input_ids=ids, attention_mask=mask, labels=ids, use_cache=False).loss


SMALL = dict(vocab_size=50, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=16)


@model
def transformers_gpt2():
    import transformers
    config = transformers.GPT2Config(vocab_size=50, n_positions=16, n_embd=16, n_layer=2, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
    return WithMask(transformers.GPT2LMHeadModel(config)), dict(ids=torch.randint(0, 50, (2, 9)))


@model
def transformers_llama():
    import transformers
    return WithMask(transformers.LlamaForCausalLM(transformers.LlamaConfig(num_key_value_heads=2, **SMALL))), dict(ids=torch.randint(0, 50, (2, 9)))


@model
def transformers_qwen2():
    import transformers
    return (WithMask(transformers.Qwen2ForCausalLM(transformers.Qwen2Config(num_key_value_heads=2, tie_word_embeddings=True, **SMALL))),
            dict(ids=torch.randint(0, 50, (2, 9))))


class Labelled(nn.Module):
    def __init__(self, net, **options):
        super().__init__()
        self.net, self.options = net, options

    def forward(self, ids, labels):
        return self.net(input_ids=ids, labels=labels, **self.options).loss


@model
def transformers_bert():
    import transformers
    net = transformers.BertForMaskedLM(transformers.BertConfig(hidden_dropout_prob=0, attention_probs_dropout_prob=0, **SMALL))
    labels = torch.randint(0, 50, (2, 9))
    labels[:, ::2] = -100
    return Labelled(net), dict(ids=torch.randint(0, 50, (2, 9)), labels=labels)


@model
def transformers_t5():
    import transformers
    net = transformers.T5ForConditionalGeneration(transformers.T5Config(vocab_size=50, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, dropout_rate=0.0,
                                                                        decoder_start_token_id=0))
    return Labelled(net, use_cache=False), dict(ids=torch.randint(0, 50, (2, 9)), labels=torch.randint(0, 50, (2, 7)))


def check(command, folder):
    done = subprocess.run([command, "check", folder, "--json"], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        return {"import": done.stderr.strip().split("\n")[0][:160]}
    report = json.loads(done.stdout.strip().split("\n")[-1])
    found = {"import": "ok"}
    for column, prefixes in {"loss": ("loss",), "gradients": ("grad",), "5 steps": ("losses", "after.")}.items():
        rows = [row for row in report["rows"] if row["tensor"].split(" ")[0].split(".")[0] in {p.rstrip(".") for p in prefixes}]
        bad = [row for row in rows if not row["ok"]]
        found[column] = "ok" if not bad else f"{len(bad)} of {len(rows)} off: {bad[0]['tensor']} by {bad[0]['max_abs']:.1e}"
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="models; default: all")
    parser.add_argument("--stepgraph", default="build/release/bin/stepgraph")
    parser.add_argument("--folder", default="build/census")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    columns = ["import", "loss", "gradients", "5 steps"]
    print("| model | export | " + " | ".join(columns) + " |\n|---" * 1 + "|---" * (len(columns) + 1) + "|")
    for name in arguments.names or sorted(MODELS):
        folder = os.path.join(arguments.folder, name)
        try:
            torch.manual_seed(1)
            net, inputs = MODELS[name]()
            # SGD: a step does not turn the rounding noise of a zero gradient into a whole step, as AdamW's does.
            record.record(folder, net, inputs, optimizer=("SGD", {"lr": 1e-2, "momentum": 0.9}), core=False)
        except Exception as error:  # the exporter's own limits are part of the table
            print(f"| {name} | {type(error).__name__}: {str(error).strip().splitlines()[0][:100]} |" + " |" * len(columns), flush=True)
            if os.environ.get("CENSUS_TRACE"):
                traceback.print_exc()
            continue
        found = check(arguments.stepgraph, folder)
        print(f"| {name} | ok | " + " | ".join(found.get(column, "") for column in columns) + " |", flush=True)


if __name__ == "__main__":
    main()
