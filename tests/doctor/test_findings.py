"""A check that breaks is a finding, and a block says it all."""

import json
import math

import pytest

from sphereface.doctor.findings import Check, Examination, Finding, Measured, Skipped, find


def raising(error):
    def run():
        raise error

    return Check("broken", run)


@pytest.mark.parametrize(
    ("value", "limit", "verdict"),
    [(0.0, 0.0, "PASS"), (1e-6, 1e-5, "PASS"), (1e-4, 1e-5, "FAIL"), (math.nan, 1.0, "FAIL"), (math.inf, 1.0, "FAIL")],
)
def test_a_check_passes_up_to_its_limit_and_never_with_what_is_no_number(value, limit, verdict):
    found = find(Check("this", lambda: Measured(value, limit)))
    assert found.verdict == verdict
    assert f"limit {limit:g}" in found.line()


def test_an_error_is_a_failure_in_one_line_that_says_where():
    found = find(raising(RuntimeError("out of memory\nand a long story")))
    assert found.verdict == "FAIL"
    assert found.note.startswith("out of memory (RuntimeError in test_findings.py:")
    assert "\n" not in found.line()


def test_of_the_traceback_of_another_process_the_last_line_is_told():
    text = "process 1 failed: Traceback (most recent call last):\n  File 'a.py'\nValueError: no such device\n"
    assert find(raising(RuntimeError(text))).note.startswith("ValueError: no such device (")


def test_an_error_without_a_word_still_says_what_it_is_and_where():
    assert find(raising(AssertionError())).note.startswith("broken (AssertionError in test_findings.py:")


def test_what_makes_no_sense_here_is_skipped_with_its_reason():
    assert find(raising(Skipped("one GPU; it takes two"))).line().endswith("one GPU; it takes two")
    assert find(raising(Skipped("one GPU; it takes two"))).verdict == "SKIP"


def test_ctrl_c_is_no_finding():
    with pytest.raises(KeyboardInterrupt):
        find(raising(KeyboardInterrupt()))


def test_the_block_and_the_json_hold_everything():
    findings = [Finding("good", "PASS", 1e-7, 1e-5), Finding("bad", "FAIL", math.nan, 1.0), Finding("not", "SKIP")]
    whole = Examination("cpu", {"python": "3.11", "torch": "2.13"}, findings, 3.2)
    lines = whole.block().splitlines()
    assert lines[0] == lines[-1] == "```"
    assert lines[-2] == "1 passed, 1 failed, 1 skipped in 3 s"
    assert sum(line.startswith(("PASS", "FAIL", "SKIP")) for line in lines) == 3
    payload = json.loads(json.dumps(whole.as_dict(), allow_nan=False))
    assert [check["measured"] for check in payload["checks"]] == [1e-7, None, None]
    assert payload["failed"] == 1
