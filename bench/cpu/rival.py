# SPDX-License-Identifier: Apache-2.0
"""One measured process of PyTorch: trains a workload for some steps, eager or compiled, and prints one line of JSON with the time and loss of each.

    python bench/cpu/rival.py --workload mlp --scale small --folder FOLDER --steps 20 --threads 2 [--compile] [--precision bf16] [--flush-denormals] [--double]
"""
import argparse
import gc
import json
import time


def resident(key):
    """VmRSS or VmHWM of this process, in bytes."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(key + ":"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workload", required=True)
    parser.add_argument("--scale", required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--steps", type=int, required=True, help="all, those of the warm-up included")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--precision", default="f32")
    parser.add_argument("--flush-denormals", action="store_true")
    parser.add_argument("--double", action="store_true", help="in f64: how far the rival's own rounding takes it")
    arguments = parser.parse_args()

    import torch

    after_import = resident("VmRSS")
    import models
    from workloads import LEARNING_RATE, WEIGHT_DECAY

    if arguments.flush_denormals:
        torch.set_flush_denormal(True)  # before the threads are started, which inherit it
    torch.set_num_threads(arguments.threads)
    training, batches = models.load(arguments.workload, arguments.scale, arguments.folder)
    if arguments.double:
        training.double()
        batches = [[part.double() if part.is_floating_point() else part for part in batch] for batch in batches]
    step_loss = torch.compile(training) if arguments.compile else training
    optimizer = torch.optim.AdamW(training.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, fused=True)
    autocast = torch.autocast("cpu", dtype=torch.bfloat16, enabled=arguments.precision == "bf16")

    milliseconds, losses = [], []
    gc.collect()
    for index in range(arguments.steps):
        inputs = batches[index % len(batches)]
        start = time.perf_counter_ns()
        optimizer.zero_grad(set_to_none=True)
        with autocast:
            loss = step_loss(*inputs)
        loss.backward()
        optimizer.step()
        milliseconds.append((time.perf_counter_ns() - start) / 1e6)
        losses.append(loss.detach())
    print(json.dumps({
        "milliseconds": milliseconds, "losses": [loss.item() for loss in losses[:16]], "rss_start": after_import, "rss_peak": resident("VmHWM"),
        "torch": torch.__version__, "capability": torch.backends.cpu.get_cpu_capability()}))


if __name__ == "__main__":
    main()
