// See base/reused_lists.h.
#pragma once

#include "base/reused_lists.h"

namespace kvr::wire {

using kvr::ReusedLists;

}  // namespace kvr::wire
