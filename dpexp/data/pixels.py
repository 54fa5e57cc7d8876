"""Any image file -> upright 8-bit RGB."""

import io
import warnings

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from dpexp.data.splits import DataError, ImageFile, Split

SIXTEEN_BIT = ("I;16", "I;16B", "I;16L", "I;16N", "I", "F")
ALPHA = ("P", "PA", "LA", "La", "RGBA", "RGBa")


def _eight_bit(image: Image.Image) -> Image.Image:
    """A 16-bit (or wider) grey image scaled to 8 bits; Pillow's own conversion would cut off at 255."""
    values = np.asarray(image, dtype=np.float64)
    top = 65535.0 if values.max(initial=0.0) > 255 else 255.0
    return Image.fromarray(np.round(np.clip(values, 0, top) * (255 / top)).astype(np.uint8))


def to_rgb(image: Image.Image) -> Image.Image:
    """An image of any mode as upright RGB: EXIF rotation applied, 16 bits scaled to 8, transparency dropped."""
    image = ImageOps.exif_transpose(image)
    if image.mode in SIXTEEN_BIT:
        image = _eight_bit(image)
    if image.mode in ALPHA:  # by way of RGBA: palettes may hold transparency as bytes
        image = image.convert("RGBA")
    return image if image.mode == "RGB" else image.convert("RGB")


def decode(file: ImageFile) -> Image.Image:
    """The image as RGB.

    Raises: DataError that names the file, for anything that is not a complete image.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns about odd metadata of files that it reads well
            with Image.open(io.BytesIO(file.read())) as image:
                return to_rgb(image)
    except (OSError, UnidentifiedImageError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(
            f"{file.name}: cannot be decoded as an image ({error}); replace it, or leave such images out with "
            "dataset.on_bad_image=skip"
        ) from error


def leave_out_undecodable(split: Split) -> tuple[Split, tuple[str, ...]]:
    """The split without the images that cannot be decoded, and their names."""
    bad: dict[int, str] = {}
    for row, sample in enumerate(split.samples):
        if isinstance(sample, ImageFile):
            try:
                decode(sample)
            except DataError:
                bad[row] = sample.name
    if not bad:
        return split, ()
    kept = np.array([row for row in range(len(split)) if row not in bad], dtype=np.int64)
    return split.take(kept), tuple(bad.values())
