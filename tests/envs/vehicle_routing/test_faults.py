"""Faults of published ports put into the kernel, each of which a named test must notice."""

from tests.envs.faults import every
from tests.envs.vehicle_routing import test_parity as parity
from tests.envs.vehicle_routing import test_port as port

LIVES = parity.test_episodes_on_the_same_numbers_are_the_originals
# The tests that notice, with their arguments, by a short name.
RUNGS = {
    "ties": (parity.test_insertion_is_a_plain_rescan_where_many_places_tie, False),
    "services": (parity.test_insertion_is_a_plain_rescan_where_many_places_tie, True),
    "accepts": (port.test_who_accepts_what, 0),
    "moves": (port.test_windows_move_within_the_day, False, [1, 100, 400, 2, 520, 820], 0, [1, 0, 300, 2, 520, 820]),
    "widens": (port.test_a_shift_widens_the_window_of_a_single_node,),
    "rides": (port.test_two_rides_from_a_to_b, "insertion", port.RIDE, 1, 66.0, 1),
    "apart": (port.test_two_rides_from_a_to_b, "insertion", port.NARROW, 1, 84.0, 2),
    "tied walks": (parity.test_greedy_walks_are_the_originals_where_many_times_tie, "greedy:nearest", 25, 4),
    "many tied walks": (parity.test_greedy_walks_are_the_originals_where_many_times_tie, "greedy:soonest", 600, 6),
    "in time": (parity.test_rides_end_in_time, False),
    "parted": (port.test_a_shift_that_parts_two_rides_costs_more_than_its_twin, "twin", -18.0),
    "seen": (port.test_observations_by_hand,),
    "fails": (port.test_a_failure_ends_the_episode_or_asks_again,),
    "turn": (port.test_fixed_instances_come_in_turn,),
    "outside": (port.test_a_function_of_the_batch_is_an_oracle,),
} | {form: (LIVES, form) for form in parity.FORMS}
DRAWING, GREEDY, INSERTION, KERNEL, WALK = (
    f"vehicle_routing/{name}.cuh" for name in ("drawing", "greedy", "insertion", "kernel", "walk")
)

MUTANTS = {
    # draws and answers
    "every order but one": (DRAWING, "i > 0 && lane() == 0", "i > 1 && lane() == 0", "corrected"),
    "one pre-shift for both ends": (
        DRAWING, "preshift_of(at, i, DRAW_DROPOFF)", "preshift_of(at, i, DRAW_PICKUP)", "corrected",
    ),
    "instances by episode alone": (DRAWING, "(u64(at.index) + at.episode)", "u64(at.episode)", "turn"),
    "late and early exchanged": (
        KERNEL, "kind == 1 || kind == 3) && (d == 0 || kind == 0", "kind == 0 || kind == 3) && (d == 0 || kind == 1",
        "accepts",
    ),
    "who refuses is shifted all the same": (KERNEL, "if (accepted) shift(", "shift(", "corrected"),
    "windows that shrink at midnight": (
        DRAWING, "smaller_of(larger_of(shift, -window[0]), HORIZON_TICKS - window[1])", "shift", "moves",
    ),
    "a single node's window moves": (KERNEL, "smaller_of(row[2] + d, HORIZON_TICKS)", "row[2] + p", "widens"),
    # insertion
    "seats not counted": (INSERTION, "|| r.load[a] + load > P::capacity", "", "rides"),
    "seats not counted on the way": (INSERTION, " && r.load[k] + load <= P::capacity", "", "apart"),
    "the rest of the route not asked": (
        INSERTION, " && larger_of(clock + to, d.soon) + d.service + back <= r.room[k + 1]", "", "cramped",
    ),
    "the rest not asked beside the pickup": (
        INSERTION, "larger_of(clock + ride, d.soon) + d.service + from_d[next] <= r.room[a + 1]", "true", "ties",
    ),
    "no waiting at the pickup": (
        INSERTION, "clock = larger_of(clock, p.soon) + p.service;", "clock += p.service;", "cramped",
    ),
    "no waiting on the way": (
        INSERTION, "clock = larger_of(clock, r.soon[k]) + r.stop[k];\n        if", "clock += r.stop[k];\n        if",
        "ties",
    ),
    "services forgotten in the rest": (INSERTION, "room - r.direct[k] - r.stop[k]", "room - r.direct[k]", "services"),
    "the last of equal places": (
        INSERTION, "if (key < best && clock + to", "if ((key >> 32) <= (best >> 32) && clock + to", "ties",
    ),
    "a new vehicle last of equals": (
        INSERTION, "EXTRA_VEHICLE_TICKS : 0), 0, 0);", "EXTRA_VEHICLE_TICKS : 0), 0xffff, 0);", "ties",
    ),
    "dear vehicles at the price of others": (INSERTION, "? EXTRA_VEHICLE_TICKS : 0", "? 0 : 0", "soft"),
    "one vehicle more than there is": (
        INSERTION, "vehicles >= P::fleet_size)) return", "vehicles > P::fleet_size)) return", "fails",
    ),
    # walks
    "a dead end by ties": (
        WALK, "(!Rules::LOOKAHEAD && due[place - 1] == latest && dropoff[place - 1] > node)",
        "(due[place - 1] == latest)", "many tied walks",
    ),
    "the depot not asked": (WALK, "return time + p.leg(here, 0) <= Rules::HORIZON;", "return true;", "tied walks"),
    "riders forgotten": (WALK, "k < riders || own;", "own;", "nearest"),
    "rides without end": (
        WALK, "Rules::MAX_RIDE ? sooner(latest, start + Rules::MAX_RIDE) : latest", "latest", "in time",
    ),
    "obligations forgotten at the depot": (
        WALK, "        begin = length;\n", "        begin = length;\n        riders = 0;\n", "early_end",
    ),
    "the stranded forgotten": (WALK, "stranded[node >> 5] |= u32(1) << (node & 31);", ";", "lookahead_mask"),
    "one place for all obligations": (
        WALK, "Rules::LOOKAHEAD && Rules::ONE_OBLIGATION ? 1", "Rules::LOOKAHEAD ? 1", "lookahead_mask",
    ),
    "the most urgent not passed over": (WALK, "riders > 0 && dropoff[0] == node", "0", "lookahead_mask"),
    "ties to the highest": (GREEDY, "u32(node);", "(1000 - u32(node));", "original, greedy"),
    "no more than one leg ahead": (GREEDY, "start + 3 * leg", "start + leg", "mixed, twin"),
    # rewards, ends, what is seen
    "a penalty for what was refused": (KERNEL, "x[ACCEPTED + t] ? later", "true ? later", "corrected"),
    "the twin with shifts": (INSERTION, "window_of(s, twin, node)", "window_of(s, 0, node)", "parted"),
    "percent of the cost with shifts": (
        KERNEL, "(twin_cost - cost) / twin_cost", "(twin_cost - cost) / cost", "percent",
    ),
    "a failure priced": (KERNEL, "            if (priced) {", "            {", "fails"),
    "nobody stuck": (KERNEL, "(!priced && !P::stuck_after_failure)", "!priced", "stuck_after_failure"),
    "windows as offered in the rows that are fixed": (
        KERNEL, "show(at, x + KEPT + 6 * i, row)", "show(at, x + OFFERED + 6 * x[TRAVELLER + i], row)", "seen",
    ),
    "the request that asks left out": (KERNEL, "i == N - 1 && traveller >= 0", "i == N - 1 && traveller > 0", "seen"),
    "requests of the future laid out": (
        KERNEL, "x.there[first + node] = there;", "x.there[first + node] = true;", "outside",
    ),
}  # fmt: skip

test_a_fault_is_noticed = every(MUTANTS, RUNGS)
