"""What every program must be: no instruction reads what none before it has written."""
from counting import checked


def reads_what_was_written(f):
    """By buffer, or by place where a copy to where it already is was left out."""
    buffers, places = set(), set()
    where = f.program.places
    for op, outs, ins, *_ in f.program.instrs:
        for v in ins:
            there = v.buffer < 0 or 0 in v.shape or v.buffer in buffers or where[v.buffer] in places
            assert there, f"{op} reads what is not there yet\n{f.program}"
        buffers.update(v.buffer for v in outs)
        places.update(where[v.buffer] for v in outs if v.buffer >= 0)
    checked()
