"""gd.function: a graph compiled into one program, called with arrays.

A function holds nodes; for every set of concrete sizes it meets it makes one Loaded program (passes, schedule, memory
plan, verified C program) and keeps the last few. Calls from many threads are safe: each takes a workspace of its own.
"""
from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import DTypeError, GraphdiffError, NodeTypeError, ShapeError, compose, located_error, show_name
from ..graph.build import located, public
from ..graph.locks import renewed
from ..graph.node import Node
from ..graph.walk import toposort, uncollected
from ..lower.emit import lower
from ..lower.program import FIRST, Program
from ..ops.families import argument
from ..passes.concrete import concrete, has_named_sizes, stand_in, substitute
from ..passes.pipeline import chosen, run_passes
from ..plan.schedule import schedule
from ..runtime.execute import Gate, Loaded, Workspace
from ..runtime.native import ELEMENTWISE, Call, place
from ..runtime.native import order as find_order
from ..specs import match_shapes
from .targets import called, check_apart, check_targets, in_structure, share_memory

MOST_THREADS = 1024     # that are asked for; the core starts 64 at most (GDI_MAX_THREADS)
CACHE = 256         # programs a function keeps, one per set of sizes: as many as lengths of sentences differ by
IDLE_NBYTES = 256 << 20     # of arenas and results that wait for a call of the same sizes; those called longest ago are given back first


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


class Function:
    """A compiled graph. Made by gd.function."""

    def __init__(self, inputs: Sequence[Node], outputs: Any, updates: Mapping[Node, Any] | None, threads: int | None,
                 passes: Collection[str] | None, evaluates: bool = False) -> None:
        self.inputs = tuple(inputs)
        self.structure = outputs
        self.keys, nodes = _flatten(outputs)
        self.outputs = tuple(nodes)
        self.updates = tuple((v, _update(v, new)) for v, new in (updates or {}).items())
        self.threads = _cores() if threads is None else threads
        self.passes = chosen(passes)
        self.times: dict[str, float] = {}
        roots = [*self.outputs, *[n for _, n in self.updates]]
        order = toposort(roots, stop={id(x) for x in self.inputs})
        self._check_inputs(order, evaluates)
        variables = [x for x in order if not x.inputs and x.op.name == "variable"]
        self._state = [v._attrs[0] for v in {id(v): v for v in [*variables, *[v for v, _ in self.updates]]}.values()]
        self._gates = [Gate(x.name if x.name is not None else f"number {i}", x.shape, x.dtype) for i, x in enumerate(self.inputs)]
        self._place_of: dict[str | None, int] = {}       # the number of the input of a name; -1: two have it
        for i, x in enumerate(self.inputs):
            self._place_of[x.name] = -1 if x.name in self._place_of else i
        self._cache: OrderedDict[Any, Loaded] = OrderedDict()
        self._lock = renewed(threading.Lock())
        self._symbolic = has_named_sizes([*self.inputs, *order])
        self._static: Loaded | None = None if self._symbolic else self._load({}, order)

    def _check_inputs(self, order: Sequence[Node], evaluates: bool) -> None:
        caller = "evaluate" if evaluates else "function"
        seen: set[int] = set()
        for x in self.inputs:
            if not isinstance(x, Node):
                raise NodeTypeError(f"{caller}: an input must be a node, not {type(x).__name__}")
            if x.op.name in ("constant", "variable"):
                raise NodeTypeError(f"{caller}: {x!r} cannot be an input: it is a {x.op.name}")
            if id(x) in seen:
                raise ShapeError(f"{caller}: input {x.label!r} is given twice")
            seen.add(id(x))
        missing = [n for n in order if not n.inputs and n.op.name == "input" and id(n) not in seen]
        if missing:
            names = ", ".join(repr(show_name(n.name or "")) for n in missing[:5])
            site = missing[0].site
            lacks = "but has no value" if evaluates else "but not listed"
            raise located_error(NodeTypeError(compose(
                f"{caller}: input {names} is needed by the outputs {lacks}", at=None if site is None else (str(site), site.source),
                hint="gd.evaluate(node, {input: value, ...}) gives values of inputs" if evaluates else None)))

    # -- compiling -------------------------------------------------------------------------------------------------

    def _load(self, bindings: dict[str, int], order: list[Node] | None = None) -> Loaded:
        """Passes, schedule, plan and check for concrete sizes. order: all nodes in running order, if no size has a name."""
        with uncollected():
            return self._compile(bindings, order)

    def _compile(self, bindings: dict[str, int], order: list[Node] | None) -> Loaded:
        roots = [*self.outputs, *[n for _, n in self.updates]]
        inputs = list(self.inputs)
        leaves = [x if x.op.name == "input" else stand_in(x) for x in inputs]
        if any(a is not b for a, b in zip(leaves, inputs, strict=True)):
            roots, order = substitute(roots, {id(a): b for a, b in zip(inputs, leaves, strict=True)}), None
        if self._symbolic:
            roots, leaves = concrete(roots, leaves, bindings)
        roots = run_passes(roots, self.passes, self._constants, self.times, order)
        n = len(self.outputs)
        updates = [(v, new) for (v, _), new in zip(self.updates, roots[n:], strict=True)]
        order = schedule(roots, find_order)
        program = lower(order, leaves, roots[:n], updates, ELEMENTWISE, in_place="in_place" in self.passes,
                        fused="fuse" in self.passes, times=self.times)
        variables: list[Any] = []
        seen: set[int] = set()
        for node in [*[v for v, _ in updates], *order]:
            if not node.inputs and node.op.name == "variable" and id(node) not in seen:
                seen.add(id(node))
                variables.append(node._attrs[0])
        loaded = Loaded(program, self._gates, [x.shape for x in leaves], variables, self.threads)
        loaded.states = [v._attrs[0].array for v, _ in updates]
        return loaded

    def _constants(self, nodes: Sequence[Node]) -> list[Any]:
        """Values of constant nodes, by a program of their own."""
        program = lower(schedule(nodes, find_order), [], list(nodes), [], ELEMENTWISE)
        return list(Loaded(program, [], [], [], 1).call(()))

    def _special(self, args: Sequence[Any]) -> tuple[Loaded, Sequence[Any]]:
        """The program for the shapes of these arguments; made when they are new. A program it has already checks them itself."""
        try:
            loaded = self._cached(tuple([a.shape for a in args]))
        except (AttributeError, TypeError):                     # not arrays
            loaded = None
        if loaded is not None:
            return loaded, args
        arrays = [g.check(a) for g, a in zip(self._gates, args, strict=True)]
        key = tuple([a.shape for a in arrays])
        loaded = self._cached(key)
        if loaded is None:
            loaded = self._load(self._bindings(arrays))
            self._keep(key, loaded)
        return loaded, arrays

    def _bindings(self, arrays: Sequence[Any]) -> dict[str, int]:
        bindings: dict[str, int] = {}
        for g, a in zip(self._gates, arrays, strict=True):
            if len(g.shape) != a.ndim:
                raise g.wrong_shape(a.shape)
        try:
            match_shapes([(g.shape, a.shape) for g, a in zip(self._gates, arrays, strict=True)], bindings,
                         [g.name for g in self._gates])
        except ShapeError as error:
            seen = ", ".join(f"{g.name} {list(a.shape)}" for g, a in zip(self._gates, arrays, strict=True))
            raise ShapeError(f"{error}\n  given   {seen}") from None
        return bindings

    def _keep(self, key: Any, loaded: Loaded) -> None:
        with self._lock:
            self._cache[key] = loaded
            while len(self._cache) > CACHE:
                self._cache.popitem(last=False)
            self._give_back()

    def _cached(self, key: Any) -> Loaded | None:
        with self._lock:
            loaded = self._cache.get(key)
            if loaded is not None:
                self._cache.move_to_end(key)
                if not loaded.pool:             # this call makes a workspace
                    self._give_back()
            return loaded

    def _give_back(self) -> None:
        """Drop the workspaces of the sizes called longest ago, not of the last ones, where they hold too much. Their programs stay."""
        nbytes = 0
        for loaded in list(reversed(self._cache.values()))[1:]:
            nbytes += len(loaded.pool) * loaded.idle_nbytes
            if nbytes > IDLE_NBYTES:
                loaded.pool.clear()

    # -- calling ---------------------------------------------------------------------------------------------------

    def __call__(self, /, *args: Any, out: Any = None, **named: Any) -> Any:
        """Run on arrays or numbers, in the order of the inputs or by their names.

        Returns fresh arrays in the structure the outputs were given in. out: arrays to write into instead, same structure.
        """
        if named or len(args) != len(self._gates):
            args = self._arguments(args, named)
        loaded = self._static
        if loaded is None:
            loaded, args = self._special(args)      # type: ignore[assignment]
        if out is not None:
            return self._into(loaded, args, out)
        results = loaded.call(args)
        keys = self.keys
        if keys is None:
            return results[0]
        if keys is tuple:
            return tuple(results)
        return dict(zip(keys, results, strict=True))

    def _arguments(self, args: Sequence[Any], named: dict[str, Any]) -> tuple[Any, ...]:
        names = self.inputs
        if len(args) > len(names):
            raise NodeTypeError(f"function takes {len(names)} arguments ({self._names()}), {len(args)} given")
        values: dict[int, Any] = dict(enumerate(args))
        for name, value in named.items():
            at = self._place_of.get(name, -1)
            if at < 0:
                why = "two inputs have that name" if name in self._place_of else "no input has that name"
                raise NodeTypeError(f"function got an unexpected keyword {show_name(name)!r}: {why}; the inputs are {self._names()}")
            if at in values:
                raise NodeTypeError(f"function got two values for argument {show_name(name)!r}")
            values[at] = value
        missing = [i for i in range(len(names)) if i not in values]
        if missing:
            text = ", ".join(self._gates[i].name for i in missing)
            hint = ""
            if self._place_of.get("out") in missing:
                hint = "\n  hint    out= takes arrays for the results: an input of that name is given by its place"
            raise NodeTypeError(f"function takes {len(names)} arguments ({self._names()}), {len(values)} given; missing: {text}{hint}")
        return tuple(values[i] for i in range(len(names)))

    def _names(self) -> str:
        return ", ".join(g.name for g in self._gates) or "none"

    def _into(self, loaded: Loaded, args: Sequence[Any], out: Any) -> Any:
        """Results into the caller's arrays: directly where that is safe, else computed first and copied."""
        targets = in_structure(self.keys, out, len(self.outputs))
        safe = check_targets(targets, loaded.out_specs, self.keys)
        if safe:
            read = [a for a in args if isinstance(a, np.ndarray)]
            safe = not share_memory(targets, [*read, *[v.array for v in self._state]])
        results = loaded.call(args, targets if safe else None)
        if not safe:
            for t, r in zip(targets, results, strict=True):
                t[...] = r
        return out

    def bind(self, /, *args: Any, out: Any = None, **named: Any) -> Bound:
        """Fix the arrays: the result is called without arguments, without checks and without allocation.

        The arrays are read anew at every call; ones that would have to be converted are refused (DTypeError).
        """
        if named or len(args) != len(self._gates):
            args = self._arguments(args, named)
        arrays = []
        for g, a in zip(self._gates, args, strict=True):
            arrays.append(g.check(a, convert=isinstance(a, (int, float, bool, np.generic))))
        loaded = self._static
        if loaded is None:
            loaded, _ = self._special(arrays)
        for g, a, shape in zip(self._gates, arrays, loaded.shapes, strict=True):
            if a.shape != shape:
                raise g.wrong_shape(a.shape)
            if loaded.is_state(a):
                raise ShapeError(f"argument {g.name}: it is the memory of a variable that this function updates\n  hint    bind a copy of it")
        return Bound(self, loaded, arrays, out)

    # -- looking ---------------------------------------------------------------------------------------------------

    def _any_loaded(self, what: str) -> Loaded:
        if self._static is not None:
            return self._static
        if self._cache:
            return next(reversed(self._cache.values()))
        raise located(NodeTypeError("this function has named sizes: call it once, then its program for the last sizes can be shown"), what)

    @property
    def program(self) -> Program:
        """The program of the last sizes: printing it gives the listing."""
        return self._any_loaded("program").program

    @property
    def plan(self) -> Plan:
        """Bytes, arena and order of the program of the last sizes."""
        return Plan(self._any_loaded("plan"))

    def cost(self) -> list[dict[str, Any]]:
        """FLOPs and bytes of every node in running order, closed form, before anything runs.

        Bytes are those of a node's operands and its result, as if it ran alone; elements that are only moved count no FLOPs.
        """
        outputs = [*self.outputs, *[n for _, n in self.updates]]
        order = toposort(outputs)
        if not has_named_sizes(order):       # another order is chosen by bytes
            order = schedule(outputs, find_order)
        rows = []
        for n in order:
            if n.op.family == "leaf":
                continue
            nbytes = n.size * n.dtype.itemsize
            for x in n.inputs:
                nbytes = nbytes + x.size * x.dtype.itemsize
            rows.append({"node": n, "op": n.op.name, "flops": n.op.flops(n), "nbytes": nbytes,
                         "pass": "reverse" if n.origin is not None else "forward"})
        return rows

    def profile(self, /, *args: Any, **named: Any) -> list[dict[str, Any]]:
        """Run once and give nanoseconds per instruction with the node and line it belongs to. Variables with an update keep their values."""
        from ..runtime.profile import profile
        if named or len(args) != len(self._gates):
            args = self._arguments(args, named)
        loaded = self._static
        if loaded is None:
            loaded, args = self._special(args)      # type: ignore[assignment]
        return profile(loaded, args)

    def __repr__(self) -> str:
        n = len(self.outputs)
        return f"<graphdiff function ({self._names()}) -> {n} output{'s' if n != 1 else ''}>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from ..trace.draw import draw
        return {"text/plain": repr(self), "image/svg+xml": draw(self).svg}

    def __reduce__(self) -> Any:
        nodes = [*self.inputs, *self.outputs, *[x for pair in self.updates for x in pair]]
        return _rebuild, (nodes, len(self.inputs), self.keys, len(self.outputs), self.threads, tuple(self.passes))

    def __deepcopy__(self, memo: Any) -> Function:
        make, args = self.__reduce__()
        import copy
        return make(copy.deepcopy(args[0], memo), *args[1:])


def _rebuild(nodes: list[Node], n_in: int, keys: Any, n_out: int, threads: int, passes: tuple[str, ...]) -> Function:
    outputs = nodes[n_in:n_in + n_out]
    rest = nodes[n_in + n_out:]
    structure: Any = outputs[0] if keys is None else tuple(outputs) if keys is tuple else dict(zip(keys, outputs, strict=True))
    return Function(nodes[:n_in], structure, dict(zip(rest[::2], rest[1::2], strict=True)), threads, passes)


class Bound(Call):
    """A function with its arrays fixed: call() runs the program again on the arrays as they are now and returns `outputs`, which it writes.

    The call itself is in C (csrc/python/call.h).
    """

    __slots__ = ("_guards", "_held", "_workspace", "arguments", "function")

    def __init__(self, function: Function, loaded: Loaded, arrays: list[Any], out: Any) -> None:
        from ..runtime import native
        from ..runtime.execute import new_array
        self.function = function
        self.arguments = tuple(arrays)
        w = self._workspace = Workspace(loaded)
        if out is None:
            given = results = [new_array(s, d) for s, d in loaded.out_specs]
        else:
            given = in_structure(function.keys, out, len(function.outputs))
            results = []
            for i, (t, (shape, dtype)) in enumerate(zip(given, loaded.out_specs, strict=True)):
                name = called(function.keys, i)
                # Of a subclass a plain view, which tells the truth about its memory.
                t = Gate(name, shape, dtype).check(t, convert=False, read=False)
                if t.shape != shape or not t.flags.writeable:
                    raise ShapeError(f"{name}: a writeable array of shape {list(shape)} is needed")
                results.append(t)
            check_apart(results, function.keys)
            if share_memory(results, arrays):
                raise ShapeError("out: an array overlaps one of the arguments")
        self._held = [native.from_buffer(a) for a in [*arrays, *results]]
        for number, buffer in enumerate(self._held, FIRST):
            w.bases[number] = buffer
        # An array that something refers to weakly refuses resize(refcheck=False), which would free the memory pointed to.
        self._guards = [weakref.ref(a) for a in [*arrays, *results, *given]]
        keys = function.keys
        outputs = given[0] if keys is None else tuple(given) if keys is tuple else dict(zip(keys, given, strict=True))
        super().__init__(place(w.job), outputs, lambda status: loaded._more(w, status), (lambda: loaded.run(w)) if loaded.locks else None)

    def __reduce_ex__(self, protocol: Any) -> Any:
        # For copies too: a copy would write into the same arrays.
        raise NodeTypeError("a bound call cannot be pickled or copied: it is tied to its arrays and their addresses; pickle or copy "
                            "call.function, and bind it again: function.bind(*arrays)")


class Plan:
    """What a program will need, before it runs."""

    def __init__(self, loaded: Loaded) -> None:
        p = loaded.program
        self.arena_nbytes = p.arena_nbytes
        self.constants_nbytes = len(p.constants)
        self.program_nbytes = loaded.handle.nbytes
        self.input_nbytes = sum(b[2] for b in p.bases if b[0] == "input")
        self.output_nbytes = sum(b[2] for b in p.bases if b[0] == "output")
        self.variable_nbytes = sum(b[2] for b in p.bases if b[0] == "variable")
        self.order = [node for i in range(len(p.instrs)) for _, node in p.members(i)]
        self.instructions = len(p.instrs)
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for i, (_, outs, ins, _, _) in enumerate(p.instrs):
            for v in (*outs, *ins):
                if v.buffer >= 0:
                    first.setdefault(v.buffer, i)
                    last[v.buffer] = i
        # One row a buffer: offset, bytes, first and last instruction that touch it.
        self.buffers = [(p.places[b], p.buffers[b], first[b], last[b]) for b in sorted(first) if p.places[b] >= 0]

    def __str__(self) -> str:
        total = sum(b[1] for b in self.buffers)
        saved = f" ({total} without reuse)" if total != self.arena_nbytes else ""
        return (f"arena      {self.arena_nbytes} bytes{saved}\nconstants  {self.constants_nbytes} bytes\n"
                f"inputs     {self.input_nbytes} bytes\noutputs    {self.output_nbytes} bytes\n"
                f"variables  {self.variable_nbytes} bytes\nprogram    {self.program_nbytes} bytes, {self.instructions} instructions")

    __repr__ = __str__


def _flatten(outputs: Any) -> tuple[Any, list[Node]]:
    """(None for one node, the type tuple for a sequence, keys for a dict; the nodes)."""
    if isinstance(outputs, Mapping):
        return tuple(outputs), [_output(o) for o in outputs.values()]
    if isinstance(outputs, (list, tuple)):
        return tuple, [_output(o) for o in outputs]
    return None, [_output(outputs)]


def _output(o: Any) -> Node:
    if isinstance(o, (list, tuple, dict)):
        raise NodeTypeError("function: outputs nest only one level: a node, a list of nodes or a dict of nodes")
    if o is None or isinstance(o, (str, bytes, set, frozenset, Iterator)):
        raise NodeTypeError(f"function: outputs are a node, a list of nodes or a dict of nodes, not {type(o).__name__}")
    return argument(o, "outputs")


def _update(variable: Any, new: Any) -> Node:
    if not isinstance(variable, Node) or variable.op.name != "variable":
        raise NodeTypeError(f"updates: a key must be a variable, not {variable!r}")
    new = argument(new, f"updates: the new value of {variable.label}", variable.dtype)
    if new.dtype is not variable.dtype:
        raise DTypeError(f"updates: {variable.label} is {variable.dtype.name}, its new value {new.dtype.name}; cast it")
    if new.shape != variable.shape:
        raise ShapeError(f"updates: {variable.label} has shape {list(variable.shape)}, its new value {list(new.shape)}")
    return new


@public
def function(inputs: Any, outputs: Any, *, updates: Mapping[Node, Any] | None = None, threads: int | None = None,
             passes: Collection[str] | None = None) -> Function:
    """Compile outputs as a function of inputs: one program, run in C.

    inputs: a list of nodes (a name overrides an interior node too). outputs: a node, a list or a dict of nodes; the call returns an array, a
    tuple or a dict. updates: {variable: node}, written as one last step of the call. threads: None for all cores. passes: None for all,
    a collection of names, () for none. Raises NodeTypeError for an input that is needed but not listed.
    """
    if isinstance(inputs, Node):
        inputs = [inputs]
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads <= MOST_THREADS):
        raise NodeTypeError(f"function: threads must be an int from 1 to {MOST_THREADS:,}, or None, not {threads!r}")
    if not isinstance(inputs, Iterable) or isinstance(inputs, str):
        raise NodeTypeError(f"inputs must be a list of nodes, not {type(inputs).__name__}")
    if updates is not None and not isinstance(updates, Mapping):
        raise NodeTypeError(f"updates must be a dict {{variable: node}}, not {type(updates).__name__}")
    if passes is not None and not isinstance(passes, Collection):
        raise NodeTypeError(f"passes must be None or a collection of names, not {type(passes).__name__}")
    return Function(list(inputs), outputs, updates, threads, passes)


@public
def evaluate(outputs: Any, at: Mapping[Node, Any] | None = None) -> Any:
    """Values of a node (or a list or dict of nodes) for given inputs: {input: array}. Compiles for this one call."""
    at = {} if at is None else at
    if not isinstance(at, Mapping):
        raise NodeTypeError(f"values are given as a dict {{input: array}}, not as {type(at).__name__}")
    try:
        return Function(list(at), outputs, None, 1, None, evaluates=True)(*at.values())
    except GraphdiffError as error:
        raise located(error, "evaluate") from None       # the outputs are no operands of what failed


