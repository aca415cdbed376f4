"""Checkpoints without processes: what each member writes, what counts on disk, and who reads it."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from weft.elastic.checkpoint import dcp, layout
from weft.elastic.checkpoint.cadence import FIRST_STEPS, MOST_STEPS, Cadence
from weft.elastic.checkpoint.saver import REFUSED, TORN, RefusedError, Saver
from weft.elastic.checkpoint.snapshot import PIECE_BYTES, Snapshot, cut, rows_of
from weft.elastic.data.shares import MemberSummary
from weft.elastic.membership.view import Member, View
from weft.elastic.replica import state
from weft.elastic.worker.link import FixedLink
from weft.elastic.worker.messages import CheckpointSaved, FromWorker, WorkerHealed
from weft.errors import UsageError

DATA = {"length": 100, "batch": 16, "micro": 4, "seed": 0}


# -- shares ---------------------------------------------------------------------------------------


@given(
    st.lists(st.lists(st.integers(0, 40), max_size=3), min_size=1, max_size=12),
    st.integers(1, 7),
)
def test_every_row_is_in_one_piece_of_one_part(shapes: list[list[int]], count: int) -> None:
    tensors = [torch.empty(shape, dtype=torch.float64) for shape in shapes]
    seen = [torch.zeros(tensor.shape[0] if tensor.ndim else 1) for tensor in tensors]
    shares = cut(tensors, count)
    assert len(shares) == count
    for share in shares:
        for piece in share:
            assert rows_of(tensors[piece.tensor], piece).nbytes > 0
            seen[piece.tensor][piece.start : piece.stop] += 1
    for tensor, times in zip(tensors, seen, strict=True):
        assert times.tolist() == [float(tensor.nbytes > 0)] * len(times)


def test_parts_are_of_equal_size_and_pieces_are_small() -> None:
    tensors = [torch.empty(9_000_000), torch.empty(()), torch.empty(1000, 1000)]
    total = sum(tensor.nbytes for tensor in tensors)
    for share in cut(tensors, 4):
        sizes = [rows_of(tensors[piece.tensor], piece).nbytes for piece in share]
        assert max(sizes) <= PIECE_BYTES
        assert abs(sum(sizes) - total / 4) < 8192


def test_a_snapshot_is_a_copy_and_its_memory_is_used_again() -> None:
    tensors = [torch.arange(10.0), torch.tensor(3, dtype=torch.int64), torch.ones(3, 2, dtype=torch.bool)]
    share = cut(tensors, 1)[0]
    snapshot = Snapshot()
    first = snapshot.take(tensors, share)
    tensors[0].zero_()
    assert first[0].tolist() == list(range(10))
    assert [copy.dtype for copy in first] == [tensor.dtype for tensor in tensors]
    assert [copy.shape for copy in first] == [tensor.shape for tensor in tensors]
    places = [copy.data_ptr() for copy in first]
    again = snapshot.take(tensors, share)
    assert [copy.data_ptr() for copy in again] == places
    assert again[0].tolist() == [0.0] * 10
    assert all(copy.untyped_storage().nbytes() == copy.nbytes for copy in again)  # else writers copy them
    (less,) = snapshot.take(tensors, share[:1])  # there are more members now
    assert less.data_ptr() == places[0]


# -- on disk --------------------------------------------------------------------------------------


@pytest.fixture(scope="module", autouse=True)
def torch_has_its_settings() -> None:
    """Torch leaves variables in the environment when an optimizer is first used."""
    state.load(state.image_of(objects()), objects())


def objects(width: int = 6) -> dict[str, Any]:
    model = nn.Sequential(nn.Linear(4, width), nn.BatchNorm1d(width), nn.Linear(width, 1)).bfloat16()
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 4, dtype=torch.bfloat16)).sum().backward()
    optimizer.step()
    return {"model": model, "optimizer": optimizer}


def save(
    directory: Path,
    image: state.StateImage,
    step: int,
    count: int,
    only: Sequence[int] = (),
    attempt: str = "a",
) -> None:
    for index in only or range(count):
        share = cut(image.tensors, count)[index]
        copies = [rows_of(image.tensors[piece.tensor], piece).clone() for piece in share]

        def fill(
            folder: Path, share: Any = share, copies: list[Tensor] = copies, first: bool = index == 0
        ) -> None:
            dcp.write(folder, image, share, copies, with_rest=first)

        about = {"step": step, "epoch": 0, "start": 0, "attempt": attempt}
        whole = layout.add_part(directory, about, index, count, fill)
        if whole is not None:
            dcp.join(whole)


def same(left: state.StateImage, right: state.StateImage) -> bool:
    return all(torch.equal(a, b) for a, b in zip(left.tensors, right.tensors, strict=True))


@pytest.mark.parametrize("count", [1, 3])
def test_what_is_written_in_parts_is_read_as_one(tmp_path: Path, count: int) -> None:
    written, other = objects(), objects()
    image = state.image_of(written, {"position": (7, 0, 112)})
    save(tmp_path, image, 7, count)
    (found,) = layout.find(tmp_path)
    assert (found.step, len(found.parts)) == (7, count)
    read = dcp.read(found)
    assert same(read, image)
    assert state.load(read, other) == {"position": (7, 0, 112)}
    assert same(state.image_of(other), state.image_of(written))


def test_torchs_own_tools_can_read_it(tmp_path: Path) -> None:
    from torch.distributed.checkpoint.state_dict_loader import load

    written, other = objects(), objects()
    save(tmp_path, state.image_of(written), 7, 2)
    wanted = {"model": other["model"].state_dict()}
    with pytest.warns(UserWarning, match="single process"):
        load(wanted, checkpoint_id=tmp_path / "step-00000007", no_dist=True)
    for name, value in written["model"].state_dict().items():
        assert torch.equal(value, wanted["model"][name])


def test_a_checkpoint_counts_when_all_parts_of_one_attempt_are_there(tmp_path: Path) -> None:
    image = state.image_of(objects())
    save(tmp_path, image, 5, 2)
    save(tmp_path, image, 9, 3, only=[0, 2], attempt="a")
    assert [saved.step for saved in layout.find(tmp_path)] == [5]
    save(tmp_path, image, 9, 3, only=[1], attempt="b")
    assert [saved.step for saved in layout.find(tmp_path)] == [5]
    save(tmp_path, image, 9, 3, only=[0, 2], attempt="b")  # instead of those that came to nothing
    assert [saved.step for saved in layout.find(tmp_path)] == [9, 5]
    assert same(dcp.read(layout.find(tmp_path)[0]), image)


def test_a_part_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "data").write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        layout.add_part(tmp_path, {"step": 1, "attempt": "a"}, 0, 1, fail)
    assert list((tmp_path / "step-00000001").iterdir()) == []


@pytest.mark.parametrize("name", ["__0_0.distcp", ".metadata", "part.json"])
@pytest.mark.parametrize("how", ["changed", "cut", "gone"])
def test_a_torn_checkpoint_is_found_out(tmp_path: Path, name: str, how: str) -> None:
    save(tmp_path, state.image_of(objects()), 3, 2)
    harm(tmp_path / "step-00000003" / "part-1-of-2" / name, how)
    (found,) = layout.find(tmp_path)
    with pytest.raises(layout.TornError):
        dcp.read(found)


def harm(path: Path, how: str = "changed") -> None:
    data = bytearray(path.read_bytes())
    if how == "gone":
        path.unlink()
        return
    data[len(data) // 2] ^= 1
    path.write_bytes(data[: len(data) // 2] if how == "cut" else data)


def test_the_last_ones_are_kept_and_what_never_became_whole_goes(tmp_path: Path) -> None:
    image = state.image_of(objects())
    for step in (1, 2, 3, 5):
        save(tmp_path, image, step, 1)
    save(tmp_path, image, 4, 2, only=[0])
    save(tmp_path, image, 6, 2, only=[0])  # perhaps under way
    (tmp_path / "notes.txt").touch()
    layout.sweep(tmp_path, 5, keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "notes.txt",
        "step-00000003",
        "step-00000005",
        "step-00000006",
    ]


def test_files_of_others_in_old_checkpoints_stay(tmp_path: Path) -> None:
    image = state.image_of(objects())
    for step in (1, 2, 3):
        save(tmp_path, image, step, 1)
    (tmp_path / "step-00000001" / "notes.txt").write_text("the good one")
    (tmp_path / "step-00000000").mkdir()
    (tmp_path / "step-00000000" / "model.safetensors").write_text("of another program")
    layout.sweep(tmp_path, 3, keep=1)
    found = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert [path for path in found if "step-00000003" not in path] == [
        "step-00000000/model.safetensors",
        "step-00000001/notes.txt",
    ]


def test_a_disk_is_known_by_what_the_first_one_left_on_it(tmp_path: Path) -> None:
    assert layout.disk_of(tmp_path / "a", "run") == layout.disk_of(tmp_path / "a", "run")
    assert layout.disk_of(tmp_path / "a", "run") != layout.disk_of(tmp_path / "b", "run")
    assert layout.disk_of(tmp_path / "a", "run") != layout.disk_of(tmp_path / "a", "next")


# -- members --------------------------------------------------------------------------------------


class Told(FixedLink):
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.news: list[FromWorker] = []

    def tell(self, news: FromWorker) -> None:
        self.news.append(news)


class Crew:
    """Members of one view, without groups: their cards and votes are handed round here."""

    def __init__(
        self, *folders: Path, every: int | None = 1, data: dict[str, Any] = DATA, width: int = 6
    ) -> None:
        self.data, self.objects = data, objects(width)
        self.links = [Told() for _ in folders]
        self.savers = [Saver(link, "secret") for link in self.links]
        self.committed = [0] * len(folders)
        for saver, folder in zip(self.savers, folders, strict=True):
            saver.configure(folder, every)
        self.view = View(
            1, tuple(Member(f"h{i}/0.0", f"h{i}", f"h{i}", 0, "", 0, 0) for i in range(len(folders))), ()
        )

    def meet(self, stays: bool = False) -> list[MemberSummary]:
        cards = [saver.card(self.objects, self.data, stays=stays) for saver in self.savers]
        for saver in self.savers:
            saver.meet(cards)
        return [
            MemberSummary(committed=committed, saved=card[1], stays=stays)
            for card, committed in zip(cards, self.committed, strict=True)
        ]

    def resume(self) -> tuple[list[int], list[state.StateImage]]:
        """Who reads, one after the other, and what came of it."""
        summaries = self.meet()
        ranks: list[int] = []
        images: list[state.StateImage] = []
        while True:
            (rank,) = {saver.reader(self.view, summaries) for saver in self.savers}
            if rank is None:
                return ranks, images
            ranks.append(rank)
            image = self.savers[rank].read(self.view)
            if image is not None:
                images.append(image)
                self.committed[rank] = state.load(image, self.objects)["position"][0]
            summaries = self.meet()

    def step(self, number: int) -> None:
        votes = [saver.vote(number, rank) for rank, saver in enumerate(self.savers)]
        for rank, saver in enumerate(self.savers):
            saver.voted(sum(vote[0] for vote in votes), sum(vote[1] for vote in votes))
            saver.committed(self.view, rank, (number, 0, number), lambda: self.image(number))

    def image(self, number: int) -> state.StateImage:
        return state.image_of(self.objects, {"position": (number, 0, number)}, on_host=False)

    def rest(self) -> None:
        for saver in self.savers:
            while saver._writes():
                time.sleep(0.001)


def saved_steps(folder: Path) -> list[int]:
    return [saved.step for saved in layout.find(folder)]


def test_members_that_share_a_disk_share_the_work(tmp_path: Path) -> None:
    crew = Crew(*[tmp_path] * 3)
    crew.meet()
    for step in (1, 2, 3):
        crew.step(step)
        crew.rest()
    assert saved_steps(tmp_path) == [3, 2]
    assert len(layout.find(tmp_path)[0].parts) == 3
    for link in crew.links:
        saved = [news for news in link.news if isinstance(news, CheckpointSaved)]
        assert [news.step for news in saved] == [1, 2, 3]
        assert all(news.bytes > 0 for news in saved)
        assert all(0 < news.blocking_s < 1 and news.seconds > 0 for news in saved)
    assert "skipped" not in crew.links[0].news[0].fields()


def test_hosts_without_a_shared_disk_have_a_whole_one_each(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    crew = Crew(a, a, b)
    crew.meet()
    crew.step(1)
    crew.rest()
    assert [len(layout.find(folder)[0].parts) for folder in (a, b)] == [2, 1]
    assert same(dcp.read(layout.find(a)[0]), dcp.read(layout.find(b)[0]))


def test_none_saves_while_one_still_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crew = Crew(tmp_path, tmp_path)
    crew.meet()
    monkeypatch.setattr(crew.savers[1], "_writes", lambda: True)
    crew.step(1)
    crew.step(2)
    monkeypatch.undo()
    crew.step(3)
    crew.rest()
    assert saved_steps(tmp_path) == [3]
    assert [news.fields()["skipped"] for link in crew.links for news in link.news] == [2, 2]


def test_the_script_of_any_member_can_ask(tmp_path: Path) -> None:
    crew = Crew(tmp_path, tmp_path, every=1000)
    crew.meet()
    crew.step(1)
    crew.savers[1].asked = True
    crew.step(2)
    crew.rest()
    crew.step(3)
    assert saved_steps(tmp_path) == [2]


def test_how_often_follows_from_what_one_costs(tmp_path: Path) -> None:
    crew = Crew(tmp_path, every=None)
    crew.meet()
    (saver,) = crew.savers
    for step in range(1, FIRST_STEPS + 2):
        crew.step(step)
    crew.rest()
    assert saved_steps(tmp_path) == [FIRST_STEPS]
    assert saver.cadence.cost_s is not None


@pytest.mark.parametrize(("cost_s", "steps"), [(0.024, 20), (0.0001, 1), (1e6, MOST_STEPS)])
def test_a_cost_of_one_percent_of_the_time(cost_s: float, steps: int) -> None:
    cadence = Cadence()
    for number in range(10):
        cadence.note_commit(0.125 * number)
    cadence.note_commit(100.0)  # an evaluation
    cadence.last, cadence.cost_s = 10, cost_s
    assert not cadence.due(10 + steps - 1)
    assert cadence.due(10 + steps)


def test_the_end_is_saved_too(tmp_path: Path) -> None:
    crew = Crew(tmp_path, every=1000)
    crew.meet()
    crew.step(1)
    crew.savers[0].close(crew.view, 0, (1, 1, 0), lambda: crew.image(1))
    assert saved_steps(tmp_path) == [1]
    crew.savers[0].close(crew.view, 0, (1, 1, 0), lambda: crew.image(1))  # it is there
    assert len(crew.links[0].news) == 1


def test_a_disk_that_fails_does_not_end_the_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    crew = Crew(tmp_path)
    crew.meet()
    (tmp_path / "step-00000001").touch()
    crew.step(1)
    crew.rest()
    assert "weft: step 1 could not be saved" in capfd.readouterr().err
    crew.step(2)
    crew.rest()
    assert saved_steps(tmp_path) == [2]


def test_without_a_folder_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEFT_CHECKPOINT", raising=False)
    saver = Saver(Told(), "secret")
    saver.configure(None, None)
    assert saver.card({}, {}, stays=False) == [0, -1]
    assert saver.vote(1, 0) == (0.0, 0.0)


def test_flags_hold_where_the_script_says_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WEFT_CHECKPOINT", str(tmp_path / "flag"))
    monkeypatch.setenv("WEFT_CHECKPOINT_EVERY", "5")
    saver = Saver(Told(), "secret")
    saver.configure(None, None)
    assert (saver.directory, saver.cadence.every) == (tmp_path / "flag", 5)
    saver.configure(tmp_path, 7)
    assert (saver.directory, saver.cadence.every) == (tmp_path, 7)
    with pytest.raises(UsageError, match="at least 1 step apart, got 0"):
        saver.configure(tmp_path, 0)


# -- resuming -------------------------------------------------------------------------------------


def run_to(step: int, *folders: Path) -> Crew:
    crew = Crew(*folders)
    crew.meet()
    for number in range(1, step + 1):
        crew.step(number)
        crew.rest()
    return crew


def test_one_reads_the_newest_that_anyone_has(tmp_path: Path) -> None:
    run_to(2, tmp_path / "a")
    run_to(4, tmp_path / "b", tmp_path / "b")
    crew = Crew(tmp_path / "a", tmp_path / "b", tmp_path / "b", tmp_path / "c")
    ranks, (image,) = crew.resume()
    assert ranks == [1]
    assert crew.committed == [0, 4, 0, 0]
    assert [type(news) for news in crew.links[1].news] == [WorkerHealed]
    assert state.load(image, crew.objects)["position"] == (4, 0, 4)
    crew.committed = [4] * 4
    crew.step(5)  # on three disks
    crew.rest()
    assert {folder: saved_steps(tmp_path / folder) for folder in "abc"} == {
        "a": [5, 2],
        "b": [5, 4],
        "c": [5],
    }


def test_a_newcomer_among_members_reads_nothing(tmp_path: Path) -> None:
    run_to(3, tmp_path)
    crew = Crew(tmp_path, tmp_path)
    summaries = [MemberSummary(committed=1, stays=True), MemberSummary(saved=3)]
    crew.meet()
    assert [saver.reader(crew.view, summaries) for saver in crew.savers] == [None, None]


def test_what_is_in_memory_counts_if_it_is_newer(tmp_path: Path) -> None:
    run_to(3, tmp_path)
    crew = Crew(tmp_path, tmp_path)
    crew.committed = [0, 8]  # cut off from members that are lost
    assert crew.resume() == ([], [])


@pytest.mark.parametrize("name", ["__0_0.distcp", "part.json"])
def test_a_torn_one_is_left_for_the_one_before(
    tmp_path: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    run_to(3, tmp_path, tmp_path)
    harm(tmp_path / "step-00000003" / "part-1-of-2" / name)
    crew = Crew(*[tmp_path] * 3)
    ranks, images = crew.resume()
    assert len(images) == 1
    assert max(crew.committed) == 2
    assert len(ranks) <= 3
    told = capfd.readouterr().err
    assert told.count("weft:") == 1  # by the one that read it
    assert "taking the checkpoint before it" in told


def test_a_torn_one_is_read_elsewhere_if_it_is_whole_there(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    run_to(3, a, b)
    harm(a / "step-00000003" / "part-0-of-1" / "__0_0.distcp")
    crew = Crew(a, a, b)
    crew.resume()
    assert crew.committed == [0, 0, 3]


def test_a_reader_that_is_lost_is_followed_by_another(tmp_path: Path) -> None:
    run_to(3, tmp_path)
    crew = Crew(*[tmp_path] * 3)
    summaries = crew.meet()
    assert [saver.reader(crew.view, summaries) for saver in crew.savers] == [0, 0, 0]
    crew.savers, crew.links, crew.committed = crew.savers[1:], crew.links[1:], [0, 0]
    crew.view = View(2, crew.view.members[1:], ())
    ranks, images = crew.resume()
    assert (ranks, len(images), crew.committed) == ([0], 1, [3, 0])


@pytest.mark.parametrize("name", ["__0_0.distcp", "part.json"])
def test_with_none_that_is_whole_nobody_begins(tmp_path: Path, name: str) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    run_to(2, a)
    for step in (1, 2):
        harm(a / f"step-0000000{step}" / "part-0-of-1" / name)
    before = sorted(a.rglob("*"))
    crew = Crew(a)
    with pytest.raises(
        RefusedError, match="must be whole, got step-00000002, step-00000001, torn; bring back"
    ):
        crew.resume()
    assert [saver.card(crew.objects, DATA, stays=False)[1] for saver in crew.savers] == [TORN]
    other = Crew(a, b)
    other.savers[0]._torn.update((1, 2))
    summaries = other.meet()
    with pytest.raises(RefusedError, match="one checkpoint on h0 must be whole, got torn ones; bring back"):
        other.savers[1].reader(other.view, summaries)
    assert sorted(a.rglob("*")) == before


def test_one_that_never_became_whole_is_none_and_the_run_begins_anew(tmp_path: Path) -> None:
    save(tmp_path, state.image_of(objects()), 4, 2, only=[0])
    assert Crew(tmp_path).resume() == ([], [])


def test_a_checkpoint_of_another_format_is_refused(tmp_path: Path) -> None:
    save(tmp_path, state.image_of(objects()), 4, 1)  # its manifest lacks what ours have
    crew = Crew(tmp_path)
    with pytest.raises(
        RefusedError, match=r"got .*step-00000004 without data, objects, schema; use the weft it was"
    ):
        crew.resume()


def test_objects_that_do_not_take_the_state_are_refused(tmp_path: Path) -> None:
    run_to(2, tmp_path)
    crew = Crew(tmp_path)
    assert crew.savers[0].reader(crew.view, crew.meet()) == 0
    got = r"the state of step 2 in .*, got RuntimeError\('size mismatch'\)"
    with pytest.raises(RefusedError, match=got), crew.savers[0].refusing():
        raise RuntimeError("size mismatch")


def test_a_folder_that_is_a_checkpoint_itself_is_refused(tmp_path: Path) -> None:
    run_to(1, tmp_path / "ours")
    (tmp_path / "torchs").mkdir()
    (tmp_path / "torchs" / ".metadata").touch()
    for folder in (tmp_path / "ours" / "step-00000001", tmp_path / "torchs"):
        with pytest.raises(
            UsageError, match=r"must be a folder of checkpoints, got one of them .* name the folder above"
        ):
            Crew(folder).meet()


def test_another_model_or_other_data_is_refused_by_all(tmp_path: Path) -> None:
    run_to(2, tmp_path / "a")
    before = sorted((tmp_path / "a").rglob("*"))
    for crew, message in [
        (Crew(tmp_path / "a", tmp_path / "b", width=7), "got other names or shapes of tensors"),
        (
            Crew(tmp_path / "a", tmp_path / "b", data={**DATA, "length": 90, "seed": 3}),
            "got length 90 where it has 100, seed 3 where it has 0; use the same data",
        ),
    ]:
        summaries = crew.meet()
        assert [summary.saved for summary in summaries] == [REFUSED, -1]
        with pytest.raises(UsageError, match=message):
            crew.savers[0].reader(crew.view, summaries)
        with pytest.raises(UsageError, match="must be of this script, got another on h0"):
            crew.savers[1].reader(crew.view, summaries)
    assert sorted((tmp_path / "a").rglob("*")) == before
    other = Crew(tmp_path / "a")
    other.objects["scheduler"] = torch.optim.lr_scheduler.StepLR(other.objects["optimizer"], 1)
    with pytest.raises(UsageError, match=r"scheduler \(StepLR\) where it has model"):
        other.savers[0].reader(other.view, other.meet())


def test_another_number_of_members_may_cut_a_batch_in_other_pieces(tmp_path: Path) -> None:
    run_to(2, tmp_path)
    assert Crew(tmp_path, data={**DATA, "micro": 8}).resume()[0] == [0]


def test_a_folder_that_can_not_be_written_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="--checkpoint must be a folder that can be written"):
        Crew(tmp_path / "file").meet()


def test_a_manifest_tells_what_is_in_it(tmp_path: Path) -> None:
    run_to(1, tmp_path)
    manifest = json.loads((tmp_path / "step-00000001" / "part-0-of-1" / "part.json").read_text())
    wanted = {"step", "epoch", "start", "schema", "data", "part", "parts", "files", "checksum", "run", "weft"}
    assert wanted <= manifest.keys()
