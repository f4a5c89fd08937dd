"""Loading, composition, overriding, validation and migration of configs. Does not import torch."""

from rl4sys.config.files import SHIPPED, VERSION, find, inherited, load, read, shipped_names
from rl4sys.config.model import OTHER_NAMES, Config, did_you_mean, parse
from rl4sys.config.settings import Settings, change, differences, merged, override
from rl4sys.config.yaml_format import parse_yaml, to_yaml

__all__ = [
    "OTHER_NAMES",
    "SHIPPED",
    "VERSION",
    "Config",
    "Settings",
    "change",
    "did_you_mean",
    "differences",
    "find",
    "inherited",
    "load",
    "merged",
    "override",
    "parse",
    "parse_yaml",
    "read",
    "shipped_names",
    "to_yaml",
]
