"""User program with strict types that uses every public name of `rl4sys`. mypy checks it; it is never run."""

from __future__ import annotations

from pathlib import Path

import rl4sys
from rl4sys import Callback, MetricsTable, Model, Plot, RunComparison, RunHandle, RunList, SeriesHandle, VideoFile


class Watch(Callback):
    def on_checkpoint(self, path: Path) -> bool | None:
        return path.exists()


def research() -> RunHandle:
    run: RunHandle = rl4sys.train("ppo_cartpole", seed=1, callbacks=[Watch(), rl4sys.StopAtReturn(400.0)])
    runs: RunList = rl4sys.train(algorithm="sac", environment="Pendulum-v1", seed=[1, 2], total_timesteps=1000)
    comparison: RunComparison = rl4sys.compare(run, runs, by="algorithm.name")
    plot: Plot = comparison.plot()
    plot.save("curves.svg")
    video: VideoFile = run.video("best.mp4", episodes=2, checkpoint="best")
    print(video.path, run.evaluate(episodes=20).mean_return, run.metrics("reward"), run.reward, run.seed)
    found: RunList = rl4sys.find_runs("reward>200", algorithm="ppo", best=10)
    print(found.compare(), [one.id for one in found])
    tables: list[str] = [comparison.to_latex(), comparison.to_markdown(), comparison.to_csv()]
    table: Path = comparison.export("results.tex")
    print(tables, table)
    loaded: RunHandle = rl4sys.load_run(run.path)
    return loaded.resume(total_timesteps=2000, callbacks=rl4sys.StopWithoutImprovement(evaluations=3))


def policies(run: RunHandle) -> None:
    policy: rl4sys.Policy = rl4sys.load_policy(run, checkpoint="best", seed=1)
    policy.reset()
    print(policy.act([0.0] * 4, deterministic=True), policy.predict([0.0] * 4), policy.spec, policy.version)
    policy.save("policy.safetensors")
    policy.export("policy.onnx")
    print(policy.describe())


def search() -> None:
    series: SeriesHandle = rl4sys.sweep({"base_config": "ppo_cartpole", "sweep": {"algorithm.lr": [1e-3]}}, jobs=2)
    study: SeriesHandle = rl4sys.tune("ppo_tune", n_trials=3)
    print(series.best, study.resume().runs, series.failures, study.path)


def models() -> list[Model]:
    classes: list[type[Model]] = [
        rl4sys.A2C,
        rl4sys.BC,
        rl4sys.C51,
        rl4sys.DDPG,
        rl4sys.DQN,
        rl4sys.IQL,
        rl4sys.PPO,
        rl4sys.QRDQN,
        rl4sys.RPO,
        rl4sys.Rainbow,
        rl4sys.Reinforce,
        rl4sys.SAC,
        rl4sys.SQL,
        rl4sys.TD3,
        rl4sys.TRPO,
    ]
    made = [kind("MlpPolicy", "CartPole-v1", verbose=1).learn(1000) for kind in classes]
    print(made[0].predict([0.0] * 4), made[0].save("model"), made[0].run.status)
    return made


def live() -> None:
    server: rl4sys.ServerHandle
    with rl4sys.serve(port=0, root="live") as server:
        agent = rl4sys.Agent(server.address, observation=8, action=4, algorithm={"name": "dqn"})
        trajectory, action = agent.request_for_action(None, [0.0] * 8)
        agent.add_to_trajectory(trajectory, action)
        agent.close()


def errors() -> str:
    table = MetricsTable({"step": [0.0], "reward": [1.0]})
    try:
        research()
    except rl4sys.RL4SysError as problem:
        return str(problem)
    return f"{rl4sys.__version__} {table['reward']}"
