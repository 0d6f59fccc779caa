#!/usr/bin/env python3
"""Writes tests/data/pictures.json: small picture files, and their pixels as Pillow decodes them.

Needs Pillow and numpy. A file is the same picture in another format, or turned by EXIF.
"""

import base64
import io
import json
import sys

import numpy
import PIL
from PIL import Image, ImageOps

WIDTH, HEIGHT = 24, 16


def motif():
    """A picture whose corners differ: a slow gradient, and a light block at the upper left."""
    y, x = numpy.mgrid[0:HEIGHT, 0:WIDTH]
    pixels = numpy.stack([x * 8, y * 12, 255 - x * 4 - y * 4], axis=-1).astype(numpy.uint8)
    pixels[:8, :8] = [250, 240, 30]
    return Image.fromarray(pixels, "RGB")


def saved(picture, **options):
    out = io.BytesIO()
    picture.save(out, **options)
    return out.getvalue()


def turned(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def files():
    rgb = motif()
    other = ImageOps.invert(rgb)
    sixteen = numpy.asarray(rgb.convert("L"), dtype=numpy.uint16) * 257
    alpha = rgb.copy()
    alpha.putalpha(rgb.convert("L"))
    yield "png", saved(rgb, format="PNG"), 0
    yield "png with alpha", saved(alpha, format="PNG"), 0
    yield "png with a palette", saved(rgb.quantize(32), format="PNG"), 0
    yield "png of one bit", saved(rgb.convert("1"), format="PNG"), 0
    yield "png of 16 bits", saved(Image.fromarray(sixteen), format="PNG"), 0
    yield "bmp", saved(rgb, format="BMP"), 0
    yield "gif, animated", saved(rgb.quantize(32), format="GIF", save_all=True, append_images=[other.quantize(32)]), 0
    yield "webp, lossless", saved(rgb, format="WEBP", lossless=True), 0
    yield "webp", saved(rgb, format="WEBP", quality=90), 6
    yield "webp, animated", saved(rgb, format="WEBP", lossless=True, save_all=True, append_images=[other]), 0
    yield "jpeg", saved(rgb, format="JPEG", quality=95), 6
    yield "jpeg, progressive", saved(rgb, format="JPEG", quality=95, progressive=True), 6
    yield "jpeg, grey", saved(rgb.convert("L"), format="JPEG", quality=95), 3
    yield "jpeg, cmyk", saved(rgb.convert("CMYK"), format="JPEG", quality=95), 8
    for orientation in range(1, 9):
        yield f"jpeg, orientation {orientation}", saved(rgb, format="JPEG", quality=95, exif=turned(orientation)), 6
    yield "png, orientation 6", saved(rgb, format="PNG", exif=turned(6)), 0
    yield "one pixel", saved(rgb.crop((0, 0, 1, 1)), format="PNG"), 0


def expected(file):
    picture = Image.open(io.BytesIO(file))
    picture.seek(0)
    if picture.mode == "I;16":
        pixels = (numpy.asarray(picture) // 257).astype(numpy.uint8)
        picture = Image.fromarray(pixels, "L")
    return ImageOps.exif_transpose(picture).convert("RGB")


def main():
    cases = []
    for name, file, tolerance in files():
        pixels = expected(file)
        cases.append(
            {
                "name": name,
                "file": base64.b64encode(file).decode(),
                "width": pixels.width,
                "height": pixels.height,
                "rgb": base64.b64encode(pixels.tobytes()).decode(),
                "tolerance": tolerance,
            }
        )
    with open("tests/data/pictures.json", "w") as out:
        json.dump({"pillow": PIL.__version__, "cases": cases}, out, indent=1)
        out.write("\n")


if __name__ == "__main__":
    sys.exit(main())
