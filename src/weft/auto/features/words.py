"""Blocks of features from text: TF-IDF of known words, rarer ones hashed into buckets, topics, lengths.

A word is a run of letters, digits and underscores. It is counted under its small letters if it is written in small
letters, in capitals or with one capital: those spellings are listed in the exported graph, which has no other way to
fold letters that works in every locale.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from weft.auto.frames import RawTable
from weft.learn.onnx import OnnxGraph

Array = np.ndarray[Any, Any]

WORD = re.compile(r"[^\W]+", re.UNICODE)
EXPRESSION = r"[\p{L}\p{M}\p{N}_]+"  # the same in the words of the graph's tokenizer
MOST_WORDS = 2000  # the commonest, by the rows that have them
BUCKETS = 256  # for all other words, where there are more
LEAST_ROWS_OF_WORD = 3
PAD = "\x02"


def words_of(text: str) -> list[str]:
    return WORD.findall(text)


def folded(word: str) -> str:
    """Return the form under which a word is counted."""
    small = word.lower()
    return small if word in (small, word.upper(), small[:1].upper() + small[1:]) else word


def spellings(word: str) -> list[str]:
    """Return the spellings that are counted as a word."""
    found = (word, word.lower(), word.upper(), word[:1].upper() + word[1:])
    return [one for one in dict.fromkeys(found) if folded(one) == word]


@dataclass(frozen=True)
class WordWeights:
    """TF-IDF of a column's words; every row has length 1."""

    column: str
    vocabulary: tuple[str, ...]
    weights: Array  # inverse document frequencies of vocabulary and buckets
    buckets: int

    @classmethod
    def of(cls, column: str, texts: Array) -> WordWeights:
        """Return the weights of the words of training rows."""
        rows: Counter[str] = Counter()
        for text in texts:
            rows.update({folded(word) for word in words_of(text)})
        common = [(word, count) for word, count in rows.items() if count >= LEAST_ROWS_OF_WORD]
        common.sort(key=lambda item: (-item[1], item[0]))
        vocabulary = tuple(word for word, _ in common[:MOST_WORDS])
        buckets = BUCKETS if len(rows) > len(vocabulary) else 0
        plain = cls(column, vocabulary, np.ones(len(vocabulary) + buckets), buckets)
        seen = np.asarray((plain.counts(texts) > 0).sum(axis=0)).ravel()
        return cls(column, vocabulary, np.log((1 + len(texts)) / (1 + seen)) + 1, buckets)

    @property
    def names(self) -> tuple[str, ...]:
        hashed = (f"{self.column}: words {bucket}" for bucket in range(self.buckets))
        return (*(f"{self.column}: {word}" for word in self.vocabulary), *hashed)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {word: place for place, word in enumerate(self.vocabulary)}

    def counts(self, texts: Array) -> Any:
        """Return (rows, vocabulary and buckets) counts of words."""
        from sklearn.utils import murmurhash3_32

        starts, columns = [0], []
        for text in texts:
            for word in words_of(text):
                place = self._places.get(folded(word))
                if place is not None:
                    columns.append(place)
                elif self.buckets:
                    columns.append(len(self.vocabulary) + murmurhash3_32(word, positive=True) % self.buckets)
            starts.append(len(columns))
        data = np.ones(len(columns))
        shape = (len(texts), len(self.vocabulary) + self.buckets)
        made = sparse.csr_matrix((data, np.array(columns, np.int32), np.array(starts)), shape=shape)
        made.sum_duplicates()
        return made

    def transform(self, table: RawTable) -> Any:
        weighted = self.counts(table.values(self.column)).multiply(self.weights).tocsr()
        lengths = np.sqrt(np.asarray(weighted.multiply(weighted).sum(axis=1)).ravel())
        return sparse.diags(1 / np.where(lengths > 0, lengths, 1.0)).dot(weighted).tocsr()

    def onnx(self, graph: OnnxGraph, inputs: dict[str, str]) -> str:
        weighted = graph.add("Mul", self.onnx_counts(graph, inputs), graph.constant(self.weights))
        squares = graph.add(
            "ReduceSum", graph.add("Mul", weighted, weighted), graph.constant(np.array([1])), keepdims=1
        )
        length = graph.add("Sqrt", squares)
        some = graph.add("Greater", length, graph.constant(np.zeros(1)))
        return graph.add("Div", weighted, graph.add("Where", some, length, graph.constant(np.ones(1))))

    def onnx_counts(self, graph: OnnxGraph, inputs: dict[str, str]) -> str:
        """Add the counts of words: numbers of known words, and hashes of others, are counted like n-grams."""
        words = onnx_words(graph, inputs[self.column])
        listed = [(one, place) for word, place in self._places.items() for one in spellings(word)]
        place = graph.add(
            "LabelEncoder",
            words,
            domain="ai.onnx.ml",
            keys_strings=[one for one, _ in listed],
            values_int64s=[place for _, place in listed],
            default_int64=-1,
        )
        if self.buckets:
            place = self._with_buckets(graph, words, place)
        width = len(self.vocabulary) + self.buckets
        counted = graph.add(
            "TfIdfVectorizer",
            place,
            mode="TF",
            min_gram_length=1,
            max_gram_length=1,
            max_skip_count=0,
            ngram_counts=[0],
            ngram_indexes=list(range(width)),
            pool_int64s=list(range(width)),
        )
        return graph.cast(counted, np.float64)

    def _with_buckets(self, graph: OnnxGraph, words: str, place: str) -> str:
        hashed = graph.add("MurmurHash3", words, domain="com.microsoft", positive=1, seed=0)
        bucket = graph.add(
            "Mod", graph.cast(hashed, np.int64), graph.constant(np.array([self.buckets], np.int64))
        )
        bucket = graph.add("Add", bucket, graph.constant(np.array([len(self.vocabulary)], np.int64)))
        zero, none = graph.constant(np.zeros(1, np.int64)), graph.constant(np.array([-1], np.int64))
        other = graph.add("Where", onnx_pads(graph, words), none, bucket)
        return graph.add("Where", graph.add("Less", place, zero), other, place)


def onnx_words(graph: OnnxGraph, text: str) -> str:
    """Add the words of (batch, 1) texts: (batch, words), filled up with PAD."""
    flat = graph.add("Squeeze", text, graph.constant(np.array([1])))
    return graph.add(
        "Tokenizer", flat, domain="com.microsoft", mark=0, mincharnum=1, pad_value=PAD, tokenexp=EXPRESSION
    )


def onnx_pads(graph: OnnxGraph, words: str) -> str:
    """Add whether a word is PAD; comparing strings came with a later opset than `weft.learn` writes."""
    marked = graph.add(
        "LabelEncoder", words, domain="ai.onnx.ml", keys_strings=[PAD], values_int64s=[1], default_int64=0
    )
    return graph.cast(marked, np.bool_)


@dataclass(frozen=True)
class WordTopics:
    """Texts in a few numbers for trees: the directions in which their TF-IDF varies most, and the count of words."""

    words: WordWeights
    directions: Array  # (vocabulary and buckets, topics)

    @property
    def names(self) -> tuple[str, ...]:
        topics = (f"{self.words.column}: topic {i}" for i in range(self.directions.shape[1]))
        return (*topics, f"{self.words.column}: length")

    def transform(self, table: RawTable) -> Array:
        topics = self.words.transform(table) @ self.directions
        lengths = [[float(len(words_of(text)))] for text in table.values(self.words.column)]
        return np.hstack([topics, np.array(lengths).reshape(-1, 1)])

    def onnx(self, graph: OnnxGraph, inputs: dict[str, str]) -> str:
        topics = graph.add("MatMul", self.words.onnx(graph, inputs), graph.constant(self.directions))
        words = onnx_words(graph, inputs[self.words.column])
        there = graph.cast(graph.add("Not", onnx_pads(graph, words)), np.float64)
        length = graph.add("ReduceSum", there, graph.constant(np.array([1])), keepdims=1)
        return graph.add("Concat", topics, length, axis=1)
