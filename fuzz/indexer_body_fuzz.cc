// Bodies of the indexer's requests. Byte 0 chooses the route and the form; the rest is the body. A
// refusal names what it is about; what is accepted is in range and, written out again, reads as the
// same.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/json_writer.h"
#include "service/indexer/bodies.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using kvr::ErrorCode;
using kvr::JsonWriter;
using kvr::Raw;
using kvr::Result;
using kvr::service::BodyForm;
using kvr::service::PeerBody;
using kvr::service::QueryBody;
using kvr::service::QueryByHashBody;
using kvr::service::ReadPeerBody;
using kvr::service::ReadQueryBody;
using kvr::service::ReadQueryByHashBody;
using kvr::service::ReadRegisterBody;
using kvr::service::ReadUnregisterBody;
using kvr::service::RegisterBody;
using kvr::service::UnregisterBody;

Result<QueryBody> ReadQueryJson(std::string_view json) {
  return ReadQueryBody(json);
}
Result<QueryByHashBody> ReadQueryByHashJson(std::string_view json) {
  return ReadQueryByHashBody(json);
}

void CheckRefusal(const kvr::Error& error) {
  const int status = kvr::HttpStatus(error.code);
  KVR_CHECK(status == 400 || status == 422);
  KVR_CHECK(!error.message.empty());
  if (error.code == ErrorCode::kBadJson) return;  // no field to name
  if (error.code == ErrorCode::kInvalidArgument) {
    // Fields that are of the right type and yet cannot be meant.
    constexpr std::array<std::string_view, 4> kRefused = {"cache_salt", "kind", "`engine`",
                                                          "`media`"};
    KVR_CHECK(std::any_of(kRefused.begin(), kRefused.end(), [&error](std::string_view field) {
      return error.message.find(field) != std::string::npos;
    }));
    return;
  }
  KVR_CHECK(error.code == ErrorCode::kUnprocessable);
  const std::size_t open = error.message.find('`');
  KVR_CHECK(open != std::string::npos && error.message.find('`', open + 1) != std::string::npos);
}

void Write(JsonWriter& json, const kvr::Partition& partition) {
  json.Field("model_name", partition.model_name);
  json.Field("routing_group", partition.routing_group);
}

void Write(JsonWriter& json, const RegisterBody& body) {
  json.Field("instance_id", Raw(body.rank.worker));
  json.Field("dp_rank", body.rank.dp_rank);
  Write(json, body.partition);
  json.Field("endpoint", body.source.endpoint);
  if (body.source.replay_endpoint) json.Field("replay_endpoint", *body.source.replay_endpoint);
  json.Field("topic", body.source.topic);
  json.Field("block_size", body.block_size);
  json.Field("replace", body.replace);
  json.Field("engine", kvr::fleet::kEngineKindNames[static_cast<std::size_t>(body.source.engine)]);
  json.Field("media", body.source.lenient_media ? "lenient" : "strict");
  if (body.source.image_token) json.Field("image_token_id", *body.source.image_token);
  if (body.source.video_token) json.Field("video_token_id", *body.source.video_token);
}

bool Same(const RegisterBody& a, const RegisterBody& b) {
  return a.rank == b.rank && a.partition == b.partition && a.source == b.source &&
         a.block_size == b.block_size && a.replace == b.replace;
}

void Write(JsonWriter& json, const UnregisterBody& body) {
  json.Field("instance_id", Raw(body.worker));
  json.Field("model_name", body.model_name);
  if (body.routing_group) json.Field("routing_group", *body.routing_group);
  if (body.dp_rank) json.Field("dp_rank", *body.dp_rank);
}

bool Same(const UnregisterBody& a, const UnregisterBody& b) {
  return a.worker == b.worker && a.model_name == b.model_name &&
         a.routing_group == b.routing_group && a.dp_rank == b.dp_rank;
}

void WriteMm(JsonWriter& json, const QueryBody& body) {
  json.Key("block_mm_infos");
  json.BeginArray();
  const std::size_t blocks = body.mm.empty() ? 0 : body.mm.back().block + 1;
  auto next = body.mm.begin();
  for (std::size_t block = 0; block < blocks; ++block) {
    json.BeginObject();
    json.Key("mm_objects");
    json.BeginArray();
    for (; next != body.mm.end() && next->block == block; ++next) {
      json.BeginObject();
      json.Field("mm_hash", next->hash);
      json.EndObject();
    }
    json.EndArray();
    json.EndObject();
  }
  json.EndArray();
  KVR_CHECK(next == body.mm.end());  // ascending by block
}

void Write(JsonWriter& json, const QueryBody& body) {
  json.Key("token_ids");
  json.BeginArray();
  for (const kvr::TokenId token : body.tokens)
    json.Value(token);
  json.EndArray();
  Write(json, body.partition);
  json.Field("lora_name", body.lora_name);
  json.Field("cache_salt", body.cache_salt);
  json.Field("is_eagle", body.eagle);
  json.Field("include_zero", body.include_zero);
  WriteMm(json, body);
}

bool Same(const QueryBody& a, const QueryBody& b) {
  return a.tokens == b.tokens && a.partition == b.partition && a.lora_name == b.lora_name &&
         a.cache_salt == b.cache_salt && a.eagle == b.eagle && a.include_zero == b.include_zero &&
         std::equal(
             a.mm.begin(), a.mm.end(), b.mm.begin(), b.mm.end(),
             [](const auto& x, const auto& y) { return x.block == y.block && x.hash == y.hash; });
}

void Write(JsonWriter& json, const QueryByHashBody& body) {
  json.Key("block_hashes");
  json.BeginArray();
  for (const kvr::BlockHash hash : body.blocks)
    json.Value(Raw(hash));
  json.EndArray();
  Write(json, body.partition);
  json.Field("kind", body.are_sequences ? "sequence" : "block");
  json.Field("include_zero", body.include_zero);
}

bool Same(const QueryByHashBody& a, const QueryByHashBody& b) {
  return a.are_sequences == b.are_sequences && a.blocks == b.blocks && a.partition == b.partition &&
         a.include_zero == b.include_zero;
}

void Write(JsonWriter& json, const PeerBody& body) {
  json.Field("url", body.url);
}

bool Same(const PeerBody& a, const PeerBody& b) {
  return a.url == b.url;
}

template <typename Body>
void Check(const Result<Body>& body, Result<Body> (*read)(std::string_view),
           std::string_view text) {
  if (!body) return CheckRefusal(body.error());
  // No value takes less than a character and a comma.
  KVR_CHECK(body->notes.unknown_fields.size() <= text.size() / 4);
  std::string written;
  JsonWriter json(written);
  json.BeginObject();
  Write(json, *body);
  json.EndObject();
  const auto again = read(written);
  KVR_CHECK(again.has_value());
  KVR_CHECK(Same(*body, *again));
  KVR_CHECK(again->notes.unknown_fields.empty() && !again->notes.tenant_id);
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 16 == 8) {
    Check(ReadPeerBody(text), ReadPeerBody, text);
    return 0;
  }
  const BodyForm form = data[0] % 8 < 4 ? BodyForm::kJson : BodyForm::kMsgpack;
  switch (data[0] % 4) {
    case 0:
      Check(ReadRegisterBody(text), ReadRegisterBody, text);
      break;
    case 1:
      Check(ReadUnregisterBody(text), ReadUnregisterBody, text);
      break;
    case 2:
      Check(ReadQueryBody(text, form), ReadQueryJson, text);
      break;
    default:
      Check(ReadQueryByHashBody(text, form), ReadQueryByHashJson, text);
  }
  return 0;
}
