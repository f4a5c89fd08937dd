#pragma once

#include <nanobind/nanobind.h>

/// Adds the class PolicyUpdate to the module; Layers has to be there already.
void registerPolicyUpdate(nanobind::module_& module);
