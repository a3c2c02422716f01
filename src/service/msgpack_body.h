// A request body in MessagePack: a map with the field names of the JSON form as keys.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "service/number_list.h"
#include "service/request_body.h"
#include "wire/msgpack_reader.h"

namespace kvr::service {

// Lists are read straight from the bytes; nothing is built but the places of the fields and the
// first list of 32-bit numbers, so that its bytes are gone over once.
class MsgpackBody final : public RequestBody {
 public:
  static Result<std::unique_ptr<RequestBody>> Parse(std::string_view bytes);

 protected:
  Value Look(std::string_view field) override;
  Fault ReadTokens(std::string_view field, std::vector<TokenId>& out) override;
  Fault ReadHashes(std::string_view field, std::vector<BlockHash>& out) override;
  bool ReadMmInfos(std::string_view field, std::vector<hashing::BlockMm>& out) override;

 private:
  struct Place {
    std::string_view field;
    std::size_t offset;  // of the value
  };

  explicit MsgpackBody(std::string_view bytes);
  Result<void> FindFields();
  // Passes over the value of a field, and keeps it when it is a list as `list_` is.
  bool PassOver(std::string_view field);
  // The cursor is then at the field's value; false when there is none.
  bool SeekTo(std::string_view field);
  // The element count of the list in a field; the cursor is then at its first element.
  std::size_t EnterList(std::string_view field);
  bool ReadMmInfo(std::size_t block, std::vector<hashing::BlockMm>& out);

  wire::MsgpackReader reader_;
  std::vector<Place> places_;
  NumberList list_;  // the first of the body; no numbers: there is none
};

}  // namespace kvr::service
