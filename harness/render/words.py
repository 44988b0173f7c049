"""What a doubt or a verdict means and what to do about it, in the reader's words."""

from __future__ import annotations

from harness.model import Clock, Doubt, Verdict

#: A doubt -> what it says of the number, and the remedy.
DOUBTS: dict[Doubt, str] = {
    Doubt.NOISY: "the times vary more than asked; close other programs, or raise --budget",
    Doubt.THROTTLED: "the device lowered its clocks; let it cool, or lock its clocks",
    Doubt.FEW_SAMPLES: "too few samples or processes for a sure interval; raise --processes "
    "or --budget",
    Doubt.BUDGET: "the time to measure ran out before the interval was narrow; raise --budget",
    Doubt.HOST_BOUND: "the host takes longer to launch than the device to compute; use fewer "
    "launches, or a graph",
    Doubt.SYNCHRONISES: "the submission waits for the device inside its call; leave that to "
    "the harness",
    Doubt.REDUCED_PRECISION: "right within the task's tolerance, but less exact than float32 "
    "sums; accumulate wider",
    Doubt.EMULATED: "this device lacks the hardware and something stood in for it; never ranked",
    Doubt.ROOT_WORKER: "the submission ran as root; never ranked; run the harness as another "
    "user, or install bubblewrap",
    Doubt.SHARED_GPU: "other work or MPS shares this GPU; never ranked; free the GPU",
    Doubt.SHARED_CPU: "other programs kept the processors busy while it was timed; end them and "
    "run it again",
    Doubt.HOST_EXCHANGE: "inputs went through host memory, for this system exports no device "
    "memory",
    Doubt.NO_FLOOR: "the time was held against no physical floor: the task does not say what must "
    "be read, or no bandwidth is known for this device",
    Doubt.UNSIGNED_IMPORT: "it came from a file that nobody vouches for; ask for a signed one and "
    "import it with --signers, or run the submission here",
}

#: A verdict whose name does not say it all -> what happened, and the remedy.
VERDICTS: dict[Verdict, str] = {
    Verdict.UNORDERED: "work ran on a stream that does not wait for the current one; "
    "add `side.wait_stream(torch.cuda.current_stream())` and its counterpart",
    Verdict.INPUT_MODIFIED: "the submission wrote to inputs that are not its own; copy them first",
    Verdict.TAMPERED: "the submission's claims and the judge's own evidence disagree",
    Verdict.IMPLAUSIBLE: "faster than this device can move the bytes that the task needs",
    Verdict.UNSUPPORTED: "this device cannot run it: neither passed nor failed",
    Verdict.OUT_OF_MEMORY: "it needs more memory than the task's limit or the device allows",
    Verdict.TIMED_OUT: "it was still running at its deadline: limits in shapes.yaml, or --timeout",
    Verdict.PROTOCOL_ERROR: "its process sent something that is no answer",
}

#: Whose clock the times are from.
CLOCKS: dict[Clock, str] = {
    Clock.JUDGE: "judge's clock",
    Clock.WORKER: "worker's clock, bounded by the judge's",
    Clock.HOST: "host clock",
}
