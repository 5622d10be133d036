"""States as bytes: what is written is read bit by bit, and nothing else is read."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from combinators.errors import FormatError
from tapestry_jax.streaming.frozen.encoded import decode, encode
from tapestry_jax.streaming.frozen.state import Frozen, Position
from tests.tapestry_jax.streaming.frozen.hostile import HOSTILE, parts, signed

FLOATS = np.array([0.0, -0.0, np.nan, np.inf, 1e-40, -3.5])
ARRAYS = {
    "sum": FLOATS.astype("float32").reshape(2, 3),
    "fold/0 count": np.array(7),
    "empty": np.zeros((0, 5), "int16"),
    "flags": np.array([True, False, True]),
    "half": FLOATS.astype(ml_dtypes.bfloat16),
    "small": np.array([-8, 7, 3], ml_dtypes.int4),
    "complex": FLOATS.astype("complex64")[::2],
    "turned": np.arange(12, dtype="uint64").reshape(3, 4).T,
    "of other machines": np.arange(3, dtype=">i4"),
    "ünïcode": np.float64(2.5),
}
FROZEN = Frozen(
    {"graph": "a" * 64, "plan": "b" * 64},
    {"x": "x.npy 96 1700000000000000000"},
    {"y": "out/y.npy"},
    Position(2, 2**40, finished=False),
    ARRAYS,
)


def written(frozen: Frozen = FROZEN) -> bytes:
    return b"".join(encode(frozen))


def test_a_state_is_read_bit_by_bit():
    read = decode(bytearray(written()), "state-1")
    assert (read.job, read.sources, read.sinks, read.position) == (
        FROZEN.job,
        FROZEN.sources,
        FROZEN.sinks,
        FROZEN.position,
    )
    assert list(read.arrays) == list(ARRAYS)
    for name, array in ARRAYS.items():
        expected = np.asarray(array)
        got = read.arrays[name]
        assert (got.dtype, got.shape) == (expected.dtype.newbyteorder("="), expected.shape)
        assert got.tobytes() == expected.astype(got.dtype).tobytes(), name
        assert got.flags.aligned and got.flags.writeable
    assert written(read) == written()


def test_a_state_without_arrays_is_read():
    nothing = Frozen({}, {}, {}, Position(finished=True), {})
    assert decode(bytearray(written(nothing)), "state-1") == nothing


@pytest.mark.parametrize("dtype", ["object", "U3", "S3", "datetime64[s]", "i4,f4", "longdouble"])
def test_what_jax_has_no_numbers_for_is_not_kept(dtype: str):
    with pytest.raises(FormatError, match=r"holds numbers alone.\n  'odd' is of dtype"):
        encode(Frozen({}, {}, {}, Position(), {"odd": np.zeros(2, dtype)}))


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_states_are_refused(name: str):
    damage, told = HOSTILE[name]
    with pytest.raises(FormatError) as caught:
        decode(bytearray(damage(written())), "state-1")
    assert told in str(caught.value), str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_every_flipped_bit_and_every_cut_is_seen():
    data = written()
    random = np.random.default_rng(0)
    for at in {*range(32), *random.integers(0, len(data), 300).tolist()}:
        changed = bytearray(data)
        changed[at] ^= 1 << int(random.integers(8))
        with pytest.raises(FormatError):
            decode(changed, "state-1")
        with pytest.raises(FormatError):
            decode(bytearray(data[:at]), "state-1")


def test_states_that_were_signed_anew_are_read_as_data():
    header, body = parts(written())
    assert decode(bytearray(signed({**header, "job": {"graph": "other"}}, body)), "").job == {"graph": "other"}


def test_another_version_is_told():
    header, body = parts(written())
    with pytest.raises(FormatError) as caught:
        decode(bytearray(signed({**header, "version": 2, "more": []}, body)), "run/state-1")
    assert str(caught.value) == (
        "run/state-1 was written by another version of this library.\n"
        "  expected format 1\n"
        "  got format 2\n"
        "  Finish the job with the version that began it, or name another folder to begin anew."
    )
