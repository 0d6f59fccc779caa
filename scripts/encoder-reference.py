"""Computes the embeddings of pictures by Hugging Face transformers, for a test of projectors.

    encoder-reference.py FOLDER

FOLDER has `weights.json`, tensors by their names in a projector file of Qwen2.5-VL, and pictures
`N.png`. Writes `N.json`: the rows of embeddings. Prints one line and exits with 3 if transformers 5 is
missing.
"""

import json
import pathlib
import sys

try:
    import torch
    from PIL import Image
    from transformers.models.qwen2_5_vl.configuration_qwen2_5_vl import (
        Qwen2_5_VLVisionConfig,
    )
    from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import (
        Qwen2_5_VisionTransformerPretrainedModel,
    )
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import (
        Qwen2VLImageProcessorPil,
    )
except ImportError as error:
    print(f"transformers 5 with PyTorch and Pillow: {error}")
    sys.exit(3)

PATCH = 4
MERGE = 2
# The names of the layers in transformers.
OF_LAYER = {
    "ln1": "norm1",
    "ln2": "norm2",
    "attn_out": "attn.proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def tensor(stored: dict) -> torch.Tensor:
    """A tensor, whose last extent is the first one of GGUF."""
    return torch.tensor(stored["numbers"]).reshape(stored["shape"][::-1])


def state(weights: dict) -> dict:
    """The weights by the names of transformers."""
    tensors = {name: tensor(stored) for name, stored in weights.items()}
    frames = [tensors.pop("v.patch_embd.weight"), tensors.pop("v.patch_embd.weight.1")]
    named = {
        "patch_embed.proj.weight": torch.stack(frames, dim=2),
        "merger.ln_q.weight": tensors.pop("v.post_ln.weight"),
    }
    for part in ("weight", "bias"):
        named[f"merger.mlp.0.{part}"] = tensors.pop(f"mm.0.{part}")
        named[f"merger.mlp.2.{part}"] = tensors.pop(f"mm.2.{part}")
    inputs = {}
    for name, value in tensors.items():
        _, _, layer, kind, part = name.split(".")
        if kind in OF_LAYER:
            named[f"blocks.{layer}.{OF_LAYER[kind]}.{part}"] = value
        else:
            inputs.setdefault(f"blocks.{layer}.attn.qkv.{part}", {})[kind] = value
    for name, parts in inputs.items():
        named[name] = torch.cat(
            [parts[kind] for kind in ("attn_q", "attn_k", "attn_v")]
        )
    return named


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    given = json.loads((folder / "weights.json").read_text())
    weights = state(given["tensors"])
    width = given["width"]
    encoder = Qwen2_5_VisionTransformerPretrainedModel(
        Qwen2_5_VLVisionConfig(
            depth=given["layers"],
            hidden_size=width,
            hidden_act="silu",
            intermediate_size=given["inner"],
            num_heads=given["heads"],
            patch_size=PATCH,
            spatial_merge_size=MERGE,
            temporal_patch_size=2,
            window_size=given["window"],
            out_hidden_size=given["embedding"],
            fullatt_block_indexes=given["full_layers"],
        )
    ).eval()
    encoder.load_state_dict(weights)
    processor = Qwen2VLImageProcessorPil(
        patch_size=PATCH,
        merge_size=MERGE,
        min_pixels=8 * (PATCH * MERGE) ** 2,
        max_pixels=4096 * (PATCH * MERGE) ** 2,
        image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
    )
    for path in sorted(folder.glob("*.png")):
        inputs = processor(Image.open(path).convert("RGB"), return_tensors="pt")
        with torch.no_grad():
            rows = encoder(
                inputs["pixel_values"], inputs["image_grid_thw"]
            ).pooler_output
        path.with_suffix(".json").write_text(json.dumps(rows.tolist()))


if __name__ == "__main__":
    main()
