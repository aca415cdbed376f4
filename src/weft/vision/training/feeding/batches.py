"""Batches for training and evaluation: pictures are kept decoded where they fit, on the device where there is one.

A set that fits is decoded once and kept as one array; a larger one is decoded anew for each batch, from shards or at
reduced size from its files, by threads that run ahead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from weft.vision.config.schema import VisionConfig
from weft.vision.pictures.rules import picture_rules
from weft.vision.records import LabelledPicture
from weft.vision.training.feeding.affines import (
    colour_maps,
    fit_for,
    fit_scales,
    plain_maps,
    random_maps,
    scaled_source,
)
from weft.vision.training.feeding.decoding import (
    decode_bytes,
    decode_picture,
    has_opencv,
    stored_pictures,
    thread_count,
)
from weft.vision.training.feeding.shards import Shards, open_shards, wants_shards
from weft.vision.training.feeding.targets import BoxTargets, PictureObjects, box_targets
from weft.vision.training.feeding.warping import (
    colour_batch,
    cut_picture,
    erase_batch,
    warp_batch,
    warp_picture,
)

Array = np.ndarray[Any, Any]
KEPT_BYTES = 2 << 30  # of decoded pictures in main memory; more are decoded anew each time
KEPT_DEVICE_SHARE = 0.25  # of a device's free memory
MOST_STRETCHED = 2  # times a side of the input that pictures are kept with, before the margin
MARGIN = 1.15  # decoded pictures are larger than the input by this much, for crops


@dataclass(frozen=True)
class PictureBatch:
    """Pictures as the model takes them, and what is to be found in them."""

    pixels: Tensor  # n x 3 x height x width, 0..255
    classes: Tensor | None
    objects: BoxTargets | None
    maps: Array  # n x 2 x 3: from the input to the original picture
    indices: Array


class PictureSet:
    """Pictures of one or more splits, with their labels as numbers."""

    def __init__(
        self,
        sizes: Array,
        *,
        pixels: Array | None = None,
        pictures: Sequence[LabelledPicture] = (),
        classes: Array | None = None,
        objects: Sequence[PictureObjects] | None = None,
    ) -> None:
        self.sizes, self.pictures = sizes.astype(float), tuple(pictures)
        self.classes, self.objects = classes, objects
        self._pixels = pixels  # n x height x width x 3, in main memory
        self._resident: Tensor | None = None  # n x 3 x height x width, on a device
        self._labels: Tensor | None = None
        self._rows: Tensor | None = None  # n x 3 x height x width, as a server fits them into the input
        self._row_maps: Array | None = None  # n x 2 x 3, of the rows
        self._shards: Shards | None = None

    def __len__(self) -> int:
        return len(self.sizes)

    def keep(self, config: VisionConfig, device: torch.device) -> None:
        """Decode the pictures once for training and keep them, if there is room, on the device if it has room.

        Where there is no room, or the configuration says so, they are read from shards instead.
        """
        if self._pixels is None:
            size = kept_size(self.sizes, config)
            fits = len(self) * size[0] * size[1] * 3 <= KEPT_BYTES
            if wants_shards(config, self.sizes, fits=fits):
                self._shards = open_shards(self.pictures, self.sizes, config)
            if self._shards is not None or not fits:
                return
            self._pixels = stored_pictures(self.pictures, size, config.threads)
        # OpenCV is quicker on a CPU.
        if _has_room(device, self._pixels.nbytes) if device.type == "cuda" else not has_opencv():
            self._resident = torch.from_numpy(self._pixels).to(device).permute(0, 3, 1, 2).contiguous()
        if self.classes is not None:
            self._labels = torch.from_numpy(self.classes).to(device)

    def keep_rows(self, config: VisionConfig, device: torch.device) -> None:
        """Fit the pictures into the input once, for evaluations, and keep them, if there is room."""
        size_bytes = 3 * len(self) * config.sides[0] * config.sides[1]
        if not has_opencv():
            self.keep(config, device)
        if size_bytes > KEPT_BYTES or not has_opencv():
            return
        with decoding_pool(config) as pool:
            rows, self._row_maps = self._fitted(np.arange(len(self)), config, pool)
        on_device = device.type == "cuda" and _has_room(device, size_bytes)
        self._rows = rows.to(device) if on_device else rows
        if self.classes is not None:
            self._labels = torch.from_numpy(self.classes).to(device)

    @property
    def stored(self) -> bool:
        """Return whether every picture is kept decoded."""
        return self._pixels is not None

    @property
    def shards(self) -> Shards | None:
        """The files that training pictures are read from, where they are not their own."""
        return self._shards

    @property
    def resident(self) -> Tensor | None:
        """The pictures on the device, if they are there."""
        return self._resident

    @property
    def ready(self) -> bool:
        """Return whether plain batches are at hand: nothing is to be decoded or scaled for them."""
        return self._rows is not None or self._resident is not None

    def some(self, places: Array) -> PictureSet:
        """Return a set of a few of the pictures, decoded anew or from what is kept."""
        few = PictureSet(
            self.sizes[places],
            pixels=None if self._pixels is None else self._pixels[places],
            pictures=[self.pictures[place] for place in places] if self.pictures else (),
            classes=None if self.classes is None else self.classes[places],
            objects=None if self.objects is None else [self.objects[place] for place in places],
        )
        if self._rows is not None and self._row_maps is not None:
            few._rows, few._row_maps = self._rows[torch.from_numpy(places)], self._row_maps[places]
        return few

    def training_batch(
        self,
        indices: Array,
        config: VisionConfig,
        out: tuple[int, int],
        generator: np.random.Generator,
        device: torch.device,
        epoch: int = 0,
        pool: ThreadPoolExecutor | None = None,
    ) -> PictureBatch:
        """Return augmented pictures of the given places in the set."""
        augment = config.augment
        flips = None
        if augment.alternate_flip:
            # A fixed half first, then in turns: two epochs in a row show both sides of every picture.
            flips = ((indices * 2654435761 >> 7) + epoch) % 2 == 1
        maps = random_maps(generator, self.sizes[indices], out, fit_for(config), augment, flips)
        colours = colour_maps(generator, len(indices), augment)
        straight = config.task == "classification"  # boxes would be half a pixel off
        pixels = self._warped(indices, maps, colours, out, config, device, pool, straight=straight)
        if augment.erase:
            side = int(augment.erase if augment.erase >= 1 else augment.erase * min(out))
            centres = generator.integers(0, [out[1], out[0]], (len(indices), 2))
            pixels = erase_batch(pixels, centres, side)
        return self._batch(indices, pixels, maps, out, config, device)

    def plain_batch(
        self,
        indices: Array,
        config: VisionConfig,
        device: torch.device,
        pool: ThreadPoolExecutor | None = None,
    ) -> PictureBatch:
        """Return pictures as a server shows them to the model, to the pixel."""
        if self._rows is not None and self._row_maps is not None:
            places = torch.from_numpy(indices).to(self._rows.device)
            pixels, maps = self._rows[places], self._row_maps[indices]
        elif self._resident is not None or not has_opencv():
            pixels, maps = self._nearly_fitted(indices, config, device, pool)
        else:
            pixels, maps = self._fitted(indices, config, pool)
        return self._batch(indices, pixels.to(device, non_blocking=True), maps, config.sides, config, device)

    def _fitted(
        self, indices: Array, config: VisionConfig, pool: ThreadPoolExecutor | None
    ) -> tuple[Tensor, Array]:
        """Return rows by the server's code, and their maps."""
        from weft.vision.pictures.fitting import fitted_row, picture_map

        rules = picture_rules(config)
        rows, maps = np.empty((len(indices), 3, *config.sides), np.uint8), np.empty((len(indices), 2, 3))

        def fill(place: int) -> None:
            index = int(indices[place])
            # Pictures that come from files are read from them: what is kept for training has other proportions.
            picture = self.pictures[index].path if self.pictures else self._array(index)
            row, geometry = fitted_row(picture, rules)
            rows[place], maps[place] = row[0], picture_map(geometry)

        list((pool.map if pool is not None else map)(fill, range(len(indices))))
        return torch.from_numpy(rows), maps

    def _array(self, index: int) -> Array:
        assert self._pixels is not None
        pixels: Array = self._pixels[index]
        return pixels

    def _nearly_fitted(
        self, indices: Array, config: VisionConfig, device: torch.device, pool: ThreadPoolExecutor | None
    ) -> tuple[Tensor, Array]:
        """Return rows from pictures on the device, or where OpenCV is missing; equal where nothing is scaled."""
        maps = plain_maps(self.sizes[indices], config.sides, fit_for(config), picture_rules(config).crop)
        return self._warped(indices, maps, None, config.sides, config, device, pool), maps

    def _batch(
        self,
        indices: Array,
        pixels: Tensor,
        maps: Array,
        out: tuple[int, int],
        config: VisionConfig,
        device: torch.device,
    ) -> PictureBatch:
        classes = objects = None
        if self.classes is not None:
            if self._labels is not None and self._labels.device == pixels.device:
                classes = self._labels[torch.from_numpy(indices).to(device)]
            else:
                classes = torch.from_numpy(self.classes[indices]).to(device)
        if self.objects is not None:
            chosen = [self.objects[index] for index in indices]
            objects = box_targets(chosen, maps, out, masks=config.task == "segmentation").to(device)
        return PictureBatch(pixels, classes, objects, maps, indices)

    def _warped(
        self,
        indices: Array,
        maps: Array,
        colours: Array | None,
        out: tuple[int, int],
        config: VisionConfig,
        device: torch.device,
        pool: ThreadPoolExecutor | None,
        *,
        straight: bool = False,
    ) -> Tensor:
        pad = fit_for(config) == "pad"
        sizes = self.sizes[indices]
        if self._resident is not None:
            stored = np.array([self._resident.shape[3], self._resident.shape[2]], float)
            chosen = self._resident[torch.from_numpy(indices).to(device)]
            source = torch.from_numpy(scaled_source(maps, sizes, stored[None]))
            return colour_batch(warp_batch(chosen, source, out, pad=pad), colours)
        rows = np.empty((len(indices), *out, 3), np.uint8)

        def fill(place: int) -> None:
            pixels = self._source(int(indices[place]), maps[place], out)
            stored = np.array([[pixels.shape[1], pixels.shape[0]]], float)
            source = scaled_source(maps[place : place + 1], sizes[place : place + 1], stored)[0]
            if not (straight and cut_picture(pixels, source, rows[place])):
                rows[place] = warp_picture(pixels, source, out, pad=pad)
            if colours is not None:
                rows[place] = _coloured(rows[place], colours[place])

        if pool is None:
            for place in range(len(indices)):
                fill(place)
        else:
            list(pool.map(fill, range(len(indices))))
        return torch.from_numpy(rows).permute(0, 3, 1, 2).to(device, non_blocking=True)

    def _source(self, index: int, matrix: Array, out: tuple[int, int]) -> Array:
        if self._pixels is not None:
            pixels: Array = self._pixels[index]
            return pixels
        # As many pixels as the map reads one by one: fewer would blur, more would only take time.
        width, height = self.sizes[index]
        (across, turn, _), (other, down, _) = matrix.tolist()
        step = abs(across * down - turn * other) ** 0.5
        least = int(height / step), int(width / step)
        kept = None if self._shards is None else self._shards.read(index)
        return decode_picture(self.pictures[index].path, least) if kept is None else decode_bytes(kept, least)


def kept_size(sizes: Array, config: VisionConfig) -> tuple[int, int]:
    """Return height and width at which pictures are kept for training; they are stretched to it.

    Nine of ten have at least the pixels that a server shows of them: a network that learned from blurred ones would
    see others when it is asked.
    """
    if fit_for(config) == "pad":
        wanted = np.array(config.sides[::-1], float)
    else:
        shown = sizes * fit_scales(sizes, config.sides, "crop")[:, None]
        limit = MOST_STRETCHED * np.array(config.sides[::-1])
        wanted = np.ceil(MARGIN * np.minimum(np.quantile(shown, 0.9, axis=0), limit))
    width, height = np.minimum(wanted, sizes.max(0)).astype(int)
    return int(height), int(width)


def _has_room(device: torch.device, size_bytes: int) -> bool:
    """Return whether a device has room for kept pictures beside a training."""
    free, _ = torch.cuda.mem_get_info(device)
    return bool(size_bytes < KEPT_DEVICE_SHARE * free)


def _coloured(row: Array, matrix: Array) -> Array:
    import cv2

    return np.asarray(cv2.transform(row, matrix))


def ahead(pool: ThreadPoolExecutor, makers: Iterator[Any], depth: int = 3) -> Iterator[Any]:
    """Yield what functions return, in order, with some of them called ahead of time by a pool."""
    waiting: list[Future[Any]] = []
    for maker in makers:
        waiting.append(pool.submit(maker))
        if len(waiting) > depth:
            yield waiting.pop(0).result()
    for future in waiting:
        yield future.result()


def decoding_pool(config: VisionConfig) -> ThreadPoolExecutor:
    """Return the threads that decode and warp pictures."""
    return ThreadPoolExecutor(thread_count(config.threads), thread_name_prefix="pictures")
