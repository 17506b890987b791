#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records a PyTorch model for `stepgraph check` (docs/check.md): the exported program, inputs, loss, gradients and a few optimizer steps.

    python scripts/record.py my_model.py FOLDER [--steps 5] [--no-core] [--joint] [--no-float64] [--anyway] [--trace]

my_model.py defines
    model()        an nn.Module whose forward returns its scalar loss
    inputs()       dict of argument name -> tensor: the training batch
and may define
    alt_inputs()   another batch, of another size where dynamic() allows it
    dynamic()      dynamic_shapes of torch.export.export, by argument name
    optimizer()    ("SGD" | "Adam" | "AdamW", {options}); default ("AdamW", {})

A model that draws random numbers is not recorded (--anyway does it): set dropout to p=0. Needs PyTorch 2.9 or newer and the safetensors package; nothing of
it is needed to run the check.
"""
import argparse
import contextlib
import copy
import importlib.util
import json
import os
import re
import shutil
import sys
import tempfile
import traceback
import warnings

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


class Refused(ValueError):
    """Nothing is recorded, and why."""


class Note(UserWarning):
    """Something is recorded otherwise than one may think."""


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


def copied(model):
    """A deep copy. Tensors that hooks compute anew before each forward pass (of the old weight_norm, of prune) cannot be copied with their history: without it."""
    computed = [(module, name, value) for module in model.modules() for name, value in vars(module).items()
                if isinstance(value, torch.Tensor) and not value.is_leaf]
    try:
        for module, name, value in computed:
            setattr(module, name, value.detach())
        return copy.deepcopy(model)
    finally:
        for module, name, value in computed:
            setattr(module, name, value)


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
        found["alt.loss"], gradients = loss_and_gradients(copied(model), alt_inputs)
        for name, gradient in gradients.items():
            found["alt.grad_norm." + name] = gradient.double().norm().to(gradient.dtype)
    model = copied(model)
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


def noise_gradients(found, precise):
    """Parameters whose exact gradient is zero: what is found is rounding noise."""
    sizes = {n: (v.abs().max().item(), found[n].abs().max().item()) for n, v in (precise or found).items() if n.startswith("grad.") and v.numel()}
    limit = 1e-6 * max((exact for exact, _ in sizes.values()), default=0)
    return sorted(n[5:] for n, (exact, single) in sizes.items() if exact < limit and (exact > 0 or single > 0))


def noise_elements(start, found, precise, noise):
    """Name -> which elements end elsewhere in float64 by more than a thousandth of their way. Adam turns a gradient of zero and a rounding error, such as that
    of the keys' part of an attention's bias, into steps of any size. Parameters that are noise as a whole are not among them."""
    masks = {}
    for name, value in found.items():
        if not name.startswith("after.param.") or name[12:] in noise or not value.is_floating_point() or precise is None:
            continue
        exact, before = precise[name].double(), start["param." + name[12:]].double()
        distance = (value.double() - exact).abs()
        mask = (distance > 1e-3 * (exact - before).abs()) & (distance > 1e-6 * exact.abs() + 1e-8)
        if mask.any():
            masks["noise." + name[12:]] = mask
    return masks


def tolerances(found, precise, noise=(), masks={}):
    """The distance of this run from the same one in float64, times twenty (relative: times ten), with a floor. Noise is left out."""
    groups = {}
    for name, value in found.items():
        group = group_of(name)
        if not value.is_floating_point() or (group in ("grad", "alt.grad_norm", "after.param") and name[len(group) + 1:] in noise):
            continue
        entry = groups.setdefault(group, dict(abs=0.0, rel=0.0, squares=0.0, size=0.0, count=0))
        a, b = value.double(), (precise[name] if precise else value).double()
        largest = b[b.isfinite()].abs().max().item() if b.isfinite().any() else 0.0
        if group == "after.param" and "noise." + name[12:] in masks:
            a, b = (tensor[~masks["noise." + name[12:]]] for tensor in (a, b))
        distance = torch.where((a == b) | ~a.isfinite() | ~b.isfinite(), torch.zeros_like(a), (a - b).abs())  # what is not finite must be equal anyway
        difference = distance.max().item() if a.numel() else 0.0
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


def random_draws(exported):
    """The operators of the program that draw random numbers; dropout does if its rate is not 0."""
    draws = set()
    for module in exported.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else []:
            if not isinstance(node.target, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded not in node.target.tags:
                continue
            parameters = enumerate(node.target._schema.arguments)
            said = {a.name: node.args[i] if i < len(node.args) else node.kwargs.get(a.name, a.default_value) for i, a in parameters}
            rates = [said[name] for name in ("p", "dropout_p", "dropout") if name in said]
            silent = said.get("train", said.get("training", True)) is False or said.get("num_layers") == 1 and "dropout" in said
            if not silent and (not rates or rates[0] != 0):
                draws.add(str(node.target))
    return sorted(draws)


def doubts(draws, found, precise, noise=()):
    """Why a check could not agree, or not mean anything."""
    if draws:
        return [f"the model draws random numbers in training ({', '.join(draws)}), and Stepgraph's are others: set p=0 where a layer drops something"]
    for name in ("loss", "losses", "alt.loss") if precise else []:
        single, exact = found.get(name), precise.get(name)
        if single is not None and not torch.allclose(single.double(), exact.double(), rtol=0.01, atol=1e-6):
            return [f"'{name}' is {single.tolist()} in float32 and {exact.tolist()} in float64: rounding errors decide it, so there is nothing to compare; choose "
                    "other inputs, a smaller learning rate or fewer steps"]
    pairs = {n: (g.double(), precise[n].double()) for n, g in found.items() if n.startswith("grad.") and n[5:] not in noise} if precise else {}
    apart = {n: (single - exact)[single.isfinite() & exact.isfinite()].norm().item() for n, (single, exact) in pairs.items()}
    size = sum(exact[exact.isfinite()].norm().item() ** 2 for _, exact in pairs.values()) ** 0.5
    distance = sum(part**2 for part in apart.values()) ** 0.5
    if distance > 0.01 * size:
        return [f"the gradients in float32 and float64 are {100 * distance / size if size else 100:.2g} % apart, most in {max(apart, key=apart.get)}: rounding "
                "errors decide them, or the model makes tensors that do not follow the type of its weights"]
    return []


def lost_by_export(exported, found, inputs, tied):
    """What the exported program, run by PyTorch itself, has for other gradients than the model: a sentence, or None. The export traces forward passes alone, so
    that a backward pass of one's own is lost, and what a reentrant checkpoint computes has no gradient at all."""
    program = copy.deepcopy(exported.module())
    loss = program(**{n: t.clone() for n, t in inputs.items()})
    parameters, gradients, seen = dict(program.named_parameters(remove_duplicate=False)), {}, set()
    if loss.requires_grad:
        loss.backward()
    for name, parameter in parameters.items():
        if parameter.grad is not None and id(parameter) not in seen:
            seen.add(id(parameter))
            first = tied.get(name, name)
            gradients[first] = gradients.get(first, 0) + parameter.grad
    eager = {name[5:]: gradient for name, gradient in found.items() if name.startswith("grad.")}
    largest = max((g[g.isfinite()].abs().max().item() for g in eager.values() if g.isfinite().any()), default=0.0)
    wrong = []
    for name, gradient in eager.items():
        other = gradients.get(name, torch.zeros_like(gradient))
        both = gradient.isfinite() & other.isfinite()
        difference = (gradient - other)[both].abs().max().item() if both.any() else 0.0
        size = gradient[both].abs().max().item() if both.any() else 0.0
        if difference > 0.01 * size + 1e-5 * largest:
            wrong.append(name + (" (none)" if name not in gradients else ""))
    wrong += [name + " (none in the model)" for name, other in gradients.items() if name not in eager and (other.abs() > 1e-5 * largest).any()]
    if not wrong:
        return None
    names = ", ".join(wrong[:5]) + (f" and {len(wrong) - 5} more" if len(wrong) > 5 else "")
    return (f"torch.export loses gradients of this model: run by PyTorch itself, the exported program has others than the model for {names}. It follows forward passes "
            "alone: write a torch.autograd.Function's backward as operations of the forward pass (x.detach() where it holds something fixed), and use "
            "checkpoint(..., use_reentrant=False)")


def in_float64(tensors):
    return None if tensors is None else {n: t.double() if t.is_floating_point() else t for n, t in tensors.items()}


def run_in_float64(model, inputs, alt_inputs, kind, options, steps):
    try:
        return run(copied(model).double(), in_float64(inputs), in_float64(alt_inputs), kind, options, steps)
    except Exception as error:
        raise Refused(f"the model does not run in float64, by which tolerances are measured ({first_line(error)}): let what it makes itself follow the type of its "
                      "weights or inputs, or use --no-float64, for small constant tolerances") from error


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


def scalar_loss(model, inputs):
    loss = copied(model)(**inputs)
    if not isinstance(loss, torch.Tensor) or loss.dim() != 0 or not loss.is_floating_point():
        found = f"a tensor {loss.dtype} of shape {list(loss.shape)}" if isinstance(loss, torch.Tensor) else f"a {type(loss).__name__}"
        raise Refused(f"forward returns {found}, wanted the scalar loss: wrap the model in a module that returns it")
    if not loss.requires_grad:
        raise Refused("the loss does not depend on a parameter that wants a gradient")


def write_programs(folder, model, inputs, dynamic, core, joint):
    """The exported program and, in the manifest's terms, the files."""
    exported = torch.export.export(copied(model), (), dict(inputs), dynamic_shapes=dynamic)
    save(exported, os.path.join(folder, "model.pt2"))
    files = {"exported": "model.pt2", "data": "data.safetensors"}
    others = {"model_core.pt2": (core, lambda: exported.run_decompositions()), "model_joint.pt2": (joint, lambda: joint_program(exported))}
    for name, (wanted, make) in others.items():
        if not wanted:
            continue
        try:
            save(make(), os.path.join(folder, name))
        except Exception as error:  # PyTorch's limits; the other programs are as good as ever
            warnings.warn(f"there is no {name}: {first_line(error)}", Note)
            continue
        if name == "model_core.pt2":
            files["core"] = name
    return exported, files


def another_batch(exported, inputs, alt_inputs, dynamic):
    """The second batch, or None if the program cannot take it: PyTorch may fix a size that dynamic() leaves open, or assume something of it."""
    if alt_inputs is None or all(alt_inputs[n].shape == t.shape for n, t in inputs.items() if n in alt_inputs):
        return alt_inputs
    if dynamic is None:
        warnings.warn("alt_inputs() has other sizes than inputs(), and without dynamic() the program takes these alone: the second batch is left out", Note)
        return None
    try:
        with torch.no_grad():
            copy.deepcopy(exported).module()(**alt_inputs)
    except Exception as error:
        warnings.warn(f"the exported program does not take alt_inputs() ({first_line(error)}): the second batch is left out", Note)
        return None
    return alt_inputs


def record(folder, model, inputs, alt_inputs=None, dynamic=None, optimizer=("AdamW", {}), steps=5, core=True, what="", float64=True, joint=False, anyway=False):
    if optimizer[0] not in DEFAULTS:
        raise Refused(f"there is no optimizer '{optimizer[0]}' for a check, wanted {', '.join(DEFAULTS)}")
    kind, options = optimizer[0], {**DEFAULTS[optimizer[0]], **optimizer[1]}
    os.makedirs(folder, exist_ok=True)
    model.train()
    scalar_loss(model, inputs)
    parameters, tied = unique_parameters(model)
    persistent = [name for name, _ in model.named_buffers() if name in model.state_dict()]
    exported, files = write_programs(folder, model, inputs, dynamic, core, joint)
    alt_inputs = another_batch(exported, inputs, alt_inputs, dynamic)
    start = {"input." + n: t for n, t in inputs.items()}
    start.update({"alt.input." + n: t for n, t in (alt_inputs or {}).items()})
    start.update({"param." + n: p.detach().clone() for n, p in parameters.items()})
    start.update({"buffer." + n: b.detach().clone() for n, b in model.named_buffers() if n in persistent})
    keeps = not any(word in str(exported.graph) for word in ("detach", "wrap_with_set_grad_enabled"))
    found = run(model, inputs, alt_inputs, kind, options, steps)
    if not found["losses"].isfinite().all():
        raise Refused(f"the losses {found['losses'].tolist()} are not finite in PyTorch: there is nothing to compare; choose other inputs or a smaller "
                      "learning rate")
    draws = random_draws(exported)
    if draws and not anyway:
        raise Refused(doubts(draws, None, None)[0])
    lost = None if draws else lost_by_export(exported, found, inputs, tied)
    if lost and not anyway:
        raise Refused(lost)
    if lost:
        warnings.warn(lost, Note)
    precise = run_in_float64(model, inputs, alt_inputs, kind, options, steps) if float64 else None
    noise = noise_gradients(found, precise)
    for doubt in doubts(draws, found, precise, noise):
        if not anyway:
            raise Refused(doubt)
        warnings.warn(doubt, Note)
    masks = noise_elements(start, found, precise, noise)
    save_file({n: t.detach().clone(memory_format=torch.contiguous_format) for n, t in {**start, **found, **masks}.items()}, os.path.join(folder, files["data"]))
    entry = dict(
        name=os.path.basename(os.path.abspath(folder)), what=what, torch=torch.__version__, files=files, optimizer={"kind": kind, **options}, steps=steps,
        inputs={n: dict(dtype=str(t.dtype).removeprefix("torch."), shape=list(t.shape)) for n, t in inputs.items()}, tied=tied,
        core_keeps_gradients=keeps, persistent_buffers=persistent, noise_gradients=noise, tolerance=tolerances(found, precise, noise, masks))
    update_manifest(folder, entry)
    return entry


def first_line(error):
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    return f"{type(error).__name__}: {lines[0][:300]}"


@contextlib.contextmanager
def blamed(what, path):
    """Other errors inside become one line that names the part, and the line of the user's file if it is in there."""
    try:
        yield
    except (Refused, KeyboardInterrupt):
        raise
    except BaseException as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if os.path.abspath(frame.filename) == os.path.abspath(path)]
        raise Refused(f"{path}{f':{lines[-1]}' if lines else ''}: {what}: {first_line(error)}") from error


def read_source(path):
    if not os.path.isfile(path):
        raise Refused(f"{path}: there is no such file")
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))  # what it imports may lie beside it
    spec = importlib.util.spec_from_file_location("recorded_model", path)
    if spec is None:
        raise Refused(f"{path}: wanted a python file")
    source = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = source
    with blamed("cannot be imported", path):
        spec.loader.exec_module(source)
    missing = [name + "()" for name in ("model", "inputs") if not callable(getattr(source, name, None))]
    if missing:
        raise Refused(f"{path}: defines no {' and no '.join(missing)}, wanted model(), an nn.Module that returns its loss, and inputs(), a dict of its "
                      "arguments")
    return source


def record_source(arguments):
    source = read_source(arguments.source)

    def given(name, otherwise=None):
        with blamed(name + "() failed", arguments.source):
            return getattr(source, name)() if hasattr(source, name) else otherwise

    torch.manual_seed(0)
    model, inputs, alt_inputs, optimizer = given("model"), given("inputs"), given("alt_inputs"), given("optimizer", ("AdamW", {}))
    if not isinstance(model, torch.nn.Module):
        raise Refused(f"{arguments.source}: model() returns a {type(model).__name__}, wanted an nn.Module")
    for name, batch in (("inputs", inputs), ("alt_inputs", alt_inputs if alt_inputs is not None else inputs)):
        if not isinstance(batch, dict) or not all(isinstance(value, torch.Tensor) for value in batch.values()):
            raise Refused(f"{arguments.source}: {name}() wanted a dict of argument name -> tensor")
    if not isinstance(optimizer, tuple) or len(optimizer) != 2 or not isinstance(optimizer[1], dict):
        raise Refused(f'{arguments.source}: optimizer() wanted a name and a dict of options, such as ("SGD", {{"lr": 0.1}})')
    with tempfile.TemporaryDirectory() as place:  # a recording that fails leaves nothing behind
        made = os.path.join(place, os.path.basename(os.path.abspath(arguments.folder)))
        with blamed("cannot be recorded", arguments.source):
            entry = record(made, model, inputs, alt_inputs, given("dynamic"), optimizer, arguments.steps, not arguments.no_core, joint=arguments.joint,
                           anyway=arguments.anyway, float64=not arguments.no_float64)
        os.makedirs(arguments.folder, exist_ok=True)
        for name in ("model.pt2", "model_core.pt2", "model_joint.pt2", "data.safetensors"):
            target = os.path.join(arguments.folder, name)
            if os.path.exists(os.path.join(made, name)):
                shutil.move(os.path.join(made, name), target)
            elif os.path.exists(target):
                os.remove(target)  # of an earlier recording
    update_manifest(arguments.folder, entry)
    return entry


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="python file with model() and inputs()")
    parser.add_argument("folder", help="where to write; its name is the entry in the manifest.json beside it")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--no-core", action="store_true", help="leave out the decomposed program")
    parser.add_argument("--joint", action="store_true", help="also write model_joint.pt2, which holds its gradients")
    parser.add_argument("--no-float64", action="store_true", help="tolerances are small constants, not measured by a run in float64")
    parser.add_argument("--anyway", action="store_true", help="record a model that a check can hardly agree with")
    parser.add_argument("--trace", action="store_true", help="show where an error comes from")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # PyTorch's own
    warnings.simplefilter("always", Note)
    warnings.showwarning = lambda message, *_: print(f"warning {message}", file=sys.stderr)
    try:
        entry = record_source(arguments)
    except Refused as error:
        if arguments.trace:
            traceback.print_exc()
        print(f"record.py: {error}", file=sys.stderr)
        return 2
    print(f"recorded {arguments.folder} with {entry['optimizer']['kind']}, {entry['steps']} steps")
    for group, tolerance in entry["tolerance"].items():
        if tolerance["suggest_rel"] > 0.05:
            print(f"warning the tolerance of {group} is {tolerance['suggest_rel']:.2g} of a tensor's largest value: float32 and float64 differ so much that it "
                  "tells little", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
