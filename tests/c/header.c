/* The header alone, as strict C11: every declaration is usable without another include.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "llb.h"
#include "llb.h"

#include "header_cases.h"
