"""Random numbers that nobody can replay: an AES-256-CTR keystream under a key from the operating system.

Sampling and noise each hold a keystream of their own. There is no seed, no state to save and no way to pickle
or copy one: two runs with the same noise would reveal, by subtraction, what differs between their records.
Tests inject another `Keystream`; the product has only this one.
"""

import os
from typing import NoReturn, Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray
from scipy.special import ndtri

_KEY_BYTES = 32
_NONCE_BYTES = 16
_BLOCK_BYTES = 16
_HALF_STEP = 2.0**-53


class Keystream(Protocol):
    """A source of independent uniform 64-bit words."""

    def words(self, count: int) -> NDArray[np.uint64]:
        """The next `count` words, shape [count]."""
        ...


class SystemKeystream:
    """AES-256 in counter mode, keyed once from `os.urandom`, and again in a forked child."""

    __slots__ = ("_encryptor", "_process")

    def __init__(self) -> None:
        self._rekey()

    def _rekey(self) -> None:
        key, nonce = os.urandom(_KEY_BYTES), os.urandom(_NONCE_BYTES)
        self._encryptor = Cipher(algorithms.AES256(key), modes.CTR(nonce)).encryptor()
        self._process = os.getpid()

    def words(self, count: int) -> NDArray[np.uint64]:
        """The next `count` words, shape [count]."""
        if os.getpid() != self._process:  # a forked child would replay its parent's noise
            self._rekey()
        size = 8 * count
        buffer = bytearray(size + _BLOCK_BYTES - 1)
        self._encryptor.update_into(bytes(size), buffer)
        return np.frombuffer(buffer, dtype=np.uint64, count=count)

    def __repr__(self) -> str:
        return "SystemKeystream(...)"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a keystream cannot be pickled or copied: whoever replays it can subtract the noise")


def uniform(keystream: Keystream, count: int) -> NDArray[np.float64]:
    """Uniform numbers in the open interval (0, 1), shape [count].

    Odd multiples of 2⁻⁵³: 52 random bits, symmetric around one half, and neither 0 nor 1 after rounding.
    """
    bits = keystream.words(count) >> np.uint64(12)
    return (2.0 * bits.astype(np.float64) + 1.0) * _HALF_STEP


def normal(keystream: Keystream, count: int) -> NDArray[np.float64]:
    """Standard normal numbers in float64, shape [count], by inversion of the distribution function.

    The tails end at ±8.2, beyond which the normal law has mass 2⁻⁵², far below any delta in use.
    """
    return ndtri(uniform(keystream, count))
