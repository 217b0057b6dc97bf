// Precompiled by the files of frontend/pt2, half of whose compile time simdjson.h is otherwise.
#pragma once
#include "std_pch.h"

#include <simdjson.h>
