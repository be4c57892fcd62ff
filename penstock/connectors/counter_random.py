"""Randomness without state: number i of stream k is a hash of (seed, k, i).

A stateful generator would have to be wound forward to a range's start; a hash of the counter gives any record at once,
whatever was read before it, which is what replay needs. The mixing function is SplitMix64's finalizer. Every function
exists twice, over arrays and over Python ints, and both give the same numbers: integer arithmetic only.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

IndexArray: TypeAlias = npt.NDArray[np.uint64]

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB


def mix(value: int) -> int:
    """SplitMix64's finalizer: a bijection of 64-bit ints in which every input bit moves every output bit."""
    value &= _MASK
    value = ((value ^ (value >> 30)) * _MIX_1) & _MASK
    value = ((value ^ (value >> 27)) * _MIX_2) & _MASK
    return value ^ (value >> 31)


def stream_key(seed: int, stream: int) -> int:
    """The key of one independent stream of numbers."""
    return mix(mix(seed + _GOLDEN) + stream * _GOLDEN)


def random_u64(seed: int, stream: int, index: IndexArray) -> IndexArray:
    """One 64-bit number for each index."""
    value = index * np.uint64(_GOLDEN)
    value += np.uint64(stream_key(seed, stream))
    value ^= value >> np.uint64(30)
    value *= np.uint64(_MIX_1)
    value ^= value >> np.uint64(27)
    value *= np.uint64(_MIX_2)
    value ^= value >> np.uint64(31)
    return value


def random_u64_at(seed: int, stream: int, index: int) -> int:
    """`random_u64` for one index."""
    return mix(index * _GOLDEN + stream_key(seed, stream))


def below(seed: int, stream: int, index: IndexArray, bound: int) -> IndexArray:
    """Uniform over 0..bound-1; bound is at most 2**32."""
    value = random_u64(seed, stream, index)
    value >>= np.uint64(32)
    value *= np.uint64(bound)
    value >>= np.uint64(32)
    return value


def below_at(seed: int, stream: int, index: int, bound: int) -> int:
    """`below` for one index."""
    return ((random_u64_at(seed, stream, index) >> 32) * bound) >> 32
