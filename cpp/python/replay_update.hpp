#pragma once

#include <nanobind/nanobind.h>

/// Add the classes ReplayUpdate and QUpdate to the module. Requires TrainableNetwork and FrozenNetwork.
void registerReplayUpdate(nanobind::module_& module);
