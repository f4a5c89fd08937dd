#pragma once

#include <nanobind/nanobind.h>

/// Add the class PolicyUpdate to the module. Requires TrainableNetwork.
void registerPolicyUpdate(nanobind::module_& module);
