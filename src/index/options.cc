#include "index/options.h"

namespace kvr::index {

Result<void> IndexOptions::Validate() const {
  if (ranks_max == 0)
    return Fail(ErrorCode::kInvalidArgument, "index ranks_max is 0; it must be at least 1");
  if (blocks_max == 0 || blocks_max > 0xFFFF'FF00u) {
    return Fail(ErrorCode::kInvalidArgument,
                "index blocks_max must be between 1 and 4294967040, the range of a block number");
  }
  return {};
}

}  // namespace kvr::index
