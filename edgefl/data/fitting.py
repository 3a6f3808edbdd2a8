"""Convert images of one data set so that they fit a model for another data set."""

from __future__ import annotations

import numpy as np

from edgefl.errors import UserError

LUMA = np.array([0.299, 0.587, 0.114])  # grey from red, green, blue: ITU-R BT.601
BLOCK = 1024


def fitted(pictures: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Return ``pictures`` (n, channels, height, width) with the channels and size of ``like``.

    Colours become grey by their brightness; grey becomes three equal channels. Sizes change by
    averaging areas. UserError if they are not images, or have another type or other numbers of
    channels.
    """
    if pictures.ndim != 4 or like.ndim != 4 or pictures.dtype != like.dtype:
        raise UserError(
            f'unlabelled.transform: "fit" is for pictures of one type, found {pictures.dtype}'
            f" {pictures.shape} for {like.dtype} {like.shape}"
        )
    channels, height, width = like.shape[1:]
    if {pictures.shape[1], channels} - {1, 3} and pictures.shape[1] != channels:
        raise UserError(
            'unlabelled.transform: "fit" knows pictures of 1 or 3 channels, found'
            f" {pictures.shape[1]} for {channels}"
        )
    out = np.empty((len(pictures), channels, height, width), like.dtype)
    down, across = _areas(pictures.shape[2], height), _areas(pictures.shape[3], width)
    for start in range(0, len(pictures), BLOCK):
        block = _with_channels(pictures[start : start + BLOCK].astype(np.float64), channels)
        block = down @ block @ across.T
        out[start : start + BLOCK] = (
            np.rint(block) if np.issubdtype(like.dtype, np.integer) else block
        )
    return out


def _with_channels(block: np.ndarray, channels: int) -> np.ndarray:
    if block.shape[1] == 3 and channels == 1:
        return np.tensordot(block, LUMA, axes=(1, 0))[:, None]
    return np.repeat(block, channels, axis=1) if block.shape[1] == 1 else block


def _areas(size: int, wanted: int) -> np.ndarray:
    """Return (wanted, size): the share of each old pixel in each new one."""
    length = size / wanted
    begins, old = np.arange(wanted)[:, None] * length, np.arange(size)[None, :]
    shared = np.minimum(begins + length, old + 1) - np.maximum(begins, old)
    shared = np.clip(shared, 0.0, None)
    return shared / shared.sum(axis=1, keepdims=True)
