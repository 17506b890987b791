#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records a PyTorch model for `stepgraph check` (docs/check.md): the exported program, inputs, loss, gradients and a few optimizer steps.

    python scripts/record.py my_model.py FOLDER [--steps 5] [--no-core] [--joint]

my_model.py defines
    model()        an nn.Module whose forward returns its scalar loss
    inputs()       dict of argument name -> tensor: the training batch
and may define
    alt_inputs()   another batch of another size
    dynamic()      dynamic_shapes of torch.export.export, by argument name
    optimizer()    ("SGD" | "Adam" | "AdamW", {options}); default ("AdamW", {})

Needs PyTorch 2.9 or newer and the safetensors package; nothing of it is needed to run the check.
"""
import argparse
import copy
import importlib.util
import json
import os
import re

import torch
from safetensors.torch import save_file

FLOORS = {  # group: absolute, relative, rms
    "loss": (1e-6, 1e-6, 1e-6), "alt.loss": (1e-6, 1e-6, 1e-6), "losses": (1e-6, 1e-6, 1e-6),
    "grad": (1e-6, 1e-5, 1e-7), "alt.grad_norm": (1e-6, 1e-5, 1e-6),
    "after.param": (5e-6, 5e-6, 5e-8), "after.buffer": (1e-6, 1e-5, 1e-7),
}
DEFAULTS = {
    "SGD": dict(lr=1e-2, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False),
    "Adam": dict(lr=1e-3, betas=[0.9, 0.999], eps=1e-8, weight_decay=0.0, amsgrad=False),
    "AdamW": dict(lr=1e-3, betas=[0.9, 0.999], eps=1e-8, weight_decay=0.01, amsgrad=False),
}


def save(exported, path):
    """torch.export.save, with the folders of source files left out of the messages' places."""
    for module in exported.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else []:
            if node.meta.get("stack_trace"):
                node.meta["stack_trace"] = re.sub(r'File "[^"]*/([^/"]+)"', r'File "\1"', node.meta["stack_trace"])
    torch.export.save(exported, path)


def joint_program(exported):
    """The program with its loss and gradients in it, from the training IR; parameters that nothing reads (one name of a tied one) are frozen, as the trace wants."""
    from torch.export.experimental import _export_forward_backward
    from torch.nn.attention import SDPBackend, sdpa_kernel

    unread = {node.name: node for node in exported.graph.nodes if node.op == "placeholder" and not node.users}
    for spec in exported.graph_signature.input_specs:
        if spec.kind.name == "PARAMETER" and spec.arg.name in unread:
            exported.state_dict[spec.target] = torch.nn.Parameter(exported.state_dict[spec.target].detach(), requires_grad=False)
            unread[spec.arg.name].meta["val"] = unread[spec.arg.name].meta["val"].detach()
    with sdpa_kernel(SDPBackend.MATH):
        joint = _export_forward_backward(exported)
    joint._example_inputs = None
    for node in joint.graph.nodes:
        for key in ("stack_trace", "nn_module_stack", "from_node", "torch_fn"):
            node.meta.pop(key, None)
    return joint


def unique_parameters(model):
    """Name -> parameter, a tied one under its first name; and the other names."""
    first, tied = {}, {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        known = next((n for n, p in first.items() if p is parameter), None)
        if known is None:
            first[name] = parameter
        else:
            tied[name] = known
    return first, tied


def loss_and_gradients(model, inputs):
    model.zero_grad(set_to_none=True)
    loss = model(**inputs)
    loss.backward()
    return loss.detach(), {n: p.grad.detach().clone() for n, p in unique_parameters(model)[0].items() if p.grad is not None}


def run(model, inputs, alt_inputs, kind, options, steps):
    """Everything that is recorded, from a model that is left as it was."""
    found = {}
    if alt_inputs is not None:
        found["alt.loss"], gradients = loss_and_gradients(copy.deepcopy(model), alt_inputs)
        for name, gradient in gradients.items():
            found["alt.grad_norm." + name] = gradient.double().norm().to(gradient.dtype)
    model = copy.deepcopy(model)
    optimizer = getattr(torch.optim, kind)(unique_parameters(model)[0].values(), **options)
    losses = []
    for step in range(steps):
        loss, gradients = loss_and_gradients(model, inputs)
        losses.append(loss)
        if step == 0:
            found["loss"] = loss
            found.update({"grad." + name: gradient for name, gradient in gradients.items()})
        optimizer.step()
    persistent = model.state_dict()
    found.update({"after.param." + name: p.detach().clone() for name, p in unique_parameters(model)[0].items()})
    found.update({"after.buffer." + name: b.detach().clone() for name, b in model.named_buffers() if name in persistent})
    losses.append(model(**inputs).detach())
    found["losses"] = torch.stack(losses)
    return found


def group_of(name):
    return max((group for group in FLOORS if name == group or name.startswith(group + ".")), key=len)


def tolerances(found, precise):
    """Twenty times the distance of this run from the same one in float64, with a floor."""
    groups = {}
    for name, value in found.items():
        if not value.is_floating_point():
            continue
        entry = groups.setdefault(group_of(name), dict(abs=0.0, rel=0.0, squares=0.0, size=0.0, count=0))
        a, b = value.double(), (precise[name] if precise else value).double()
        distance = torch.where((a == b) | ~a.isfinite() | ~b.isfinite(), torch.zeros_like(a), (a - b).abs())  # what is not finite must be equal anyway
        difference = distance.max().item() if a.numel() else 0.0
        largest = b[b.isfinite()].abs().max().item() if b.isfinite().any() else 0.0
        entry["abs"] = max(entry["abs"], difference)
        entry["rel"] = max(entry["rel"], difference / largest if largest > 0 else 0.0)
        entry["squares"] += (distance**2).sum().item()
        entry["size"] += (b[b.isfinite()] ** 2).sum().item()
        entry["count"] += a.numel()
    table = {}
    for group, entry in groups.items():
        rms = (entry["squares"] / max(entry["count"], 1)) ** 0.5
        floor = FLOORS[group]
        magnitude = max(1.0, (entry["size"] / max(entry["count"], 1)) ** 0.5)  # rounding grows with the values
        table[group] = dict(float64_max_abs=entry["abs"], float64_max_rel=entry["rel"], float64_rms=rms, suggest_abs=max(20 * entry["abs"], floor[0]),
                            suggest_rel=max(10 * entry["rel"], floor[1]), suggest_rms=max(20 * rms, floor[2] * magnitude))
    return table


def in_float64(tensors):
    return None if tensors is None else {n: t.double() if t.is_floating_point() else t for n, t in tensors.items()}


def update_manifest(folder, entry):
    path = os.path.join(os.path.dirname(os.path.abspath(folder)), "manifest.json")
    manifest = {"samples": []}
    if os.path.exists(path):
        with open(path) as file:
            manifest = json.load(file)
    manifest["samples"] = sorted([s for s in manifest["samples"] if s["name"] != entry["name"]] + [entry], key=lambda s: s["name"])
    with open(path, "w") as file:
        json.dump(manifest, file, indent=1)
        file.write("\n")


def record(folder, model, inputs, alt_inputs=None, dynamic=None, optimizer=("AdamW", {}), steps=5, core=True, what="", float64=True, joint=False):
    kind, options = optimizer[0], {**DEFAULTS[optimizer[0]], **optimizer[1]}
    os.makedirs(folder, exist_ok=True)
    model.train()
    parameters, tied = unique_parameters(model)
    persistent = [name for name, _ in model.named_buffers() if name in model.state_dict()]
    start = {"input." + n: t for n, t in inputs.items()}
    start.update({"alt.input." + n: t for n, t in (alt_inputs or {}).items()})
    start.update({"param." + n: p.detach().clone() for n, p in parameters.items()})
    start.update({"buffer." + n: b.detach().clone() for n, b in model.named_buffers() if n in persistent})

    exported = torch.export.export(copy.deepcopy(model), (), dict(inputs), dynamic_shapes=dynamic)
    save(exported, os.path.join(folder, "model.pt2"))
    text = str(exported.graph)
    keeps = not any(word in text for word in ("detach", "wrap_with_set_grad_enabled"))
    if core:
        save(exported.run_decompositions(), os.path.join(folder, "model_core.pt2"))
    if joint:
        save(joint_program(exported), os.path.join(folder, "model_joint.pt2"))

    found = run(model, inputs, alt_inputs, kind, options, steps)
    if not found["losses"].isfinite().all():
        raise ValueError(f"the losses {found['losses'].tolist()} are not finite in PyTorch: there is nothing to compare; choose other inputs or a smaller learning rate")
    precise = run(copy.deepcopy(model).double(), in_float64(inputs), in_float64(alt_inputs), kind, options, steps) if float64 else None
    gradients = {n[5:]: v.abs().max().item() for n, v in (precise or found).items() if n.startswith("grad.") and v.numel()}
    largest = max(gradients.values(), default=0)
    noise = sorted(n for n, size in gradients.items() if 0 < size < 1e-6 * largest)
    save_file({n: t.contiguous() for n, t in {**start, **found}.items()}, os.path.join(folder, "data.safetensors"))
    files = {"exported": "model.pt2", "data": "data.safetensors", **({"core": "model_core.pt2"} if core else {})}
    update_manifest(folder, dict(
        name=os.path.basename(os.path.abspath(folder)), what=what, torch=torch.__version__, files=files, optimizer={"kind": kind, **options}, steps=steps,
        inputs={n: dict(dtype=str(t.dtype).removeprefix("torch."), shape=list(t.shape)) for n, t in inputs.items()}, tied=tied,
        core_keeps_gradients=keeps, persistent_buffers=persistent, noise_gradients=noise, tolerance=tolerances(found, precise)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="python file with model() and inputs()")
    parser.add_argument("folder", help="where to write; its name is the entry in the manifest.json beside it")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--no-core", action="store_true", help="leave out the decomposed program")
    parser.add_argument("--joint", action="store_true", help="also write model_joint.pt2, which holds its gradients")
    arguments = parser.parse_args()
    spec = importlib.util.spec_from_file_location("recorded_model", arguments.source)
    source = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(source)
    optional = lambda name, otherwise: getattr(source, name)() if hasattr(source, name) else otherwise
    torch.manual_seed(0)
    record(arguments.folder, source.model(), source.inputs(), optional("alt_inputs", None), optional("dynamic", None), optional("optimizer", ("AdamW", {})),
           arguments.steps, not arguments.no_core, joint=arguments.joint)


if __name__ == "__main__":
    main()
