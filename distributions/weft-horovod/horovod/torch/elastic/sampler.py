"""The elastic sampler, under the name of its own module."""

from weft.compat.horovod.elastic.sampler import ElasticSampler

__all__ = ["ElasticSampler"]
