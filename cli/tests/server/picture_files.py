"""Picture files that the tests make."""

from __future__ import annotations

import struct
import zlib


def png(red: int, green: int, blue: int) -> bytes:
    """A gradient of 24 by 24 pixels in this color."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        whole = kind + data
        return struct.pack(">I", len(data)) + whole + struct.pack(">I", zlib.crc32(whole))

    row = b"".join(bytes((red * x // 24, green * x // 24, blue * x // 24)) for x in range(24))
    pixels = zlib.compress((b"\0" + row) * 24)
    header = struct.pack(">IIBBBBB", 24, 24, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    )
