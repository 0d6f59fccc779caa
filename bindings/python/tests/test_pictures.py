"""Pictures in messages, in every form that Python programs have them in."""

import base64
import pathlib

import pytest

import llb
from conftest import skip
from llb._media import with_media

# A PNG file with one red pixel.
RED = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
)


@pytest.fixture(scope="module")
def seeing(models):
    """Options of a chat that takes pictures."""
    folder = pathlib.Path(models("text")).parent / "pictures" / "mlp"
    if not folder.exists():
        skip(f"{folder} does not exist")
    path = str(folder / "model.gguf")
    return {"path": path, "projector": "auto", "tool_policy": "any", "n_ctx": 512, "n_threads": 1}


class Array:
    """An array with what NumPy's has."""

    dtype = "uint8"

    def __init__(self, shape, pixels):
        self.shape = shape
        self.pixels = pixels

    def tobytes(self):
        return bytes(self.pixels)


def ask(image):
    return [{"role": "user", "content": [image, {"type": "text", "text": "what is it"}]}]


def test_every_form_of_a_picture_is_the_same(seeing, tmp_path):
    path = tmp_path / "red.png"
    path.write_bytes(RED)
    data_url = "data:image/png;base64," + base64.b64encode(RED).decode()
    red = Array((1, 1, 3), [255, 0, 0])
    forms = [
        {"type": "image_url", "image_url": {"url": data_url}},
        {"type": "image", "url": data_url},
        {"type": "image", "path": str(path)},
        {"type": "image", "path": path},
        {"type": "image", "image": RED},
        {"type": "image", "image": bytearray(RED)},
        {"type": "image", "image": red},
        {"type": "image", "image": Array((1, 1, 4), [255, 0, 0, 9])},
    ]
    blue = {"type": "image", "image": Array((1, 1, 3), [0, 0, 255])}
    options = {"temperature": 0, "max_tokens": 12}
    with llb.Chat(**seeing) as chat:
        texts = [chat.create(ask(form), **options)["text"] for form in forms]
        assert len(set(texts)) == 1 and len(texts[0]) == 12
        assert chat.create(ask(blue), **options)["text"] != texts[0]
        # One of several rows and columns, and one of grey.
        rows = Array((2, 3, 3), range(18))
        for array in [rows, Array((2, 3), range(6)), Array((2, 3, 1), range(6))]:
            reply = chat.create(ask({"type": "image", "image": array}), **options)
            assert len(reply["text"]) == 12
    info = llb.model_info(seeing["path"])
    assert info["input_modalities"] == ["text", "image"]
    assert info["projector"].endswith("mmproj-model.gguf")
    with llb.Model(**seeing, n_parallel=1) as model:
        used = model.create(ask(forms[-1]), **options)["usage"]["prompt_tokens"]
        assert model.count_tokens(ask(forms[-1])) == used


def test_pictures_of_pillow_and_numpy(seeing):
    image = pytest.importorskip("PIL.Image")
    numpy = pytest.importorskip("numpy")
    red = image.new("RGB", (1, 1), (255, 0, 0))
    forms = [
        RED,
        red,
        red.convert("RGBA"),
        red.convert("P", palette=image.Palette.ADAPTIVE),
        numpy.asarray(red),
        numpy.full((1, 1, 3), (255, 0, 0), dtype=numpy.uint8)[::-1],
    ]
    with llb.Chat(**seeing) as chat:
        texts = [
            chat.create(ask({"type": "image", "image": form}), temperature=0, max_tokens=12)["text"]
            for form in forms
        ]
    assert len(set(texts)) == 1


@pytest.mark.parametrize(
    "part, message",
    [
        ({"type": "image"}, r"messages\[0\].content\[0\]: expected one of path, image and url"),
        ({"type": "image", "path": "a", "url": "b"}, "expected one of path, image and url"),
        ({"type": "image", "image": "a.png"}, 'name a file with {"type": "image", "path": ...}'),
        ({"type": "image", "image": 5}, r"messages\[0\].content\[0\].image: .*, found int"),
        ({"type": "image", "image": Array((1, 1, 2), [0, 0])}, "found Array"),
        ({"type": "image", "image": Array((0, 1, 3), [])}, "found Array"),
        ({"type": "image", "image": Array((1,), [0])}, "found Array"),
    ],
)
def test_what_is_no_picture(part, message):
    with pytest.raises(TypeError, match=message):
        with_media(ask(part))


def test_a_bad_picture_is_an_error_of_its_part(seeing, tmp_path):
    with llb.Chat(**seeing) as chat:
        with pytest.raises(llb.LlbError, match=r"messages\[0\].content\[0\].image_url.url: not a"):
            chat.create(ask({"type": "image", "image": b"hello"}))
        with pytest.raises(FileNotFoundError):
            chat.create(ask({"type": "image", "path": tmp_path / "none.png"}))


def test_other_messages_stay_as_they_are():
    messages = [{"role": "user", "content": [{"type": "text", "text": "a"}]}, {"role": "user"}]
    assert all(ours is given for ours, given in zip(with_media(messages), messages))
    assert with_media("x") == "x"
