"""Any image becomes 8-bit RGB, or an error that names the file."""

import numpy as np
import pytest
import small_sources as sources
from PIL import Image

from dpexp.data import DataError, ImageFile, Split
from dpexp.data.pixels import decode, leave_out_undecodable


def pixels(content: bytes) -> np.ndarray:
    image = decode(ImageFile(name="x", content=content))
    assert image.mode == "RGB"
    return np.asarray(image)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])
@pytest.mark.parametrize("size", [(12, 9), (1, 1)])
def test_every_png_mode_becomes_rgb(mode, size):
    image = sources.noise_image("L" if mode == "I;16" else mode, size)
    image = Image.fromarray(np.asarray(image).astype(np.uint16) * 257) if mode == "I;16" else image
    assert pixels(sources.encoded(image)).shape == (size[1], size[0], 3)


def test_cmyk_jpeg_becomes_rgb():
    assert pixels(sources.encoded(sources.noise_image("CMYK"), "JPEG")).shape == (9, 12, 3)


def test_sixteen_bits_are_scaled_not_cut_off():
    grey = np.array([[0, 257, 32896, 65535]], dtype=np.uint16)
    assert pixels(sources.encoded(Image.fromarray(grey)))[0, :, 0].tolist() == [0, 1, 128, 255]


def test_a_palette_with_transparency_gives_its_colours():
    image = sources.noise_image("P")
    shown = np.asarray(image.convert("RGB"))
    np.testing.assert_array_equal(pixels(sources.encoded(image, transparency=bytes([0, 128, 255]))), shown)


def test_exif_rotation_is_applied():
    image = sources.noise_image(size=(12, 9))
    exif = Image.Exif()
    exif[0x0112] = 6  # shown upright after a quarter turn clockwise
    turned = pixels(sources.encoded(image, "PNG", exif=exif))
    np.testing.assert_array_equal(turned, np.rot90(np.asarray(image), -1))


@pytest.mark.parametrize("content", [b"", b"not an image", None], ids=["empty", "text", "cut JPEG"])
def test_a_damaged_image_is_named(content):
    jpeg = sources.encoded(sources.noise_image(size=(200, 200)), "JPEG")
    content = jpeg[: len(jpeg) // 2] if content is None else content
    with pytest.raises(DataError, match=r"photos/7.jpg: cannot be decoded.*on_bad_image=skip"):
        decode(ImageFile(name="photos/7.jpg", content=content))


def test_skipping_leaves_out_the_damaged_images_and_lists_them():
    good = sources.encoded(sources.noise_image())
    files = [ImageFile(name=str(i), content=b"?" if i in (1, 4) else good) for i in range(6)]
    kept, skipped = leave_out_undecodable(Split(samples=files, labels=np.arange(6)))
    assert kept.labels.tolist() == [0, 2, 3, 5]
    assert [f.name for f in kept.samples] == ["0", "2", "3", "5"]
    assert skipped == ("1", "4")
