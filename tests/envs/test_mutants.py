"""Faults put into the kernels, each of which a named test must notice."""

import tempfile
from pathlib import Path

from tests.contract import test_actions as actions
from tests.contract import test_autoreset as autoreset
from tests.contract import test_ports as synthetic
from tests.contract import test_rollouts as rollouts
from tests.contract import test_state as state
from tests.contract import test_statistics as statistics
from tests.contract import test_streams as streams
from tests.contract import test_use as use
from tests.envs import test_by_hand as by_hand
from tests.envs import test_classic_control as tasks
from tests.envs import test_policies as policies
from tests.envs.faults import every

AT_THE_GOAL = ({"goal_position": 0.6}, (0.59, 0.06), 2, (float("nan"),) * 2, None, True)

# The tests that notice, with their arguments, by a short name.
RUNGS = {
    "cartpole step": (tasks.test_one_step_equals_gymnasiums, "cartpole", "wide", "float64", "cpu"),
    "cartpole start": (tasks.test_first_states_are_uniform_and_uncorrelated, "cartpole"),
    "cartpole numbers": (tasks.test_first_states_are_made_of_numbers_in_order, "cartpole", "cpu"),
    "cartpole variant": (tasks.test_one_step_of_a_variant_equals_gymnasiums, "cartpole", {"sutton_barto_reward": True}),
    "car step": (tasks.test_one_step_equals_gymnasiums, "mountain_car", "wide", "float64", "cpu"),
    "car at the goal": (
        by_hand.test_a_step_is_as_worked_out_by_hand, by_hand.transitions.one, "mountain_car", *AT_THE_GOAL,
    ),
    "car start": (tasks.test_first_states_are_uniform_and_uncorrelated, "mountain_car"),
    "force step": (tasks.test_one_step_equals_gymnasiums, "mountain_car_continuous", "wide", "float64", "cpu"),
    "pendulum step": (tasks.test_one_step_equals_gymnasiums, "pendulum", "wide", "float64", "cpu"),
    "pendulum start": (tasks.test_first_states_are_uniform_and_uncorrelated, "pendulum"),
    "acrobot step": (tasks.test_one_step_equals_gymnasiums, "acrobot", "wide", "float64", "cpu"),
    "acrobot at full speed": (tasks.test_one_step_equals_gymnasiums, "acrobot", "fast", "float64", "cpu"),
    "limit": (
        autoreset.test_without_a_limit_of_the_callers_episodes_are_truncated_at_the_horizon,
        *("cartpole", "cpu", "SameStep"),
    ),
    "same step": (autoreset.test_same_step_returns_the_next_episodes_first_observation, "cartpole", "cpu"),
    "next step": (autoreset.test_next_step_shows_the_last_observation_then_resets, "cartpole", "cpu"),
    "inert": (autoreset.test_disabled_leaves_an_ended_environment_inert_until_a_masked_reset, "cartpole", "cpu"),
    "inert counters": (
        autoreset.test_disabled_leaves_an_ended_environment_inert_until_a_masked_reset, *("counters", "cpu"),
    ),
    "agents": (autoreset.test_agents_end_apart_and_play_no_more,),
    "mask": (use.test_a_masked_reset_touches_the_masked_rows_alone, "cartpole", "cpu", "SameStep"),
    "not a number": (actions.test_an_action_outside_the_space_is_named_and_nothing_moves, "pendulum", "cpu"),
    "number of a vector": (actions.test_an_action_outside_the_space_is_named_and_nothing_moves, "counters", "cpu"),
    "returns": (statistics.test_statistics_count_every_episode_since_the_last_call, "pendulum", "cpu"),
    "random policy": (streams.test_random_actions_are_the_documented_numbers, "cartpole", "cpu", 9, 5),
    "random policy of three": (streams.test_random_actions_are_the_documented_numbers, "mountain_car", "cpu", 9, 5),
    "split": (streams.test_a_part_of_a_batch_lives_as_in_the_whole, "cartpole", "SameStep"),
    "groups": (streams.test_a_group_is_a_batch_of_its_own_with_its_seed, "cartpole"),
    "streams": (streams.test_seeds_and_environments_have_episodes_of_their_own, "cartpole"),
    "counters": (synthetic.test_counters_live_as_numpy_says, "float32"),
    "walkers": (synthetic.test_walkers_live_as_numpy_says, "walkers", "float32"),
    "restored": (
        state.test_a_saved_state_continues_bit_for_bit_in_another_batch,
        *("walkers", "cpu", "float32", "NextStep", Path(tempfile.mkdtemp())),
    ),
    "fused": (rollouts.test_a_trajectory_is_single_steps_bit_for_bit, "cartpole", "random", 130, "cpu"),
    "fused returns": (rollouts.test_a_trajectory_is_single_steps_bit_for_bit, "pendulum", "random", 130, "cpu"),
    "fused counters": (rollouts.test_a_trajectory_is_single_steps_bit_for_bit, "counters", "random", 130, "cpu"),
    "short episodes": (rollouts.test_fused_steps_are_right_where_episodes_are_shorter_than_the_fetch_ahead, "cpu"),
    "ties": (rollouts.test_of_equal_scores_the_lowest_action_is_taken, "cpu"),
    "bootstraps": (
        policies.test_bootstraps_are_the_values_of_last_observations_of_episodes_that_were_only_truncated, "cartpole",
    ),
    "probabilities": (policies.test_values_and_log_probabilities_agree_with_torch, "cartpole", 16),
    "sampling": (policies.test_a_discrete_action_is_the_inverse_distribution_function_of_the_documented_noise,),
}  # fmt: skip

CARTPOLE, CAR, FORCE, PENDULUM, ACROBOT = (
    f"classic_control/{name}/kernel.cuh"
    for name in ("cartpole", "mountain_car", "mountain_car_continuous", "pendulum", "acrobot")
)
PLACE, BATCH, TILE, CPU, FUSED, MLP, BLOCK = (
    f"kernels/{name}.cuh" for name in ("place", "batch", "tile", "tile_cpu", "rollout_cpu", "mlp", "block")
)
SIGNATURE = "-(theta * theta + real(0.1) * theta_dot * theta_dot + real(0.001) * torque * torque)"

MUTANTS = {
    # physics, reward and end of a step
    "reward 0 at the end": (CARTPOLE, "0.0f) : 1.0f", "0.0f) : (terminated ? 0.0f : 1.0f)", "cartpole step"),
    "semi-implicit Euler": (
        CARTPOLE, "if (Params::kinematics_integrator_is_euler)", "if (!Params::kinematics_integrator_is_euler)",
        "cartpole step",
    ),
    "wrong inertia of the pole": (CARTPOLE, "real(4.0 / 3.0)", "real(1.0)", "cartpole step"),
    "pushes exchanged": (
        CARTPOLE, "action ? Params::force_mag : -Params::force_mag", "action ? -Params::force_mag : Params::force_mag",
        "cartpole step",
    ),
    "no end by the angle": (CARTPOLE, "| (magnitude(theta) > Params::theta_threshold_radians)", "", "cartpole step"),
    "no end on the left": (CARTPOLE, "magnitude(x) > Params::x_threshold", "x > Params::x_threshold", "cartpole step"),
    "no square of the speed": (
        CARTPOLE, "polemass_length * theta_dot * theta_dot", "polemass_length * theta_dot", "cartpole step",
    ),
    "no penalty at the end": (CARTPOLE, "terminated ? -1.0f : 0.0f) : 1.0f", "0.0f) : 1.0f", "cartpole variant"),
    "a car beyond the goal only": (CAR, "position >= Params::goal", "position > Params::goal", "car at the goal"),
    "no wall": (CAR, "velocity = (moved <=", "if (false) velocity = (moved <=", "car step"),
    "no largest speed of a car": (CAR, "velocity = clipped(velocity", "clipped(velocity", "car step"),
    "a car moved by its old velocity": (
        CAR, "moved = position + velocity;",
        "moved = position + velocity - real(action - 1) * Params::force + Params::gravity * cosine;", "car step",
    ),
    "the cost of a clipped action": (
        FORCE, "action * action * real(0.1)", "clipped(action, LOW, HIGH) * clipped(action, LOW, HIGH) * real(0.1)",
        "force step",
    ),
    "force without a limit": (FORCE, "clipped(action, LOW, HIGH)", "action", "force step"),
    "half of the prize": (FORCE, "real(100)", "real(50)", "force step"),
    "reward of the state after": (
        PENDULUM, "out.terminated[0] = false;",
        f"out.reward[0] = float({SIGNATURE});\n        out.terminated[0] = false;", "pendulum step",
    ),
    "torque without a limit": (PENDULUM, "clipped(action, LOW, HIGH)", "action", "pendulum step"),
    "an angle without end": (
        PENDULUM, "theta = wrapped(fused(theta_dot, Params::dt, theta));",
        "theta = fused(theta_dot, Params::dt, theta);", "pendulum step",
    ),
    "sine and cosine exchanged": (PENDULUM, "obs[0] = float(cosine)", "obs[0] = float(sine)", "pendulum step"),
    "-1 at the goal of the acrobot": (ACROBOT, "terminated ? 0.0f : -1.0f", "-1.0f", "acrobot step"),
    "the equations of the first paper": (
        ACROBOT, "Params::book_or_nips_is_book ?", "!Params::book_or_nips_is_book ?", "acrobot step",
    ),
    "half of the middle stages": (ACROBOT, "real(2) * (stage[1]", "(stage[1]", "acrobot step"),
    "no largest speed of a link": (
        ACROBOT, "clipped(fused(dt / 6, total(acc2), s[3]), -Params::MAX_VEL_2, Params::MAX_VEL_2)",
        "fused(dt / 6, total(acc2), s[3])", "acrobot at full speed",
    ),
    # first states and noise
    "starts within 4 hundredths": (
        CARTPOLE, "uniform(words[j], at.bounds[0], at.bounds[1])",
        "uniform(words[j], real(0.8) * at.bounds[0], real(0.8) * at.bounds[1])", "cartpole start",
    ),
    "one number for all fields": (CARTPOLE, "uniform(words[j]", "uniform(words[0]", "cartpole start"),
    "numbers in another order": (CARTPOLE, "uniform(words[j]", "uniform(words[3 - j]", "cartpole numbers"),
    "a car starts nearer": (
        CAR, "at.bounds[0], at.bounds[1]", "at.bounds[0], real(0.5) * (at.bounds[0] + at.bounds[1])", "car start",
    ),
    "a pendulum starts slower": (PENDULUM, "-at.bounds[1], at.bounds[1]", "real(-0.8), real(0.8)", "pendulum start"),
    "numbers shared by environments": (CPU, "w.word[0][k] = span.index + positions[k]", "w.word[0][k] = 0", "streams"),
    "numbers shared by tiles": (BATCH, "u32(b.first_index) + begin", "u32(b.first_index)", "random policy"),
    "numbers that ignore the first index": (BATCH, "u32(b.first_index) + begin", "begin", "split"),
    "one seed for all groups": (BATCH, "b.seeds[group]", "b.seeds[0]", "groups"),
    "halves of a word exchanged": (TILE, "t & 1 ? 16 : 0", "t & 1 ? 0 : 16", "random policy of three"),
    # ends and beginnings of episodes
    "no truncation": (CPU, "u8(length >= LIMIT)", "u8(0)", "limit"),
    "truncation a step late": (CPU, "u8(length >= LIMIT)", "u8(length > LIMIT)", "limit"),
    "a limit of 200": (CPU, "u8(length >= LIMIT)", "u8(length >= 200)", "limit"),
    "a counter kept over a reset": (TILE, "    b.elapsed[i] = 0;\n", "", "same step"),
    "a return kept over a reset": (TILE, "if (RUNNING_RETURN) b.running_return[i] = 0.0f;", "", "returns"),
    "final_obs after the reset": (
        CPU,
        "    Episodes episodes;\n    for (int k = 0; k < count_ended; k++) {\n        const i64 i",
        "    Episodes episodes;\n    if (AUTORESET == SAME_STEP) start_episodes(b, span, positions, count_ended);\n"
        "    for (int k = 0; k < count_ended; k++) {\n        const i64 i",
        "same step",
    ),
    "the same episode again": (CPU, "if (AUTORESET == SAME_STEP) b.episode[i] += 1;", "", "same step"),
    "a reward for a reset": (
        CPU, "b.reward[base + i] = live ? out.reward[0] : 0.0f", "b.reward[base + i] = out.reward[0]", "next step",
    ),
    "no flag of a reset": (CPU, "memcpy(b.is_reset + base, resetting, count);", "", "next step"),
    "an ended environment that moves": (CPU, "s.of[j] = live ? s.of[j] : before.of[j];", "(void)live;", "inert"),
    "a mask without effect": (CPU, "if (!mask || mask[span.base + i])", "", "mask"),
    "not a number let through": (
        BATCH, "!(x >= X(lowest_of(k)) && x <= X(highest_of(k)))", "x < X(lowest_of(k)) || x > X(highest_of(k))",
        "not a number",
    ),
    # many steps at once
    "fetched once": (FUSED, "k % FETCH_EVERY == 0", "k == 0", "fused"),
    "a second end between two fetches": (FUSED, "if (!DEFAULT_BOUNDS && dry)", "if (false)", "short episodes"),
    "no truncation in fused steps": (FUSED, "truncated = steps >= LIMIT", "truncated = false", "short episodes"),
    "steps not counted": (
        FUSED, "lane.steps = b.elapsed[e] + (call.steps - 1) - length[i];", "lane.steps = 0;", "fused",
    ),
    "a fused return kept over a reset": (FUSED, "ended ? 0.0f : total[i]", "total[i]", "fused returns"),
    "the highest action of equals": (TILE, "scores[a] > highest ? a", "scores[a] >= highest ? a", "ties"),
    "values of ended episodes": (
        FUSED, "call.bootstrap[row + i] = policy", "call.bootstrap[row] = policy", "bootstraps",
    ),
    "probabilities of the likeliest": (MLP, "log_prob = score - highest", "log_prob = -highest", "probabilities"),
    "one sample for all steps": (FUSED, "w.word[2][i] = u32(t);", "w.word[2][i] = 0;", "sampling"),
    # what the ports of the contract have: several numbers, types, tables and agents
    "the first number's bounds for all": (BATCH, ": low[k]", ": low[0]", "number of a vector"),
    "noise of another step": (PLACE, "words[2] = u32(t);", "words[2] = 0;", "counters"),
    "tables of another environment": (BATCH, "b.bounds, span.base + lane,", "b.bounds, 0,", "counters"),
    "doubles not kept": (TILE, "b.doubles[j * b.num_envs + i] = s.doubles[j];", ";", "counters"),
    "integers of the state before": (CPU, "s.integers[j] : before.integers[j]", "s.integers[j] : 0", "inert counters"),
    "an old scenario": (FUSED, "ended ? next_scenario[i] : scenario[i]", "scenario[i]", "fused counters"),
    "rewards of agents who have ended": (BLOCK, "out.reward[n] = 0.0f;", "", "walkers"),
    "returns of all agents together": (BLOCK, "sum / (team > 0 ? team : 1)", "sum", "walkers"),
    "agents who end again": (BLOCK, "played & ~fell", "EVERYBODY & ~fell", "agents"),
    "agents truncated after their end": (BLOCK, "late && (episode.active >> n & 1)", "late", "agents"),
    "observations of agents who have ended": (BLOCK, "own[a * OBS + k] = 0.0f;", ";", "agents"),
    "an ended agent's last observation lost": (BLOCK, "u64 shown = episode.active;", "u64 shown = 0;", "restored"),
    "a phase left out": (BLOCK, "Environment::NAME(s, place_at(b, e, episode));", "", "walkers"),
}  # fmt: skip

test_a_fault_is_noticed = every(MUTANTS, RUNGS)
