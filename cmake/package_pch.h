// Precompiled by the files of package: the plan's form in the package.
#pragma once
#include "std_pch.h"

#include "abi/plan_generated.h"
