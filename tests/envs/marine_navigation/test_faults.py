"""Faults of published ports put into the kernel, each of which a named test must notice."""

from tests.envs.faults import every
from tests.envs.marine_navigation import test_boats as boats
from tests.envs.marine_navigation import test_colregs as colregs
from tests.envs.marine_navigation import test_parity as parity
from tests.envs.marine_navigation import test_perception as perception
from tests.envs.marine_navigation import test_port as port
from tests.envs.marine_navigation import test_port_scenarios as scenarios
from tests.envs.marine_navigation import test_steps as steps
from tests.envs.marine_navigation import test_vortices as vortices
from tests.envs.marine_navigation import worlds

KINEMATIC = {"version": "kinematic"}
# The tests that notice, with their arguments, by a short name.
RUNGS = {
    "water": (vortices.test_water_east_of_a_clockwise_core_moves_south, 0.5, 3.0),
    "twelve cores": (vortices.test_all_of_twelve_cores_count,),
    "walker": (scenarios.test_first_states_are_those_of_the_walker_in_python, "kinematic", "corrected", 20, 0),
    "sonar's walker": (scenarios.test_first_states_are_those_of_the_walker_in_python, "sonar", "corrected", 20, 0),
    "rules": (scenarios.test_drawn_scenarios_keep_the_rules, "thruster", "corrected", 150),
    "jump": (boats.test_thrust_jumps_in_the_first_substep,),
    "nine actions": (boats.test_the_nine_actions_are_accelerations_and_turn_rates,),
    "turn": (boats.test_headings_stay_within_one_turn,),
    "lag": (boats.test_reported_velocity_is_of_the_last_substep_or_of_now, True),
    "top": (boats.test_speed_stays_between_zero_and_two,),
    "over": (steps.test_an_episode_is_over_when_nobody_is_active,),
    "stages": (port.test_a_seed_begins_a_curriculum_anew,),
    "box": (colregs.test_an_encounter_is_one_up_to_its_edges, 0.8, -0.6, (17, 0, 0, -1), True),
    "crossed": (colregs.test_an_encounter_is_one_up_to_its_edges, 1, 1.001, (6, 6, 0, -1), False),
    "begin": (boats.test_the_first_velocity_of_a_drawn_episode_lacks_the_current_on_request, "sonar", True),
    "own radius": (steps.test_the_own_radius_counts_in_a_collision,),
    "pair": (steps.test_two_robots_that_touch_both_collide,),
    "blind": (steps.test_a_robot_that_does_not_cooperate_is_hit_by_others_alone_and_hits_obstacles,),
    "ended": (steps.test_a_robot_that_has_ended_is_out_of_the_game,),
    "hit at the goal": (steps.test_a_collision_at_the_goal_is_a_collision, "thruster", -5.1),
    "first progress": (steps.test_an_episode_s_first_progress_is_its_own,),
    "gaps": (perception.test_neighbours_stand_in_slots_by_gap_with_a_mask,),
    "noise": (perception.test_noise_is_added_in_world_axes_by_observer_object_and_step,),
    "ids": (perception.test_equal_ids_share_noise_on_request, True),
    "apart": (perception.test_equal_ids_share_noise_on_request, False),
    "unseen": (perception.test_who_has_ended_is_not_seen,),
    "encounter": (colregs.test_angle_of_an_encounter, [(10, 0, -1, 0)], 0.589719),
    "slow": (colregs.test_angle_of_an_encounter, [(10, 0, -0.499, 0)], 0.0),
    "courses": (colregs.test_an_encounter_is_one_up_to_its_edges, 1, 1, (10, 4.5, -1, 0), False),
    "valid": (port.test_a_robot_that_has_ended_gives_zeros_from_then_on,),
    "lives": (parity.test_episodes_on_the_same_numbers_are_the_originals, KINEMATIC, "corrected", 3, 30),
}
BOATS, DRAWING, KERNEL, PERCEPTION = (
    f"marine_navigation/{name}.cuh" for name in ("boats", "drawing", "kernel", "perception")
)
CLEAR = "distance(robot[0], robot[1], row[0], row[1]) > CLEAR && distance(robot[2], robot[3], row[2], row[3]) > CLEAR"

MUTANTS = {
    # boats and water
    "a vortex mirrored": (BOATS, "u += factor * dy;\n    v -=", "u -= factor * dy;\n    v +=", "water"),
    "no more than four cores": (BOATS, "k < s.cores(); k++) add", "k < 4; k++) add", "twelve cores"),
    "thrust ramped over the substeps": (
        BOATS, "b.push = left + right;",
        "b.push = (left + right + x[THRUST + 2 * i] + x[THRUST + 2 * i + 1]) * real(0.5);", "jump",
    ),
    "velocity refreshed at the end": (BOATS, "if (!P::velocity_lag) set_ground", "set_ground", "lag"),
    "speeds without end": (BOATS, "real(0), P::top_speed)", "real(0), real(1e9))", "top"),
    "headings without end": (BOATS, "within_a_turn(b.heading + b.turned)", "b.heading + b.turned", "turn"),
    "a sonar's first current left out": (BOATS, "without_current && !SONAR", "without_current", "begin"),
    "accelerations and turns exchanged": (KERNEL, "real(own / 3 - 1)", "real(own % 3 - 1)", "nine actions"),
    # scenarios
    "robots that start anywhere": (DRAWING, f"accepted &= {CLEAR};", ";", "rules"),
    "robots near their goals": (DRAWING, "!(distance(row[2], row[3], row[0], row[1]) < least)", "true", "rules"),
    "cores beside one another": (DRAWING, "accepted &= apart(row, d.core + 4 * i);", ";", "rules"),
    "obstacles on starts": (DRAWING, "clear_of_robots(d, found, row[0], row[1], r + CLEAR)", "true", "rules"),
    "cores of a wider range of speeds": (DRAWING, "between(EDGE_SPEED_LOW, ", "between(0.0, ", "walker"),
    "obstacles of a wider range of radii": (DRAWING, "OBSTACLE_HIGH, w", "2 * OBSTACLE_HIGH, w", "sonar's walker"),
    "a curriculum by steps of the batch": (
        DRAWING, "at.tables.begins[k] <= at.clock", "at.tables.begins[k] * 5 <= at.clock", "stages",
    ),
    "the first of a mix for all": (DRAWING, "at.tables.below[k] <= mark", "false", "walker"),
    # perception and the rules of the road
    "nearest by centres": (PERCEPTION, "one.gap = distance - one.radius;", "one.gap = distance;", "gaps"),
    "no noise": (PERCEPTION, "dx + P::position_noise * nx", "dx", "noise"),
    "noise in the body's axes": (
        PERCEPTION, "one.x = c * x + s * y;", "one.x = c * dx + s * dy + P::position_noise * nx;", "noise",
    ),
    "noise shared by all": (PERCEPTION, "s.integers[NOISE_ID + i] : i)", "s.integers[NOISE_ID + i] : 0)", "apart"),
    "noise of a robot in place of its id": (PERCEPTION, "P::shared_noise ? s.integers[NOISE_ID + i] : i", "i", "ids"),
    "noise of the step before": (KERNEL, "at.active), at.t + 1);", "at.active), at.t);", "noise"),
    "others where the observer is": (PERCEPTION, "pairs.dx[n] = s.x[k] - s.pose(i)[0];", "pairs.dx[n] = 0;", "gaps"),
    "encounters counted": (PERCEPTION, "if (angle > 0) return angle;", "if (angle > 0) return 1;", "encounter"),
    "encounters of the slow": (PERCEPTION, "(speed2 >= real(SLOW * SLOW)) & ", "", "slow"),
    "encounters on any course": (PERCEPTION, "& (ex < 0) & (magnitude(ey) < -ex)", "", "courses"),
    "boxes about the observer": (
        PERCEPTION, "x = -(c * one.x + s * one.y), y = s * one.x - c * one.y", "x = one.x, y = one.y", "box",
    ),
    "crossings on any course": (PERCEPTION, " & (ey >= magnitude(ex))", "", "crossed"),
    # collisions, rewards and ends
    "collisions without the own radius": (
        PERCEPTION, "squared(P::collision_radius + s.radius[k])", "squared(s.radius[k])", "own radius",
    ),
    "one of two who touch": (PERCEPTION, "touches & (k != O + i)", "touches & (k < O + i)", "pair"),
    "blind robots that hit others": (PERCEPTION, "return s.blind(i) ? hit & 1 : hit;", "return hit;", "blind"),
    "both rewards": (
        KERNEL, "hit ? P::collision_reward",
        "hit && reached ? P::goal_reward + P::collision_reward : hit ? P::collision_reward", "hit at the goal",
    ),
    "success in spite of a collision": (KERNEL, "&& !s.integers[HIT_OBSTACLE + i]", "", "hit at the goal"),
    "who has ended sails on": (KERNEL, "playing(s, at.active), at.t", "present(s), at.t", "ended"),
    "who has ended is in the way": (
        KERNEL, "*aboard[g].s, aboard[g].crew)", "*aboard[g].s, present(*aboard[g].s))", "ended",
    ),
    "who has ended is seen": (
        KERNEL, "    set_objects(s, crew);\n            s", "    set_objects(s, present(s));\n            s", "unseen",
    ),
    "who has ended earns": (KERNEL, "if (crew >> i & 1) judge", "if (i < s.robots()) judge", "ended"),
    "nobody ends": (KERNEL, "out.terminated[i] = s.ended[i] != 0;", "out.terminated[i] = false;", "ended"),
    "a new episode at the limit alone": (
        "kernels/block.cuh", "late || (JOINT ? fell != 0 : episode.active == 0)", "late", "over",
    ),
    "progress over a reset": (
        BOATS, "s.gained[i] = b.far;",
        "static thread_local real last[A];\n    const real now = goal_distance(b);\n"
        "    s.gained[i] = last[i] > 0 ? last[i] - now : b.far;\n    last[i] = now;", "first progress",
    ),
    "valid by the flags after": (KERNEL, "VALID + i] = played;", "VALID + i] = played && !s.ended[i];", "valid"),
    "time of the first for all": (KERNEL, "real(s.integers[STEPS + i])", "real(s.integers[STEPS])", "lives"),
}  # fmt: skip

test_a_fault_is_noticed = every(MUTANTS, RUNGS, (worlds, "form", "port"))
