"""Tables of a library: data sets, files, labels, versions and tasks. The same ones on SQLite and on PostgreSQL."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)
_NUMBER = BigInteger().with_variant(Integer, "sqlite")


def _dataset_id(primary_key: bool = False) -> Column[str]:
    home = ForeignKey("vision_dataset.id", ondelete="CASCADE")
    return Column("dataset_id", String(32), home, nullable=False, primary_key=primary_key)


def _file_number() -> Column[int]:
    return Column(
        "file_number", _NUMBER, ForeignKey("vision_file.number", ondelete="CASCADE"), primary_key=True
    )


schema = Table(
    "vision_schema", metadata, Column("number", Integer, primary_key=True)
)  # steps that were taken
dataset = Table(
    "vision_dataset",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("name", String(64), nullable=False),
    Column("owner", String(100), nullable=False),  # the name of a user; empty: of whoever has the folder
    Column("description", Text, nullable=False),
    Column("shares", Text, nullable=False),  # JSON: names of users; "*": everybody
    Column("cover", String(32)),
    Column("next_version", Integer, nullable=False),  # numbers are given once and never again
    Column("created_ms", BigInteger, nullable=False),
    Column("updated_ms", BigInteger, nullable=False),
    UniqueConstraint("owner", "name"),
)
label = Table(
    "vision_label",
    metadata,
    _dataset_id(primary_key=True),
    Column("kind", String(10), primary_key=True),  # label, category
    Column("name", String(64), primary_key=True),
    Column("colour", String(7), nullable=False),
    Column("position", Integer, nullable=False),
)
file = Table(
    "vision_file",
    metadata,
    Column("number", _NUMBER, primary_key=True, autoincrement=True),  # the order of import
    Column("id", String(32), nullable=False, unique=True),
    _dataset_id(),
    Column("name", Text, nullable=False),
    Column("kind", String(10), nullable=False),  # picture, film, frame
    Column("media", String(10), nullable=False),  # JPEG, PNG, ... or a film's ending
    Column("sha256", String(64), nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("width", Integer, nullable=False),  # of the upright picture
    Column("height", Integer, nullable=False),
    Column("split", String(10), nullable=False),
    Column("category", String(64)),
    Column("category_confidence", Float),
    Column("state", String(12), nullable=False),  # unlabelled, labelled, auto
    Column("review", String(10), nullable=False),
    Column("confidence", Float),  # the lowest of what models made
    Column("shapes", Text, nullable=False),  # JSON: weft.vision.formats.documents
    Column("revision", Integer, nullable=False),
    Column("parent", String(32)),  # the film of a frame
    Column("time_s", Float),
    Column("duration_s", Float),
    Column("frames_per_s", Float),
    Column("likeness", BigInteger),  # weft.vision.pictures.likeness; none: not looked at yet
    Column("origin", String(64)),  # of an import: goes on where it was interrupted
    Column("added_ms", BigInteger, nullable=False),
    Column("updated_ms", BigInteger, nullable=False),
    Column("updated_by", String(100), nullable=False),
    Index(None, "dataset_id", "number"),
    Index(None, "dataset_id", "name", "number"),
    Index(None, "dataset_id", "state", "number"),
    Index(None, "dataset_id", "category", "number"),
    Index(None, "dataset_id", "sha256"),
    Index(None, "parent"),
    UniqueConstraint("dataset_id", "origin"),
)
use = Table(  # labels of a file's shapes, counted
    "vision_use",
    metadata,
    _file_number(),
    Column("label", String(64), primary_key=True),
    Column("count", Integer, nullable=False),
    _dataset_id(),
    Index(None, "dataset_id", "label"),
)
fact = Table(  # metadata of users and from EXIF
    "vision_fact",
    metadata,
    _file_number(),
    Column("key", String(100), primary_key=True),
    Column("text", Text, nullable=False),
    Column("value", Float),  # of a text that is a number
    Column("given", Boolean, nullable=False),  # by a user
    Index(None, "key"),
)
version = Table(
    "vision_version",
    metadata,
    _dataset_id(primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("digest", String(64), nullable=False),
    Column("note", Text, nullable=False),
    Column("pictures", Integer, nullable=False),
    Column("shapes", Integer, nullable=False),
    Column("splits", Text, nullable=False),  # JSON
    Column("labels", Text, nullable=False),
    Column("categories", Text, nullable=False),
    Column("user_name", String(100), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
)
opinion = Table(  # where a model disagrees with people
    "vision_opinion",
    metadata,
    _file_number(),
    Column("model", String(200), nullable=False),
    Column("doubt", Float, nullable=False),  # 0: agrees, 1: disagrees in everything
    Column("text", Text, nullable=False),
    Column("revision", Integer, nullable=False),  # of the labels that it is about
)
setting = Table(  # what clients of other products keep with a data set: JSON by name
    "vision_setting",
    metadata,
    _dataset_id(primary_key=True),
    Column("name", String(40), primary_key=True),
    Column("text", Text, nullable=False),
)
action = Table(  # what happens in a film, from a moment to another
    "vision_action",
    metadata,
    Column("id", String(32), primary_key=True),
    _dataset_id(),
    Column("file_number", _NUMBER, ForeignKey("vision_file.number", ondelete="CASCADE"), nullable=False),
    Column("label", String(64), nullable=False),
    Column("start_s", Float, nullable=False),
    Column("end_s", Float, nullable=False),
    Column("confidence", Float),  # of the model that made it; none: a person did
    Column("model", String(200)),
    Column("created_ms", BigInteger, nullable=False),
    Index(None, "dataset_id", "label"),
    Index(None, "file_number"),
)
task = Table(
    "vision_task",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("dataset_id", String(32), nullable=False),
    Column("kind", String(20), nullable=False),
    Column("state", String(10), nullable=False),
    Column("done", Integer, nullable=False),
    Column("total", Integer, nullable=False),
    Column("message", Text, nullable=False),
    Column("problems", Text, nullable=False),  # JSON
    Column("result", Text, nullable=False),  # JSON
    Column("request", Text, nullable=False),  # JSON: what was asked for, to begin again
    Column("owner", String(100), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("updated_ms", BigInteger, nullable=False),
    Index(None, "dataset_id", "created_ms"),
    Index(None, "state"),
)
