"""Computes the embeddings of sounds by Hugging Face transformers, for a test of projectors.

    sound-encoder-reference.py FOLDER

FOLDER has `weights.json`, tensors by their names in a projector file with Whisper's encoder, and
sounds `N.wav` of 16,000 samples a second. Writes `N.json`: the rows of embeddings, of one window
after the other. For Qwen2-Audio, whose model hides the silence that fills up a window,
`N.kept.json` has the rows of the first window that the model keeps. Prints one line and exits
with 3 if transformers 5 is missing.
"""

import json
import pathlib
import sys
import wave

try:
    import numpy
    import torch
    from transformers.models.qwen2_audio.configuration_qwen2_audio import (
        Qwen2AudioEncoderConfig,
    )
    from transformers.models.qwen2_audio.modeling_qwen2_audio import Qwen2AudioEncoder
    from transformers.models.voxtral.configuration_voxtral import VoxtralEncoderConfig
    from transformers.models.voxtral.modeling_voxtral import VoxtralEncoder
    from transformers.models.whisper.configuration_whisper import WhisperConfig
    from transformers.models.whisper.feature_extraction_whisper import (
        WhisperFeatureExtractor,
    )
    from transformers.models.whisper.modeling_whisper import WhisperEncoder
except ImportError as error:
    print(f"transformers 5 with PyTorch and NumPy: {error}")
    sys.exit(3)

RATE = 16000
# The samples, and the spectra, of a window; the samples between two spectra.
WINDOW = 30 * RATE
FRAMES = 3000
HOP = 160
# The names of the encoder in transformers.
OF_ENCODER = {
    "a.conv1d.1": "conv1",
    "a.conv1d.2": "conv2",
    "a.position_embd": "embed_positions",
    "a.post_ln": "layer_norm",
}
OF_LAYER = {
    "ln1": "self_attn_layer_norm",
    "ln2": "final_layer_norm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_out": "self_attn.out_proj",
    "ffn_up": "fc1",
    "ffn_down": "fc2",
}


def tensor(stored: dict) -> torch.Tensor:
    """A tensor, whose last extent is the first one of GGUF."""
    return torch.tensor(stored["numbers"]).reshape(stored["shape"][::-1])


def encoder_state(tensors: dict) -> dict:
    """The weights of the encoder by the names of transformers."""
    named = {}
    for name, value in tensors.items():
        place, _, part = name.rpartition(".")
        if place in OF_ENCODER:
            # A bias of a convolution is a column in the file.
            flat = value.flatten() if part == "bias" else value
            named[f"{OF_ENCODER[place]}.{part}"] = flat
        elif place.startswith("a.blk."):
            _, _, layer, kind = place.split(".")
            named[f"layers.{layer}.{OF_LAYER[kind]}.{part}"] = value
    return named


class Qwen2Audio:
    """The encoder, which averages pairs of states, and a linear projection."""

    def __init__(self, given: dict, tensors: dict) -> None:
        config = Qwen2AudioEncoderConfig(**sizes(given), attn_implementation="eager")
        self.encoder = Qwen2AudioEncoder(config).eval()
        self.encoder.load_state_dict(encoder_state(tensors))
        self.weight = tensors["mm.a.fc.weight"]
        self.bias = tensors["mm.a.fc.bias"]

    def rows(self, spectra: torch.Tensor) -> torch.Tensor:
        states = self.encoder(spectra).last_hidden_state[0]
        return states @ self.weight.T + self.bias

    def kept_rows(self, spectra: torch.Tensor, filled: int) -> torch.Tensor:
        """The rows that `Qwen2AudioModel` keeps of a sound with so many spectra. It hides the rest
        of the window from the encoder."""
        lengths = self.encoder._get_feat_extract_output_lengths(torch.tensor(filled))
        mask = torch.zeros(1, 1, FRAMES // 2, FRAMES // 2)
        mask[..., int(lengths[0]) :] = torch.finfo(torch.float32).min
        states = self.encoder(spectra, attention_mask=mask).last_hidden_state[0]
        return (states @ self.weight.T + self.bias)[: int(lengths[1])]


class Ultravox:
    """Whisper's encoder. The projection is Ultravox's, which is no part of transformers: states of
    a row, RMS norm, a layer whose second half gates the first, RMS norm, a layer."""

    def __init__(self, given: dict, tensors: dict) -> None:
        self.encoder = WhisperEncoder(WhisperConfig(**sizes(given))).eval()
        self.encoder.load_state_dict(encoder_state(tensors))
        self.stack = given["stack"]
        self.tensors = tensors

    def norm(self, states: torch.Tensor, name: str) -> torch.Tensor:
        weight = self.tensors[name]
        return torch.nn.functional.rms_norm(states, weight.shape, weight, 1e-6)

    def rows(self, spectra: torch.Tensor) -> torch.Tensor:
        states = self.encoder(spectra).last_hidden_state[0]
        states = states.reshape(-1, self.stack * states.shape[-1])
        states = self.norm(states, "mm.a.norm_pre.weight") @ self.tensors["mm.a.mlp.1.weight"].T
        up, gate = states.chunk(2, dim=-1)
        states = self.norm(torch.nn.functional.silu(gate) * up, "mm.a.norm_mid.weight")
        return states @ self.tensors["mm.a.mlp.2.weight"].T


class Voxtral:
    """The encoder, and a projection of several states in a row. llama.cpp averages pairs of states
    before the last norm, as in Qwen2-Audio, and transformers does not. Here they are averaged."""

    def __init__(self, given: dict, tensors: dict) -> None:
        self.encoder = VoxtralEncoder(VoxtralEncoderConfig(**sizes(given))).eval()
        self.encoder.load_state_dict(encoder_state(tensors))
        self.norm = self.encoder.layer_norm
        self.encoder.layer_norm = torch.nn.Identity()
        self.row = given["stack"] * given["width"]
        self.first = tensors["mm.a.mlp.1.weight"]
        self.second = tensors["mm.a.mlp.2.weight"]

    def rows(self, spectra: torch.Tensor) -> torch.Tensor:
        states = self.encoder(spectra).last_hidden_state[0]
        states = self.norm(states.reshape(-1, 2, states.shape[-1]).mean(dim=1))
        states = torch.nn.functional.gelu(states.reshape(-1, self.row) @ self.first.T)
        return states @ self.second.T


KINDS = {"qwen2a": Qwen2Audio, "ultravox": Ultravox, "voxtral": Voxtral}


def sizes(given: dict) -> dict:
    """The sizes of an encoder by the names of transformers."""
    return {
        "num_mel_bins": given["bins"],
        "d_model": given["width"],
        "encoder_layers": given["layers"],
        "encoder_attention_heads": given["heads"],
        "encoder_ffn_dim": given["inner"],
        "max_source_positions": FRAMES // 2,
    }


def samples(path: pathlib.Path) -> numpy.ndarray:
    with wave.open(str(path)) as file:
        assert (file.getframerate(), file.getnchannels()) == (RATE, 1), path
        data = file.readframes(file.getnframes())
    return numpy.frombuffer(data, "<i2").astype(numpy.float32) / 32768


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    given = json.loads((folder / "weights.json").read_text())
    tensors = {name: tensor(stored) for name, stored in given["tensors"].items()}
    encoder = KINDS[given["kind"]](given, tensors)
    extractor = WhisperFeatureExtractor(feature_size=given["bins"])
    for path in sorted(folder.glob("*.wav")):
        sound = samples(path)
        # As Voxtral's processor: whole windows, computed together and then divided.
        spectra = extractor(
            sound,
            sampling_rate=RATE,
            padding=True,
            pad_to_multiple_of=WINDOW,
            truncation=False,
            return_tensors="pt",
        )["input_features"]
        with torch.no_grad():
            rows = torch.cat([encoder.rows(part) for part in spectra.split(FRAMES, dim=2)])
            path.with_suffix(".json").write_text(json.dumps(rows.tolist()))
            if isinstance(encoder, Qwen2Audio):
                kept = encoder.kept_rows(spectra[..., :FRAMES], -(-len(sound) // HOP))
                path.with_suffix(".kept.json").write_text(json.dumps(kept.tolist()))


if __name__ == "__main__":
    main()
