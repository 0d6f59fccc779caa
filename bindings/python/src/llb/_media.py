"""Pictures and sounds in messages: files, bytes and pictures of other packages become base64.

A part `{"type": "image"}` has one of `path` (a file), `image` (bytes of a file, a picture of Pillow
or an array of NumPy's shape) and `url` (a data URL). A part `{"type": "audio"}` has one of `path`
and `audio` (bytes of a file). The library decodes and checks the files.
"""

from __future__ import annotations

import base64
import io
import os
import struct
import zlib
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union, cast

_BEGINNINGS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"BM", "image/bmp"),
    (b"RIFF", "image/webp"),
)
# The modes of Pillow that its PNG files can have.
_PNG_MODES = ("1", "L", "LA", "P", "RGB", "RGBA")
_EXPECTED = (
    "expected bytes, a picture of Pillow, or an array of uint8 with the shape (rows, columns) "
    "or (rows, columns, 1, 3 or 4)"
)


def with_media(messages: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Returns the messages with parts of the type `image_url` in place of those of type `image`.

    `input_audio` takes the place of `audio`. Other messages stay as they are. Raises TypeError for
    what is no picture and no sound, and OSError for a file that cannot be read.
    """
    if not isinstance(messages, (list, tuple)):
        return messages
    return [_message(message, f"messages[{index}]") for index, message in enumerate(messages)]


def _message(message: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    # The library says what is wrong with a message that is no object.
    content: Any = message.get("content") if isinstance(cast(Any, message), Mapping) else None
    if not isinstance(content, (list, tuple)):
        return message
    given = cast(Sequence[Any], content)
    if not any(map(_kind, given)):
        return message
    parts: List[Any] = [
        _PARTS[kind](part, f"{path}.content[{index}]") if kind else part
        for index, (part, kind) in enumerate(zip(given, map(_kind, given)))
    ]
    return {**message, "content": parts}


def _kind(part: Any) -> str:
    """`image`, `audio`, or nothing for other parts."""
    kind: Any = cast(Mapping[str, Any], part).get("type") if isinstance(part, Mapping) else ""
    return kind if kind in ("image", "audio") else ""


def _given(part: Mapping[str, Any], path: str, names: Sequence[str]) -> Tuple[str, Any]:
    """The one member of these that is given, and its value. A file is read."""
    given = [name for name in names if part.get(name) is not None]
    if len(given) != 1:
        expected = " and ".join((", ".join(names[:-1]), names[-1]))
        raise TypeError(f"{path}: expected one of {expected}, found {sorted(part)}")
    value = part[given[0]]
    if given[0] == "path":
        with open(value, "rb") as file:
            value = file.read()
    return given[0], value


def _picture(part: Mapping[str, Any], path: str) -> Dict[str, Any]:
    name, value = _given(part, path, ("path", "image", "url"))
    url = value if name == "url" else _data_url(value, f"{path}.image")
    return {"type": "image_url", "image_url": {"url": url}}


def _sound(part: Mapping[str, Any], path: str) -> Dict[str, Any]:
    _, file = _given(part, path, ("path", "audio"))
    if not isinstance(file, (bytes, bytearray, memoryview)):
        expected = 'expected bytes; name a file with {"type": "audio", "path": ...}'
        raise TypeError(f"{path}.audio: {expected}, found {type(file).__name__}")
    # The library recognizes the format.
    data = base64.b64encode(cast(bytes, file)).decode("ascii")
    return {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}


_PARTS = {"image": _picture, "audio": _sound}


def _data_url(value: Any, path: str) -> str:
    file = _file(value, path)
    kinds = (kind for beginning, kind in _BEGINNINGS if file.startswith(beginning))
    kind = next(kinds, "application/octet-stream")
    return f"data:{kind};base64,{base64.b64encode(file).decode('ascii')}"


def _file(value: Any, path: str) -> bytes:
    """The bytes of a picture file."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(cast(Union[bytes, bytearray], value))
    if isinstance(value, (str, os.PathLike)):
        raise TypeError(f'{path}: {_EXPECTED}; name a file with {{"type": "image", "path": ...}}')
    # Pillow: https://pillow.readthedocs.io/en/stable/reference/Image.html
    if all(hasattr(value, name) for name in ("mode", "convert", "save")):
        picture = value if value.mode in _PNG_MODES else value.convert("RGB")
        buffer = io.BytesIO()
        picture.save(buffer, "PNG")
        return buffer.getvalue()
    size = _array_size(value)
    if size is None:
        raise TypeError(f"{path}: {_EXPECTED}, found {type(value).__name__}")
    return _png(value.tobytes(), *size)


def _array_size(value: Any) -> Optional[Tuple[int, int, int]]:
    """Rows, columns and channels of an array; None if it has no pixels of 8 bits."""
    shape = cast(Tuple[int, ...], tuple(getattr(value, "shape", ())))
    if str(getattr(value, "dtype", "")) != "uint8" or not hasattr(value, "tobytes"):
        return None
    if len(shape) == 2:
        shape = (*shape, 1)
    if len(shape) != 3:
        return None
    rows, columns, channels = shape
    return (rows, columns, channels) if channels in (1, 3, 4) and rows and columns else None


def _png(pixels: bytes, rows: int, columns: int, channels: int) -> bytes:
    """A PNG file (https://www.w3.org/TR/png-3/) of pixels with 8 bits for each channel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        whole = kind + data
        return struct.pack(">I", len(data)) + whole + struct.pack(">I", zlib.crc32(whole))

    length = columns * channels
    lines = (b"\0" + pixels[start : start + length] for start in range(0, rows * length, length))
    color = {1: 0, 3: 2, 4: 6}[channels]
    header = struct.pack(">IIBBBBB", columns, rows, 8, color, 0, 0, 0)
    data = zlib.compress(b"".join(lines), 1)
    return b"".join(
        (_BEGINNINGS[0][0], chunk(b"IHDR", header), chunk(b"IDAT", data), chunk(b"IEND", b""))
    )
