// A request body in JSON.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "service/request_body.h"

namespace kvr::service {

// Numbers beyond 64 bits are kUnprocessable, by name of their field.
class JsonBody final : public RequestBody {
 public:
  static Result<std::unique_ptr<RequestBody>> Parse(std::string_view text);
  ~JsonBody() override;

 protected:
  Value Look(std::string_view field) override;
  Fault ReadTokens(std::string_view field, std::vector<TokenId>& out) override;
  Fault ReadHashes(std::string_view field, std::vector<BlockHash>& out) override;
  bool ReadMmInfos(std::string_view field, std::vector<hashing::BlockMm>& out) override;

 private:
  struct Document;
  explicit JsonBody(std::unique_ptr<Document> document);

  std::unique_ptr<Document> document_;
};

}  // namespace kvr::service
