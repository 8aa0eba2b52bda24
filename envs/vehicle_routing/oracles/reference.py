"""Solvers that search for so many seconds: PyVRP, the reference (Wouda, Lan, Kool, arXiv 2403.13795), and OR-Tools."""

import abc
import warnings
from collections.abc import Sequence

import numpy as np

from lockstep.extras import extra

from ..params import Params
from .insertion import refuse_max_ride
from .problem import Answer, Oracle, Problem, answer

MOST_SECONDS = 3600  # of a problem


class Search(Oracle):
    """The best that a solver finds in so many seconds, one by default; a subclass has `load` and `route`."""

    def __init__(self, params: Params, travel: np.ndarray, argument: str | None = None):
        refuse_max_ride(self.name, params)
        super().__init__(params, travel, argument)
        self.load()

    @abc.abstractmethod
    def load(self):
        """Imports the solver.

        Raises:
            ImportError: it is not installed; names the extra.
        """

    def read(self, argument: str | None):
        try:
            self.seconds = 1.0 if argument is None else float(argument)
        except ValueError:
            self.seconds = 0.0
        if not 0 < self.seconds <= MOST_SECONDS:
            must = f"must have a positive number of seconds, at most {MOST_SECONDS}, after the colon"
            raise ValueError(f"oracle='{self.name}:{argument}' {must}")


class PyVRP(Search):
    """An iterated local search."""

    name = "pyvrp"

    def load(self):
        with extra("routing", of="oracle='pyvrp'"):
            import pyvrp.exceptions
            import pyvrp.stop
        self.pyvrp, self.matrix = pyvrp, np.asarray(self.travel, dtype=np.int64)

    def route(self, problem: Problem, kept: Sequence[int] = ()) -> Answer:
        data = self.data(problem)
        with warnings.catch_warnings():  # what it says of infeasible problems, `ok` does
            warnings.simplefilter("ignore", self.pyvrp.exceptions.PenaltyBoundWarning)
            result = self.pyvrp.solve(data, self.pyvrp.stop.MaxRuntime(self.seconds), collect_stats=False)
        if not result.best.is_feasible():
            return answer(problem, [], False)
        routes = [[node(visit) for visit in route if not visit.is_depot()] for route in result.best.routes()]
        return answer(problem, routes)

    def data(self, problem: Problem):
        """The problem as `pyvrp.ProblemData`, whose locations are zones, and distances and durations both ticks."""
        pyvrp, p = self.pyvrp, problem.params
        clients, shipments = [], []
        for node in range(1, problem.nodes, 2 if p.paired else 1):
            if p.paired:
                other = node + 1
                shipments.append(pyvrp.Shipment(
                    pickup_location=problem.zone[node], delivery_location=problem.zone[other],
                    pickup_tw_early=problem.earliest[node], pickup_tw_late=problem.latest[node],
                    pickup_service_duration=problem.service[node], amount=[problem.demand[node]],
                    delivery_tw_early=problem.earliest[other], delivery_tw_late=problem.latest[other],
                    delivery_service_duration=problem.service[other],
                ))  # fmt: skip
            else:
                clients.append(pyvrp.Client(
                    problem.zone[node], delivery=[problem.demand[node]], service_duration=problem.service[node],
                    tw_early=problem.earliest[node], tw_late=problem.latest[node],
                ))  # fmt: skip
        fleet = {"capacity": [p.capacity], "tw_late": p.horizon_ticks}
        known = own_vehicles(problem)
        vehicles = [pyvrp.VehicleType(num_available=known, **fleet)]
        if p.fleet == "soft" and problem.requests > known:
            dear = {"num_available": problem.requests - known, "fixed_cost": p.extra_vehicle_ticks}
            vehicles.append(pyvrp.VehicleType(**dear, **fleet))
        return pyvrp.ProblemData(
            [pyvrp.Location(0, 0) for _ in self.matrix], clients, [pyvrp.Depot(problem.zone[0])], vehicles,
            [self.matrix], [self.matrix], [], shipments,
        )  # fmt: skip


class ORTools(Search):
    """A guided local search from parallel insertion."""

    name = "ortools"

    def load(self):
        with extra("routing", of="oracle='ortools'"):
            from ortools.constraint_solver import pywrapcp, routing_enums_pb2
        self.solver, self.choices = pywrapcp, routing_enums_pb2

    def route(self, problem: Problem, kept: Sequence[int] = ()) -> Answer:
        p, nodes = problem.params, range(problem.nodes)
        known = own_vehicles(problem)
        vehicles = problem.requests if p.fleet == "soft" else known
        places = self.solver.RoutingIndexManager(problem.nodes, vehicles, 0)
        model = self.solver.RoutingModel(places)
        legs = [[problem.leg(a, b) for b in nodes] for a in nodes]
        model.SetArcCostEvaluatorOfAllVehicles(model.RegisterTransitMatrix(legs))
        for vehicle in range(known, vehicles):
            model.SetFixedCostOfVehicle(p.extra_vehicle_ticks, vehicle)
        taken = model.RegisterTransitMatrix([[leg + problem.service[a] for leg in legs[a]] for a in nodes])
        model.AddDimension(taken, p.horizon_ticks, p.horizon_ticks, False, "time")
        model.AddDimension(model.RegisterUnaryTransitVector(problem.demand), 0, p.capacity, True, "load")
        time, index = model.GetDimensionOrDie("time"), [places.NodeToIndex(node) for node in nodes]
        for node in nodes[1:]:
            time.CumulVar(index[node]).SetRange(problem.earliest[node], problem.latest[node])
        for node in nodes[1::2] if p.paired else ():
            pair = index[node], index[node + 1]
            model.AddPickupAndDelivery(*pair)
            model.solver().Add(model.VehicleVar(pair[0]) == model.VehicleVar(pair[1]))
            model.solver().Add(time.CumulVar(pair[0]) <= time.CumulVar(pair[1]))
        asked = self.solver.DefaultRoutingSearchParameters()
        asked.first_solution_strategy = self.choices.FirstSolutionStrategy.PARALLEL_CHEAPEST_INSERTION
        asked.local_search_metaheuristic = self.choices.LocalSearchMetaheuristic.GUIDED_LOCAL_SEARCH
        asked.time_limit.FromMilliseconds(max(1, round(1000 * self.seconds)))
        found = model.SolveWithParameters(asked)
        if found is None:
            return answer(problem, [], False)
        routes = []
        for vehicle in range(vehicles):
            route, at = [], found.Value(model.NextVar(model.Start(vehicle)))
            while not model.IsEnd(at):
                route.append(places.IndexToNode(at))
                at = found.Value(model.NextVar(at))
            routes += [route] if route else []
        return answer(problem, routes)


def own_vehicles(problem: Problem) -> int:
    """Vehicles that cost nothing by themselves, of which none needs more than there are requests."""
    p = problem.params
    return problem.requests if p.fleet == "unlimited" else min(p.fleet_size, problem.requests)


def node(visit) -> int:
    """The node of a visit to a pickup, a drop-off or a customer."""
    return visit.idx + 1 if visit.is_client() else 2 * visit.idx + (2 if visit.is_delivery() else 1)
