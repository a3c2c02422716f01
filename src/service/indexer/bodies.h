// The indexer's request bodies, read and checked, apart from what is done with them.
//
// Errors are those of RequestBody. Unknown fields are no error here: they are noted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "fleet/catalog.h"
#include "hashing/block_hash.h"
#include "model/ids.h"
#include "service/request_body.h"

namespace kvr::service {

struct BodyNotes {
  std::vector<std::string> unknown_fields;
  bool tenant_id = false;  // the old name of the routing group was given; it has no effect
};

struct RegisterBody {
  Rank rank;
  Partition partition;
  fleet::EventSource source;
  std::uint32_t block_size = 0;
  bool replace = false;
  BodyNotes notes;
};
Result<RegisterBody> ReadRegisterBody(std::string_view json);

struct UnregisterBody {
  WorkerId worker{};
  std::string model_name;
  std::optional<std::string> routing_group;
  std::optional<std::uint32_t> dp_rank;
  BodyNotes notes;
};
Result<UnregisterBody> ReadUnregisterBody(std::string_view json);

struct QueryBody {
  std::vector<TokenId> tokens;
  Partition partition;
  std::string lora_name;
  std::string cache_salt;
  bool eagle = false;
  std::vector<hashing::BlockMm> mm;  // ascending by block
  bool include_zero = false;
  BodyNotes notes;
};
Result<QueryBody> ReadQueryBody(std::string_view bytes, BodyForm form = BodyForm::kJson);

struct QueryByHashBody {
  // "kind": "block" hashes, or those of "sequence"s, as hashing::ChainHashes makes them.
  bool are_sequences = false;
  std::vector<BlockHash> blocks;  // whatever they are
  Partition partition;
  bool include_zero = false;
  BodyNotes notes;
};
// A cache salt is kInvalidArgument: the hashes have it in them already.
Result<QueryByHashBody> ReadQueryByHashBody(std::string_view bytes,
                                            BodyForm form = BodyForm::kJson);

struct PeerBody {
  std::string url;
  BodyNotes notes;
};
Result<PeerBody> ReadPeerBody(std::string_view json);

}  // namespace kvr::service
