"""Sound files that the tests make."""

from __future__ import annotations

import io
import math
import struct
import wave


def tone(frequency: int, seconds: float = 25) -> bytes:
    """A WAV file."""
    count = round(seconds * 16000)
    samples = [round(9000 * math.sin(math.tau * frequency * at / 16000)) for at in range(count)]
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes(struct.pack(f"<{len(samples)}h", *samples))
    return buffer.getvalue()
