#include "net/http_parser.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <boost/beast/http/error.hpp>

namespace kvr::net {
namespace {

namespace http = boost::beast::http;

// What a body gets first; each further step makes it four times as large.
constexpr std::size_t kBodyStepBytes = 64u << 10;

std::string_view ToStd(boost::beast::string_view text) {
  return {text.data(), text.size()};
}

std::uint32_t HeaderLimit(std::size_t bytes_max) {
  return static_cast<std::uint32_t>(
      std::min<std::size_t>(bytes_max, std::numeric_limits<std::uint32_t>::max()));
}

}  // namespace

ParseError BodyTooLarge() {
  return http::error::body_limit;
}

ParseError HeadTooLarge() {
  return http::error::header_limit;
}

ParseError NoRoomForBody() {
  return make_error_code(boost::system::errc::not_enough_memory);
}

bool HasKnownCoding(const HttpHeaders& headers, bool chunked) {
  bool named = false;
  for (const auto& [name, value] : headers.all()) {
    if (!EqualsIgnoreCase(name, "Transfer-Encoding")) continue;
    if (std::exchange(named, true) || !chunked || !EqualsIgnoreCase(value, "chunked")) return false;
  }
  return true;
}

template <bool kIsRequest>
MessageParser<kIsRequest>::MessageParser(std::size_t head_bytes_max)
    : head_bytes_max_(head_bytes_max) {
  this->header_limit(HeaderLimit(head_bytes_max));
  this->body_limit(boost::none);  // ours depends on the route
}

template <bool kIsRequest>
std::optional<std::uint64_t> MessageParser<kIsRequest>::declared_length() const {
  const boost::optional<std::uint64_t> length = this->content_length();
  return length ? std::optional(*length) : std::nullopt;
}

// Beast holds its own header limit against each part of the head; `head_bytes_` holds it against
// the whole.
template <bool kIsRequest>
std::size_t MessageParser<kIsRequest>::PutAll(std::string_view bytes, ParseError& error) {
  std::size_t used = 0;
  error = {};
  const bool in_head = !this->is_header_done();
  while (!this->is_done() && used < bytes.size()) {
    const std::string_view rest = bytes.substr(used);
    const std::size_t n = this->put(boost::asio::const_buffer(rest.data(), rest.size()), error);
    used += n;
    if (in_head) head_bytes_ += n;
    if (in_head && head_bytes_ + (this->is_header_done() ? 0 : rest.size() - n) > head_bytes_max_)
      error = HeadTooLarge();
    if (error == http::error::need_more) {
      error = {};
      break;
    }
    if (error || (in_head && this->is_header_done())) break;
  }
  return used;
}

template class MessageParser<true>;
template class MessageParser<false>;

RequestParser::RequestParser(std::size_t head_bytes_max) : MessageParser(head_bytes_max) {}

std::size_t RequestParser::Put(std::string_view bytes, ParseError& error) {
  return PutAll(bytes, error);
}

void RequestParser::on_request_impl(Verb, View method, View target, int version, ParseError&) {
  request_.method = ToStd(method);
  version_ = version;
  std::string_view rest = ToStd(target);
  // The absolute form, which every server has to take: only path and query matter to us.
  constexpr std::string_view kScheme = "http://";
  if (rest.size() > kScheme.size() && EqualsIgnoreCase(rest.substr(0, kScheme.size()), kScheme)) {
    rest.remove_prefix(kScheme.size());
    rest.remove_prefix(std::min(rest.find_first_of("/?"), rest.size()));
    request_.target = rest.starts_with('/') ? std::string() : std::string("/");
    request_.target += rest;
  } else {
    request_.target = rest;
  }
}

void RequestParser::on_field_impl(Field, View name, View value, ParseError&) {
  if (is_header_done()) return;  // trailers mean nothing to us
  request_.headers.Add(ToStd(name), ToStd(value));
}

void RequestParser::on_body_init_impl(const boost::optional<std::uint64_t>& length,
                                      ParseError& error) {
  body_bytes_expected_ = body_bytes_max_;
  if (!length) return;
  if (*length > body_bytes_max_) {
    error = BodyTooLarge();
    return;
  }
  body_bytes_expected_ = static_cast<std::size_t>(*length);
}

std::size_t RequestParser::on_body_impl(View body, ParseError& error) {
  if (body.size() > body_bytes_max_ - request_.body.size()) {
    error = BodyTooLarge();
    return 0;
  }
  if (!MakeRoom(body.size())) {
    error = NoRoomForBody();
    return 0;
  }
  request_.body += ToStd(body);
  return body.size();
}

bool RequestParser::MakeRoom(std::size_t more) {
  std::string& body = request_.body;
  const std::size_t needed = body.size() + more;
  if (needed <= body.capacity()) return true;
  // A string never grows to less than the double.
  const std::size_t bytes =
      std::max({needed, 2 * body.capacity(),
                std::min(body_bytes_expected_, std::max(kBodyStepBytes, 4 * body.capacity()))});
  if (share_ == nullptr || !share_->GrowTo(bytes)) return false;
  body.reserve(bytes);
  return true;
}

void RequestParser::on_chunk_header_impl(std::uint64_t size, View, ParseError& error) {
  if (size > body_bytes_max_ - request_.body.size()) error = BodyTooLarge();
}

ResponseParser::ResponseParser(std::size_t head_bytes_max, bool no_body)
    : MessageParser(head_bytes_max) {
  skip(no_body);
}

std::size_t ResponseParser::Put(std::string_view bytes, std::string& piece, ParseError& error) {
  piece_ = &piece;
  return PutAll(bytes, error);
}

void ResponseParser::on_response_impl(int code, View, int, ParseError&) {
  status_ = code;
}

void ResponseParser::on_field_impl(Field, View name, View value, ParseError&) {
  if (!is_header_done()) headers_.Add(ToStd(name), ToStd(value));
}

std::size_t ResponseParser::on_body_impl(View body, ParseError&) {
  *piece_ += ToStd(body);
  return body.size();
}

}  // namespace kvr::net
