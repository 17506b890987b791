# SPDX-License-Identifier: Apache-2.0
"""Products, convolutions and passes of free libraries, each called as it is: PyTorch's (MKL and its own oneDNN), OpenBLAS and oneDNN through ctypes."""
import ctypes
from ctypes import POINTER, byref, c_char, c_float, c_int, c_int64, c_size_t, c_void_p

import numpy


def values(*shape):
    """Normal numbers: zeros and denormals would be other work for some processors."""
    return numpy.random.default_rng(1).standard_normal(shape, dtype=numpy.float32)


def operands(m, n, k, turned_a, turned_b):
    return values(k, m) if turned_a else values(m, k), values(n, k) if turned_b else values(k, n), numpy.zeros((m, n), numpy.float32)


class OpenBlas:
    def __init__(self, threads):
        self.library = ctypes.CDLL("libopenblas.so.0")
        self.library.openblas_set_num_threads(c_int(threads))
        self.library.openblas_get_config.restype = ctypes.c_char_p
        self.name = self.library.openblas_get_config().decode()

    def product(self, m, n, k, turned_a, turned_b):
        arrays = operands(m, n, k, turned_a, turned_b)
        a, b, c = (array.ctypes.data_as(c_void_p) for array in arrays)
        row_major, turn = 101, {False: 111, True: 112}
        given = (c_int(row_major), c_int(turn[turned_a]), c_int(turn[turned_b]), c_int(m), c_int(n), c_int(k), c_float(1), a, c_int(arrays[0].shape[1]), b,
                 c_int(arrays[1].shape[1]), c_float(0), c, c_int(n))
        call = self.library.cblas_sgemm

        def run(held=arrays):
            call(*given)

        return run


class Argument(ctypes.Structure):
    _fields_ = [("index", c_int), ("memory", c_void_p)]


class OneDnn:
    """The C interface of oneDNN 2. A convolution chooses its layouts itself: no reordering is in its time."""

    DESCRIPTOR_BYTES, CONVOLUTION_BYTES = 2048, 16384  # at least what dnnl_types.h has: 696 and 5976
    F32, ANY, TRAINING, DIRECT = 3, 1, 64, 1
    SOURCE, WEIGHTS, RESULT = (1, 129, 130, 129), (33, 161, 132, 131), (17, 145, 134, 133)

    def __init__(self, threads):
        self.library = ctypes.CDLL("libdnnl.so.2")
        self.threads = threads  # OMP_NUM_THREADS says it to the library
        self.engine, self.stream = c_void_p(), c_void_p()
        self.checked("dnnl_engine_create", byref(self.engine), c_int(1), c_size_t(0))
        self.checked("dnnl_stream_create", byref(self.stream), self.engine, c_int(1))
        self.library.dnnl_primitive_desc_query_md.restype = c_void_p
        self.library.dnnl_memory_desc_get_size.restype = c_size_t
        self.name = "oneDNN 2"

    def checked(self, function, *given):
        status = getattr(self.library, function)(*given)
        if status != 0:
            raise RuntimeError(f"{function} gives {status}")

    def product(self, m, n, k, turned_a, turned_b):
        arrays = operands(m, n, k, turned_a, turned_b)
        a, b, c = (array.ctypes.data_as(c_void_p) for array in arrays)
        turn = {False: b"N", True: b"T"}
        given = (c_char(turn[turned_a]), c_char(turn[turned_b]), c_int64(m), c_int64(n), c_int64(k), c_float(1), a, c_int64(arrays[0].shape[1]), b,
                 c_int64(arrays[1].shape[1]), c_float(0), c, c_int64(n))
        call = self.library.dnnl_sgemm

        def run(held=arrays):
            call(*given)

        return run

    def descriptor(self, *sizes):
        result = (ctypes.c_byte * self.DESCRIPTOR_BYTES)()
        self.checked("dnnl_memory_desc_init_by_tag", result, c_int(len(sizes)), (c_int64 * len(sizes))(*sizes), c_int(self.F32), c_int(self.ANY))
        return result

    def primitive_descriptor(self, which, source, weights, result, stride, padding, hint):
        strides, pads = (c_int64 * 2)(stride, stride), (c_int64 * 2)(padding, padding)
        operation = (ctypes.c_byte * self.CONVOLUTION_BYTES)()
        if which == "forward":
            self.checked("dnnl_convolution_forward_desc_init", operation, c_int(self.TRAINING), c_int(self.DIRECT), source, weights, None, result, strides, pads,
                         pads)
        elif which == "data":
            self.checked("dnnl_convolution_backward_data_desc_init", operation, c_int(self.DIRECT), source, weights, result, strides, pads, pads)
        else:
            self.checked("dnnl_convolution_backward_weights_desc_init", operation, c_int(self.DIRECT), source, weights, None, result, strides, pads, pads)
        made = c_void_p()
        self.checked("dnnl_primitive_desc_create", byref(made), operation, None, self.engine, hint)
        return made

    def convolution(self, which, batch, channels, height, out, kernel, stride, padding):
        size = (height + 2 * padding - kernel) // stride + 1
        shapes = self.descriptor(batch, channels, height, height), self.descriptor(out, channels, kernel, kernel), self.descriptor(batch, out, size, size)
        made = self.primitive_descriptor("forward", *shapes, stride, padding, None)
        if which != "forward":
            made = self.primitive_descriptor(which, *shapes, stride, padding, made)
        primitive = c_void_p()
        self.checked("dnnl_primitive_create", byref(primitive), made)
        # Of each tensor: its argument, and the query that tells its layout; of the gradient where the pass has it.
        gradient = {"forward": (False, False, False), "data": (True, False, True), "weights": (False, True, True)}[which]
        arguments, held = (Argument * 3)(), []
        for place, ((plain, diff, diff_query, query), is_gradient) in enumerate(zip((self.SOURCE, self.WEIGHTS, self.RESULT), gradient)):
            layout = c_void_p(self.library.dnnl_primitive_desc_query_md(made, c_int(diff_query if is_gradient else query), c_int(0)))
            array = values((self.library.dnnl_memory_desc_get_size(layout) + 3) // 4)
            memory = c_void_p()
            self.checked("dnnl_memory_create", byref(memory), layout, self.engine, array.ctypes.data_as(c_void_p))
            arguments[place] = Argument(diff if is_gradient else plain, memory.value)
            held.append(array)
        execute, wait = self.library.dnnl_primitive_execute, self.library.dnnl_stream_wait

        def run(held=held):
            execute(primitive, self.stream, c_int(3), arguments)
            wait(self.stream)

        return run


class Torch:
    def __init__(self, threads):
        import torch

        self.torch = torch
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        self.name = "PyTorch " + torch.__version__

    def product(self, m, n, k, turned_a, turned_b):
        a, b, c = map(self.torch.from_numpy, operands(m, n, k, turned_a, turned_b))
        a, b = a.t() if turned_a else a, b.t() if turned_b else b
        return lambda: self.torch.mm(a, b, out=c)

    def convolution(self, which, batch, channels, height, out, kernel, stride, padding):
        torch = self.torch
        order = torch.channels_last
        size = (height + 2 * padding - kernel) // stride + 1
        x, w, y = (torch.from_numpy(values(*shape)).to(memory_format=order)
                   for shape in ((batch, channels, height, height), (out, channels, kernel, kernel), (batch, out, size, size)))
        if which == "forward":
            return lambda: torch.conv2d(x, w, None, stride, padding)
        mask = [which == "data", which == "weights", False]
        return lambda: torch.ops.aten.convolution_backward(y, x, w, None, [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], 1, mask)

    def passes(self):
        """Name -> (call, elements it deals with): forward and backward together, hot in the cache."""
        torch, aten = self.torch, self.torch.ops.aten
        rows, columns = 512, 512
        x, g, out, other = (torch.from_numpy(values(rows, columns)) for _ in range(4))
        scale, shift = torch.ones(columns), torch.zeros(columns)
        labels = torch.randint(0, columns, (rows,))
        gelu = {name: lambda how=how: (aten.gelu.out(x, approximate=how, out=out), aten.gelu_backward.grad_input(g, x, approximate=how, grad_input=other))
                for name, how in (("gelu tanh", "tanh"), ("gelu exact", "none"))}

        def norm():
            y, mean, root = aten.native_layer_norm(x, [columns], scale, shift, 1e-5)
            aten.native_layer_norm_backward(g, x, [columns], mean, root, scale, shift, [True, True, True])

        def loss():
            y = aten._log_softmax(x, 1, False)
            aten._log_softmax_backward_data(g, y, 1, torch.float32)
            aten.nll_loss_forward(y, labels, None, 1, -100)

        count = rows * columns
        return {
            **{name: (call, count) for name, call in gelu.items()},
            "exp": (lambda: torch.exp(x, out=out), count),
            "relu": (lambda: (torch.clamp_min(x, 0, out=out), aten.threshold_backward.grad_input(g, out, 0, grad_input=other)), count),
            "gates": (lambda: (torch.sigmoid(x, out=out), aten.sigmoid_backward.grad_input(g, out, grad_input=other)), count),
            "norm": (norm, count), "loss": (loss, count), "adamw in cache": self.adamw(1 << 16), "adamw in memory": self.adamw(1 << 24)}

    def adamw(self, count):
        torch = self.torch
        parameter, gradient, first, second = ([torch.rand(count)] for _ in range(4))
        step = [torch.tensor(3.0)]

        def call():
            torch._fused_adamw_(parameter, gradient, first, second, [], step, lr=1e-4, beta1=0.9, beta2=0.999, weight_decay=0.01, eps=1e-8, amsgrad=False,
                                maximize=False)

        return call, count


LIBRARIES = {"torch": Torch, "openblas": OpenBlas, "onednn": OneDnn}
