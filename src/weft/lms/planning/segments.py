"""Segments of a step: runs of sites that are rebuilt from the ones that stay between them, as checkpointing does. Pure.

Checkpointing a model block by block keeps the inputs of blocks and makes the rest again, one block at a time. Here the
blocks are found in the recording: a step is cut where the fewest bytes cross, that is, where little of what was saved
before the cut is needed to rebuild what was saved after it. The sites that are needed across a cut are anchors: they
stay, so no chain of recipes is longer than a segment. Repeated blocks, skips, and an encoder whose output all of a
decoder reads are all found that way, and nothing has to be marked.
"""

from __future__ import annotations

from itertools import accumulate

import numpy as np

from weft.lms.planning.recording import Recording, SavedSite


def anchors(recording: Recording, most: int) -> frozenset[int]:
    """Return the sites that must stay so that what is rebuilt between two cuts is at most `most` bytes, where that can
    be; of all ways to cut, one with the fewest bytes of such sites.
    """
    if not recording.sites:
        return frozenset()
    segment_of = _segments(recording, most)
    crossing = {
        need
        for index, site in enumerate(recording.sites)
        if site.recipe_s is not None
        for need in site.needs
        if segment_of[need] < segment_of[index]
    }
    return frozenset(index for index in crossing if recording.sites[index].recipe_s is not None)


def fitting_anchors(recording: Recording, limit: int) -> frozenset[int] | None:
    """Return the sites that must stay so that, with all else rebuilt segment by segment, the backward pass is thought
    to stay under `limit` bytes: of all ways to cut that do, one with the fewest bytes of such sites. None where no way
    is thought to.

    Segments are as large as fits. Few sites stay while the first segments are rebuilt, so these may be the largest:
    blocks of any size are found that way.
    """
    sites = recording.sites
    count = len(sites)
    rebuilt = np.array([site.recipe_s is not None for site in sites], dtype=bool)
    sizes = np.array([site.bytes for site in sites], dtype=np.int64)
    last = np.array(_last_rebuilt(recording))
    other = np.array([_most_besides(recording, site) for site in sites], dtype=np.int64)
    weights = np.concatenate(([0], np.cumsum(sizes)))
    staying = np.concatenate(([0], np.cumsum(np.where(rebuilt, 0, sizes))))
    # By place: the fewest bytes of anchors before it, and where the segment that ends there begins.
    # `anchored` below has the anchors' bytes in the segment from each place to the end looked at.
    cost = np.full(count + 1, np.inf)
    cost[0], begins = 0.0, [0] * (count + 1)
    for end in range(1, count + 1):
        made_again = rebuilt[:end] & (last[:end] < end)
        anchored = np.cumsum(np.where(rebuilt[:end] & ~made_again, sizes[:end], 0)[::-1])[::-1]
        # What stays at the end of a segment was used, and has gone, when the rest of it is made again.
        places = np.flatnonzero(made_again)
        there = int(places[-1]) + 1 if len(places) else 0
        most_besides = np.maximum.accumulate(other[:end][::-1])[::-1]
        inside = np.maximum(0, weights[there] - weights[:end])
        level = cost[:end] + staying[:end] + inside + most_besides
        found = np.where(level <= limit, cost[:end] + anchored, np.inf)
        begins[end] = int(np.argmin(found))
        cost[end] = found[begins[end]]
    if cost[count] == np.inf:
        return None
    end, found_sites = count, set[int]()
    while end > 0:
        begin = begins[end]
        found_sites |= {index for index in range(begin, end) if rebuilt[index] and last[index] >= end}
        end = begin
    return frozenset(found_sites)


def _most_besides(recording: Recording, site: SavedSite) -> int:
    """Return the most bytes besides saved ones while a site that is made again is there."""
    if not site.uses:
        return 0
    return max(recording.other[site.uses[0] : site.last + 2])


def _last_rebuilt(recording: Recording) -> list[int]:
    """Return for each site the last one that is rebuilt from it, or itself."""
    last = list(range(len(recording.sites)))
    for index, site in enumerate(recording.sites):
        if site.recipe_s is not None:
            for need in site.needs:
                last[need] = max(last[need], index)
    return last


def _segments(recording: Recording, most: int) -> list[int]:
    """Return the number of the segment of each site."""
    sites = recording.sites
    count = len(sites)
    crossing = _crossing_bytes(recording)
    weights = [0, *accumulate(site.bytes if site.recipe_s is not None else 0 for site in sites)]
    # The cheapest way to cut all before a place, and where its last segment begins.
    cost = [0.0] * (count + 1)
    begins = [0] * (count + 1)
    cuts = [place for place in range(count) if _is_valley(crossing, place)]
    for position, end in enumerate((*cuts[1:], count)):
        best, chosen = float("inf"), 0
        for nearest in range(position, -1, -1):
            begin = cuts[nearest]
            if best < float("inf") and weights[end] - weights[begin] > most:
                break
            price = cost[begin] + crossing[begin]
            if price < best:
                best, chosen = price, begin
        cost[end], begins[end] = best, chosen
    found = [0] * count
    bounds, place = [], count
    while place > 0:
        place = begins[place]
        bounds.append(place)
    for number, begin in enumerate(sorted(bounds)):
        for index in range(begin, count):
            found[index] = number
    return found


def _crossing_bytes(recording: Recording) -> list[int]:
    """Return for each place the bytes of sites saved before it that recipes of sites from it on work on. Sites without
    a recipe stay anyway, and cost nothing.
    """
    sites = recording.sites
    last = _last_rebuilt(recording)
    change = [0] * (len(sites) + 1)
    for index, site in enumerate(sites):
        if site.recipe_s is not None and last[index] > index:
            change[index + 1] += site.bytes
            change[last[index] + 1] -= site.bytes
    return list(accumulate(change))[: len(sites)]


def _is_valley(crossing: list[int], place: int) -> bool:
    """Return whether no fewer bytes cross at the neighbouring places; the beginning is always one."""
    before = crossing[place - 1] if place else 0
    after = crossing[place + 1] if place + 1 < len(crossing) else 1 << 62
    return place == 0 or (crossing[place] <= before and crossing[place] <= after)
