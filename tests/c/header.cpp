// The header alone, as strict C++17. SPDX-License-Identifier: MIT OR Apache-2.0
#include "llb.h"
#include "llb.h"

#include "header_cases.h"
