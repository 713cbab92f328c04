import copy
import os
import pickle

import numpy as np
import pytest
from scipy import stats

from tasks.dpsgd.csprng import SystemKeystream, normal, uniform


class Words:
    """A keystream that repeats one word."""

    def __init__(self, word: int) -> None:
        self.word = word

    def words(self, count):
        return np.full(count, self.word, dtype=np.uint64)


@pytest.mark.parametrize("word", [0, 2**64 - 1, 2**63, 1])
def test_a_uniform_number_is_never_zero_or_one(word):
    value = uniform(Words(word), 1)[0]
    assert 0.0 < value < 1.0
    assert np.isfinite(normal(Words(word), 1)[0])


def test_the_extreme_words_give_the_extreme_and_symmetric_numbers():
    low, high = uniform(Words(0), 1)[0], uniform(Words(2**64 - 1), 1)[0]
    assert low == 2.0**-53
    assert high == 1 - 2.0**-53
    assert normal(Words(0), 1)[0] == pytest.approx(-normal(Words(2**64 - 1), 1)[0], rel=1e-12)


def test_a_keystream_cannot_be_pickled_or_copied():
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="keystream"):
            attempt(SystemKeystream())


def test_a_keystream_takes_no_seed_and_shows_no_key():
    with pytest.raises(TypeError):
        SystemKeystream(7)  # type: ignore[call-arg]
    assert repr(SystemKeystream()) == "SystemKeystream(...)"


def test_two_keystreams_and_two_reads_differ():
    first, second = SystemKeystream(), SystemKeystream()
    reads = [first.words(4), first.words(4), second.words(4)]
    assert len({read.tobytes() for read in reads}) == 3


def test_a_forked_child_does_not_replay_its_parent():
    keystream = SystemKeystream()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, keystream.words(4).tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 32) != keystream.words(4).tobytes()
    os.close(reader)
    os.close(writer)


def test_another_process_gets_another_key():
    keystream = SystemKeystream()
    cipher = keystream._encryptor
    keystream.words(1)
    assert keystream._encryptor is cipher
    keystream._process = -1
    keystream.words(1)
    assert keystream._encryptor is not cipher


def test_a_known_key_gives_the_published_aes_keystream():
    # NIST SP 800-38A, F.5.5: CTR-AES256, first block of the keystream (output block)
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    keystream = SystemKeystream()
    key = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
    counter = bytes.fromhex("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff")
    keystream._encryptor = Cipher(algorithms.AES256(key), modes.CTR(counter)).encryptor()
    assert keystream.words(2).tobytes().hex() == "0bdf7df1591716335e9a8b15c860c502"


@pytest.mark.statistical
@pytest.mark.parametrize(("power", "passes"), [(1.0, True), (1.04, False)])
def test_uniform_numbers_are_uniform(power, passes):
    # Kolmogorov-Smirnov on 200,000 numbers; the true law is rejected with probability 1e-6
    numbers = uniform(SystemKeystream(), 200_000) ** power
    assert (stats.kstest(numbers, "uniform").pvalue > 1e-6) == passes


@pytest.mark.statistical
@pytest.mark.parametrize(("scale", "passes"), [(1.0, True), (0.95, False), (1.05, False)])
def test_normal_numbers_are_standard_normal(scale, passes):
    # Kolmogorov-Smirnov on 200,000 numbers; the true law is rejected with probability 1e-6
    numbers = scale * normal(SystemKeystream(), 200_000)
    assert (stats.kstest(numbers, "norm").pvalue > 1e-6) == passes


@pytest.mark.statistical
def test_consecutive_normal_numbers_are_uncorrelated():
    # the mean of 199,999 products of neighbours has standard error 1/√n; |z| > 5 has probability 6e-7
    numbers = normal(SystemKeystream(), 200_000)
    assert abs((numbers[1:] * numbers[:-1]).mean()) * 199_999**0.5 < 5
