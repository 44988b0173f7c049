"""Stages add up where the time of a run went."""

from harness.progress import STILL, Progress, Stages


def test_stages_add_up_in_the_order_they_first_came() -> None:
    ticks = iter([0, 10, 30, 60, 100])
    seen: list[str] = []
    stages = Stages(lambda step: seen.append(step.stage), now=lambda: next(ticks))
    for stage in ("checking", "timing", "checking"):
        stages(Progress(stage))
    assert stages.spent() == (("starting", 10), ("checking", 20 + 40), ("timing", 30))
    assert seen == ["checking", "timing", "checking"]


def test_a_sign_of_life_belongs_to_the_stage_it_comes_in() -> None:
    ticks = iter([0, 10, 30])
    seen: list[Progress] = []
    stages = Stages(seen.append, now=lambda: next(ticks))
    for step in (Progress("checking"), STILL, STILL):
        stages(step)
    assert stages.spent() == (("starting", 10), ("checking", 20))
    assert seen == [Progress("checking"), STILL, STILL]
