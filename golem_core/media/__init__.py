"""Pictures and sound on their way to a model: decoding, fitting, resampling, spectra.

Whatever is wrong with what a client sent is a ``MediaError`` of one line: nothing here crashes,
hangs or takes memory beyond its bounds on any bytes. Pillow, soundfile and soxr do the decoding;
they come with the extra ``media`` and are imported only when there is something to decode.
"""

from golem_core.media.errors import MediaError, MissingPackage
from golem_core.media.picture import check_pixels, decode_picture, fit, fitted_size, picture_of
from golem_core.media.sound import RATE, check_seconds, decode_sound, sound_of
from golem_core.media.spectrum import Mel

__all__ = [
    "RATE",
    "MediaError",
    "Mel",
    "MissingPackage",
    "check_pixels",
    "check_seconds",
    "decode_picture",
    "decode_sound",
    "fit",
    "fitted_size",
    "picture_of",
    "sound_of",
]
