/* The header alone, as strict C11: every declaration can be used, and nothing else must be included first.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "llb.h"
#include "llb.h"

#include "header_cases.h"
