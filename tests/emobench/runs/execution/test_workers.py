"""What a worker makes next: its own model's tasks, then trainings, then what is ready; each once."""

from __future__ import annotations

import random

from emobench.core.errors import RunError
from emobench.runs.execution.workers import Job, Schedule

BASE = ""


def training(key: str) -> Job:
    return Job(key, key, True, key, "its training")


def task(name: str, model: str) -> Job:
    return Job(f"{name} of {model}", model, False, model, name)


def test_a_worker_goes_on_with_its_model_and_trainings_come_before_other_tasks() -> None:
    schedule = Schedule([task("a", BASE), training("mle"), task("a", "mle"), task("b", "mle"), training("emo")])
    first = schedule.next(None)
    assert first == training("mle")
    assert schedule.next(None) == training("emo")
    assert schedule.next(None) == task("a", BASE)
    assert schedule.next(None) is None  # the tasks of mle wait for its training
    assert not schedule.is_empty
    schedule.settle(first, None)
    assert schedule.next("mle") == task("a", "mle")
    assert schedule.next("emo") == task("b", "mle")  # an idle worker helps
    assert schedule.is_empty


def test_a_failed_training_fails_its_tasks_and_no_others() -> None:
    schedule = Schedule([training("mle"), task("a", "mle"), task("b", "mle"), task("a", "made before")])
    error = RunError("no memory")
    job = schedule.next(None)
    assert job is not None
    schedule.settle(job, error)
    assert schedule.ended == [("mle", error), ("a of mle", error), ("b of mle", error)]
    assert schedule.next(None) == task("a", "made before")
    assert schedule.is_empty


def test_any_order_of_ends_gives_each_job_out_once() -> None:
    generator = random.Random(0)
    for _ in range(200):
        models = [f"model {i}" for i in range(generator.randrange(1, 6))]
        jobs = [training(model) for model in models if generator.random() < 0.7]
        jobs += [task(str(i), model) for model in (*models, BASE) for i in range(generator.randrange(4))]
        generator.shuffle(jobs)
        schedule, running, given = Schedule([*jobs, *jobs[:2]]), [], []
        while running or not schedule.is_empty:
            job = schedule.next(generator.choice([*models, None]))
            if job is not None and generator.random() < 0.8:
                running.append(job)
                given.append(job)
            elif job is not None:
                given.append(job)
                schedule.settle(job, None)
            if running and (job is None or generator.random() < 0.5):
                schedule.settle(running.pop(generator.randrange(len(running))), None)
        assert sorted(job.key for job in given) == sorted(job.key for job in jobs)
        assert len(schedule.ended) == len(jobs)
