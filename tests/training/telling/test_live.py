"""The live line of a run."""

import io
import math

import numpy as np
import pytest
from rich.console import Console

from sphereface.training.telling.live import LiveLine, Meter, clock_time


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_speed_and_time_left_are_those_of_the_last_half_minute():
    clock = Clock()
    meter = Meter(1000, start=100, clock=clock)
    assert math.isnan(meter.images_per_second)
    assert math.isnan(meter.seconds_left)
    for step in range(101, 201):  # one step a second, 64 images each
        clock.now += 1
        meter.see(step, 1.0, images=64)
    assert meter.images_per_second == pytest.approx(64)
    assert meter.seconds_left == pytest.approx(800)
    for step in range(201, 301):  # then twice as fast
        clock.now += 0.5
        meter.see(step, 1.0, images=64)
    assert meter.images_per_second == pytest.approx(128)
    assert meter.seconds_left == pytest.approx(350)


def test_the_smoothed_loss_is_a_weighted_mean_that_no_nan_spoils():
    meter, losses = Meter(10), [4.0, 2.0, 3.0, 1.0]
    for step, loss in enumerate(losses, 1):
        meter.see(step, loss, images=1)
    weights = [meter.MEMORY ** (len(losses) - 1 - place) for place in range(len(losses))]
    expected = np.average(losses, weights=weights)
    assert meter.loss == pytest.approx(expected)
    meter.see(5, math.nan, images=1)
    assert math.isnan(meter.loss)
    meter.see(6, float(expected), images=1)
    assert meter.loss == pytest.approx(expected)
    meter.rewind(2)
    meter.see(3, 7.0, images=1)
    assert (meter.step, meter.loss) == (3, pytest.approx(7.0))


def test_where_there_is_no_terminal_a_plain_line_comes_now_and_then():
    clock, out = Clock(), io.StringIO()
    with LiveLine(200, every=30, console=Console(file=out, width=40), clock=clock) as line:
        for step in range(1, 201):
            clock.now += 1
            line.update(step, loss=2.5, lr=0.1, images=128, lambda_=892.857)
        line.say("saved [checkpoint]")
    lines = out.getvalue().splitlines()
    assert [text.split()[1] for text in lines[:-1]] == [f"{step}/200" for step in (1, 31, 61, 91, 121, 151, 181, 200)]
    assert lines[1] == "step 31/200  loss 2.5  lambda 892.9  lr 0.1  128 images/s  0:02:49 left"
    assert lines[-1] == "saved [checkpoint]"
    assert "\x1b" not in out.getvalue()


def test_on_a_terminal_one_line_is_rewritten_and_what_is_said_stays():
    clock, out = Clock(), io.StringIO()
    console = Console(file=out, width=60, force_terminal=True, legacy_windows=False)
    with LiveLine(50, console=console, clock=clock) as line:
        for step in range(1, 51):
            clock.now += 1
            line.update(step, loss=float("nan"), lr=1e-3, images=2)
            if step == 20:
                line.say("validated")
    text = out.getvalue()
    assert "step 50/50" in text
    assert "validated\n" in text
    assert "\x1b[2K" in text  # it erases itself
    assert "loss nan" in text
    assert "lambda" not in text


def test_the_line_leaves_standard_output_alone(capsys):
    with LiveLine(5, clock=Clock()) as line:
        line.update(1, loss=1.0, lr=0.1, images=4)
        print("result")
    caught = capsys.readouterr()
    assert caught.out == "result\n"
    assert caught.err.startswith("step 1/5  loss 1  lr 0.1")


@pytest.mark.parametrize(("seconds", "text"), [(0.2, "0:00:00"), (3725, "1:02:05"), (100 * 3600 + 59.6, "100:01:00")])
def test_times_are_hours_minutes_and_seconds(seconds, text):
    assert clock_time(seconds) == text
