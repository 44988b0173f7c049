"""Stages add up where the time of a run went."""

from harness.progress import Progress, Stages


def test_stages_add_up_in_the_order_they_first_came() -> None:
    ticks = iter([0, 10, 30, 60, 100])
    seen: list[str] = []
    stages = Stages(lambda step: seen.append(step.stage), now=lambda: next(ticks))
    for stage in ("checking", "timing", "checking"):
        stages(Progress(stage))
    assert stages.spent() == (("starting", 10), ("checking", 20 + 40), ("timing", 30))
    assert seen == ["checking", "timing", "checking"]
