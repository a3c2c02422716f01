#include "service/indexer/bodies.h"

#include <limits>
#include <utility>

#include <fmt/format.h>

#include "service/request_body.h"

namespace kvr::service {
namespace {

constexpr std::uint32_t kU32Max = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint64_t kU64Max = std::numeric_limits<std::uint64_t>::max();

Result<WorkerId> ReadInstance(RequestBody& body) {
  KVR_TRY(const auto instance, body.Unsigned("instance_id", kU64Max));
  return static_cast<WorkerId>(instance);
}

Result<std::optional<std::uint32_t>> ReadDpRank(RequestBody& body) {
  KVR_TRY(const auto rank, body.OptionalUnsigned("dp_rank", kU32Max));
  if (!rank) return std::optional<std::uint32_t>();
  return std::optional(static_cast<std::uint32_t>(*rank));
}

Result<std::optional<std::string>> ReadText(RequestBody& body, std::string_view field) {
  KVR_TRY(const auto text, body.OptionalString(field));
  return text ? std::optional(std::string(*text)) : std::optional<std::string>();
}

Result<Partition> ReadPartition(RequestBody& body) {
  KVR_TRY(const auto model, body.String("model_name"));
  KVR_TRY(const auto group, body.OptionalString("routing_group"));
  Partition partition;
  partition.model_name = model;
  if (group) partition.routing_group = *group;
  return partition;
}

Result<std::optional<TokenId>> ReadToken(RequestBody& body, std::string_view field) {
  KVR_TRY(const auto number, body.OptionalUnsigned(field, kU32Max));
  if (!number) return std::optional<TokenId>();
  return std::optional(static_cast<TokenId>(*number));
}

// What the events themselves do not say of the engine.
Result<void> ReadDialect(RequestBody& body, fleet::EventSource& source) {
  KVR_TRY(const auto engine, body.OptionalString("engine"));
  KVR_TRY(const auto media, body.OptionalString("media"));
  if (engine) {
    const auto kind = fleet::EngineKindFromName(*engine);
    if (!kind) {
      return Fail(ErrorCode::kInvalidArgument, "`engine` must be vllm, sglang, trtllm or unknown");
    }
    source.engine = *kind;
  }
  if (media && *media != "strict" && *media != "lenient") {
    return Fail(ErrorCode::kInvalidArgument, "`media` must be strict or lenient");
  }
  source.lenient_media = media == "lenient";
  KVR_TRY(source.image_token, ReadToken(body, "image_token_id"));
  KVR_TRY(source.video_token, ReadToken(body, "video_token_id"));
  return {};
}

// After all other fields were asked for.
Result<BodyNotes> ReadNotes(RequestBody& body) {
  KVR_TRY(const auto tenant, body.OptionalString("tenant_id"));
  return BodyNotes{body.UnknownFields(), tenant.has_value()};
}

}  // namespace

Result<RegisterBody> ReadRegisterBody(std::string_view json) {
  KVR_TRY(const auto parsed, RequestBody::Parse(json, BodyForm::kJson));
  RequestBody& body = *parsed;
  RegisterBody read;
  KVR_TRY(read.rank.worker, ReadInstance(body));
  KVR_TRY(read.source.endpoint, body.String("endpoint"));
  KVR_TRY(read.partition, ReadPartition(body));
  KVR_TRY(const auto block_size, body.Unsigned("block_size", kU32Max));
  read.block_size = static_cast<std::uint32_t>(block_size);
  KVR_TRY(const auto dp_rank, ReadDpRank(body));
  read.rank.dp_rank = dp_rank.value_or(0);
  KVR_TRY(read.source.replay_endpoint, ReadText(body, "replay_endpoint"));
  KVR_TRY(const auto topic, body.OptionalString("topic"));
  read.source.topic = topic.value_or("");
  KVR_TRY(read.replace, body.Flag("replace", false));
  KVR_TRY_VOID(ReadDialect(body, read.source));
  body.Ignore("additional_salt");
  body.Ignore("additionalsalt");
  KVR_TRY(read.notes, ReadNotes(body));
  return read;
}

Result<UnregisterBody> ReadUnregisterBody(std::string_view json) {
  KVR_TRY(const auto parsed, RequestBody::Parse(json, BodyForm::kJson));
  RequestBody& body = *parsed;
  UnregisterBody read;
  KVR_TRY(read.worker, ReadInstance(body));
  KVR_TRY(read.model_name, body.String("model_name"));
  KVR_TRY(read.routing_group, ReadText(body, "routing_group"));
  KVR_TRY(read.dp_rank, ReadDpRank(body));
  KVR_TRY(read.notes, ReadNotes(body));
  return read;
}

Result<QueryBody> ReadQueryBody(std::string_view bytes, BodyForm form) {
  KVR_TRY(const auto parsed, RequestBody::Parse(bytes, form));
  RequestBody& body = *parsed;
  QueryBody read;
  KVR_TRY_VOID(body.Tokens("token_ids", read.tokens));
  KVR_TRY(read.partition, ReadPartition(body));
  KVR_TRY(const auto lora, body.OptionalString("lora_name"));
  read.lora_name = lora.value_or("");
  KVR_TRY(const auto salt, body.OptionalString("cache_salt"));
  read.cache_salt = salt.value_or("");
  KVR_TRY(read.eagle, body.Flag("is_eagle", false));
  KVR_TRY_VOID(body.BlockMmInfos("block_mm_infos", read.mm));
  KVR_TRY(read.include_zero, body.Flag("include_zero", false));
  KVR_TRY(read.notes, ReadNotes(body));
  return read;
}

Result<QueryByHashBody> ReadQueryByHashBody(std::string_view bytes, BodyForm form) {
  KVR_TRY(const auto parsed, RequestBody::Parse(bytes, form));
  RequestBody& body = *parsed;
  QueryByHashBody read;
  KVR_TRY_VOID(body.Hashes("block_hashes", read.blocks));
  KVR_TRY(read.partition, ReadPartition(body));
  KVR_TRY(read.include_zero, body.Flag("include_zero", false));
  KVR_TRY(const auto given_kind, body.OptionalString("kind"));
  const std::string_view kind = given_kind.value_or("block");
  if (kind != "block" && kind != "sequence") {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("kind `{}` is not known; hashes are of a block or of a sequence", kind));
  }
  read.are_sequences = kind == "sequence";
  if (body.Has("cache_salt")) {
    return Fail(ErrorCode::kInvalidArgument,
                "cache_salt is not accepted by /query_by_hash; block_hashes must already include "
                "the intended cache salt");
  }
  KVR_TRY(read.notes, ReadNotes(body));
  return read;
}

Result<PeerBody> ReadPeerBody(std::string_view json) {
  KVR_TRY(const auto parsed, RequestBody::Parse(json, BodyForm::kJson));
  RequestBody& body = *parsed;
  PeerBody read;
  KVR_TRY(read.url, body.String("url"));
  KVR_TRY(read.notes, ReadNotes(body));
  return read;
}

}  // namespace kvr::service
