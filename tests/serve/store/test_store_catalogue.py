"""Laws of a catalogue, whatever is done to it in whatever order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from weft.errors import ModelError
from weft.serve.store.catalogue import Catalogue, StoredFile, VersionRecord

ALIASES = ("production", "canary", "old")
VERSIONS = st.integers(1, 6)
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.lists(st.sampled_from(ALIASES), max_size=2)),
        st.tuples(st.just("tag"), VERSIONS, st.sampled_from(ALIASES)),
        st.tuples(st.just("untag"), st.sampled_from(ALIASES)),
        st.tuples(st.just("rm"), st.sets(VERSIONS, min_size=1, max_size=3)),
    ),
    max_size=25,
)


def record(number: int) -> VersionRecord:
    return VersionRecord(
        (StoredFile("model.onnx", f"{number:064x}", number),), "2026-01-01T00:00:00.000+00:00"
    )


@given(CHANGES)
def test_numbers_are_given_once_and_aliases_mean_versions_that_are_there(
    changes: list[tuple[object, ...]],
) -> None:
    catalogue = Catalogue("m")
    given_out: list[int] = []
    for change in changes:
        before = catalogue
        try:
            match change:
                case "push", list(aliases):
                    number = catalogue.next
                    catalogue = catalogue.pushed(record(number), aliases)
                    given_out.append(number)
                    assert catalogue.find("latest") == number
                    assert all(catalogue.find(alias) == number for alias in aliases)
                case "tag", int(version), str(alias):
                    catalogue = catalogue.tagged(version, alias)
                    assert catalogue.find(alias) == version
                case "untag", str(alias):
                    catalogue = catalogue.untagged(alias)
                    assert alias not in catalogue.aliases
                case "rm", set(versions):
                    catalogue = catalogue.removed(versions)
                    assert not set(versions) & set(catalogue.versions)
        except ModelError:
            assert catalogue == before
        assert set(catalogue.aliases.values()) <= set(catalogue.versions)
        assert all(catalogue.versions[number] == record(number) for number in catalogue.versions)
        assert Catalogue.from_text("m", catalogue.to_text()) == catalogue
    assert given_out == sorted(set(given_out))


def test_the_checksum_of_several_files_covers_all_of_them() -> None:
    one, two = StoredFile("model.onnx", "a" * 64, 1), StoredFile("w.data", "b" * 64, 2)
    assert VersionRecord((one,), "").sha256 == one.sha256
    both = VersionRecord((one, two), "")
    assert both.sha256 != VersionRecord((one, StoredFile("w.data", "c" * 64, 2)), "").sha256
    assert both.size == 3
