"""The core's search for an order (csrc/core/order.c) as plain Python over nodes: what it is tested against."""
from graphdiff.plan.schedule import SHOWN


class Numbered:
    """Nodes by their number in the order in which they were made."""

    def __init__(self, made, outputs, nbytes):
        self.made, self.outputs, self.nbytes = made, outputs, nbytes
        self.elementwise = [n.op.family == "elementwise" for n in made]
        self.reads = []     # the memory in the arena that a node reads, each once
        owner = {}              # whose memory it is: a node's own, or of a view that of what it shows
        own = owner.__getitem__
        for i, n in enumerate(made):
            inputs = n.inputs
            owner[n] = i
            if len(inputs) == 1:
                b = owner[inputs[0]]
                self.reads.append((b,) if nbytes[b] else ())
                if n.op.name in SHOWN:
                    owner[n] = b
            else:
                self.reads.append([b for b in set(map(own, inputs)) if nbytes[b]] if inputs else ())

    def peak(self, order):
        """The bytes that are there at once at most, about: an elementwise operation may write over an operand that dies with it."""
        nbytes, reads, elementwise = self.nbytes, self.reads, self.elementwise
        last = [-1] * len(order)
        for at, i in enumerate(order):
            for b in reads[i]:
                last[b] = at
        now = most = 0
        for at, i in enumerate(order):
            own, dying = nbytes[i], 0
            for b in reads[i]:
                if last[b] == at:
                    dying += nbytes[b]
            here = now + own
            now = here - dying
            if elementwise[i] and dying:
                here = max(now, here - own)
            if here > most:
                most = here
            if own and last[i] < 0:              # nobody reads it
                now -= own
        return most

    def depth_first(self):
        """Operands right before what uses them; of several, first the one that needs most beside what it leaves (Sethi, Ullman 1970)."""
        nbytes = self.nbytes
        number = dict(zip(self.made, range(len(self.made)), strict=True))
        get = number.__getitem__
        needs = []
        frees = []                    # what it needs beside what it leaves
        first = []
        for own, n in zip(nbytes, self.made, strict=True):
            operands = list(map(get, n.inputs))
            if len(operands) == 1:
                x, = operands
                most, held = needs[x], nbytes[x]
            else:
                if len(operands) == 2:
                    a, b = operands
                    operands = [a] if a == b else [b, a] if frees[b] > frees[a] else operands
                elif operands:
                    operands = sorted(dict.fromkeys(operands), key=frees.__getitem__, reverse=True)
                held = most = 0
                for x in operands:
                    if held + needs[x] > most:
                        most = held + needs[x]
                    held += nbytes[x]
            if held + own > most:
                most = held + own
            needs.append(most)
            frees.append(most - own)
            first.append(operands)
        done = bytearray(len(needs))
        order = []
        stack = [number[o] for o in reversed(self.outputs)]
        while stack:
            i = stack.pop()
            if i < 0:                            # its operands are done
                i = ~i
            elif done[i]:
                continue
            elif first[i]:
                stack.append(~i)
                stack.extend([x for x in reversed(first[i]) if not done[x]])
                continue
            if not done[i]:
                done[i] = 1
                order.append(i)
        return order
