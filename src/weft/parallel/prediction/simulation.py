"""The event simulation: plays the passes of one step in one way on a timeline. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from weft.parallel.prediction.cluster import ClusterFacts
from weft.parallel.prediction.costs import CollectiveCost, Operation, Scope, collective_cost
from weft.parallel.prediction.memory import swapped_bytes
from weft.parallel.prediction.step import LayerRecord, RecordedStep
from weft.parallel.prediction.timeline import NetworkTask, SharedCores, WorkerTimeline
from weft.parallel.prediction.way import Way


def play(step: RecordedStep, cluster: ClusterFacts, way: Way) -> WorkerTimeline:
    """Play one step; the timeline ends with the optimizer's."""
    return (_Sharded if way.shards else _Replicated)(step, cluster, way).play()


class _StepPlayer:
    """What both families share: the costs of collectives, and the order of passes."""

    def __init__(self, step: RecordedStep, cluster: ClusterFacts, way: Way) -> None:
        self.step, self.cluster, self.way = step, cluster, way
        self.time = WorkerTimeline()
        self.computing, self.copying = shared_cores(step, cluster)
        self.layers = step.layers
        self._costs: dict[tuple[Operation, float, Scope], CollectiveCost] = {}

    def play(self) -> WorkerTimeline:
        for number in range(self.step.passes):
            last = number == self.step.passes - 1
            self.forward(first=number == 0)
            self.backward(last=last, reduces=last or self.way.sync_every_pass)
        self.compute(self.step.other_s)
        self.finish()
        return self.time

    def forward(self, *, first: bool) -> None:
        raise NotImplementedError

    def backward(self, *, last: bool, reduces: bool) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        raise NotImplementedError

    def cost(self, operation: Operation, nbytes: float, scope: Scope = "world") -> CollectiveCost:
        key = (operation, nbytes, scope)
        if key not in self._costs:
            self._costs[key] = collective_cost(self.cluster, self.way, operation, nbytes, scope)
        return self._costs[key]

    def compute(self, seconds: float) -> None:
        self.time.compute(seconds, self.computing)

    def copy(self, nbytes: float, rate_bps: float) -> None:
        """Let the processor copy what it sends or has received, where it does that itself."""
        if rate_bps:
            self.time.work(nbytes / rate_bps, self.copying)


def shared_cores(step: RecordedStep, cluster: ClusterFacts) -> tuple[SharedCores, SharedCores]:
    """Return how a worker's cores are shared while bytes are moved: with computing as recorded, and with copies.

    What a worker only waits for, a device say, takes as long as ever.
    """
    cores = cluster.worker_cores or step.busy_cores + step.spare_cores
    moving = cluster.transport_cores
    if not step.busy_cores or not moving:
        return SharedCores(), SharedCores()
    copying = SharedCores.of(cores, min(1.0, cores), moving)
    whole = SharedCores.of(cores, min(cores, max(1.0, step.busy_cores)), moving)
    share = min(1.0, step.busy_cores / min(1.0, cores))  # of the time, that it does not only wait
    computing = 1 + share * (whole.computing - 1)
    # The network is held up by as much as is computed beside it.
    return SharedCores(computing, 1 / (1 - share * (1 - 1 / whole.network))), copying


class _Replicated(_StepPlayer):
    """DDP, ZeRO-1, and DDP with large model support."""

    def forward(self, *, first: bool) -> None:
        self.compute(self.step.forward_s)
        self.time.wait(self.time.now + self._late_s(self.step.forward_s))

    def backward(self, *, last: bool, reduces: bool) -> None:
        if self.cluster.world == 1 or not reduces or self.way.local_steps > 1:
            self.compute(self.step.backward_s)
            self.time.wait(self.time.now + self._late_s(self.step.backward_s))
            return
        computed_s = 0.0
        buckets = []
        for ready_s, nbytes in self._buckets():
            self.compute(ready_s - computed_s)
            computed_s = ready_s
            self.copy(nbytes, self.cluster.bucket_copy_bps)
            if self.way.overlap:
                self._reduce(nbytes)
            else:
                buckets.append(nbytes)
        self.compute(self.step.backward_s - computed_s)
        self.time.wait(self.time.now + self._late_s(self.step.backward_s))
        for nbytes in buckets:
            self._reduce(nbytes)
        self.time.wait(self.time.end)

    def _reduce(self, nbytes: int) -> None:
        self.time.exchange(self.cost("all_reduce", nbytes), self.time.now, overlap=self.way.overlap)

    def finish(self) -> None:
        world, step = self.cluster.world, self.step
        paged_s = 0.0
        if self.way.kind == "lms" and self.cluster.copy_bps:
            paged_s = 2 * swapped_bytes(step, self.cluster)[0] / self.cluster.copy_bps
        seconds = step.optimizer_s / (world if self.way.kind == "zero1" else 1)
        self.compute(seconds)
        self.time.wait(self.time.now + max(0.0, paged_s - seconds))
        if self.way.kind == "zero1" and world > 1:
            self.time.exchange(self.cost("all_gather", step.parameter_bytes), self.time.now, overlap=False)
            # Each worker gives its parameters to all in a collective of its own.
            self.time.wait(self.time.now + (world - 1) * self.cost("all_gather", 0).seconds)
        if self.way.local_steps > 1 and world > 1:
            whole = self.cost("all_reduce", step.parameter_bytes)
            share = CollectiveCost(
                *(
                    part / self.way.local_steps
                    for part in (whole.seconds, whole.card_bytes, whole.uplink_bytes)
                )
            )
            self.time.exchange(share, self.time.now, overlap=False)

    def _late_s(self, compute_s: float) -> float:
        """Return how much later a pass ends since activations are copied to or from main memory beside it."""
        if self.way.kind != "lms" or not self.cluster.copy_bps:
            return 0.0
        return max(0.0, swapped_bytes(self.step, self.cluster)[1] / self.cluster.copy_bps - compute_s)

    def _buckets(self) -> Iterator[tuple[float, int]]:
        """Yield when the gradients of each bucket are ready, from the start of the backward pass, and its bytes.

        Gradients come in the reverse order of the layers, those of a layer evenly while it computes. A bucket holds
        whole gradients, and is full once it has its size or more.
        """
        elapsed_s, filled = 0.0, 0
        for layer in reversed(self.layers):
            given = 0
            for nbytes in reversed(_tensors(layer, self.way.bucket_bytes)):
                given += nbytes
                filled += nbytes
                if filled >= self.way.bucket_bytes:
                    yield elapsed_s + layer.backward_s * given / layer.gradient_bytes, filled
                    filled = 0
            elapsed_s += layer.backward_s
        if filled:
            yield elapsed_s, filled


def _tensors(layer: LayerRecord, bucket_bytes: int) -> tuple[int, ...]:
    """Return the bytes of a layer's gradients; where they are not known, pieces that fill buckets."""
    if layer.tensor_bytes or not layer.gradient_bytes:
        return layer.tensor_bytes
    whole, rest = divmod(layer.gradient_bytes, bucket_bytes)
    return (rest,) * bool(rest) + (bucket_bytes,) * whole


class _Sharded(_StepPlayer):
    """FSDP2 in its forms: over all workers or within a host, resharded after forward or not."""

    def __init__(self, step: RecordedStep, cluster: ClusterFacts, way: Way) -> None:
        super().__init__(step, cluster, way)
        self.scope: Scope = "host" if way.kind == "hsdp" else "world"
        self.shards = cluster.workers_per_host if way.kind == "hsdp" else cluster.world

    def forward(self, *, first: bool) -> None:
        self._gathered_pass(
            range(len(self.layers)), gathers=first or self.way.kind != "zero2", forward=True, reduces=False
        )

    def backward(self, *, last: bool, reduces: bool) -> None:
        gathers = self.way.kind in ("fsdp", "hsdp")
        reduces = reduces or self.way.kind == "zero2"
        self._gathered_pass(
            reversed(range(len(self.layers))), gathers=gathers, forward=False, reduces=reduces
        )
        if reduces:
            self.time.wait(self.time.end)

    def _gathered_pass(
        self, order: Iterator[int] | range | reversed[int], *, gathers: bool, forward: bool, reduces: bool
    ) -> None:
        """Compute the layers in order, each once it is gathered; a few are gathered ahead."""
        layers = [self.layers[index] for index in order]
        overlap, ahead = self.way.overlap, self.way.prefetch if self.way.overlap else 0
        arrives: dict[int, NetworkTask] = {}

        def gather(index: int, after: float) -> None:
            if gathers and index < len(layers) and index not in arrives and self.shards > 1:
                cost = self.cost("all_gather", layers[index].parameter_bytes, self.scope)
                arrives[index] = self.time.exchange(cost, after, overlap=overlap)

        for index, layer in enumerate(layers):
            gather(index, self.time.now)
            if index in arrives:
                self.time.wait(arrives[index].ended)
                self.copy(layer.parameter_bytes, self.cluster.shard_copy_bps)
            self.time.work(self.cluster.shard_fixed_s, self.copying)
            for more in range(index + 1, index + 1 + ahead):
                gather(more, self.time.now)
            self.compute(layer.forward_s if forward else layer.backward_s)
            if reduces and layer.gradient_bytes:
                self.copy(layer.gradient_bytes, self.cluster.shard_copy_bps)
                self._reduce(layer.gradient_bytes)

    def _reduce(self, nbytes: int) -> None:
        overlap, ended = self.way.overlap, self.time.now
        if self.shards > 1:
            cost = self.cost("reduce_scatter", nbytes, self.scope)
            ended = self.time.exchange(cost, ended, overlap=overlap or self.scope == "host").ended
        if self.way.kind == "hsdp" and self.cluster.host_count > 1:
            self.time.exchange(self.cost("all_reduce", nbytes, "across"), ended, overlap=overlap)

    def finish(self) -> None:
        self.compute(self.step.optimizer_s_of(self.shards))
