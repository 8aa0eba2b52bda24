"""Faults put into the kernel, each of which a named test must notice."""

from tests.envs.crypto_trading import test_parity as parity
from tests.envs.crypto_trading import test_port as port
from tests.envs.crypto_trading import test_ruled as ruled
from tests.envs.faults import every

# The tests that notice, with their arguments, by a short name.
RUNGS = {
    **{case: (parity.walked, case, "float64", False, 90) for case in parity.CASES},
    "stepped": (parity.walked, "clean", "float64", True, 60),
    "alone": (port.test_every_environment_of_a_batch_is_bit_for_bit_the_one_alone, "windows", 7, 1),
    "drawn": (port.test_random_starts_are_the_places_of_the_stream,),
    "rows": (port.test_an_observation_ends_with_the_features_of_its_bars_or_with_its_bar,),
    "own": (port.test_numbers_of_an_environment_stand_for_parameters_of_a_batch,),
    "loss": (port.test_a_total_loss_is_that_of_the_original, "float64"),
    "small": (port.test_all_that_is_held_can_be_sold_below_the_minimum_but_no_part_of_it, 6, 0),
    "cash": (port.test_cash_of_an_account_that_buys_all_it_can_is_never_below_zero, "clean", "float32"),
    "ruled": (ruled.walked, "clean", "float64", False, 300),
    "published ruled": (ruled.walked, "finrl-crypto", "float64", False, 300),
}
FILES = "clean", "published", "kernel", "layout", "ruled"
UNBOUGHT = "finrl-crypto, a fair holder that cannot buy all"
CLEAN, PUBLISHED, KERNEL, LAYOUT, RULED = (f"crypto_trading/{name}.cuh" for name in FILES)

MUTANTS = {
    # prices and the holder
    "filled at the bar of the action": (LAYOUT, "(L - 1) + t;", "(L - 2) + t;", "clean"),
    "the holder pays no fee": (CLEAN, "q.fill[i] * (1.0 + costs.fee_buy(i));", "q.fill[i];", "clean"),
    "the holder buys what cannot be traded": (CLEAN, "q.open[i] ? each / dear : 0.0", "each / dear", "absent"),
    "holdings counted at fills": (CLEAN, "n * (q.mark[i] - price);", "0;", "target weights"),
    # orders
    "orders by the value at the last close": (CLEAN, "value + entry, costs", "value, costs", "target weights"),
    "weights above one in all": (CLEAN, "total = higher(1.0, total);", "total = 1;", "target weights"),
    "orders of what cannot be traded": (CLEAN, "q.order[i] = q.open[i] ? q.order[i] : 0.0;", ";", "clean"),
    # sales, stops and trims
    "a part below the minimum": (CLEAN, "(wanted > minimum) & (part >= minimum)", "true", "target weights"),
    "a minimum for a sale of all": (CLEAN, "(whole | (", "((", "small"),
    "an age that a sale leaves": (CLEAN, "q.age[i] = sells ? 0 : q.age[i];", ";", "clean"),
    "a trim a bar late": (CLEAN, "q.age[i] >= P::hold_limit", "q.age[i] > P::hold_limit", "segments"),
    "trims where nothing trades": (CLEAN, "q.open[i] & (q.age[i] >=", "(q.age[i] >=", "short holds"),
    "a stop below any price": (CLEAN, "peak * (1.0 - STOP)", "peak", "target weights"),
    "a sale without slippage": (CLEAN, "side > 0 ? 1.0 + share : 1.0 - share", "1.0 + share", "target weights"),
    "lots of what is left": (CLEAN, "at.tables.lot[i], 1e-9) : 0.0", "0.0, 1e-9) : 0.0", "lots"),
    # purchases
    "one budget for all": (CLEAN, "P::parallel_budget ? cash : q.cash", "cash", "lots"),
    "a reserve that is spent": (CLEAN, "CAPITAL * RESERVE, cash", "0.0, cash", "target weights"),
    "turns from the first asset": (CLEAN, "(at.t + L) % N : 0", "0 : 0", "units"),
    "purchases in part without a factor": (CLEAN, "q.order[i] * factor", "q.order[i]", "random starts"),
    "an average without what was held": (CLEAN, "* (n / after)", "", "clean"),
    "holdings rounded up": (CLEAN, "> q.cash ? below(real(nearest)) : nearest", "> q.cash ? nearest : nearest", "cash"),
    # rewards and ends
    "a reward without the holder": (CLEAN, "(of_value - of_benchmark) / (1.0 + of_benchmark)", "of_value", "clean"),
    "fees of no account": (CLEAN, "q.gain -= worth * fee;", ";", "stepped"),
    "logarithms of nothing": (CLEAN, "higher(rise, LEAST - before)", "rise", "loss"),
    "an end a bar late": (CLEAN, "row >= s.integers[LAST] - 1", "row >= s.integers[LAST]", "segments"),
    "an end for all at the market's": (CLEAN, "s.integers[LAST] - 1", "ROWS - 1", "alone"),
    "no floor": (CLEAN, "s.doubles[VALUE] < VALUE_FLOOR * CAPITAL", "false", "a floor"),
    # episodes and observations
    "the first segment for all": (KERNEL, "(u64(at.index) + at.episode) % u64(SEGMENTS)", "0", "segments"),
    "starts in the first segment": (KERNEL, "tables.places[row + 1] <= place", "false", "drawn"),
    "the holder forgotten": (KERNEL, "P::carry_over & (at.episode > 0)", "false", "finrl-crypto"),
    "features of the next bar": (KERNEL, "ROWS - 1 - (bar", "ROWS - 2 - (bar", "rows"),
    "numbers of another environment": (LAYOUT, "at.environment * 5 + k", "k", "own"),
    # published rules
    "trims that mind the price": (PUBLISHED, "P::unguarded_trim |", "", "published short holds"),
    "the last reward alone": (PUBLISHED, "reward = ends ? s.doubles[RUNNING] : reward;", ";", "finrl-crypto"),
    "double holdings": (PUBLISHED, "typedef float Units;", "typedef double Units;", "finrl-crypto"),
    "a holder that loses what it could not buy": (PUBLISHED, "FAIR && owned == 0 ? CAPITAL / N : ", "", UNBOUGHT),
    "no weight by time": (PUBLISHED, "higher(left, DECAY_FLOOR)", "1.0", "cappuccino"),
    "shares unranked": (PUBLISHED, "ranked += rank * own;", "ranked += own;", "two with a stop"),
    # rules without learning
    "a holder that buys a bar late": (RULED, "at.t == 0", "at.t == 1", "ruled"),
    "weights that never come back": (RULED, "at.t % REBALANCED == 0", "at.t == 0", "ruled"),
    "the sign of the bar of the fill": (RULED, "row_at(s, at.t)", "row_at(s, at.t + 1)", "ruled"),
    "purchases of what is held": (RULED, "((enters > 0) & (held == 0))", "(enters > 0)", "ruled"),
    "one rule for all": (RULED, "at.tables.rule[at.environment]", "at.tables.rule[0]", "ruled"),
    "actions beside a rule": (CLEAN, "ruling.stands > 0 ?", "ruling.stands < 0 ?", "ruled"),
    "a published rule by the value": (PUBLISHED, "worth_before(s, at, row)", "s.doubles[VALUE]", "published ruled"),
}  # fmt: skip

test_a_fault_is_noticed = every(MUTANTS, RUNGS)
