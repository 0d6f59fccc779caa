"""Picture files that the tests make."""

from __future__ import annotations

import struct
import zlib


def png(red: int, green: int, blue: int, width: int = 24, height: int = 24) -> bytes:
    """A gradient in this color."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        whole = kind + data
        return struct.pack(">I", len(data)) + whole + struct.pack(">I", zlib.crc32(whole))

    color = (red, green, blue)
    row = b"".join(bytes(part * x // width for part in color) for x in range(width))
    pixels = zlib.compress((b"\0" + row) * height)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    )
