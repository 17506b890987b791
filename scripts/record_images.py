#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the images of tests/images and records what torchvision makes of them.

    python3 scripts/record_images.py tests/images

Needs torch, torchvision, Pillow, numpy and safetensors. The images are made by formula, in every mode that is read; expected.safetensors holds, in the order
of torchvision.datasets.ImageFolder, the labels, the bytes after Resize and CenterCrop for several sizes, and the normalised tensors of one of them.
"""

import struct
import sys
import zlib
from pathlib import Path

import numpy
import torch
from PIL import Image
from safetensors.torch import save_file
from torchvision import datasets, transforms

# name -> (resize, crop); resize as Stepgraph's option: none, the shorter side, or both
SIZES = {
    "smaller": ([20], [12, 12]),
    "larger": ([61], [16, 12]),
    "padded": ([15, 37], [21, 10]),
    "as_it_is": ([], [6, 51]),
    "flat": ([9, 20], [9, 20]),
}


def picture(height, width, channels, limit=255):
    """Waves and a little noise, without a generator."""
    y, x, c = numpy.meshgrid(numpy.arange(height), numpy.arange(width), numpy.arange(channels), indexing="ij")
    wave = numpy.sin(0.31 * x + 0.17 * y * (c + 1)) * numpy.cos(0.23 * y - 0.11 * x + c)
    noise = ((x * 7919 + y * 104729 + c * 1299709) % 101) / 101
    return numpy.clip((0.5 + 0.42 * wave + 0.16 * (noise - 0.5)) * limit, 0, limit).round().astype(numpy.uint32)


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def packed_rows(values, depth):
    """Rows of samples [height, width * channels] in so many bits each, with filter 0."""
    rows = []
    for row in values:
        if depth == 16:
            data = row.astype(">u2").tobytes()
        elif depth == 8:
            data = row.astype("u1").tobytes()
        else:
            bits = "".join(format(int(value), f"0{depth}b") for value in row)
            bits += "0" * (-len(bits) % 8)
            data = bytes(int(bits[i : i + 8], 2) for i in range(0, len(bits), 8))
        rows.append(b"\0" + data)
    return b"".join(rows)


def png(values, depth, color, palette=b"", extra=b"", interlaced=False):
    height, width, channels = values.shape
    if interlaced:
        passes = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
        parts = [values[y::dy, x::dx] for y, x, dy, dx in passes]
        data = b"".join(packed_rows(part.reshape(part.shape[0], -1), depth) for part in parts if part.size)
    else:
        data = packed_rows(values.reshape(height, width * channels), depth)
    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, int(interlaced))
    plte = chunk(b"PLTE", palette) if palette else b""
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + plte + extra + chunk(b"IDAT", zlib.compress(data, 9)) + chunk(b"IEND", b"")


def write_pngs(folder):
    gray = lambda depth: picture(23, 31, 1, (1 << depth) - 1)
    colors = bytes((i * 37 + c * 91) % 256 for i in range(11) for c in range(3))
    files = {
        "gray1": png(gray(1), 1, 0),
        "gray2": png(gray(2), 2, 0),
        "gray4": png(gray(4), 4, 0, interlaced=True),
        "gray8": png(gray(8), 8, 0, extra=chunk(b"tRNS", struct.pack(">H", 7))),
        "gray16": png(picture(19, 24, 1, 700), 16, 0),
        "gray_alpha": png(picture(23, 31, 2), 8, 4),
        "rgb16": png(picture(17, 33, 3, 65535), 16, 2),
        "rgb_interlaced": png(picture(29, 21, 3), 8, 2, interlaced=True),
        "deeper/rgba": png(picture(26, 40, 4), 8, 6),
        "deeper/palette": png(picture(22, 27, 1, 15), 4, 3, colors, chunk(b"tRNS", b"\0\x80")),
        "deeper/palette1": png(gray(1), 1, 3, colors[:6]),
    }
    for name, data in files.items():
        path = folder / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    # Known by content, not by name.
    (folder / "really_png.jpg").write_bytes(png(picture(12, 12, 3), 8, 2))


def write_jpegs(folder):
    folder.mkdir(parents=True, exist_ok=True)
    rgb = Image.fromarray(picture(37, 45, 3).astype("u1"), "RGB")
    rgb.save(folder / "baseline.jpg", quality=85)
    rgb.save(folder / "progressive.JPEG", quality=70, subsampling=0, progressive=True)
    rgb.resize((45, 20)).save(folder / "half.jpg", quality=90, subsampling=1)
    Image.fromarray(picture(30, 22, 1)[..., 0].astype("u1"), "L").save(folder / "gray.jpg", quality=80)
    Image.fromarray(picture(24, 24, 4).astype("u1"), "CMYK").save(folder / "inks.jpg", quality=85)
    turned = Image.Exif()
    turned[0x0112] = 6
    rgb.save(folder / "turned.jpg", quality=60, exif=turned)


def transform_of(resize, crop):
    steps = []
    if resize:
        steps.append(transforms.Resize(resize[0] if len(resize) == 1 else resize))
    return transforms.Compose(steps + [transforms.CenterCrop(crop)])


def main():
    root = Path(sys.argv[1])
    write_pngs(root / "set" / "png")
    write_jpegs(root / "set" / "jpeg")
    whole = datasets.ImageFolder(root / "set")
    tensors = {"labels": torch.tensor([label for _, label in whole.samples])}
    for name, (resize, crop) in SIZES.items():
        transform = transform_of(resize, crop)
        images = [transform(whole[i][0]) for i in range(len(whole))]
        tensors[name] = torch.stack([torch.from_numpy(numpy.array(image)) for image in images])
        if name == "smaller":
            tail = transforms.Compose([transforms.ToTensor(), transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])])
            tensors["normalised"] = torch.stack([tail(image) for image in images])
    names = [str(Path(path).relative_to(root / "set")) for path, _ in whole.samples]
    save_file(tensors, root / "expected.safetensors", metadata={"files": "\n".join(names)})
    print("\n".join(names))


if __name__ == "__main__":
    main()
