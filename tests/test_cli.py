"""The command line: values, files, and messages that point at the column."""
from __future__ import annotations

import math
import subprocess
import sys

import pytest

import graphdiff as gd
from graphdiff.cli import main


def run(capsys, *argv):
    status = main(list(argv))
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_trace_prints_the_survey_table(capsys):
    status, out, err = run(capsys, "trace", "log(x1) + x1*x2 - sin(x2)", "x1=2", "x2=5")
    assert (status, err) == (0, "")
    assert "11.65" in out and "5.5" in out and "1.716" in out


def test_trace_saves_by_suffix(capsys, tmp_path):
    for suffix in ("html", "svg", "md", "csv", "txt", "tex", "dot"):
        path = tmp_path / f"t.{suffix}"
        assert run(capsys, "trace", "x*x", "x=3", "--save", str(path))[0] == 0
        assert path.stat().st_size > 20


@pytest.mark.parametrize(("expression", "value"), [
    ("-x**2", -9.0), ("2**3**2", 512.0), ("2*-x", -6.0), ("(1 + x)*(1 - x)", -8.0), ("1e3 + x", 1003.0), ("x - 1 - 1", 1.0),
    ("6/x/2", 1.0), ("ln(e)", 1.0), ("max(x, 5)", 5.0), ("x**-1", 1 / 3), ("sin(pi)", math.sin(math.pi)), (".5*x", 1.5),
    ("2**-x*8", 1.0),
])
def test_expressions_have_pythons_precedence(expression, value):
    import graphdiff as gd
    from graphdiff.cli.expression import parse
    x = gd.input("x")
    assert float(gd.evaluate(parse(expression, {"x": x}), {x: 3.0})) == pytest.approx(value, abs=1e-15)


@pytest.mark.parametrize(("expression", "words"), [
    ("x +", "column 4"), ("x ** ", "value is needed"), ("(x", ") is missing"), ("y", "'y' has no value"), ("foo(x)", "not a function"),
    ("x)", "unexpected ')'"), ("1.2.3", "not a number"), ("__import__('os')", "not a function"), ("(" * 500 + "x", "nested"),
    ("x" * 20_000, "characters"), ("x $ y", "unexpected '$'"), ("sin(x, x)", "sin"), ("", "value is needed"), ("sin x", "column 1: sin is a function"),
    ("-" * 500 + "x", "nested"), ("x**" * 500 + "x", "nested"),
    ("x + x²", "column 6: unexpected"), ("sin(" * 200 + "x", "nested"), ("x,x", "column 2"), ("max(x)", "column 1"), ("x & x", "column 3"),
    ("x + sin(", "column 9"), ("2 + lambda", "column 5"),
])
def test_bad_expressions_are_one_message(capsys, expression, words):
    status, out, err = run(capsys, "trace", expression, "x=3")
    assert status == 2 and out == "" and words in err and "Traceback" not in err


@pytest.mark.parametrize(("values", "words"), [(["x"], "not name=value"), (["x=abc"], "not a number"), (["x=1", "x=2"], "twice")])
def test_bad_values_are_one_message(capsys, values, words):
    status, _, err = run(capsys, "trace", "1 + 1", *values)
    assert status == 2 and words in err


def test_words_that_are_neither_values_nor_options(capsys):
    assert run(capsys, "trace", "x", "-x=1")[2] == "graphdiff trace: '-x=1' is not name=value\n"
    assert run(capsys, "trace", "x", "x=1", "--bogus")[2] == "graphdiff trace: '--bogus' is not name=value\n"
    assert "'t' has no suffix to say how; there are .html" in run(capsys, "trace", "x", "x=1", "--save", "t")[2]


def test_a_reader_that_stops_is_no_error():
    python = [sys.executable, "-m", "graphdiff", "trace", "+".join(["x*x"] * 2000), "x=0.5"]
    process = subprocess.Popen(python, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline().startswith("Primal trace")
    process.stdout.close()
    assert process.stderr.read() == "" and process.wait(60) == 141
    process.stderr.close()


def test_a_number_alone_and_a_long_sum(capsys):
    status, out, _ = run(capsys, "trace", "2 + 1")
    assert status == 0 and "= 3" in out
    status, out, _ = run(capsys, "trace", "-x**2", "x=3", "--wrt", "x")
    assert status == 0 and "y = v2 = -9" in out
    assert "column 4" in run(capsys, "trace", "-x*$", "x=3")[2]
    assert run(capsys, "trace", "+".join(["x"] * 4000), "x=0.5")[0] == 0


def test_options_may_stand_anywhere(capsys, tmp_path):
    want = run(capsys, "trace", "x*y", "x=3", "y=2", "--wrt", "x")
    assert want[0] == 0 and "x" in want[1]
    for arguments in (["x*y", "--wrt", "x", "x=3", "y=2"], ["x*y", "x=3", "--wrt=x", "y=2"], ["--wrt", "x", "x*y", "x=3", "y=2"],
                      ["--wrt", "x", "--", "x*y", "x=3", "y=2"]):
        assert run(capsys, "trace", *arguments) == want
    assert run(capsys, "trace", "x*y", "--save", str(tmp_path / "t.txt"), "x=3", "y=2")[0] == 0 and (tmp_path / "t.txt").exists()
    with pytest.raises(SystemExit):
        run(capsys, "trace", "x*y", "x=3", "y=2", "--wrt")
    assert "--wrt: expected one argument" in capsys.readouterr().err


def test_unknown_wrt(capsys):
    assert "no such input" in run(capsys, "trace", "x*x", "x=3", "--wrt", "z")[2]
    assert run(capsys, "trace", "x*x", "x=3", "z=1", "--wrt", "z")[2] == "graphdiff trace: --wrt z: the expression does not depend on it\n"
    assert run(capsys, "trace", "log(x, x)", "x=3")[2].startswith("graphdiff trace: column 1: log: takes 1 operand, 2 given\n")


def test_numbers_beyond_float64(capsys):
    assert "'1e400' in 'x=1e400' is beyond the largest float64" in run(capsys, "trace", "x*x", "x=1e400")[2]
    assert run(capsys, "trace", "x*x", "x=inf")[0] == 0


def test_version(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0 and capsys.readouterr().out == f"graphdiff {gd.__version__}\n"


def test_info(capsys):
    status, out, _ = run(capsys, "info")
    assert status == 0 and "graphdiff" in out and "active" in out and "threads" in out and "renderer" in out


@pytest.mark.parametrize("option", ["--save", "--chart"])
def test_bench_refuses_a_file_in_no_directory_before_it_measures(option, capsys):
    assert main(["bench", "matmul_8", option, "/no/such/directory/x.json"]) == 2
    printed = capsys.readouterr()
    assert "no such directory" in printed.err and not printed.out


@pytest.mark.parametrize("options", [("--seconds", "nan"), ("--seconds", "-1"), ("--seconds", "0"), ("--chart", "rows.foo"), ("--chart", "rows")])
def test_bench_refuses_options_before_it_measures(options, capsys):
    assert main(["bench", "matmul_8", *options]) == 2
    printed = capsys.readouterr()
    assert options[0] in printed.err and not printed.out


def test_bench_against_all_asks_every_peer_that_is_not_compiled(monkeypatch):
    asked = []
    monkeypatch.setattr("graphdiff.bench.run.run", lambda names, against, *rest, **options: asked.append(against) or 0)
    assert main(["bench", "matmul_8", "--against", "all"]) == 0
    assert asked == [["numpy", "autograd", "torch", "jax", "pytensor", "casadi", "numexpr"]]
