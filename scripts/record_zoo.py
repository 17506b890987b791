#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records what PyTorch's models of the zoo's kinds compute, for the tests that carry weights from PyTorch to Stepgraph and back.

    python3 scripts/record_zoo.py tests/zoo                      records
    python3 scripts/record_zoo.py tests/zoo --weights FOLDER     writes FOLDER/NAME.safetensors, the weights themselves
    python3 scripts/record_zoo.py tests/zoo --check FOLDER       loads FOLDER/NAME.safetensors, as Stepgraph saved it, strictly, and compares the outputs

Needs torch, torchvision, transformers, numpy and safetensors. Weights come from a formula of a tensor's name and shape that the test knows too, so a record is
small: the batch, the logits, and in the metadata the options of the zoo's model and a line "name dtype sizes" for each tensor of the state_dict.
"""

import argparse
import math
from pathlib import Path

import numpy
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import nn
from torchvision.models.convnext import CNBlockConfig, ConvNeXt
from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet


def uniform(name, count):
    """In [-1/2, 1/2), exact in f64: FNV-1a of the name, then a step of a multiplicative sequence for each element."""
    salt = 2166136261
    for byte in name.encode():
        salt = (salt ^ byte) * 16777619 % 2**32
    places = (numpy.arange(count, dtype=numpy.uint64) * numpy.uint64(2654435761) + numpy.uint64(salt)) % numpy.uint64(2**32)
    return places.astype(numpy.float64) / 2**32 - 0.5


def weight(name, like):
    if not like.is_floating_point():
        return torch.full_like(like, 3)
    u = uniform(name, like.numel())
    if name.endswith("running_var"):
        values = 1 + u
    elif like.dim() >= 2:
        values = u * (2 / math.sqrt(like.numel() // like.shape[0]))
    elif name.endswith("weight"):
        values = 1 + u * 0.5
    else:
        values = u * 0.5
    return torch.from_numpy(values.astype(numpy.float32)).reshape(like.shape)


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(12, 7), nn.Linear(7, 5), nn.Linear(5, 3)])

    def forward(self, image):
        x = image.flatten(1)
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        return self.layers[-1](x)


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Embedding(17, 6)
        self.rnn = nn.LSTM(6, 6, 2, batch_first=True)
        self.decoder = nn.Linear(6, 17)

    def forward(self, tokens):
        return self.decoder(self.rnn(self.encoder(tokens))[0])


def of_transformers(model):
    forward = lambda batch: model(**{"pixel_values" if batch.dim() == 4 else "input_ids": batch}).logits
    return model, forward


def models():
    """name -> (model of the zoo, its options, PyTorch's model and how it is called, channels and size of images or 0 and the context)"""
    t = transformers
    text = dict(vocabulary=17, context=9, layers=2, width=16)
    small = dict(vocab_size=17, hidden_size=16, num_hidden_layers=2, rms_norm_eps=1e-6, rope_theta=10000.0, max_position_embeddings=9)
    plain = lambda model: (model, model)
    tied = t.LlamaConfig(**small, intermediate_size=20, num_attention_heads=4, num_key_value_heads=4, tie_word_embeddings=True)
    return {
        "mlp": ("mlp", dict(channels=3, size=2, classes=3, hidden="7,5"), plain(Mlp()), (3, 2)),
        "lstm": ("lstm", dict(vocabulary=17, context=9, layers=2, width=6), plain(Lstm()), (0, 9)),
        "resnet": ("resnet", dict(size=16, classes=5, blocks="1,1,1,1"), plain(ResNet(BasicBlock, [1, 1, 1, 1], num_classes=5)), (3, 16)),
        "resnet_bottleneck": (
            "resnet", dict(size=16, classes=5, blocks="1,2,1,1", depth=50), plain(ResNet(Bottleneck, [1, 2, 1, 1], num_classes=5)), (3, 16)),
        "convnext": (
            "convnext", dict(size=16, classes=5, blocks="2,1", width=8),
            plain(ConvNeXt([CNBlockConfig(8, 16, 2), CNBlockConfig(16, None, 1)], num_classes=5)), (3, 16)),
        "vit": (
            "vit", dict(size=8, patch=4, classes=5, layers=2, heads=2, width=16, inner=24),
            of_transformers(t.ViTForImageClassification(t.ViTConfig(
                hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, image_size=8, patch_size=4, num_labels=5))), (3, 8)),
        "gpt": (
            "gpt", dict(text, heads=2, conv1d="true"),
            of_transformers(t.GPT2LMHeadModel(t.GPT2Config(vocab_size=17, n_positions=9, n_embd=16, n_layer=2, n_head=2))), (0, 9)),
        "llama": (
            "llama", dict(text, heads=4, kv_heads=2, inner=20),
            of_transformers(t.LlamaForCausalLM(t.LlamaConfig(**small, intermediate_size=20, num_attention_heads=4, num_key_value_heads=2))), (0, 9)),
        "llama_tied": ("llama", dict(text, heads=4, inner=20, tied="true"), of_transformers(t.LlamaForCausalLM(tied)), (0, 9)),
        "bert": (
            "bert", dict(text, heads=2, inner=24, mask_rate=0),
            of_transformers(t.BertForMaskedLM(t.BertConfig(
                vocab_size=17, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, max_position_embeddings=9))), (0, 9)),
        "moe": (
            "moe", dict(text, heads=4, kv_heads=2, inner=12, experts=4, top_k=2, dense="true"),
            of_transformers(t.MixtralForCausalLM(t.MixtralConfig(
                **small, intermediate_size=12, num_attention_heads=4, num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2))), (0, 9)),
    }


def batch_of(name, channels, size):
    if channels == 0:
        return torch.from_numpy(((uniform(name, 2 * size) + 0.5) * 17).astype(numpy.int64)).reshape(2, size)
    return torch.from_numpy(uniform(name, 2 * channels * size * size).astype(numpy.float32) * 2).reshape(2, channels, size, size)


def fill(model):
    """By formula; of tied tensors the first name of the state_dict gives the value."""
    done = set()
    state = model.state_dict()
    for name, value in state.items():
        if value.data_ptr() not in done or value.numel() == 0:
            value.copy_(weight(name, value))
        if value.numel():
            done.add(value.data_ptr())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--check", type=Path)
    arguments = parser.parse_args()
    for name, (zoo, options, (model, forward), (channels, size)) in models().items():
        model.eval()
        batch = batch_of(name, channels, size)
        with torch.no_grad():
            if arguments.check:
                model.load_state_dict(load_file(arguments.check / f"{name}.safetensors"), strict=True)
                recorded = load_file(arguments.folder / f"{name}.safetensors")["logits"]
                print(f"{name}: {len(model.state_dict())} tensors, largest difference {(forward(batch) - recorded).abs().max().item():.2e}")
                continue
            fill(model)
            logits = forward(batch)
        state = model.state_dict()
        if arguments.weights:
            save_file({key: value.clone().contiguous() for key, value in state.items()}, arguments.weights / f"{name}.safetensors")
            continue
        lines = [f"{key} {str(value.dtype).removeprefix('torch.')} {','.join(map(str, value.shape))}" for key, value in state.items()]
        metadata = {"model": zoo, "options": "\n".join(f"{key}={value}" for key, value in options.items()), "tensors": "\n".join(lines)}
        key = "tokens" if channels == 0 else "image"
        save_file({key: batch.to(torch.int32) if channels == 0 else batch, "logits": logits.contiguous()}, arguments.folder / f"{name}.safetensors", metadata)
        print(name, len(lines), tuple(logits.shape), f"{logits.abs().max().item():.3f}")


if __name__ == "__main__":
    main()
