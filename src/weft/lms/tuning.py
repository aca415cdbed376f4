"""The tuning numbers of large model support: one frozen object, with the unit and the reason of each number.

Nobody has to change them: `limit` is the one dial. They stand here together so that a reader can see what is measured,
what is guessed, and what bounds what. A `Budget` carries one `LmsTuning`; pure functions take one as their last
argument. Every number was chosen on an H200 and on the recordings of `tests/lms/recordings`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True, kw_only=True, slots=True)
class LmsTuning:
    """Numbers that decide what is moved, measured, tried and planned."""

    # The budget.
    auto_share: float = 0.95  # of free device memory is the budget that limit="auto" means
    plan_margin: float = 0.01  # of the budget is left out of plans, for bytes that no recording sees
    host_plan_share: float = 0.95  # of host memory is planned for: blocks leave gaps between them
    smallest_moved_bytes: int = (
        MIB  # smaller saved tensors stay: moving them takes longer than they are worth
    )
    smallest_moved_floor_bytes: int = KIB  # under a small budget smaller ones move, but none below this
    smallest_moved_shift: int = 14  # the budget's 2^-14 part is the smallest moved size under a small budget

    # Room in a step that no plan describes.
    operation_slack_bytes: int = 64 * MIB  # working memory of an operation that its shapes do not tell
    operation_slack_shift: int = 6  # but no more than the budget's 2^-6 part
    largest_tensors_spare: int = 4  # times the largest saved tensor is kept free for the next operation
    growth_margin_shift: int = 3  # one eighth is added to the largest growth seen between two events
    varied_margin_shift: int = 2  # one quarter is added to planned growth where sizes are not those planned
    varied_limit_shift: int = 5  # and the budget's 2^-5 part is left free by plans of such steps
    varied_changes: int = 3  # plans of one shape made again because sizes took more room than they left
    least_margin_shift: int = 10  # a margin below the budget's 2^-10 part that does not fit is given up
    pieced_loss_share: float = (
        0.5  # of the budget: a loss whose logits take more four times over is computed in pieces
    )
    loss_piece_shift: int = 6  # of which each takes the budget's 2^-6 part
    squeeze_shift: int = 5  # the budget's 2^-5 part is the most that one watched step adds to the margin
    close_shift: int = 4  # a level within the limit's 2^-4 part of it is close: there memory is looked at
    watched_steps: int = (
        3  # steps of a new plan in which memory is looked at where it comes close to the limit
    )
    ceiling_shift: int = 9  # the budget's 2^-9 part stays free when a planned step is watched
    recipe_trial_shift: int = 2  # a quarter of a tensor is left free on top when its recipe is tried
    headroom_share: int = 4  # one part in 4 of the budget bounds the headroom taken from earlier recordings
    spare_share: int = 2  # one part in 2 of the budget bounds the headroom taken after running out of memory
    first_spare_share: int = 8  # one part in 8 of the budget is that headroom after the first time
    out_of_memory_margin_share: int = (
        20  # one part in 20 of the budget is added to the margin of a failing plan
    )

    # Recording and timing.
    memory_recordings: int = 1  # planned steps of a shape in which memory is measured again, with times
    time_recordings: int = 1  # planned steps after those in which times alone are measured
    compared_steps: int = 3  # planned steps after those whose whole time is compared with the plan's
    quiet_steps: int = 8  # of so many steps that fit without a plan, the peak of one is looked at
    launch_ahead: float = (
        0.3  # of a timed step is launched before the device starts it: launching must not be timed
    )
    alike_recipes_timed: int = (
        2  # of recipes that do the same work this many are timed, the others take their time
    )
    places_looked_at: int = 16  # of a plan, for a tensor that is not the one expected next
    most_strangers: int = 64  # tensors in a row without a place in the plan before the step is another one
    max_recipe_nesting: int = 12  # recipes within recipes that are looked for when a tensor is saved
    max_replayed_operations: int = 64  # that are repeated to make one tensor again

    # Plans made again.
    faster_than_planned: float = (
        0.97  # a step below this share of its planned compute has its times scaled down
    )
    most_speed_up: float = 0.5  # times are never scaled below this share at once
    stall_tolerance: float = 0.02  # of a step, waited more than planned: then the link is taken to be slower
    link_derating: float = 0.9  # factor on the link's rate each time copies came late
    launch_tolerance: float = 0.1  # of a step, longer than its work and waits: then launching holds it up
    launch_bound_share: float = 0.6  # of a step must be launching for that to hold it up
    launch_gain: float = 0.08  # of the launching that a plan adds must be saved for another one to be tried
    taped_operation_s: float = 5e-5  # that the launching thread takes longer for an operation and its views
    repeated_operation_s: float = 2e-5  # and for one that is repeated,
    rebuild_launch_s: float = 1.2e-4  # for a tensor that is rebuilt,
    swap_launch_s: float = 2.5e-4  # and for one that is swapped; all measured on the host of an H200
    # For a module that is called again, with its Python, and for each operation in it: as checkpointing by hand takes.
    called_module_s: float = 2e-4
    called_operation_s: float = 2.5e-5
    block_share: float = 0.01  # of the saved bytes must be saved by a group of modules to call them again,
    block_kind_share: float = 0.01  # and this by each class of them
    block_gain: float = 0.025  # of a step must be saved by that on paper
    first_plan_excess: float = 1.3  # the first plan found, like checkpointing, takes this much longer at most
    block_margin: float = 0.02  # of the budget is left free, so that nothing else has to leave,
    block_excess: float = 0.1  # of the budget may be missing then: other ways free that
    max_plan_changes: int = 8  # plans of one shape made again because steps differed, at most
    freed_share: float = (
        0.02  # of the budget must be free that was in use before a plan counts a step as slack
    )
    slack_steps: int = 8  # slack steps in a row before a plan uses the freed memory

    # Playing a step.
    fetch_lead_s: float = 0.005  # seconds that copies back finish before their use: no step repeats exactly
    copy_time_margin: float = 1.15  # copies beside compute take up to 15 % longer than alone

    # The search for a plan.
    planning_share: float = 0.5  # of a step is spent looking for plans between two steps, at most
    first_planning_share: float = 0.1  # of the step that was recorded for the first time
    price_class: float = 1.5  # prices within this factor count as equal: they differ by noise
    recipe_depths: tuple[int, ...] = (
        4,
    )  # chains of recipes: half a transformer block; segments are whole ones
    classes_at_once: int = 3  # classes of prices that are rebuilt together at first
    swaps_tolerance: int = 48  # of all that could be swapped, one part in 48 may be swapped more than needed
    # Parts of all that can be rebuilt: sizes of segments, many of them, since a size that cuts blocks is a poor one.
    segment_parts: tuple[int, ...] = (1, 3, 5, 6, 10, 12, 24, 48, 96)
    segment_slack: float = 1.05  # a segment may be this much larger: blocks are seldom exactly equal
    # Parts of the limit that segments are made to fit under, since what else is there is estimated.
    fitting_shares: tuple[float, ...] = (1.0, 0.95, 0.85)
    loose_limit: float = (
        0.5  # of the native peak: under a larger limit plans are looked for along chains first
    )
    segmentings_searched: int = 2  # of those sizes, the best ones, are looked at in between, too
    replay_gain: float = (
        0.01  # of an unlimited step: below it a plan that needs the tape is not worth its launching
    )
    eased_tries: int = 6  # times a plan that does not fit swaps some of what it would rebuild
    refinements: int = 8  # plans looked at between those of the first pass
    refinement_gain: float = 1e-3  # of an unlimited step: a smaller possible gain is not looked for
    search_tolerance: float = (
        0.01  # of an unlimited step: a plan this much worse than the last one is searched anew
    )
    search_strides: tuple[int, ...] = (16, 4, 1)  # distances at which neighbours of a known plan are tried

    # Shapes of steps.
    max_shapes: int = 64  # plans kept; the oldest goes first
    shape_bucket: float = 1.125  # sizes within this factor share a guessed plan, made for the largest of them
    one_shape_reach: float = 1.25  # a guess from one recording stretches it by no more than this factor
    two_shapes_reach: float = (
        1.5  # a guess from two recordings goes beyond the larger one by no more than this
    )

    # Paging: parameters, gradients and optimizer state.
    smallest_page_bytes: int = 8 * KIB  # smaller tensors, such as biases and step counts, stay on the device
    activation_share: float = 0.25  # of the budget is left to activations by the first guess of what to page
    step_bytes_factor: int = (
        6  # bytes to step a parameter per byte of it: itself, gradient, state, temporaries
    )
    gradients_on_device: int = 3  # gradients at once: one that leaves, one being added to, one that comes
    prefetch_uses: int = 64  # uses of parameters that are looked ahead at
    max_logged_uses: int = 1 << 16  # uses of parameters remembered of one pass
    state_factor: float = (
        2.0  # bytes of optimizer state per byte of parameters expected before the first step
    )
    chunk_bytes: int = GIB  # state that travels together, at most: launching less takes as long as copying it
    chunk_share: int = 16  # but no more than one part in 16 of the budget
    step_temporaries: float = 3.0  # bytes a step makes and drops per byte of parameters, before one was seen
    temporaries_margin: float = 1.1  # times the temporaries seen are counted on later
    pass_spare_share: float = (
        0.06  # of the budget stays free for the next operation of a pass while state leaves
    )
    share_after_steps: tuple[int, ...] = (
        2,
        4,
    )  # optimizer steps after which activations and state share anew
    settling_steps: int = (
        4  # first passes from which all state leaves: recordings should see what will be usual
    )
    split_parts: int = 8  # of the state: the grid of the search for a split, twice as fine around the best
    forward_tries: int = 4  # times a forward pass is run before running out of memory is an error
    restored_buffer_elements: int = (
        1 << 20
    )  # larger buffers are not copied before a pass that may be tried again

    # CUDA and host memory.
    pinned_share: float = 0.75  # of free host memory may be pinned unless the caller says otherwise
    rate_probe_bytes: int = 128 * MIB  # copied each way to measure the link
    rate_margin: float = 0.98  # of the measured rate is counted on
    busy_s: float = 2e-3  # seconds of idle work put before a timed recipe: launching one takes less
    busy_cycles_per_s: int = 1_600_000_000  # of the device's clock, about
    slab_bytes: int = 256 * MIB  # pinned at once
    registered_bytes: int = 64 * MIB  # below this torch's own pinning is as quick as registering memory
    fill_threads: int = 8  # that make pages at once
    fill_piece_bytes: int = 32 * MIB  # that one thread makes at a time

    # The device that `estimate` assumes: what an H200 does at best.
    estimate_link: float = 55e9  # bytes a second, each way
    estimate_memory: float = 4e12  # bytes a second
    estimate_products: float = 5e14  # multiplications and additions a second
    estimate_smallest_bytes: int = 64 * KIB  # smaller saved tensors are taken as kept

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            numbers = value if isinstance(value, tuple) else (value,)
            if any(number <= 0 for number in numbers):
                raise ValueError(f"{each.name} must be above 0, got {value}; leave it out for {each.default}")
        for name in SHARES:
            if getattr(self, name) > 1:
                raise ValueError(
                    f"{name} is a share and must be at most 1, got {getattr(self, name)}; write 0.5 for half"
                )
        for name in FACTORS:
            if getattr(self, name) <= 1:
                raise ValueError(f"{name} is a factor and must be above 1, got {getattr(self, name)}")


SHARES = (
    "auto_share", "plan_margin", "host_plan_share", "launch_ahead", "faster_than_planned",
    "most_speed_up",
    "stall_tolerance", "link_derating", "freed_share", "refinement_gain", "search_tolerance", "replay_gain",
    "launch_tolerance", "launch_bound_share", "launch_gain", "loose_limit", "pieced_loss_share", "planning_share",
    "first_planning_share",
    "activation_share", "pass_spare_share", "pinned_share", "rate_margin",
    "block_share", "block_kind_share", "block_gain", "block_margin", "block_excess",
)  # fmt: skip
FACTORS = (
    "copy_time_margin",
    "segment_slack",
    "price_class",
    "shape_bucket",
    "one_shape_reach",
    "two_shapes_reach",
    "first_plan_excess",
)

DEFAULTS = LmsTuning()
