#!/usr/bin/env python3
"""Writes tests/data/sounds.json: small sound files, and their samples as libsndfile decodes them.

Needs soundfile, whose wheel has libsndfile with LAME, libFLAC and mpg123, and numpy. A file is the
same sound in another format: two tones, which differ between the channels.
"""

import base64
import io
import json
import sys

import numpy
import soundfile

SECONDS = 0.1


def motif(rate, channels):
    """Two tones. Those of the second channel are higher."""
    time = numpy.arange(int(rate * SECONDS)) / rate
    tones = [
        0.4 * numpy.sin(2 * numpy.pi * 440 * (1 + channel) * time)
        + 0.2 * numpy.sin(2 * numpy.pi * 1250 * (1 + channel) * time + 1)
        for channel in range(channels)
    ]
    return numpy.stack(tones, axis=-1)


def saved(rate, channels, container, subtype):
    out = io.BytesIO()
    soundfile.write(out, motif(rate, channels), rate, format=container, subtype=subtype)
    return out.getvalue()


def cases():
    wav = ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE"]
    yield from ((f"wav {kind}", 16000, 1, "WAV", kind) for kind in wav)
    yield "wav extensible", 16000, 2, "WAVEX", "PCM_16"
    yield "wav of two channels at 44.1 kHz", 44100, 2, "WAV", "PCM_16"
    yield "wav at 8 kHz", 8000, 1, "WAV", "PCM_16"
    yield "flac", 16000, 1, "FLAC", "PCM_16"
    yield "flac of two channels", 16000, 2, "FLAC", "PCM_24"
    yield "flac at 48 kHz", 48000, 2, "FLAC", "PCM_16"
    yield "mp3", 16000, 1, "MP3", "MPEG_LAYER_III"
    yield "mp3 of two channels at 44.1 kHz", 44100, 2, "MP3", "MPEG_LAYER_III"


def case(name, rate, channels, container, subtype):
    file = saved(rate, channels, container, subtype)
    samples, _ = soundfile.read(io.BytesIO(file), always_2d=True)
    mean = samples.mean(axis=1)
    whole = numpy.round(numpy.clip(mean, -1, 32767 / 32768) * 32768).astype("<i2")
    encoded = base64.b64encode(whole.tobytes()).decode()
    file = base64.b64encode(file).decode()
    return {"name": name, "rate": rate, "file": file, "samples": encoded}


def main(path):
    made_by = f"soundfile {soundfile.__version__}, {soundfile.__libsndfile_version__}"
    result = {"made_by": made_by, "cases": [case(*of) for of in cases()]}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "tests/data/sounds.json")
