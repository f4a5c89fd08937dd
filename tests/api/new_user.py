import gymnasium
import numpy as np

import rl4sys


class Room(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-50.0, 50.0, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.room, self.time = self.np_random.uniform(5.0, 30.0), 0
        return np.array([self.room / 10.0 - 2.0], np.float32), {}

    def step(self, action):
        self.room += 2.0 * action - 0.1 * (self.room - 5.0)
        self.time += 1
        return np.array([self.room / 10.0 - 2.0], np.float32), -abs(self.room - 20.0), False, self.time == 50, {}


runs = [rl4sys.train(algorithm=name, environment=Room(), total_timesteps=20_000, seed=1) for name in ("ppo", "a2c")]
print(rl4sys.compare(*runs, by="algorithm.name"))
runs[0].policy("best").save("room.safetensors")
